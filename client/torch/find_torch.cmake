# torch_tensord_find_torch(FOLDER): sets torch_version to the major and minor version of the PyTorch in a folder that
# has include/ and lib/, and makes the imported target torch_tensord::torch, its parts for the CPU. PyTorch's own CMake
# package also works, but for a PyTorch with CUDA it needs CUDA's toolkit.
function(torch_tensord_find_torch folder)
  set(version_header ${folder}/include/torch/headeronly/version.h)
  if(NOT EXISTS ${version_header})  # an older PyTorch
    set(version_header ${folder}/include/torch/csrc/api/include/torch/version.h)
  endif()
  if(NOT EXISTS ${version_header})
    message(FATAL_ERROR "torch_tensord: ${folder} isn't a folder of PyTorch: it has no ${version_header}. Name the "
      "folder of libtorch, or of the Python package torch, in TENSORD_TORCH")
  endif()
  file(STRINGS ${version_header} lines REGEX "define TORCH_VERSION_M(AJOR|INOR) ")
  string(REGEX REPLACE "[^0-9;]" "" numbers "${lines}")
  list(JOIN numbers "." version)
  set(torch_version ${version} PARENT_SCOPE)
  if(TARGET torch_tensord::torch)
    return()
  endif()
  add_library(torch_tensord::torch INTERFACE IMPORTED GLOBAL)
  target_include_directories(torch_tensord::torch SYSTEM INTERFACE
    ${folder}/include ${folder}/include/torch/csrc/api/include)
  target_link_libraries(torch_tensord::torch INTERFACE ${folder}/lib/libtorch_cpu.so ${folder}/lib/libc10.so)
endfunction()
