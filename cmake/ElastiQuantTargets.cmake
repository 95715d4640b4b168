# One target a folder: eq_library(base SOURCES status.cc DEPS ...) makes elastiquant_base.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# In a unity build the compiler spends about half of its time on headers, most of it on libtorch's.
# With 16 files in a unit, in place of CMake's 8, the whole build takes about a fifth less time.
if(NOT DEFINED CMAKE_UNITY_BUILD_BATCH_SIZE)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 16)
endif()

find_program(ELASTIQUANT_CCACHE ccache)
if(ELASTIQUANT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without the first ccache leaves alone what has a precompiled header. With the others builds in
  # different folders of one checkout share objects, such as build/release and the wheel.
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env
    "CCACHE_SLOPPINESS=pch_defines,time_macros" "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}"
    CCACHE_NOHASHDIR=1 "${ELASTIQUANT_CCACHE}")
endif()

add_library(elastiquant_options INTERFACE)
target_include_directories(elastiquant_options INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
# Encoded bytes must not depend on the machine: no fused multiply-add behind our back,
# which GCC would otherwise form from a separate multiply and add, SIMD intrinsics included.
target_compile_options(elastiquant_options INTERFACE -ffp-contract=off)
add_library(elastiquant_warnings INTERFACE)
target_compile_options(elastiquant_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
  # GCC 12 sees overlap in "text" + std::string (its bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  $<$<BOOL:${ELASTIQUANT_WERROR}>:-Werror>)
if(ELASTIQUANT_SANITIZE)
  target_compile_options(elastiquant_options INTERFACE
    -fsanitize=${ELASTIQUANT_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
    # A target may switch these checks off; that must follow the option which switches them on.
    $<$<BOOL:$<TARGET_PROPERTY:EQ_TRUST_REFERENCES>>:-fno-sanitize=null,alignment,object-size,pointer-overflow>)
  target_link_options(elastiquant_options INTERFACE -fsanitize=${ELASTIQUANT_SANITIZE})
endif()

function(eq_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(elastiquant_${name} STATIC ${ARG_SOURCES})
  add_library(elastiquant::${name} ALIAS elastiquant_${name})
  target_link_libraries(elastiquant_${name}
    PUBLIC elastiquant_options ${ARG_DEPS}
    PRIVATE $<BUILD_INTERFACE:elastiquant_warnings>)
endfunction()

# Compiles these headers of others, such as <nlohmann/json.hpp>, once for all of a target's sources:
# for targets whose sources cost more to compile by such headers than by what they say themselves.
function(eq_precompile target)
  if(CMAKE_UNITY_BUILD)
    return()  # Files that are compiled together share their headers already.
  endif()
  target_precompile_headers(${target} PRIVATE ${ARGN})
  # ccache asks for it to look into a precompiled header.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endfunction()

# For targets whose own code takes no time when it runs, but long to compile: what their headers
# inline (libtorch, CLI11, JSON) costs a third to a half less at -O1.
function(eq_optimise_less target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# One test program a folder, its sources standing beside the code they test. ctest starts it for
# each test, unless ELASTIQUANT_TEST_SHARDS says in how many parts to run it as a whole, with a
# quarter of an hour for each. COMPUTES marks tests whose own code takes long, as simulations do.
function(eq_test name)
  cmake_parse_arguments(ARG "COMPUTES" "TIMEOUT" "SOURCES;DEPS" ${ARGN})
  if(NOT ELASTIQUANT_TESTS)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  # The compiler spends most of its time on the headers of a test, so a unit of tests has twice as
  # many files as one of a library.
  set_target_properties(${name} PROPERTIES UNITY_BUILD_BATCH_SIZE 32)
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest_main elastiquant_warnings)
  # What is tested is compiled as it ships. Under a sanitizer it takes more than half of a test's
  # build to optimise the test itself, which pays only where that computes much.
  if(ELASTIQUANT_SANITIZE AND NOT ARG_COMPUTES)
    target_compile_options(${name} PRIVATE -O0)
  else()
    eq_optimise_less(${name})
  endif()
  # GoogleTest's headers are another third of it. Few files would not make up for compiling them.
  list(LENGTH ARG_SOURCES sources)
  if(sources GREATER 5)
    eq_precompile(${name} <gmock/gmock.h> <gtest/gtest.h>)
  endif()
  if(ELASTIQUANT_TEST_SHARDS EQUAL 0)
    include(GoogleTest)
    gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT ${ARG_TIMEOUT})
    return()
  endif()
  math(EXPR last "${ELASTIQUANT_TEST_SHARDS} - 1")
  foreach(shard RANGE ${last})
    set(part ${name}.${shard})
    add_test(NAME ${part}
      COMMAND ${name} --gtest_brief=1 --gtest_output=xml:${CMAKE_BINARY_DIR}/test_results/${part}.xml)
    set_tests_properties(${part} PROPERTIES TIMEOUT 900 ENVIRONMENT
      "GTEST_TOTAL_SHARDS=${ELASTIQUANT_TEST_SHARDS};GTEST_SHARD_INDEX=${shard}")
  endforeach()
endfunction()
