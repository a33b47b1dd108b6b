# The library's loops, and those that prepare weights, are made into vector loops by the compiler,
# also in builds without optimisation for speed. Nobody reads floating-point exceptions, which
# comparisons would keep.
file(GLOB RLX_LIBRARY_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/library/*.cpp)
set_source_files_properties(${RLX_LIBRARY_SOURCES}
  ${CMAKE_CURRENT_SOURCE_DIR}/src/codegen/pack.cpp
  ${CMAKE_CURRENT_SOURCE_DIR}/src/graph/elementwise_blocks.cpp
  ${CMAKE_CURRENT_SOURCE_DIR}/src/plan/byte_sums.cpp
  ${CMAKE_CURRENT_SOURCE_DIR}/src/plan/negligible.cpp PROPERTIES
  COMPILE_OPTIONS "-O3;-fno-trapping-math")
