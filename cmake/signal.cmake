# The vector kernels of Fourier transforms: one file for each instruction set, chosen at run time.
set_source_files_properties(src/signal/lane_portable.cpp PROPERTIES
  COMPILE_OPTIONS "-O3;-ffp-contract=fast")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set_source_files_properties(src/signal/lane_avx2.cpp PROPERTIES
    COMPILE_OPTIONS "-O3;-ffp-contract=fast;-mavx2;-mfma")
  set_source_files_properties(src/signal/lane_avx512.cpp PROPERTIES
    COMPILE_OPTIONS
      "-O3;-ffp-contract=fast;-mfma;-mavx512f;-mavx512dq;-mavx512vl;-mavx512bw")
endif()
