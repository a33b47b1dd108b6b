# Toolchain of the preset "arm64": Debian's cross compiler, libraries unpacked by
# `scripts/setup --arm64` into build/arm64-root, programs run by qemu.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++-12)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

get_filename_component(RLX_ARM64_ROOT ${CMAKE_CURRENT_LIST_DIR}/../build/arm64-root ABSOLUTE)
set(CMAKE_FIND_ROOT_PATH ${RLX_ARM64_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} ${RLX_ARM64_ROOT}/usr/lib/aarch64-linux-gnu/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${RLX_ARM64_ROOT})

# Sums are rounded as on x86-64, whose baseline has no fused multiply-add.
set(CMAKE_CXX_FLAGS_INIT -ffp-contract=off)
# Paths of programs are those of the libraries that their libraries want, too.
set(CMAKE_EXE_LINKER_FLAGS_INIT -Wl,--disable-new-dtags)
foreach(folder usr/lib lib)
  set(libraries ${RLX_ARM64_ROOT}/${folder}/aarch64-linux-gnu)
  string(APPEND CMAKE_EXE_LINKER_FLAGS_INIT
    " -L${libraries} -Wl,-rpath-link,${libraries} -Wl,-rpath,${libraries}")
endforeach()
set(CMAKE_SHARED_LINKER_FLAGS_INIT "${CMAKE_EXE_LINKER_FLAGS_INIT}")
# The cross compiler finds its own linker alone.
set(MOLD "" CACHE FILEPATH "")
set(LLD "" CACHE FILEPATH "")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L /usr/aarch64-linux-gnu)
