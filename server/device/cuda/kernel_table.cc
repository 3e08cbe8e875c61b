#include "tensord/server/device/cuda/kernel_table.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tensord/server/device/cuda/cuda_status.h"
#include "tensord/server/device/cuda/kernels/dispatch.h"

namespace tensord::server::cuda {
namespace {

static_assert(kDTypeNumber<Bool> == static_cast<int>(DType::kBool));
static_assert(kDTypeNumber<uint8_t> == static_cast<int>(DType::kUInt8));
static_assert(kDTypeNumber<int8_t> == static_cast<int>(DType::kInt8));
static_assert(kDTypeNumber<int32_t> == static_cast<int>(DType::kInt32));
static_assert(kDTypeNumber<int64_t> == static_cast<int>(DType::kInt64));
static_assert(kDTypeNumber<Half> == static_cast<int>(DType::kFloat16));
static_assert(kDTypeNumber<BFloat16> == static_cast<int>(DType::kBFloat16));
static_assert(kDTypeNumber<float> == static_cast<int>(DType::kFloat32));
static_assert(kDTypeNumber<double> == static_cast<int>(DType::kFloat64));
static_assert(kDTypeNumber<int16_t> == static_cast<int>(DType::kInt16));
static_assert(kDTypeNumber<uint16_t> == static_cast<int>(DType::kUInt16));
static_assert(kDTypeNumber<uint32_t> == static_cast<int>(DType::kUInt32));
static_assert(kDTypeNumber<uint64_t> == static_cast<int>(DType::kUInt64));
static_assert(kDTypeCount == kDTypeTableSize);

KernelTable MakeTable() {
  KernelTable table;
  AppendAdamKernels(table);
  AppendElementwiseKernels(table);
  AppendIndexingKernels(table);
  AppendMovementKernels(table);
  AppendConvKernels(table);
  AppendCreationKernels(table);
  AppendPoolKernels(table);
  AppendRandomKernels(table);
  AppendReductionKernels(table);
  AppendScanKernels(table);
  AppendMatmulKernels(table);
  AppendAttentionKernels(table);
  AppendNetworkKernels(table);
  AppendRecurrentKernels(table);
  AppendSortKernels(table);
  return table;
}

}  // namespace

const Kernel* FindKernel(absl::string_view op) {
  static const auto* table = new KernelTable(MakeTable());  // outlives every static
  const auto it = table->find(op);
  return it == table->end() ? nullptr : &it->second;
}

absl::Status LaunchStatus(const KernelCall& call, cudaError_t error) {
  if (error == cudaSuccess) [[likely]]
    return absl::OkStatus();
  return CudaStatus(error, absl::StrCat(call.schema->name, " on ", call.output().spec->ToString()));
}

absl::Status WithOperands(const KernelCall& call, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(
      status.code(),
      absl::StrCat(call.schema->name, " of ", call.inputs[0].spec->ToString(), " and ",
                   call.inputs[1].spec->ToString(), " on CUDA: ", status.message()));
}

absl::Status NoKernelError(const KernelCall& call) {
  return absl::InternalError(
      absl::StrCat("the CUDA backend has no kernel for ", call.schema->name, " of ",
                   absl::StrJoin(call.inputs, ", ",
                                 [](std::string* out, const Operand& input) {
                                   absl::StrAppend(out, input.spec->ToString());
                                 }),
                   " giving ", call.output().spec->ToString()));
}

}  // namespace tensord::server::cuda
