# Pictures of plots, for the command line and the examples.
find_package(PNG REQUIRED)
add_library(rlx_picture STATIC src/picture/picture.cpp src/picture/glyphs.cpp)
target_include_directories(rlx_picture PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/src)
# Static ones where they are installed: programs that draw nothing hold nothing of them.
find_library(RLX_PNG_STATIC libpng.a)
find_library(RLX_ZLIB_STATIC libz.a)
if(RLX_PNG_STATIC AND RLX_ZLIB_STATIC)
  target_include_directories(rlx_picture SYSTEM PRIVATE ${PNG_INCLUDE_DIRS})
  target_link_libraries(rlx_picture PRIVATE ${RLX_PNG_STATIC} ${RLX_ZLIB_STATIC} m)
else()
  target_link_libraries(rlx_picture PRIVATE PNG::PNG)
endif()
rlx_warnings(rlx_picture)

# The command line: build/<preset>/rlx.
file(GLOB_RECURSE RLX_TOOL_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/tools/*.cpp)
if(NOT RLX_TOOL_SOURCES)
  return()
endif()
find_package(CLI11 REQUIRED)
add_executable(rlx_tool ${RLX_TOOL_SOURCES})
set_target_properties(rlx_tool PROPERTIES OUTPUT_NAME rlx)
target_include_directories(rlx_tool PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src)
target_link_libraries(rlx_tool PRIVATE
  rlx rlx_picture fmt::fmt nlohmann_json::nlohmann_json CLI11::CLI11)
rlx_warnings(rlx_tool)
# Arguments, JSON and pages are not hot, and every process holds them; what it allocates with and
# formats with is.
target_compile_options(rlx_tool PRIVATE $<$<CONFIG:Release>:-Os>)
set_source_files_properties(src/tools/allocation_count.cpp src/tools/format_inside.cpp
  src/tools/noise.cpp src/tools/pool_new.cpp src/tools/worker_pool.cpp
  PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-O2>)
# Its own C++ library, of which it holds what it uses (format_inside.cpp has the parts of fmt):
# the shared one's tables are 2 MB of every process. Sanitizers want theirs.
if(NOT RLX_SANITIZE)
  target_link_options(rlx_tool PRIVATE -static-libstdc++ -Wl,--as-needed -Wl,--gc-sections)
  # What only errors reach lies apart, as other linkers have it anyway: it is not paged in.
  if(MOLD)
    target_link_options(rlx_tool PRIVATE -Wl,-z,keep-text-section-prefix)
    # Equal functions are one; no two functions' addresses are compared.
    target_link_options(rlx_tool PRIVATE $<$<CONFIG:Release>:-Wl,--icf=all>)
  endif()
endif()
if(TARGET rlx_llvm)
  add_dependencies(rlx_tool rlx_llvm)
endif()
