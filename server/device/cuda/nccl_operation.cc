#include "tensord/server/device/cuda/nccl_operation.h"

#include <cstddef>

namespace tensord::server {
namespace {

ncclDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return ncclFloat16;
    case DType::kBFloat16:
      return ncclBfloat16;
    case DType::kFloat32:
      return ncclFloat32;
    case DType::kFloat64:
      return ncclFloat64;
    case DType::kInt32:
      return ncclInt32;
    default:
      return ncclInt64;
  }
}

ncclRedOp_t OpOf(CollectiveReduction reduction) {
  switch (reduction) {
    case CollectiveReduction::kMean:
      return ncclAvg;
    case CollectiveReduction::kMax:
      return ncclMax;
    case CollectiveReduction::kSum:
      break;
  }
  return ncclSum;
}

}  // namespace

absl::Status EnqueueOperation(const NcclLibrary& nccl, const CollectiveOp& op, const void* input,
                              void* output, int64_t output_elements, ncclComm_t comm,
                              cudaStream_t stream) {
  const ncclDataType_t type = TypeOf(op.spec.dtype);
  const auto elements = static_cast<size_t>(op.spec.num_elements());
  switch (op.kind) {
    case CollectiveKind::kAllReduce:
      return nccl.ToStatus(
          nccl.AllReduce(input, output, elements, type, OpOf(op.reduction), comm, stream), comm,
          "ncclAllReduce");
    case CollectiveKind::kReduceScatter:
      return nccl.ToStatus(nccl.ReduceScatter(input, output, static_cast<size_t>(output_elements),
                                              type, OpOf(op.reduction), comm, stream),
                           comm, "ncclReduceScatter");
    case CollectiveKind::kAllGather:
      return nccl.ToStatus(nccl.AllGather(input, output, elements, type, comm, stream), comm,
                           "ncclAllGather");
    case CollectiveKind::kBroadcast:
      return nccl.ToStatus(nccl.Broadcast(input, output, elements, type, op.root, comm, stream),
                           comm, "ncclBroadcast");
    case CollectiveKind::kBarrier:
      break;
  }
  return absl::OkStatus();
}

}  // namespace tensord::server
