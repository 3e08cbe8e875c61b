# Finds all dependencies. They come from the system's packages, which deploy/setup installs.
find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(OpenMP COMPONENTS CXX)
pkg_check_modules(openblas REQUIRED IMPORTED_TARGET openblas)
# prometheus-cpp's CMake package also requires the libraries of its HTTP server, civetweb. tensord doesn't use
# it: distributions build it with 100 KiB of stack for each thread, and OpenBLAS's thread-local storage takes
# most of that.
pkg_check_modules(prometheus REQUIRED IMPORTED_TARGET prometheus-cpp-core)
pkg_check_modules(microhttpd REQUIRED IMPORTED_TARGET libmicrohttpd)
find_path(RANDOM123_INCLUDE_DIR Random123/philox.h REQUIRED)
find_path(CLI11_INCLUDE_DIR CLI/CLI.hpp REQUIRED)

# oneDNN's own CMake package requires OpenCL's development files, which tensord doesn't use.
find_path(DNNL_INCLUDE_DIR dnnl.hpp REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)
add_library(DNNL::dnnl SHARED IMPORTED)
set_target_properties(DNNL::dnnl PROPERTIES
  IMPORTED_LOCATION ${DNNL_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR})

# Optional: collective operations.
find_package(Gloo CONFIG QUIET)
set(TENSORD_HAVE_GLOO ${Gloo_FOUND})
message(STATUS "Gloo: ${TENSORD_HAVE_GLOO}")

find_program(PROTOC protoc REQUIRED)
find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)

if(TENSORD_TESTS)
  find_package(GTest REQUIRED)
endif()

# The default is one architecture, for short builds. The cuda preset names all supported architectures.
set(TENSORD_CUDA_ARCHITECTURES 80 CACHE STRING "CUDA architectures, in the format of CMAKE_CUDA_ARCHITECTURES")
set(TENSORD_HAVE_CUDA OFF)
if(NOT TENSORD_CUDA MATCHES "OFF|EMULATED")
  find_program(CMAKE_CUDA_COMPILER nvcc PATHS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
  if(CMAKE_CUDA_COMPILER AND NOT CMAKE_CUDA_ARCHITECTURES)
    # Leaves out the architectures that this toolkit doesn't support.
    execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-code OUTPUT_VARIABLE known)
    set(CMAKE_CUDA_ARCHITECTURES "")
    foreach(architecture IN LISTS TENSORD_CUDA_ARCHITECTURES)
      string(REGEX MATCH "^[0-9]+" number "${architecture}")
      if(NOT number OR known MATCHES "sm_${number}\n")
        list(APPEND CMAKE_CUDA_ARCHITECTURES ${architecture})
      endif()
    endforeach()
    message(STATUS "CUDA architectures: ${CMAKE_CUDA_ARCHITECTURES}")
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.0)
      message(FATAL_ERROR "CUDA ${CMAKE_CUDA_COMPILER_VERSION} doesn't know C++20: 12.0 or newer is needed, "
        "or TENSORD_CUDA=OFF")
    endif()
    # nvcc supports C++20 since 12.0, but some CMake releases lack its option.
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    # Compresses all device code. The driver decompresses it when it loads it.
    string(APPEND CMAKE_CUDA_FLAGS " -Xfatbin=-compress-all")
    find_package(CUDAToolkit REQUIRED)
    set(TENSORD_HAVE_CUDA ON)
  elseif(TENSORD_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TENSORD_CUDA=ON but no CUDA toolkit was found: put nvcc on PATH or set CUDA_HOME")
  endif()
endif()

# The emulation of CUDA on the CPU, for tests (tests/cuda_emulation). It needs NVIDIA's headers, but neither
# nvcc nor a GPU.
set(TENSORD_HAVE_CUDA_EMULATION ${TENSORD_TESTS})
set(TENSORD_NO_CUDA_EMULATION_REASON "the tests are not built (TENSORD_TESTS)")
find_path(TENSORD_CUDA_INCLUDE_DIR cublasLt.h
  HINTS ${CUDAToolkit_INCLUDE_DIRS} $ENV{CUDA_HOME}/include /usr/local/cuda/include
    /usr/local/cuda/targets/x86_64-linux/include)
foreach(header cuda_runtime_api.h cublasLt.h nvrtc.h)
  if(NOT EXISTS ${TENSORD_CUDA_INCLUDE_DIR}/${header})
    set(TENSORD_HAVE_CUDA_EMULATION OFF)
    set(TENSORD_NO_CUDA_EMULATION_REASON "${header} of a CUDA toolkit was not found: set CUDA_HOME")
  endif()
endforeach()
if(TENSORD_HAVE_CUDA_EMULATION)
  file(STRINGS ${TENSORD_CUDA_INCLUDE_DIR}/cuda_runtime_api.h version REGEX "define CUDART_VERSION +[0-9]+")
  string(REGEX MATCH "[0-9]+" version "${version}")
  if(version LESS 12080)
    set(TENSORD_HAVE_CUDA_EMULATION OFF)
    set(TENSORD_NO_CUDA_EMULATION_REASON "the headers in ${TENSORD_CUDA_INCLUDE_DIR} have CUDART_VERSION ${version}, but 12080 or newer is needed")
  endif()
endif()
if(NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  set(TENSORD_HAVE_CUDA_EMULATION OFF)
  set(TENSORD_NO_CUDA_EMULATION_REASON "the CPU isn't x86-64")
endif()
if(TENSORD_HAVE_CUDA_EMULATION)
  set(TENSORD_NO_CUDA_EMULATION_REASON "")
  set(CUDAToolkit_INCLUDE_DIRS ${TENSORD_CUDA_INCLUDE_DIR})
elseif(TENSORD_CUDA STREQUAL "EMULATED")
  message(FATAL_ERROR "TENSORD_CUDA=EMULATED: ${TENSORD_NO_CUDA_EMULATION_REASON}")
endif()
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})  # optional
# Optional, for tests: the header and the library of cuDNN 9.
find_path(CUDNN_INCLUDE_DIR cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
if(CUDAToolkit_INCLUDE_DIRS)
  find_library(CUDNN_LIBRARY libcudnn.so.9 HINTS ${CUDAToolkit_INCLUDE_DIRS}/.. PATH_SUFFIXES lib64 lib)
endif()
message(STATUS "CUDA backend: ${TENSORD_HAVE_CUDA}, emulated for tests: ${TENSORD_HAVE_CUDA_EMULATION} ${TENSORD_NO_CUDA_EMULATION_REASON}")
