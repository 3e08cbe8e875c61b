// A table of vectors that is read by index.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tensord/client/nn/module.h"

namespace tensord::nn {

struct EmbeddingOptions {
  Device device = {};                // none: no values until To or LoadStateDict
  DType dtype = DType::kFloat32;     // must be floating
  std::optional<int64_t> seed = {};  // of the initial values; none: a random seed
};

// Returns the rows of the weight (num_embeddings,embedding_dim) at the indices, int32 or int64:
// (…) -> (…,embedding_dim). The weight begins normally distributed.
class Embedding : public Module {
 public:
  Embedding(int64_t num_embeddings, int64_t embedding_dim, const EmbeddingOptions& options = {});

  Tensor Forward(const Tensor& indices) const override;
  std::string ToString() const override;
  void VisitParameters(const std::string& prefix, const Visitor& visit) override;
  void Initialize(const Device& device) override;

 private:
  std::optional<int64_t> seed_;
  Parameter weight_;
};

}  // namespace tensord::nn
