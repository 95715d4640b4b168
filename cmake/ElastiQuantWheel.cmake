# What pip builds: the Python module alone, against the torch that is installed beside the Python
# which runs pip. find_package(Torch) is not used: of a CUDA build it wants the CUDA toolkit,
# which most users lack and we do not need.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
set(ELASTIQUANT_PYTHON "${Python_EXECUTABLE}")
execute_process(
  COMMAND "${Python_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/torch_facts.py"
  OUTPUT_VARIABLE facts OUTPUT_STRIP_TRAILING_WHITESPACE
  ERROR_VARIABLE torch_error RESULT_VARIABLE torch_result)
if(NOT torch_result EQUAL 0)
  message(FATAL_ERROR "elastiquant is built against the PyTorch that you use, and "
    "${Python_EXECUTABLE} finds none:\n${torch_error}\n"
    "Install torch >= 2.4 first, then: pip install --no-build-isolation .\n"
    "(Without --no-build-isolation pip builds in an environment that cannot see your torch.)")
endif()
list(POP_FRONT facts torch_version TORCH_INSTALL_PREFIX string_abi)
message(STATUS "Building against torch ${torch_version} in ${TORCH_INSTALL_PREFIX}")

# Wheels of torch before 2.7 have the old ABI of std::string, and so must have all that meets it.
# The new one is the compiler's own: not to name it lets ccache share objects with other builds.
if(string_abi STREQUAL "_GLIBCXX_USE_CXX11_ABI=0")
  target_compile_definitions(elastiquant_options INTERFACE ${string_abi})
endif()
add_library(torch INTERFACE IMPORTED)
target_include_directories(torch SYSTEM INTERFACE
  "${TORCH_INSTALL_PREFIX}/include" "${TORCH_INSTALL_PREFIX}/include/torch/csrc/api/include")
# What find_package(Torch) defines too, so that ccache shares the objects of a release build.
target_compile_definitions(torch INTERFACE
  USE_C10D_GLOO USE_DISTRIBUTED USE_RPC USE_TENSORPIPE ${facts})
foreach(library torch torch_cpu c10)
  target_link_libraries(torch INTERFACE "${TORCH_INSTALL_PREFIX}/lib/lib${library}.so")
endforeach()

find_package(Threads REQUIRED)
find_package(hwy QUIET)
find_package(Eigen3 QUIET NO_MODULE)
find_package(nlohmann_json QUIET)
if(NOT hwy_FOUND OR NOT Eigen3_FOUND OR NOT nlohmann_json_FOUND)
  message(FATAL_ERROR "Highway, Eigen and nlohmann-json are needed to build elastiquant. On "
    "Debian or Ubuntu: apt install libhwy-dev libeigen3-dev nlohmann-json3-dev")
endif()
set(ELASTIQUANT_TESTS OFF)
foreach(folder elastiquant/base elastiquant/kernels elastiquant/coding elastiquant/codec
    elastiquant/graph elastiquant/theory elastiquant/stream elastiquant/protocol elastiquant/net
    elastiquant/exchange elastiquant/layers elastiquant/c10d elastiquant/ddp python/bindings)
  add_subdirectory(${folder})
endforeach()
