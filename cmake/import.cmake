# Importers: use include/rlx alone (tests/tidy checks it); their objects become part of librlx.
file(GLOB_RECURSE RLX_IMPORT_SOURCES CONFIGURE_DEPENDS
  ${CMAKE_CURRENT_SOURCE_DIR}/src/import/*.cpp)
add_library(rlx_import OBJECT ${RLX_IMPORT_SOURCES})
target_include_directories(rlx_import PRIVATE
  ${CMAKE_CURRENT_SOURCE_DIR}/include ${CMAKE_CURRENT_SOURCE_DIR}/src)
# Sound files: only the header of libsndfile, which is opened when a program reads or writes one.
find_package(PkgConfig REQUIRED)
pkg_check_modules(SNDFILE REQUIRED IMPORTED_TARGET sndfile)
target_include_directories(rlx_import SYSTEM PRIVATE ${SNDFILE_INCLUDE_DIRS})
target_link_libraries(rlx_import PRIVATE fmt::fmt)
rlx_warnings(rlx_import)
# Pages of code count in every process, and no run's speed depends on these. (The command's own
# objects would give the library their small copies of templates, which compiling waits for.)
target_compile_options(rlx_import PRIVATE $<$<CONFIG:Release>:-Os>)
target_sources(rlx PRIVATE $<BUILD_INTERFACE:$<TARGET_OBJECTS:rlx_import>>)
