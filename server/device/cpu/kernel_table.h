// The CPU backend's kernels by the names of their ops.
#pragma once

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "tensord/server/device/cpu/kernel.h"

namespace tensord::server::cpu {

// The keys are names of schemas, which exist as long as the process.
using KernelTable = absl::flat_hash_map<absl::string_view, Kernel>;

// Returns the kernel of an op. If there is none, returns null. `constant` has none, because the
// engine writes its bytes. Thread-safe.
Kernel FindKernel(absl::string_view op);

// Each function adds the kernels of one file. kernel_table.cc calls all of them.
void AppendAdamKernels(KernelTable& table);
void AppendRecurrentKernels(KernelTable& table);
void AppendArgReductionKernels(KernelTable& table);
void AppendAttentionKernels(KernelTable& table);
void AppendBatchNormKernels(KernelTable& table);
void AppendConvKernels(KernelTable& table);
void AppendCreationKernels(KernelTable& table);
void AppendCrossEntropyKernels(KernelTable& table);
void AppendElementwiseKernels(KernelTable& table);
void AppendIndexingKernels(KernelTable& table);
void AppendLayerNormKernels(KernelTable& table);
void AppendLayoutKernels(KernelTable& table);
void AppendLinearKernels(KernelTable& table);
void AppendMatmulKernels(KernelTable& table);
void AppendPoolKernels(KernelTable& table);
void AppendRandomKernels(KernelTable& table);
void AppendReductionKernels(KernelTable& table);
void AppendScanKernels(KernelTable& table);
void AppendScatterKernels(KernelTable& table);
void AppendSearchKernels(KernelTable& table);
void AppendSoftmaxBackwardKernels(KernelTable& table);
void AppendSoftmaxKernels(KernelTable& table);
void AppendSortKernels(KernelTable& table);
void AppendStridedKernels(KernelTable& table);
void AppendVarMeanKernels(KernelTable& table);

}  // namespace tensord::server::cpu
