# Installs the program of BUILD to PREFIX, and runs it there.
file(REMOVE_RECURSE "${PREFIX}")
execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${PREFIX}" --component program
  COMMAND_ERROR_IS_FATAL ANY)
unset(ENV{LD_LIBRARY_PATH})
execute_process(COMMAND "${PREFIX}/bin/elastiquant" codecs OUTPUT_VARIABLE listed
  COMMAND_ERROR_IS_FATAL ANY)
if(NOT listed MATCHES "dither")
  message(FATAL_ERROR "the installed program lists no dither: ${listed}")
endif()
