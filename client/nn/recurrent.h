// Recurrent layers. All steps of a layer in one direction are one op.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tensord/client/functional.h"
#include "tensord/client/nn/dropout.h"
#include "tensord/client/nn/module.h"

namespace tensord::nn {

struct RecurrentOptions {
  int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;  // whether x is (N,L,input_size) in place of (L,N,input_size)
  double dropout = 0;        // in training mode, of the results of all layers but the last one
  bool bidirectional = false;
  Device device = {};                // none: no values until To or LoadStateDict
  DType dtype = DType::kFloat32;     // must be floating
  std::optional<int64_t> seed = {};  // of the initial values; none: a random seed
};

// The base of LSTM and GRU. The parameters of layer k are weight_ih_lk (gates·hidden_size,in),
// weight_hh_lk (gates·hidden_size,hidden_size), bias_ih_lk and bias_hh_lk (gates·hidden_size). The
// names for the backward direction end with "_reverse". The parameters begin uniform in
// [-1/√hidden_size, 1/√hidden_size).
class Recurrent : public Module {
 public:
  // Returns the outputs of the last layer: (L,N,D·hidden_size) with D directions. x is
  // (L,N,input_size), or (L,input_size) without a batch. The state begins with zeros.
  Tensor Forward(const Tensor& x) const override;
  std::string ToString() const override;
  void VisitParameters(const std::string& prefix, const Visitor& visit) override;
  void Initialize(const Device& device) override;

 protected:
  struct Result {
    Tensor output;
    std::vector<Tensor> state;  // each part: (num_layers·D,N,hidden_size)
  };

  Recurrent(std::string name, int gates, int state_parts, int64_t input_size, int64_t hidden_size,
            const RecurrentOptions& options);

  // Runs all layers. `state` is empty, or has a tensor for each part.
  Result RunLayers(const Tensor& x, const std::vector<Tensor>& state) const;

 private:
  struct Layer {
    std::string suffix;  // "l0", "l0_reverse"
    Parameter weight_ih, weight_hh;
    std::optional<Parameter> bias_ih, bias_hh;
  };

  // Runs one layer in one direction over x (L,N,in). `state` has a tensor for each part of the
  // state, (N,hidden_size): for LSTM h and c, for GRU h.
  virtual RecurrentLayerResult RunLayer(const Tensor& x, const std::vector<Tensor>& state,
                                        const RecurrentWeights& weights,
                                        const RecurrentLayerOptions& options) const = 0;

  absl::Status Check(const Tensor& x, const std::vector<Tensor>& state) const;
  int64_t directions() const { return bidirectional_ ? 2 : 1; }

  std::string name_;
  int state_parts_;
  int64_t input_size_;
  int64_t hidden_size_;
  int64_t num_layers_;
  bool batch_first_;
  bool bidirectional_;
  double dropout_probability_;
  std::optional<int64_t> seed_;
  std::vector<Layer> layers_;  // for each layer forward, then backward
  std::shared_ptr<Dropout> dropout_;
};

struct LSTMState {
  Tensor h;  // (num_layers·D,N,hidden_size), or (num_layers·D,hidden_size) without a batch
  Tensor c;  // of the same shape
};
struct LSTMResult {
  Tensor output;    // as Forward returns
  LSTMState state;  // after the last step
};
// c' = σ(f)·c + σ(i)·tanh(g) and h' = σ(o)·tanh(c'), where i, f, g and o are the parts of
// x·W_ihᵀ + b_ih + h·W_hhᵀ + b_hh.
class LSTM : public Recurrent {
 public:
  LSTM(int64_t input_size, int64_t hidden_size, const RecurrentOptions& options = {});

  // Does the same as Forward from a given state, and returns the last state, too.
  LSTMResult Run(const Tensor& x, const std::optional<LSTMState>& state = {}) const;

 private:
  RecurrentLayerResult RunLayer(const Tensor& x, const std::vector<Tensor>& state,
                                const RecurrentWeights& weights,
                                const RecurrentLayerOptions& options) const override;
};

struct GRUResult {
  Tensor output;  // as Forward returns
  Tensor h;       // after the last step
};
// h' = (1 - z)·n + z·h with r = σ(x·W_ir + h·W_hr), z = σ(x·W_iz + h·W_hz) and
// n = tanh(x·W_in + r·(h·W_hn)), where each product has its bias.
class GRU : public Recurrent {
 public:
  GRU(int64_t input_size, int64_t hidden_size, const RecurrentOptions& options = {});

  // Does the same as Forward from a given state, and returns the last state, too.
  GRUResult Run(const Tensor& x, const std::optional<Tensor>& h = {}) const;

 private:
  RecurrentLayerResult RunLayer(const Tensor& x, const std::vector<Tensor>& state,
                                const RecurrentWeights& weights,
                                const RecurrentLayerOptions& options) const override;
};

}  // namespace tensord::nn
