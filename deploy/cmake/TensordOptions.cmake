# The language level, warnings, sanitizers and output folders of all targets.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release or RelWithDebInfo" FORCE)
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()

# Release builds compile up to eight files of a library or a test program at once, which halves the time of a cold build. All
# other builds compile each file alone, and so find missing includes.
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  set(CMAKE_UNITY_BUILD ON CACHE BOOL "Compile several files of a target at once")
endif()

# The include path of a header is the same in the tree and in an installation: "tensord/common/dtype.h".
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/include)
file(CREATE_LINK ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/include/tensord SYMBOLIC)

add_library(tensord_options INTERFACE)
target_include_directories(tensord_options INTERFACE
  $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include> $<INSTALL_INTERFACE:include>)
target_compile_features(tensord_options INTERFACE cxx_std_20)
# Programs that use the installed package don't inherit the warning options.
set(warnings -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers)
if(TENSORD_WERROR)
  list(APPEND warnings -Werror)
endif()
target_compile_options(tensord_options INTERFACE
  "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:${warnings}>>")

if(TENSORD_SANITIZER)
  set(sanitize -fsanitize=${TENSORD_SANITIZER} -fno-omit-frame-pointer)
  if(TENSORD_SANITIZER MATCHES "undefined")
    list(APPEND sanitize -fno-sanitize-recover=undefined)
  endif()
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:${sanitize}>")
  add_link_options(${sanitize})
endif()

if(TENSORD_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "TENSORD_FUZZ needs clang: use the fuzz preset, or set CMAKE_CXX_COMPILER=clang++")
  endif()
  # Instruments all code for libFuzzer. The targets in tests/fuzz add libFuzzer's main().
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=fuzzer-no-link>")
endif()
