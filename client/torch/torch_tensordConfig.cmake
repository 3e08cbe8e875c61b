# The CMake package torch_tensord: the target torch_tensord::torch_tensord, a PyTorch device on tensord's servers, with
# PyTorch (torch_tensord::torch) and the C interface (tensord_c::tensord_c).
#   TENSORD_TORCH  the folder of PyTorch, which has include/ and lib/. Default: in a Python environment, its package
#                  torch; otherwise that of the CMake package Torch, which Torch_DIR or CMAKE_PREFIX_PATH names.
include(CMakeFindDependencyMacro)
include(${CMAKE_CURRENT_LIST_DIR}/find_torch.cmake)
find_dependency(tensord_c)

foreach(_name _torch_cmake _library _include)
  unset(${_name})
endforeach()
# In a Python environment this file is in torch_tensord/lib/cmake/torch_tensord, beside the package torch.
get_filename_component(_folder ${CMAKE_CURRENT_LIST_DIR}/../../.. ABSOLUTE)
if(NOT TENSORD_TORCH AND EXISTS ${_folder}/../torch/lib/libtorch_cpu.so)
  get_filename_component(TENSORD_TORCH ${_folder}/../torch ABSOLUTE)
endif()
if(NOT TENSORD_TORCH)
  find_path(_torch_cmake TorchConfig.cmake HINTS ${Torch_DIR} PATH_SUFFIXES share/cmake/Torch NO_CACHE)
  if(_torch_cmake)
    get_filename_component(TENSORD_TORCH ${_torch_cmake}/../../.. ABSOLUTE)
  endif()
endif()
if(NOT TENSORD_TORCH)
  set(torch_tensord_NOT_FOUND_MESSAGE "name the folder of PyTorch, which has include/ and lib/, in TENSORD_TORCH")
  set(torch_tensord_FOUND FALSE)
  return()
endif()
torch_tensord_find_torch(${TENSORD_TORCH})

find_library(_library torch_tensord-${torch_version} PATHS ${CMAKE_CURRENT_LIST_DIR}/../.. NO_DEFAULT_PATH NO_CACHE)
if(NOT _library)
  file(GLOB _others RELATIVE ${CMAKE_CURRENT_LIST_DIR}/../.. ${CMAKE_CURRENT_LIST_DIR}/../../libtorch_tensord-*.so)
  set(torch_tensord_NOT_FOUND_MESSAGE
    "there is no libtorch_tensord for PyTorch ${torch_version} (${TENSORD_TORCH}), only: ${_others}")
  set(torch_tensord_FOUND FALSE)
  return()
endif()
if(NOT TARGET torch_tensord::torch_tensord)
  find_path(_include torch_tensord.h PATHS ${_folder}/include ${_folder}/../include NO_DEFAULT_PATH NO_CACHE)
  add_library(torch_tensord::torch_tensord SHARED IMPORTED)
  set_target_properties(torch_tensord::torch_tensord PROPERTIES
    IMPORTED_LOCATION ${_library}
    INTERFACE_INCLUDE_DIRECTORIES ${_include})
  target_compile_features(torch_tensord::torch_tensord INTERFACE cxx_std_20)
  # A program may use the device without a function of these libraries.
  target_link_options(torch_tensord::torch_tensord INTERFACE -Wl,--no-as-needed)
  target_link_libraries(torch_tensord::torch_tensord INTERFACE tensord_c::tensord_c torch_tensord::torch)
endif()
