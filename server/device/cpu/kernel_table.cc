#include "tensord/server/device/cpu/kernel_table.h"

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::server::cpu {
namespace {

KernelTable MakeTable() {
  KernelTable table;
  AppendAdamKernels(table);
  AppendRecurrentKernels(table);
  AppendArgReductionKernels(table);
  AppendAttentionKernels(table);
  AppendBatchNormKernels(table);
  AppendConvKernels(table);
  AppendCreationKernels(table);
  AppendCrossEntropyKernels(table);
  AppendElementwiseKernels(table);
  AppendIndexingKernels(table);
  AppendLayerNormKernels(table);
  AppendLayoutKernels(table);
  AppendLinearKernels(table);
  AppendMatmulKernels(table);
  AppendPoolKernels(table);
  AppendRandomKernels(table);
  AppendReductionKernels(table);
  AppendScanKernels(table);
  AppendScatterKernels(table);
  AppendSearchKernels(table);
  AppendSoftmaxBackwardKernels(table);
  AppendSoftmaxKernels(table);
  AppendSortKernels(table);
  AppendStridedKernels(table);
  AppendVarMeanKernels(table);
  return table;
}

}  // namespace

Kernel FindKernel(absl::string_view op) {
  static const auto* const table = new KernelTable(MakeTable());  // outlives every static
  const auto it = table->find(op);
  return it == table->end() ? nullptr : it->second;
}

absl::Status NoKernel(const KernelCall& call) {
  const TensorSpec& spec = call.inputs.empty() ? *call.output().spec : *call.inputs[0].spec;
  return absl::InternalError(
      absl::StrCat("cpu: no kernel for ", call.schema->name, " over ", DTypeName(spec.dtype)));
}

absl::StatusOr<Scratch> MakeScratch(const KernelCall& call, int64_t size_bytes) {
  constexpr int64_t kAlignment = 64;
  static_assert(ScratchMemory::kMaxUnchargedBytes <= Slabs::kMaxBlockBytes);
  Scratch scratch;
  if (size_bytes == 0) return scratch;
  if (size_bytes > ScratchMemory::kMaxUnchargedBytes) {
    TENSORD_ASSIGN_OR_RETURN(scratch.memory_, ScratchMemory::Allocate(call, size_bytes));
    return scratch;
  }
  scratch.small_.reset(Slabs::Allocate((size_bytes + kAlignment - 1) & -kAlignment));
  if (scratch.small_ != nullptr) return scratch;
  return absl::ResourceExhaustedError(
      absl::StrCat("the host doesn't have ", size_bytes, " bytes for intermediate values"));
}

}  // namespace tensord::server::cpu
