# librlx_llvm.so: src/codegen/llvm with a static LLVM 19, opened when something must be compiled.
file(GLOB RLX_LLVM_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/codegen/llvm/*.cpp)
if(NOT RLX_LLVM_SOURCES)
  return()
endif()
find_program(LLVM_CONFIG NAMES llvm-config-19 REQUIRED)
function(rlx_llvm_config variable)
  execute_process(COMMAND ${LLVM_CONFIG} ${ARGN} OUTPUT_VARIABLE text
    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(text UNIX_COMMAND "${text}")
  set(${variable} ${text} PARENT_SCOPE)
endfunction()
set(RLX_LLVM_TARGET x86)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(RLX_LLVM_TARGET aarch64)
endif()
rlx_llvm_config(LLVM_INCLUDE --includedir)
rlx_llvm_config(LLVM_LIBS --link-static --libs ${RLX_LLVM_TARGET} passes)
rlx_llvm_config(LLVM_SYSTEM_LIBS --link-static --system-libs)
list(TRANSFORM LLVM_SYSTEM_LIBS REPLACE "^/.*/lib([^/]*)\\.so$" "-l\\1")
rlx_llvm_config(LLVM_LIBDIR --libdir)
# Where another machine is built for, its LLVM lies at the same place below the root folder.
set(LLVM_INCLUDE ${CMAKE_FIND_ROOT_PATH}${LLVM_INCLUDE})
set(LLVM_LDFLAGS -L${CMAKE_FIND_ROOT_PATH}${LLVM_LIBDIR})

add_library(rlx_llvm SHARED ${RLX_LLVM_SOURCES}
  ${CMAKE_CURRENT_SOURCE_DIR}/src/codegen/machine.cpp
  ${CMAKE_CURRENT_SOURCE_DIR}/src/codegen/loop.cpp ${CMAKE_CURRENT_SOURCE_DIR}/src/graph/scalar.cpp)
target_include_directories(rlx_llvm SYSTEM PRIVATE ${LLVM_INCLUDE})
target_include_directories(rlx_llvm PRIVATE
  ${CMAKE_CURRENT_SOURCE_DIR}/include ${CMAKE_CURRENT_SOURCE_DIR}/src)
target_link_libraries(rlx_llvm PRIVATE
  fmt::fmt ${LLVM_LDFLAGS} ${LLVM_LIBS} ${LLVM_SYSTEM_LIBS} Threads::Threads)
target_link_options(rlx_llvm PRIVATE
  -Wl,--as-needed -Wl,--gc-sections -Wl,--exclude-libs,ALL -Wl,-Bsymbolic)
rlx_warnings(rlx_llvm)
