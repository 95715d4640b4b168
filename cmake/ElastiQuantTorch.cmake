# libtorch comes from the pinned PyTorch wheel in .venv (make setup), or from CMAKE_PREFIX_PATH.
set(ELASTIQUANT_PYTHON "${PROJECT_SOURCE_DIR}/.venv/bin/python" CACHE FILEPATH
    "The Python whose torch package is built against")
execute_process(
  COMMAND "${ELASTIQUANT_PYTHON}" -c "import torch.utils; print(torch.utils.cmake_prefix_path)"
  OUTPUT_VARIABLE torch_prefix OUTPUT_STRIP_TRAILING_WHITESPACE
  ERROR_VARIABLE torch_error RESULT_VARIABLE torch_result)
if(torch_prefix)
  list(APPEND CMAKE_PREFIX_PATH "${torch_prefix}")
endif()
find_package(Torch QUIET)
if(NOT Torch_FOUND)
  message(FATAL_ERROR "libtorch was not found. Run `make setup`, or give "
    "-DELASTIQUANT_PYTHON=/path/to/python with torch installed, or build the core alone "
    "with -DELASTIQUANT_TORCH=OFF. If torch is there but broken, remove .venv and run "
    "`make setup` again. ${ELASTIQUANT_PYTHON} said: ${torch_result} ${torch_error}")
endif()
# Torch's headers are not ours to warn about.
set_target_properties(torch PROPERTIES SYSTEM ON)
