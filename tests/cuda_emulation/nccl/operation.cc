#include "tensord/tests/cuda_emulation/nccl/operation.h"

#include "absl/strings/str_cat.h"

namespace tensord::nccl_emulation {
namespace {

struct Type {
  const char* name;
  size_t bytes;
};

constexpr Type kTypes[] = {{"int8", 1},    {"uint8", 1},   {"int32", 4},   {"uint32", 4},
                           {"int64", 8},   {"uint64", 8},  {"float16", 2}, {"float32", 4},
                           {"float64", 8}, {"bfloat16", 2}};
static_assert(ncclInt8 == 0 && ncclUint64 == 5 && ncclFloat64 == 8 && ncclBfloat16 == 9);

constexpr const char* kReductions[] = {"sum", "prod", "max", "min", "avg"};
static_assert(ncclSum == 0 && ncclAvg == 4);

bool Reduces(const Operation& op) {
  return op.collective == Collective::kAllReduce || op.collective == Collective::kReduceScatter;
}

}  // namespace

const char* FunctionName(const Operation& op) {
  switch (op.collective) {
    case Collective::kAllReduce:
      return "ncclAllReduce";
    case Collective::kAllGather:
      return "ncclAllGather";
    case Collective::kReduceScatter:
      return "ncclReduceScatter";
    case Collective::kBroadcast:
      break;
  }
  return "ncclBroadcast";
}

std::string ToString(const Operation& op) {
  std::string text = absl::StrCat(FunctionName(op), " of ", op.count, " ", kTypes[op.type].name);
  if (Reduces(op)) absl::StrAppend(&text, " (", kReductions[op.reduction], ")");
  if (op.collective == Collective::kBroadcast) absl::StrAppend(&text, " from rank ", op.root);
  return text;
}

bool HasEmulatedType(const Operation& op) {
  return op.type >= 0 && op.type < static_cast<int32_t>(std::size(kTypes));
}

bool HasEmulatedReduction(const Operation& op) {
  return op.reduction >= 0 && op.reduction < static_cast<int32_t>(std::size(kReductions));
}

size_t ElementBytes(const Operation& op) { return kTypes[op.type].bytes; }

size_t InputBytes(const Operation& op, int rank, int size) {
  const size_t bytes = op.count * ElementBytes(op);
  if (op.collective == Collective::kReduceScatter) return bytes * static_cast<size_t>(size);
  return op.collective == Collective::kBroadcast && rank != op.root ? 0 : bytes;
}

size_t OutputBytes(const Operation& op, int size) {
  const size_t bytes = op.count * ElementBytes(op);
  return op.collective == Collective::kAllGather ? bytes * static_cast<size_t>(size) : bytes;
}

}  // namespace tensord::nccl_emulation
