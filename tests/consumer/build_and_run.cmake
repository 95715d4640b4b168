# Installs ElastiQuant from BUILD into a scratch folder and builds and runs the project beside
# this file against it, as a user's project would.
set(prefix "${SCRATCH}/installed")
file(REMOVE_RECURSE "${SCRATCH}")
set(components core)
if(NOT COMPONENT STREQUAL "core")
  list(APPEND components ${COMPONENT})
endif()
foreach(component IN LISTS components)
  execute_process(
    COMMAND "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${prefix}" --component ${component}
    OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
endforeach()
execute_process(
  COMMAND "${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}" -B "${SCRATCH}/build" -G Ninja
    "-DCMAKE_BUILD_TYPE=Release" "-DCMAKE_CXX_COMPILER=${COMPILER}"
    "-DCMAKE_PREFIX_PATH=${prefix};${PREFIX_PATH}" "-DCOMPONENT=${COMPONENT}"
  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${CMAKE_COMMAND}" --build "${SCRATCH}/build"
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${CMAKE_CTEST_COMMAND}" --test-dir "${SCRATCH}/build"
    --output-on-failure --no-tests=error
  COMMAND_ERROR_IS_FATAL ANY)
