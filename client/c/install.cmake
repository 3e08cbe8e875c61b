# Installs the library, its header and the CMake package tensord_c: into the folders TENSORD_C_LIB and
# TENSORD_C_INCLUDE, or else those of the system.
if(NOT TENSORD_C_LIB)
  include(GNUInstallDirs)
  set(TENSORD_C_LIB ${CMAKE_INSTALL_LIBDIR})
  set(TENSORD_C_INCLUDE ${CMAKE_INSTALL_INCLUDEDIR})
endif()
install(TARGETS tensord_c EXPORT tensord_cTargets
  LIBRARY DESTINATION ${TENSORD_C_LIB} COMPONENT c NAMELINK_COMPONENT c_link  # a wheel can't hold symbolic links
  INCLUDES DESTINATION ${TENSORD_C_INCLUDE})
install(FILES ${CMAKE_CURRENT_LIST_DIR}/tensord_c.h DESTINATION ${TENSORD_C_INCLUDE} COMPONENT c)
install(EXPORT tensord_cTargets NAMESPACE tensord_c:: FILE tensord_cConfig.cmake
  DESTINATION ${TENSORD_C_LIB}/cmake/tensord_c COMPONENT c)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/tensord_cConfigVersion.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tensord_cConfigVersion.cmake
  DESTINATION ${TENSORD_C_LIB}/cmake/tensord_c COMPONENT c)
