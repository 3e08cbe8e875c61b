# Every dependency by name, from the system's packages (deploy/setup installs them).
find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(OpenMP COMPONENTS CXX)
pkg_check_modules(openblas REQUIRED IMPORTED_TARGET openblas)
find_path(RANDOM123_INCLUDE_DIR Random123/philox.h REQUIRED)
find_path(CLI11_INCLUDE_DIR CLI/CLI.hpp REQUIRED)

# oneDNN's own CMake package insists on OpenCL's development files, which we have no use for.
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

# One architecture is enough for a build by hand; the cuda preset names all that are supported.
set(TENSORD_CUDA_ARCHITECTURES 80 CACHE STRING "CUDA architectures, in the words of CMAKE_CUDA_ARCHITECTURES")
set(TENSORD_HAVE_CUDA OFF)
set(TENSORD_CUDA_EMULATED OFF)
if(TENSORD_CUDA STREQUAL "EMULATED")
  # NVIDIA's headers and our libraries (tests/cuda_emulation): neither nvcc nor a GPU is needed.
  find_path(TENSORD_CUDA_INCLUDE_DIR cublasLt.h
    HINTS $ENV{CUDA_HOME}/include /usr/local/cuda/include /usr/local/cuda/targets/x86_64-linux/include)
  foreach(header cuda_runtime_api.h cublasLt.h nvrtc.h)
    if(NOT EXISTS ${TENSORD_CUDA_INCLUDE_DIR}/${header})
      message(FATAL_ERROR "TENSORD_CUDA=EMULATED needs the headers of a CUDA toolkit, and ${header} was not found: "
        "set CUDA_HOME, or TENSORD_CUDA=OFF")
    endif()
  endforeach()
  file(STRINGS ${TENSORD_CUDA_INCLUDE_DIR}/cuda_runtime_api.h version REGEX "define CUDART_VERSION +[0-9]+")
  string(REGEX MATCH "[0-9]+" version "${version}")
  if(version LESS 12080)
    message(FATAL_ERROR "TENSORD_CUDA=EMULATED needs the headers of CUDA 12.8 or newer, "
      "and those in ${TENSORD_CUDA_INCLUDE_DIR} have CUDART_VERSION ${version}")
  endif()
  set(CUDAToolkit_INCLUDE_DIRS ${TENSORD_CUDA_INCLUDE_DIR})
  set(TENSORD_HAVE_CUDA ON)
  set(TENSORD_CUDA_EMULATED ON)
elseif(NOT TENSORD_CUDA STREQUAL "OFF")
  find_program(CMAKE_CUDA_COMPILER nvcc PATHS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
  if(CMAKE_CUDA_COMPILER AND NOT CMAKE_CUDA_ARCHITECTURES)
    # A toolkit that doesn't know an architecture yet (or any more) leaves it out.
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
    # nvcc has known C++20 since 12.0, some CMake releases don't know that it does.
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    find_package(CUDAToolkit REQUIRED)
    find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})  # optional
    set(TENSORD_HAVE_CUDA ON)
  elseif(TENSORD_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TENSORD_CUDA=ON but no CUDA toolkit was found: put nvcc on PATH or set CUDA_HOME")
  endif()
endif()
message(STATUS "CUDA backend: ${TENSORD_HAVE_CUDA}, emulated: ${TENSORD_CUDA_EMULATED}")
