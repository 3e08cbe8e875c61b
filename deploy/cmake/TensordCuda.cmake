# Functions that define the libraries that call CUDA. One build can have each library twice: linked
# with CUDA (server/), and linked with its emulation on the CPU (tests/cuda_emulation).

set(tensord_cuda_kernels adam arithmetic attention attention_backward batch_norm bit cast comparison conv
  cross_entropy fill indexing integer_matmul layer_norm linear_epilogue math movement pair pool probe random recurrent
  reduce_arg reduce_extremum reduce_prod reduce_sum scan search softmax softmax_backward sort sort_updates unary
  updates value_check var_mean where)
list(TRANSFORM tensord_cuda_kernels PREPEND ${PROJECT_SOURCE_DIR}/server/device/cuda/kernels/)
list(TRANSFORM tensord_cuda_kernels APPEND .cu)

# Adds the library `name`: the CUDA backend. The caller must set the compile options of the kernels, and
# link cudart, cuBLASLt and NVRTC, and add a definition of LoadCudnn().
function(tensord_cuda_library name)
  set(folder ${PROJECT_SOURCE_DIR}/server/device/cuda)
  set(sources blas check_pool conv_plan conv_products cuda_buffer cuda_device cuda_discovery cuda_handles cuda_status
    cuda_transfers cudnn_library dnn fence_thread fused_kernels fused_source graph graph_scratch host_registration
    kernel_table memory_pool nvml nvrtc ops_adam ops_attention ops_conv ops_creation ops_elementwise ops_indexing
    ops_matmul ops_movement ops_network ops_pool ops_random ops_recurrent ops_reduction ops_scan ops_sort
    staging_download staging_upload kernels/reduce_tile)
  list(TRANSFORM sources PREPEND ${folder}/)
  list(TRANSFORM sources APPEND .cc)
  add_library(${name} STATIC ${sources} ${tensord_cuda_kernels})
  set_source_files_properties(${tensord_cuda_kernels} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_include_directories(${name} PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(${name} PUBLIC tensord_communicator PRIVATE absl::flat_hash_map absl::hash absl::strings
    ${CMAKE_DL_LIBS})

  # Groups of GPUs. The build needs only NCCL's header: the server loads NCCL when a GPU first joins a group.
  if(NCCL_INCLUDE_DIR)
    target_sources(${name} PRIVATE ${folder}/nccl_communicator.cc ${folder}/nccl_library.cc ${folder}/nccl_operation.cc)
    target_include_directories(${name} SYSTEM PRIVATE ${NCCL_INCLUDE_DIR})
  else()
    target_sources(${name} PRIVATE ${folder}/nccl_missing.cc)
  endif()

  # The build needs no header of cuDNN. If there is one, the backend's declarations are compared with it.
  if(CUDNN_INCLUDE_DIR)
    target_sources(${name} PRIVATE ${folder}/cudnn_header_check.cc)
    set_source_files_properties(${folder}/cudnn_header_check.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    target_include_directories(${name} SYSTEM PRIVATE ${CUDNN_INCLUDE_DIR})
  endif()

  # Embeds the headers that fused kernels include when they are compiled at run time.
  set(entries "")
  foreach(header rtc_std/cmath rtc_std/cstdint rtc_std/limits rtc_std/type_traits
      common/float16.h server/device/elementwise_math.h server/device/math_functions.h
      server/device/cuda/kernels/storage.cuh)
    if(header MATCHES "^rtc_std/(.*)")
      set(included_as ${CMAKE_MATCH_1})
      set(file ${folder}/${header})
    else()
      set(included_as tensord/${header})
      set(file ${PROJECT_SOURCE_DIR}/${header})
    endif()
    file(READ ${file} text)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    string(APPEND entries "    {\"${included_as}\", R\"text(${text})text\"},\n")
  endforeach()
  configure_file(${folder}/embedded_headers.cc.in ${name}_headers.cc @ONLY)
  target_sources(${name} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/${name}_headers.cc)
endfunction()

# Adds the library `name`, which makes the devices that --devices names. `cuda`: the library of the CUDA
# backend, or "" for none.
function(tensord_devices_library name cuda)
  add_library(${name} STATIC ${PROJECT_SOURCE_DIR}/server/device/device_factory.cc
    ${PROJECT_SOURCE_DIR}/server/device/built_in_backends.cc)
  target_link_libraries(${name} PUBLIC tensord_device tensord_fault PRIVATE tensord_cpu ${cuda})
  if(cuda)
    target_compile_definitions(${name} PRIVATE TENSORD_HAVE_CUDA=1)
  endif()
endfunction()
