# Importers: use include/rlx alone (tests/tidy checks it); their objects become part of librlx.
file(GLOB_RECURSE RLX_IMPORT_SOURCES CONFIGURE_DEPENDS
  ${CMAKE_CURRENT_SOURCE_DIR}/src/import/*.cpp)
add_library(rlx_import OBJECT ${RLX_IMPORT_SOURCES})
target_include_directories(rlx_import PRIVATE
  ${CMAKE_CURRENT_SOURCE_DIR}/include ${CMAKE_CURRENT_SOURCE_DIR}/src)
# Sound files. Programs that read none do not load the library.
find_package(PkgConfig REQUIRED)
pkg_check_modules(SNDFILE REQUIRED IMPORTED_TARGET sndfile)
target_link_libraries(rlx_import PRIVATE fmt::fmt PkgConfig::SNDFILE)
target_link_libraries(rlx PRIVATE
  -Wl,--push-state,--as-needed $<LINK_ONLY:PkgConfig::SNDFILE> -Wl,--pop-state)
rlx_warnings(rlx_import)
target_sources(rlx PRIVATE $<BUILD_INTERFACE:$<TARGET_OBJECTS:rlx_import>>)
