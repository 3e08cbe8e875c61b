// The functions that fill the registry of ops. Internal to common/: other folders use op_schema.h.
#pragma once

#include <vector>

#include "tensord/common/ops/op_schema.h"

namespace tensord {

// Each appends the ops of one file. op_registry.cc calls each of them once.
void AppendActivationCompositions(std::vector<OpSchema>& ops);
void AppendAttentionOps(std::vector<OpSchema>& ops);
void AppendConvOps(std::vector<OpSchema>& ops);
void AppendCreationOps(std::vector<OpSchema>& ops);
void AppendElementwiseCompositions(std::vector<OpSchema>& ops);
void AppendElementwiseOps(std::vector<OpSchema>& ops);
void AppendIndexingOps(std::vector<OpSchema>& ops);
void AppendIndexingCompositions(std::vector<OpSchema>& ops);
void AppendLossCompositions(std::vector<OpSchema>& ops);
void AppendNormalizationCompositions(std::vector<OpSchema>& ops);
void AppendGradientScalerCompositions(std::vector<OpSchema>& ops);
void AppendOptimizerCompositions(std::vector<OpSchema>& ops);
void AppendRecurrentCompositions(std::vector<OpSchema>& ops);
void AppendReductionCompositions(std::vector<OpSchema>& ops);
void AppendShapeCompositions(std::vector<OpSchema>& ops);
void AppendSpecialCompositions(std::vector<OpSchema>& ops);
void AppendLossOps(std::vector<OpSchema>& ops);
void AppendMatmulOps(std::vector<OpSchema>& ops);
void AppendNetworkOps(std::vector<OpSchema>& ops);
void AppendOptimizerOps(std::vector<OpSchema>& ops);
void AppendPoolOps(std::vector<OpSchema>& ops);
void AppendRandomOps(std::vector<OpSchema>& ops);
void AppendRecurrentOps(std::vector<OpSchema>& ops);
void AppendReductionOps(std::vector<OpSchema>& ops);
void AppendScanOps(std::vector<OpSchema>& ops);
void AppendShapeOps(std::vector<OpSchema>& ops);
void AppendSortOps(std::vector<OpSchema>& ops);
void AppendStridedOps(std::vector<OpSchema>& ops);

// Returns NOT_FOUND that names the ops with names similar to `name`, or those that do what PyTorch
// calls `name`.
absl::Status UnknownOp(absl::string_view name);

}  // namespace tensord
