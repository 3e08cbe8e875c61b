#include "tensord/server/device/cuda/nccl_operation.h"

#include <cstddef>

namespace tensord::server {
namespace {

// Requires a dtype that can be reduced.
ncclDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
      return ncclUint8;
    case DType::kInt8:
      return ncclInt8;
    case DType::kUInt32:
      return ncclUint32;
    case DType::kUInt64:
      return ncclUint64;
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
  // An operation that only moves elements moves them as bytes.
  const ncclDataType_t type = op.reduces() ? TypeOf(op.spec.dtype) : ncclUint8;
  const auto elements =
      static_cast<size_t>(op.reduces() ? op.spec.num_elements() : op.spec.size_bytes());
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
