# Install rules and the CMake package: find_package(rlx) gives rlx::rlx.
include(CMakePackageConfigHelpers)
set(RLX_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/rlx)

install(TARGETS rlx EXPORT rlxTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/rlx DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.hpp")
if(TARGET rlx_llvm)
  install(TARGETS rlx_llvm LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(TARGET rlx_tool)
  install(TARGETS rlx_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(EXPORT rlxTargets NAMESPACE rlx:: DESTINATION ${RLX_PACKAGE_DIR})
configure_package_config_file(cmake/rlxConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/rlxConfig.cmake
  INSTALL_DESTINATION ${RLX_PACKAGE_DIR} PATH_VARS CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/rlxConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/rlxConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/rlxConfigVersion.cmake DESTINATION ${RLX_PACKAGE_DIR})
