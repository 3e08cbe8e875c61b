#include "tensord/client/nn/embedding.h"

#include "absl/strings/str_cat.h"
#include "tensord/client/indexing.h"
#include "tensord/client/internal/module.h"

namespace tensord::nn {

Embedding::Embedding(int64_t num_embeddings, int64_t embedding_dim, const EmbeddingOptions& options)
    : seed_(options.seed), weight_{{options.dtype, {num_embeddings, embedding_dim}}} {
  if (options.device.valid()) Initialize(options.device);
}

Tensor Embedding::Forward(const Tensor& indices) const {
  const absl::Status status = internal::RequireValues(*this, {&weight_});
  if (!status.ok()) return Tensor::Failed(status);
  return tensord::Embedding(indices, weight_.value);
}

std::string Embedding::ToString() const {
  return absl::StrCat("Embedding(", weight_.spec.shape.dim(0), ", ", weight_.spec.shape.dim(1),
                      ")");
}

void Embedding::VisitParameters(const std::string& prefix, const Visitor& visit) {
  visit(prefix + "weight", &weight_);
}

void Embedding::Initialize(const Device& device) {
  internal::Initializer(device, seed_).Normal(&weight_);
}

}  // namespace tensord::nn
