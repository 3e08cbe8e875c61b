// The ops of neural networks that are more than elementwise functions: normalization, attention,
// convolution, pooling, and cells of recurrent layers, with their gradients, and steps of
// optimizers. losses.h has losses. Names and meanings are PyTorch's (torch.nn.functional).
//
// As in ops.h, no function waits, errors are in the results' statuses, and all functions are
// thread-safe. x is floating. Elements of 16 bits are computed in float32 and rounded once.
// "Statistics" are float64 if x is float64, otherwise float32. Parameters, such as weights, have
// the dtype of x or that of the statistics. To omit a parameter, leave its optional empty. If the
// optional holds an empty Tensor, the op fails.
//
// The functions whose names end in "Backward" compute gradients. They take the gradient of the
// result, and results of the forward function.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tensord/client/ops.h"
#include "tensord/client/random.h"
#include "tensord/client/tensor.h"

namespace tensord {

// ---------------------------------------------------------------- softmax

// Return the gradient of x, where y is the result of Softmax(x, axis), or of LogSoftmax(x, axis).
Tensor SoftmaxBackward(const Tensor& gradient, const Tensor& y, int64_t axis = -1);
Tensor LogSoftmaxBackward(const Tensor& gradient, const Tensor& y, int64_t axis = -1);

// ---------------------------------------------------------------- layer norm, RMS norm

struct NormParameters {
  std::optional<Tensor> weight = {};  // none: ones
  std::optional<Tensor> bias = {};    // none: zeros; only with a weight
};
struct LayerNormOptions {
  int64_t normalized_rank = 1;  // the number of last dimensions that are normalized together
  double eps = 1e-5;            // added to the variance, or to the mean square
};
// Returns (x - mean) / √(variance + eps) · weight + bias over the last dimensions, which are the
// shape of the parameters. The variance isn't corrected.
Tensor LayerNorm(const Tensor& x, const NormParameters& parameters = {},
                 const LayerNormOptions& options = {});
// Returns x / √(mean of x² + eps) · weight + bias. By default, PyTorch takes the machine epsilon of
// the dtype in which it computes as eps: float64 for a float64 x, and float32 for the others.
Tensor RmsNorm(const Tensor& x, const NormParameters& parameters = {},
               const LayerNormOptions& options = {});

struct LayerNormResult {
  Tensor y;
  Tensor mean;  // a statistic: x's shape with 1 for the normalized dimensions. RMS norm: empty
  Tensor rstd;  // 1 / √(variance + eps), of the same shape
};
// Return y and the statistics, which the functions for the gradients need.
LayerNormResult LayerNormWithStatistics(const Tensor& x, const NormParameters& parameters = {},
                                        const LayerNormOptions& options = {});
LayerNormResult RmsNormWithStatistics(const Tensor& x, const NormParameters& parameters = {},
                                      const LayerNormOptions& options = {});

struct NormGradients {
  Tensor x;
  Tensor weight;  // has the dtype of the weight; without a weight, that of x
  Tensor bias;    // RMS norm: empty
};
// Return the gradients. `forward` is the result of LayerNormWithStatistics, or of
// RmsNormWithStatistics, for x. Of the options, only normalized_rank is used.
NormGradients LayerNormBackward(const Tensor& gradient, const Tensor& x,
                                const LayerNormResult& forward,
                                const std::optional<Tensor>& weight = {},
                                const LayerNormOptions& options = {});
NormGradients RmsNormBackward(const Tensor& gradient, const Tensor& x,
                              const LayerNormResult& forward,
                              const std::optional<Tensor>& weight = {},
                              const LayerNormOptions& options = {});

// ---------------------------------------------------------------- batch norm

struct BatchNormOptions {
  double eps = 1e-5;      // added to the variance
  double momentum = 0.1;  // the share of x's statistics in the updated running ones
};
// Returns (x - running_mean) / √(running_var + eps) · weight + bias for each channel of x (N,C,…).
// The other tensors have the shape (C). The running statistics have the dtypes of parameters.
Tensor BatchNorm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                 const NormParameters& parameters = {}, const BatchNormOptions& options = {});

struct BatchNormResult {
  Tensor y;
  Tensor mean;    // a statistic of each channel of x
  Tensor invstd;  // 1 / √(variance + eps)
  // The updated running statistics, old + momentum · (that of x - old), with the variance divided
  // by n - 1. They have the dtypes of the old ones.
  Tensor running_mean;
  Tensor running_var;
};
// Normalizes x by its own mean and variance. A channel needs two elements or more.
BatchNormResult BatchNormInTraining(const Tensor& x, const Tensor& running_mean,
                                    const Tensor& running_var,
                                    const NormParameters& parameters = {},
                                    const BatchNormOptions& options = {});
// Returns the gradients of BatchNormInTraining, where `mean` and `invstd` are its results. If
// `training` is false, returns those of BatchNorm. Then `mean` is the running mean, and `invstd` is
// 1 / √(running_var + eps).
NormGradients BatchNormBackward(const Tensor& gradient, const Tensor& x, const Tensor& mean,
                                const Tensor& invstd, const std::optional<Tensor>& weight = {},
                                bool training = true);

// ---------------------------------------------------------------- group norm

struct GroupNormOptions {
  int64_t groups = 1;  // divides the number of channels
  double eps = 1e-5;   // added to the variance
};
struct GroupNormResult {
  Tensor y;           // (N,C,…)
  Tensor mean, rstd;  // statistics (N,groups); rstd is 1 / √(variance + eps)
};
// Takes x (N,C,…) and parameters (C). Returns (x - mean) · rstd · weight + bias, with the
// statistics of the groups of channels. The variance isn't corrected.
GroupNormResult GroupNormWithStatistics(const Tensor& x, const GroupNormOptions& options,
                                        const NormParameters& parameters = {});
Tensor GroupNorm(const Tensor& x, const GroupNormOptions& options,
                 const NormParameters& parameters = {});
// `forward` is the result of GroupNormWithStatistics for the same arguments. The function reads
// only its statistics.
NormGradients GroupNormBackward(const Tensor& gradient, const Tensor& x,
                                const GroupNormResult& forward, const std::optional<Tensor>& weight,
                                const GroupNormOptions& options);

// ---------------------------------------------------------------- attention

struct AttentionOptions {
  // Broadcasts to (…,H,L,S). Bool: true where a row attends to a key. Floating: is added to the
  // scores; its dtype is that of a parameter. Not with `causal`.
  std::optional<Tensor> mask = {};
  bool causal = false;  // row i attends to the keys from 0 to i
  double scale = 0;     // the factor of q·kᵀ; 0: 1 / √E
  // The probability of dropping a weight, from 0 to 1. It needs a stream, or a state, which must be
  // the same for the gradient.
  double dropout_p = 0;
  std::optional<RandomStream> stream = {};  // such as generator.Next()
  std::optional<Tensor> state = {};         // for recorded programs: int64[2] (random.h)
};
// Returns softmax(scale · q·kᵀ + mask)·v, with q (…,H,L,E), k (…,Hkv,S,E) and v (…,Hkv,S,Ev). H is
// a multiple of Hkv: neighbouring heads of q share a head of k and v. Without H, there is one head.
// If a row attends to no key, its result is 0.
Tensor ScaledDotProductAttention(const Tensor& q, const Tensor& k, const Tensor& v,
                                 const AttentionOptions& options = {});

struct AttentionResult {
  Tensor output;  // (…,H,L,Ev)
  Tensor lse;     // a statistic: log Σ exp(score) of each row; -infinity for a row without keys
};
AttentionResult ScaledDotProductAttentionWithStatistics(const Tensor& q, const Tensor& k,
                                                        const Tensor& v,
                                                        const AttentionOptions& options = {});

struct AttentionGradients {
  Tensor q;
  Tensor k;
  Tensor v;
  Tensor mask;  // empty, unless it is wanted
};
// Returns the gradients. `forward` is what ScaledDotProductAttentionWithStatistics has returned for
// the same options. If `mask_gradient` is true, also returns that of the mask, which must be
// floating.
AttentionGradients ScaledDotProductAttentionBackward(const Tensor& gradient, const Tensor& q,
                                                     const Tensor& k, const Tensor& v,
                                                     const AttentionResult& forward,
                                                     const AttentionOptions& options = {},
                                                     bool mask_gradient = false);

// ---------------------------------------------------------------- convolution

// Lists have one number for each spatial axis, or one for all.
struct ConvOptions {
  std::vector<int64_t> stride = {};    // none: 1
  std::vector<int64_t> padding = {};   // zeros added at both ends of an axis, or, with two numbers
                                       // for each axis, at its beginning and at its end; none: 0
  std::vector<int64_t> dilation = {};  // from element to element of a window; none: 1
  int64_t groups = 1;                  // groups of channels, each of which has its own weights
  // Chooses the padding so that y has the spatial axes of x: padding="same" in PyTorch. The stride
  // must be 1, and `padding` must be empty.
  bool same_padding = false;
  Activation activation = Activation::kNone;  // applied to y; gradients ignore it
  bool allow_tf32 = false;  // a GPU may round float32 inputs to 10 bits of mantissa
};
// Return activation(the convolution of x with the weight + bias): x (N,C,spatial…), weight
// (O,C/groups,kernel…), bias (O) -> (N,O,spatial…). x may have no batch: (C,spatial…).
Tensor Conv1d(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias = {},
              const ConvOptions& options = {});
Tensor Conv2d(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias = {},
              const ConvOptions& options = {});
Tensor Conv3d(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias = {},
              const ConvOptions& options = {});
// ConvBackwardInput returns the gradient of x, and ConvBackwardWeight that of the weight. `shape`
// is the shape of the result. x and the gradient must have a batch. If the result of the
// convolution had an activation, `gradient` must be that of the activation's input. The gradient of
// the bias is Sum(gradient) over all axes but the channels.
Tensor ConvBackwardInput(const Tensor& gradient, const Tensor& weight, const Shape& shape,
                         const ConvOptions& options = {});
Tensor ConvBackwardWeight(const Tensor& gradient, const Tensor& x, const Shape& shape,
                          const ConvOptions& options = {});

struct ConvTransposeOptions {
  std::vector<int64_t> stride = {};          // none: 1
  std::vector<int64_t> padding = {};         // elements left out at both ends of y; none: 0
  std::vector<int64_t> output_padding = {};  // elements added at the end of y, fewer than the
                                             // stride; none: 0
  int64_t groups = 1;
  std::vector<int64_t> dilation = {};  // none: 1
  bool allow_tf32 = false;
};
// Return the transposed convolution of x with the weight, plus the bias: x (N,C,spatial…), weight
// (C,O/groups,kernel…), bias (O) -> (N,O,spatial…). A spatial axis of y has (size - 1) · stride -
// 2 · padding + dilation · (kernel - 1) + output_padding + 1 elements. x may have no batch.
Tensor ConvTranspose1d(const Tensor& x, const Tensor& weight,
                       const std::optional<Tensor>& bias = {},
                       const ConvTransposeOptions& options = {});
Tensor ConvTranspose2d(const Tensor& x, const Tensor& weight,
                       const std::optional<Tensor>& bias = {},
                       const ConvTransposeOptions& options = {});
Tensor ConvTranspose3d(const Tensor& x, const Tensor& weight,
                       const std::optional<Tensor>& bias = {},
                       const ConvTransposeOptions& options = {});

// ---------------------------------------------------------------- pooling

// The windows along the last one to three axes. Each list has one number for each of these axes, or
// one for all. If the kernel is empty, the functions fail.
struct PoolOptions {
  std::vector<int64_t> kernel = {};    // required; its length is the number of axes
  std::vector<int64_t> stride = {};    // none: the kernel
  std::vector<int64_t> padding = {};   // none: 0; must be at most half of the window
  std::vector<int64_t> dilation = {};  // none: 1; only for MaxPool
  bool ceil_mode = false;              // true: windows may reach beyond the end of the padding
};
struct PoolResult {
  Tensor y;
  Tensor indices;  // int64: the positions in the flattened spatial axes of x
};
// Return the largest element of each window. MaxPoolWithIndices also returns its position. A NaN is
// larger than all numbers. Of equal elements, and of NaNs, the first one is selected.
PoolResult MaxPoolWithIndices(const Tensor& x, const PoolOptions& options);
Tensor MaxPool(const Tensor& x, const PoolOptions& options);
// Returns the gradient of x, whose last dimensions are `size`. `indices` must be a result of
// MaxPoolWithIndices. The gradient of an element is the sum of those of the windows with its index.
Tensor MaxPoolBackward(const Tensor& gradient, const Tensor& indices,
                       const std::vector<int64_t>& size, const PoolOptions& options);

struct AvgPoolOptions {
  std::vector<int64_t> kernel = {};  // these four: as in PoolOptions
  std::vector<int64_t> stride = {};
  std::vector<int64_t> padding = {};
  bool ceil_mode = false;
  bool count_include_pad = true;  // true: padding counts as elements when a sum is divided
  int64_t divisor = 0;            // if it isn't 0, it divides the sums, not the number of elements
};
// Return the mean of each window, and the gradient of x, whose last dimensions are `size`.
Tensor AvgPool(const Tensor& x, const AvgPoolOptions& options);
Tensor AvgPoolBackward(const Tensor& gradient, const std::vector<int64_t>& size,
                       const AvgPoolOptions& options);

// ---------------------------------------------------------------- cells of recurrent layers

// A cell computes one time step of one layer in one direction. input_gates is Linear(x), and
// hidden_gates is Linear(h), where x is the input and h the state. The parts of the gates have
// PyTorch's order.

// LSTM: gates (N,4H): input, forget, cell, output; c (N,H).
struct LstmCellResult {
  Tensor h, c;   // (N,H)
  Tensor gates;  // (N,4H): for LstmCellBackward
};
LstmCellResult LstmCell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& c);
struct LstmCellGradients {
  Tensor gates;  // (N,4H): the gradient of input_gates; that of hidden_gates is equal
  Tensor c;      // (N,H)
  Tensor bias;   // (4H): the gradient of the bias in x's or in h's Linear; both are equal
};
// Takes the gradients of the results h and c. `c` is the argument of LstmCell, and `forward` its
// result.
LstmCellGradients LstmCellBackward(const Tensor& h_gradient, const Tensor& c_gradient,
                                   const Tensor& c, const LstmCellResult& forward);

// GRU: gates (N,3H): reset, update, new; h (N,H).
struct GruCellResult {
  Tensor h;      // (N,H)
  Tensor gates;  // (N,5H): for GruCellBackward
};
GruCellResult GruCell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& h);
struct GruCellGradients {
  Tensor input_gates, hidden_gates;  // (N,3H)
  Tensor h;                          // (N,H)
  Tensor input_bias, hidden_bias;    // (3H): of the biases of the linear functions
};
GruCellGradients GruCellBackward(const Tensor& h_gradient, const GruCellResult& forward);

// ---------------------------------------------------------------- recurrent layers

// All steps of one layer in one direction, with one op: x (T,N,I), T from 1 on; the state (N,H).
// All tensors have one floating dtype. G is the number of gates: 4 for LSTM, 3 for GRU, 1 for RNN.
struct RecurrentWeights {
  Tensor ih;                                         // (G·H,I)
  Tensor hh;                                         // (G·H,H)
  std::optional<Tensor> bias_ih = {}, bias_hh = {};  // (G·H): both or none
};
struct RecurrentLayerOptions {
  bool reverse = false;     // from the last step to the first
  bool relu = false;        // of RNN: relu in place of tanh
  bool allow_tf32 = false;  // a GPU may round float32 inputs to 10 bits of mantissa
};
struct RecurrentLayerResult {
  Tensor output;      // (T,N,H): h after each step
  Tensor h;           // (N,H), after the last step
  Tensor c = {};      // the same; only of LSTM
  Tensor cells = {};  // (T,N,H): c after each step; only of LSTM
  Tensor gates = {};  // for the gradient: (T,N,4H) of LSTM, (T,N,5H) of GRU, none of RNN
};
RecurrentLayerResult LstmLayer(const Tensor& x, const Tensor& h, const Tensor& c,
                               const RecurrentWeights& weights,
                               const RecurrentLayerOptions& options = {});
RecurrentLayerResult GruLayer(const Tensor& x, const Tensor& h, const RecurrentWeights& weights,
                              const RecurrentLayerOptions& options = {});
RecurrentLayerResult RnnLayer(const Tensor& x, const Tensor& h, const RecurrentWeights& weights,
                              const RecurrentLayerOptions& options = {});

struct RecurrentLayerGradients {
  Tensor x, h;
  Tensor c = {};  // only of LSTM
  RecurrentWeights weights;
};
// Takes the gradients of the results output, h and c. A gradient may be a scalar; give 0 if a result
// has none. The other arguments are those of the forward function, and its result. The gradients of
// biases are also returned if there are no biases.
RecurrentLayerGradients LstmLayerBackward(const Tensor& output_gradient, const Tensor& h_gradient,
                                          const Tensor& c_gradient, const Tensor& x,
                                          const Tensor& h, const Tensor& c,
                                          const RecurrentWeights& weights,
                                          const RecurrentLayerResult& forward,
                                          const RecurrentLayerOptions& options = {});
RecurrentLayerGradients GruLayerBackward(const Tensor& output_gradient, const Tensor& h_gradient,
                                         const Tensor& x, const Tensor& h,
                                         const RecurrentWeights& weights,
                                         const RecurrentLayerResult& forward,
                                         const RecurrentLayerOptions& options = {});
RecurrentLayerGradients RnnLayerBackward(const Tensor& output_gradient, const Tensor& h_gradient,
                                         const Tensor& x, const Tensor& h,
                                         const RecurrentWeights& weights,
                                         const RecurrentLayerResult& forward,
                                         const RecurrentLayerOptions& options = {});

// ---------------------------------------------------------------- optimizers

struct SgdOptions {
  double momentum = 0;
  double dampening = 0;     // the share of a gradient that isn't added to the momentum's buffer
  double weight_decay = 0;  // this share of p is added to the gradient
  bool nesterov = false;    // needs a momentum
  bool maximize = false;    // adds the gradient to p
};
struct SgdState {
  Tensor p;                           // the parameter
  std::optional<Tensor> buffer = {};  // of the momentum; none: before the first step
};
// Returns the state after a step of stochastic gradient descent, as torch.optim.SGD computes it.
// The learning rate is a number, or a tensor of shape [], such as an input of a recorded program.
// The new tensors have the dtype of p. Without a momentum, there is no buffer.
SgdState SgdStep(const SgdState& state, const Tensor& gradient, Operand lr,
                 const SgdOptions& options = {});

struct AdagradOptions {
  double lr_decay = 0;      // lr is divided by 1 + (step - 1) lr_decay
  double weight_decay = 0;  // this share of p is added to the gradient
  double eps = 1e-10;       // added to the root of the sum
  bool maximize = false;    // adds the gradient to p
};
struct AdagradState {
  Tensor p;    // the parameter
  Tensor sum;  // of the squared gradients
};
// Returns the state after a step of torch.optim.Adagrad. `step` is the number of the step, from 1.
// `step` and `lr` have the shape []. The new tensors have the dtype of p.
AdagradState AdagradStep(const AdagradState& state, const Tensor& gradient, const Tensor& step,
                         const Tensor& lr, const AdagradOptions& options = {});

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool decoupled = false;  // true: AdamW
  bool maximize = false;
  // Lets the op overwrite p, m, v and vmax. All copies of these Tensors then fail from the call on
  // (RunOptions in ops.h).
  bool donate = true;
};
struct AdamState {
  Tensor p;                         // the parameter
  Tensor m;                         // the decaying mean of the gradients
  Tensor v;                         // that of their squares
  std::optional<Tensor> vmax = {};  // amsgrad: the largest v so far; none: without amsgrad
};
// Returns the state after a step of Adam. All tensors of the state, and `gradient`, have the dtype
// and shape of p. `step` is the number of the step, from 1 on, and `lr` is the learning rate. Both
// are tensors of shape [], so they can be inputs of a recorded program.
AdamState AdamStep(const AdamState& state, const Tensor& gradient, const Tensor& step,
                   const Tensor& lr, const AdamOptions& options = {});

}  // namespace tensord
