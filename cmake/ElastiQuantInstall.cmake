# The package: find_package(elastiquant COMPONENTS core) gives elastiquant::core, and
# COMPONENTS torch gives elastiquant::torch as well, which needs libtorch.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/elastiquant")

# The name that users link: everything below libtorch, C++ and C.
add_library(elastiquant_core INTERFACE)
add_library(elastiquant::core ALIAS elastiquant_core)
target_link_libraries(elastiquant_core INTERFACE elastiquant_exchange elastiquant_theory
  elastiquant_codec elastiquant_stream elastiquant_c)

# Installs targets elastiquant_NAME as elastiquant::NAME, and the headers of folders.
function(eq_install component)
  cmake_parse_arguments(ARG "" "" "TARGETS;FOLDERS" ${ARGN})
  foreach(name IN LISTS ARG_TARGETS)
    set_target_properties(elastiquant_${name} PROPERTIES EXPORT_NAME ${name})
    install(TARGETS elastiquant_${name} EXPORT elastiquant_${component}
      ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT ${component}
      LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT ${component})
  endforeach()
  foreach(folder IN LISTS ARG_FOLDERS)
    install(DIRECTORY "elastiquant/${folder}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/elastiquant"
      COMPONENT ${component}
      FILES_MATCHING PATTERN "*.h" PATTERN "*-inl.h" EXCLUDE PATTERN "*_test*.h" EXCLUDE
      PATTERN "testing.h" EXCLUDE PATTERN "*_contract.h" EXCLUDE)
  endforeach()
  install(EXPORT elastiquant_${component} NAMESPACE elastiquant::
    FILE elastiquant-${component}.cmake DESTINATION "${package_dir}" COMPONENT ${component})
endfunction()

eq_install(core
  TARGETS options base kernels coding codec graph theory stream net exchange c shared core
  FOLDERS base kernels coding codec graph theory stream net exchange)
install(FILES elastiquant/elastiquant.h DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/elastiquant"
  COMPONENT core)
if(ELASTIQUANT_TORCH)
  add_library(elastiquant_torch INTERFACE)
  add_library(elastiquant::torch ALIAS elastiquant_torch)
  target_link_libraries(elastiquant_torch INTERFACE elastiquant_c10d elastiquant_core)
  eq_install(torch TARGETS c10d torch FOLDERS c10d)
endif()

configure_package_config_file(cmake/elastiquantConfig.cmake.in
  "${CMAKE_CURRENT_BINARY_DIR}/elastiquantConfig.cmake" INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/elastiquantConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${CMAKE_CURRENT_BINARY_DIR}/elastiquantConfig.cmake"
  "${CMAKE_CURRENT_BINARY_DIR}/elastiquantConfigVersion.cmake"
  DESTINATION "${package_dir}" COMPONENT core)

# The program finds libtorch where it was built against it. INSTALL_RPATH_USE_LINK_PATH would leave
# out what lies within the source tree, as .venv does.
if(ELASTIQUANT_TORCH)
  set_target_properties(elastiquant_cli PROPERTIES INSTALL_RPATH "${TORCH_INSTALL_PREFIX}/lib")
endif()
install(TARGETS elastiquant_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT program)
