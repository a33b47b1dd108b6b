# Pictures of plots, for the command line and the examples.
find_package(PNG REQUIRED)
add_library(rlx_picture STATIC src/picture/picture.cpp src/picture/glyphs.cpp)
target_include_directories(rlx_picture PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/src)
target_link_libraries(rlx_picture PRIVATE PNG::PNG)
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
if(TARGET rlx_llvm)
  add_dependencies(rlx_tool rlx_llvm)
endif()
