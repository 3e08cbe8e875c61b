// Layer, RMS and batch normalization.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tensord/client/functional.h"
#include "tensord/client/nn/module.h"

namespace tensord::nn {

// Options of LayerNorm and RMSNorm.
struct NormOptions {
  // Added to the variance, or to the mean square. None: 1e-5 for LayerNorm, and for RMSNorm, as in
  // PyTorch, the machine epsilon of the dtype that computes it: float64 for a float64 x, and
  // float32 for the others.
  std::optional<double> eps = {};
  bool elementwise_affine = true;  // whether there is a weight, and for LayerNorm a bias
  bool bias = true;                // only for LayerNorm
  Device device = {};              // none: no values until To or LoadStateDict
  DType dtype = DType::kFloat32;   // of the parameters
};

// Computes (x - mean) / √(variance + eps) · weight + bias over the last dimensions,
// `normalized_shape`. The weight begins with ones, the bias with zeros.
class LayerNorm : public Module {
 public:
  explicit LayerNorm(std::vector<int64_t> normalized_shape, const NormOptions& options = {});

  Tensor Forward(const Tensor& x) const override;
  std::string ToString() const override;
  void VisitParameters(const std::string& prefix, const Visitor& visit) override;
  void Initialize(const Device& device) override;

 private:
  std::vector<int64_t> normalized_shape_;
  double eps_;
  std::optional<Parameter> weight_;
  std::optional<Parameter> bias_;
};

// Computes x / √(mean of x² + eps) · weight over the last dimensions, `normalized_shape`.
class RMSNorm : public Module {
 public:
  explicit RMSNorm(std::vector<int64_t> normalized_shape, const NormOptions& options = {});

  Tensor Forward(const Tensor& x) const override;
  std::string ToString() const override;
  void VisitParameters(const std::string& prefix, const Visitor& visit) override;
  void Initialize(const Device& device) override;

 private:
  std::vector<int64_t> normalized_shape_;
  std::optional<double> eps_;
  std::optional<Parameter> weight_;
};

struct BatchNormOptions {
  double eps = 1e-5;              // added to the variance
  double momentum = 0.1;          // the share of a batch in the running statistics
  bool affine = true;             // whether there are a weight and a bias
  Device device = {};             // none: no values until To or LoadStateDict
  DType dtype = DType::kFloat32;  // of parameters and statistics
};

// Normalizes each channel of x (N,C,…), then multiplies by the weight and adds the bias, which are
// (C). In evaluation mode, uses the running mean and variance. In training mode, uses those of x,
// and doesn't update the running ones: Forward changes nothing. BatchNormInTraining in
// functional.h returns the updated ones.
class BatchNorm : public Module {
 public:
  Tensor Forward(const Tensor& x) const override;
  std::string ToString() const override;
  void VisitParameters(const std::string& prefix, const Visitor& visit) override;
  void Initialize(const Device& device) override;

 protected:
  // `name` is that of the class. x must have a rank from min_rank to max_rank.
  BatchNorm(std::string name, int min_rank, int max_rank, int64_t num_features,
            const BatchNormOptions& options);

 private:
  std::string name_;
  int min_rank_;
  int max_rank_;
  double eps_;
  double momentum_;
  std::optional<Parameter> weight_;
  std::optional<Parameter> bias_;
  Parameter running_mean_;
  Parameter running_var_;
  Parameter num_batches_tracked_;  // a part of PyTorch's state
};

// x is (N,C) or (N,C,L).
class BatchNorm1d : public BatchNorm {
 public:
  explicit BatchNorm1d(int64_t num_features, const BatchNormOptions& options = {});
};
// x is (N,C,H,W).
class BatchNorm2d : public BatchNorm {
 public:
  explicit BatchNorm2d(int64_t num_features, const BatchNormOptions& options = {});
};

}  // namespace tensord::nn
