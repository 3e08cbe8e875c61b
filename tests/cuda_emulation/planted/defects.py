"""The defects that `run` plants. Each replaces one piece of text in a source file of the CUDA backend or of groups."""
from typing import NamedTuple


class Defect(NamedTuple):
    name: str
    tests: str  # a key of PROGRAMS
    file: str
    old: str  # source text that occurs once in the file
    new: str  # the replacement


PLAIN = {}
DESCENDING = {"TENSORD_EMULATED_THREAD_ORDER": "1", "TENSORD_EMULATED_MULTIPROCESSORS": "132"}
DELAYS = {"TENSORD_EMULATED_THREAD_ORDER": "5", "TENSORD_EMULATED_MAX_DELAY_US": "300"}

ELEMENTWISE = "*Unary*:*Casts*:*Arithmetic*:*Unaligned*:*Where*"
PRODUCTS = "*Matmul*:*Linear*:*Products*"
CONVOLUTIONS = "*Convolutions*"
MOVEMENT = "*Permutes*:*Transposes*:*Slices*:*Broadcasts*:*Concatenates*:*Where*"
REDUCTIONS = "*Sums*:*Extrema*:*Norms*:*Reduces*:*Softmax*"
TRANSFERS = "CudaHostMemoryTest.*:*BringsBack*:*Writes*:*Carries*:*Kernels*:*Copies*:*Buffers*"
GRAPHS = "CudaGraphTest.*"


def device_test(test_filter, *environments):
    return [("cuda_device_test", test_filter, environment) for environment in environments]


# The programs that should detect a defect: (program, GoogleTest filter, environment). `run` stops at
# the first program that fails.
PROGRAMS = {
    "elementwise": device_test(ELEMENTWISE, PLAIN, DESCENDING),
    "products": device_test(PRODUCTS, PLAIN, DESCENDING, DELAYS),
    "convolutions": [*device_test(CONVOLUTIONS, PLAIN, DESCENDING), ("cuda_conv_choice_test", "*", PLAIN)],
    "movement": device_test(MOVEMENT, PLAIN, DESCENDING, DELAYS),
    "reductions": device_test(REDUCTIONS, PLAIN, DESCENDING, DELAYS),
    "streams": device_test(TRANSFERS, PLAIN, DELAYS) + [("cuda_context_test", "*", DELAYS)],
    "graphs": device_test(GRAPHS, PLAIN, DELAYS),
    "failures": [("cuda_injected_failure_test", "*", PLAIN), ("cuda_fault_test", "*", PLAIN)],
    "devices": [("cuda_context_test", "*", PLAIN), *device_test(TRANSFERS, PLAIN), ("cuda_fault_test", "*", PLAIN)],
    "nccl": [("nccl_communicator_test", "*", PLAIN),
             ("nccl_communicator_test", "*", {"TENSORD_EMULATED_MAX_DELAY_US": "300"})],
}

CUDA = "server/device/cuda/"
KERNELS = CUDA + "kernels/"

DEFECTS = [
    # Ops and cuBLASLt.
    Defect("transposition of the wrong operand", "products", CUDA + "blas.cc",
           "p.transpose_b ? CUBLAS_OP_T", "p.transpose_a ? CUBLAS_OP_T"),
    Defect("wrong stride of a batch", "products", CUDA + "blas.cc",
           "p.transpose_b ? p.n : p.k, 0, p.batch, p.b_stride", "p.transpose_b ? p.n : p.k, 0, p.batch, p.a_stride"),
    Defect("wrong epilogue", "products", CUDA + "blas.cc",
           "CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU", "CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_RELU"),
    Defect("bias pointer not set", "products", CUDA + "blas.cc",
           "  if (problem.bias) {\n", "  if (false) {\n"),
    Defect("a nondeterministic engine", "convolutions", CUDA + "conv_plan.cc",
           "    case cudnn::NumericalNote::kNondeterministic:\n", ""),
    Defect("TensorFloat-32 without permission", "convolutions", CUDA + "conv_plan.cc",
           "problem.dtype != DType::kFloat32 || problem.allow_tf32", "true"),
    Defect("padding at the wrong end", "convolutions", CUDA + "conv_plan.cc",
           "kConvolutionPrePaddings, Spatial(g.low)", "kConvolutionPrePaddings, Spatial(g.high)"),
    Defect("a plan for another alignment", "convolutions", CUDA + "dnn.cc",
           "bits |= reinterpret_cast", "bits = kMaxConvAlignment | reinterpret_cast"),
    Defect("a workspace that is too large", "convolutions", CUDA + "conv_plan.cc",
           "workspace_bytes <= max_workspace_bytes", "workspace_bytes >= 0"),
    Defect("the images of a gradient aren't added", "convolutions", CUDA + "conv_products.cc",
           "problem.accumulates = true", "problem.accumulates = false"),
    Defect("the rows of some positions are dense", "convolutions", CUDA + "conv_products.cc",
           "problem.out_row_stride = positions_", "problem.out_row_stride = positions"),
    Defect("the dilation of a window is ignored", "convolutions", KERNELS + "conv.cu",
           "+ tap * job.dilation[axis]", "+ tap"),
    Defect("batch folded into rows although operand b differs", "products", CUDA + "ops_matmul.cc",
           "batch.stride[1][0] == 0 &&", "true &&"),
    Defect("wrong strides of an integer product", "products", CUDA + "ops_matmul.cc",
           "job.b_row_stride = matmul.transpose_b ? 1 : matmul.n", "job.b_row_stride = matmul.transpose_b ? matmul.n : 1"),
    # Ordering between streams.
    Defect("upload doesn't wait for the allocation", "streams", CUDA + "cuda_transfers.cc",
           "[&] { return owner == stream ? absl::OkStatus() : OrderStreams(owner, stream, events_); }",
           "[&] { return absl::OkStatus(); }"),
    Defect("kernel doesn't wait for uploads", "streams", CUDA + "cuda_device.cc",
           "return uploads_->OrderAfterUploads(data, bytes, compute_.get());", "return absl::OkStatus();"),
    Defect("download doesn't wait for uploads", "streams", CUDA + "cuda_transfers.cc",
           "  TENSORD_RETURN_IF_ERROR(uploads_->OrderAfterUploads(data, bytes, downloads_->stream()));\n", ""),
    Defect("copy doesn't wait for uploads at its source", "streams", CUDA + "cuda_transfers.cc",
           "  TENSORD_RETURN_IF_ERROR(source.uploads_->OrderAfterUploads(src.data(), bytes, compute_.get()));\n", ""),
    Defect("free doesn't wait for readers", "streams", CUDA + "cuda_transfers.cc",
           "TENSORD_RETURN_IF_ERROR(reader->Order(retire_.get()));", "static_cast<void>(reader);"),
    Defect("graph doesn't wait for uploads", "graphs", CUDA + "graph.cc",
           "    TENSORD_RETURN_IF_ERROR(OrderInput(input->data(), input->size_bytes()));\n", ""),
    Defect("copy between GPUs in another stream", "streams", CUDA + "cuda_transfers.cc",
           "source.info_.physical_index, size,\n                                                     compute_.get()",
           "source.info_.physical_index, size,\n                                                     capture_.get()"),
    Defect("staging slot filled while in flight", "streams", CUDA + "staging_upload.cc",
           "SetInFlight(slot, error == cudaSuccess);", "SetInFlight(slot, false);"),
    Defect("products of a graph in the compute stream", "graphs", CUDA + "graph.cc",
           "  blas_->SetStream(capture_.get());\n", ""),
    # Devices.
    Defect("missing DeviceGuard in a launch", "devices", CUDA + "cuda_device.cc",
           "  const DeviceGuard guard(info_.physical_index);\n  if (context_.graph_scratch", "  if (context_.graph_scratch"),
    Defect("missing DeviceGuard in a write", "devices", CUDA + "cuda_transfers.cc",
           "  const DeviceGuard guard(info_.physical_index);\n  auto& buffer = ", "  auto& buffer = "),
    Defect("another GPU stays current", "devices", CUDA + "cuda_handles.cc",
           "if (current_gpu == physical_index && ", "if (current_gpu >= 0 && "),
    Defect("pool gives peers no access", "devices", CUDA + "memory_pool.cc",
           "access.location.id = peer_physical_index;", "access.location.id = physical_index_;"),
    # Faults and errors.
    Defect("events outlive a reset", "failures", CUDA + "cuda_device.cc",
           "  for (const PeerReadRef& read : reads) read->DestroyEvent();\n", ""),
    Defect("stream outlives a reset", "failures", CUDA + "cuda_device.cc", "  retire_ = Stream();\n", ""),
    Defect("capture isn't ended after an error", "failures", CUDA + "graph.cc",
           "  const absl::Status launched = launch();\n",
           "  const absl::Status launched = launch();\n  TENSORD_RETURN_IF_ERROR(launched);\n"),
    Defect("library isn't unloaded", "failures", CUDA + "fused_kernels.cc",
           "void Unload(cudaLibrary_t library) { cudaLibraryUnload(library); }", "void Unload(cudaLibrary_t) {}"),
    Defect("memory isn't freed later if its free fails", "failures", CUDA + "memory_pool.cc",
           "  unfreed_.push_back(data);\n", ""),
    Defect("slot used again while a copy runs", "failures", CUDA + "staging_download.cc",
           "    cudaStreamSynchronize(stream_.get());  // the caller may reuse the source and the slot\n", ""),
    Defect("memory of a failed upload is freed before its allocation", "failures", CUDA + "cuda_buffer.cc",
           "    transfers_ordered_ = false;\n", ""),
    Defect("upload from registered memory goes on after an error", "failures", CUDA + "staging_upload.cc",
           "    cudaStreamSynchronize(stream_.get());\n  }\n  events.Return", "  }\n  events.Return"),
    Defect("memory that CUDA refused is never registered", "failures", CUDA + "host_registration.cc",
           "    if (registration->state_ == State::kRefused) registration->state_ = State::kNone;\n", ""),
    Defect("small blocks are freed without the lock", "devices", CUDA + "memory_pool.cc",
           "  for (void* data : blocks) FreeByDriver(data, reuse_stream_);",
           "  const cudaStream_t stream = reuse_stream_;\n  mu_.Unlock();\n"
           "  for (void* data : blocks) cudaFreeAsync(data, stream);\n  mu_.Lock();"),
    Defect("unregistering holds the lock", "streams", CUDA + "host_registration.cc",
           "    const DeviceGuard guard(physical_index_);\n    if (cudaHostUnregister",
           "    MutexLock lock(&registry.mu);\n    const DeviceGuard guard(physical_index_);\n    if (cudaHostUnregister"),
    # NCCL.
    Defect("collective doesn't wait for its input", "nccl", CUDA + "nccl_communicator.cc",
           "    TENSORD_RETURN_IF_ERROR(OrderAfterCudaUploads(*input, stream_.get()));\n", ""),
    Defect("collective doesn't wait for its output's allocation", "nccl", CUDA + "nccl_communicator.cc",
           "    TENSORD_RETURN_IF_ERROR(OrderAfterCudaAllocation(*output, stream_.get()));\n", ""),
    Defect("abort doesn't wait for the kernel", "nccl", CUDA + "nccl_communicator.cc",
           "while (!IsLost() && !ended->happened() &&", "while (false &&"),
    Defect("waits for the NCCL call instead of its kernel", "nccl", CUDA + "nccl_communicator.cc",
           'Await("NCCL", notice.get())', 'Await("NCCL", nullptr)'),
    # Kernels.
    Defect("missing barrier in a reduction", "reductions", KERNELS + "reduction.cuh",
           "half /= 2) {\n    __syncthreads();", "half /= 2) {"),
    Defect("missing barrier in a transposition", "movement", KERNELS + "movement.cu",
           "    __syncthreads();\n    const int64_t out_column = column0 + threadIdx.x;",
           "    const int64_t out_column = column0 + threadIdx.x;"),
    Defect("missing barrier in a transposition of packs", "movement", KERNELS + "movement.cu",
           "    __syncthreads();\n    const int64_t out_column = column0 + pack", "    const int64_t out_column = column0 + pack"),
    Defect("missing barrier between tiles of a product", "products", KERNELS + "integer_matmul.cu",
           "    __syncthreads();\n  }\n  T* out", "  }\n  T* out"),
    Defect("first element after the packs is skipped", "elementwise", KERNELS + "broadcast.cuh",
           "i = packs * kWidth + FirstIndex(); i < size", "i = packs * kWidth + FirstIndex() + 1; i < size"),
    Defect("write past the end of the output", "movement", KERNELS + "movement.cu",
           "for (int64_t i = FirstIndex(); i < loop.size;", "for (int64_t i = FirstIndex(); i <= loop.size;"),
    Defect("wrong pitch of a concatenation", "movement", KERNELS + "movement.cu",
           "out[row * job.pitch +", "out[row * part.width +"),
    Defect("packs of unaligned dense operands", "elementwise", KERNELS + "broadcast.cuh",
           "const int64_t packs = aligned ? size / kWidth : 0;", "const int64_t packs = size / kWidth;"),
    Defect("packs of an unaligned output", "elementwise", KERNELS + "broadcast.cuh",
           "const bool packed = AlignedForPacks(out) && loop", "const bool packed = loop"),
    Defect("packs of unaligned rows of an operand", "elementwise", KERNELS + "broadcast.cuh",
           "if (stride == 1 && reinterpret_cast<uintptr_t>(in) % sizeof(Packed) == 0) {", "if (stride == 1) {"),
    Defect("packs of an unaligned transposition", "movement", KERNELS + "movement.cu",
           "bool aligned = reinterpret_cast<uintptr_t>(data) % pack_bytes == 0 && ", "bool aligned = "),
    Defect("packs of unaligned columns of a reduction", "reductions", CUDA + "ops_reduction.cc",
           "return IsAligned(job.in, element_bytes * columns) && ", "return "),
    Defect("packs of a row start at the wrong element", "reductions", KERNELS + "reduction.cuh",
           "min(begin + (kWidth - past) % kWidth, end)", "min(begin + past, end)"),
    Defect("operands of where are swapped", "elementwise", KERNELS + "where.cu",
           "condition ? x : y", "condition ? y : x"),
    Defect("chunk of a reduction is too short", "reductions", KERNELS + "reduction.cuh",
           "min(begin + job.tile.chunk, job.over.size)", "min(begin + job.tile.chunk - 1, job.over.size)"),
    Defect("partial results of the wrong output", "reductions", KERNELS + "reduction.cuh",
           "partials[output * splits + i]", "partials[i * outputs + output]"),
    Defect("tile of a product is one column too wide", "products", KERNELS + "integer_matmul.cu",
           "column < job.n)", "column <= job.n)"),
]
