# What all targets share: language, output folders, warnings, sanitizers, quick tools where there.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, RelWithDebInfo or Debug" FORCE)
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

# LLVM's static libraries link in seconds with mold or lld, much slower with the system's linker.
find_program(MOLD mold)
find_program(LLD NAMES ld.lld ld.lld-19)
if(MOLD)
  add_link_options(-fuse-ld=mold)
elseif(LLD)
  get_filename_component(name ${LLD} NAME)
  if(name STREQUAL "ld.lld" OR CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    add_link_options(-fuse-ld=lld)
  endif()
endif()

# Sections of their own for functions: programs that link the static library hold what they use.
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffunction-sections>)
endif()

if(RLX_SANITIZE)
  add_compile_options(-fsanitize=${RLX_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${RLX_SANITIZE})
endif()

# Warnings of this project's own code. False ones are off: g++ 12 sees -Wrestrict in std::string's
# operator+, clang 19 a deprecated function inside libstdc++'s own stable_sort; g++ with a sanitizer
# takes much of the standard library for uninitialised (its manual says so of -fsanitize).
function(rlx_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-missing-field-initializers
    $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
    $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>)
  if(RLX_SANITIZE)
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  endif()
endfunction()
