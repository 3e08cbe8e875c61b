# Installs the two programs and a CMake package. A program outside the tree uses this package with
# find_package(tensord) and target_link_libraries(app PRIVATE tensord::client).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tensord)

foreach(program tensord tensorctl)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()

foreach(name client common proto options)
  set_target_properties(tensord_${name} PROPERTIES EXPORT_NAME ${name})
endforeach()
install(TARGETS tensord_client tensord_common tensord_proto tensord_options
  EXPORT tensordTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT tensordTargets NAMESPACE tensord:: DESTINATION ${package_dir})
# The build folder is a CMake package, too: tensord_DIR may name it (client/python/tensord).
export(EXPORT tensordTargets NAMESPACE tensord:: FILE ${PROJECT_BINARY_DIR}/tensordTargets.cmake)

# The public headers: those in client/ and client/nn/, those of common/ that they include, and
# status_details.h, which reads the details of an error.
foreach(folder client client/nn)
  file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.h)
  install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tensord/${folder})
endforeach()
foreach(name attributes device_name dtype dtype_of float16 ops/elementwise_list shape status_details tensor_spec)
  get_filename_component(folder ${name} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/common/${name}.h
    DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tensord/common/${folder})
endforeach()

configure_package_config_file(${PROJECT_SOURCE_DIR}/deploy/cmake/tensordConfig.cmake.in
  ${PROJECT_BINARY_DIR}/tensordConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tensordConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tensordConfig.cmake ${PROJECT_BINARY_DIR}/tensordConfigVersion.cmake
  DESTINATION ${package_dir})

# The data of the tour and of a first program. proto/CMakeLists.txt installs the .proto files.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tests/data/ DESTINATION ${CMAKE_INSTALL_DATADIR}/tensord/data
  FILES_MATCHING PATTERN "*.safetensors")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
