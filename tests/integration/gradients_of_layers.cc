// The gradients of layers, indexing and dropout.
#include <initializer_list>
#include <optional>
#include <vector>

#include "tensord/tests/integration/gradient_configurations.h"

namespace tensord::integration {
namespace {

// ---------------------------------------------------------------- norms

Configuration MakeLayerNorm(Draw& draw) {
  const Shape shape = draw.RandomShape(1, 4, 4);
  const LayerNormOptions options = {.normalized_rank = draw.Number(1, shape.rank()), .eps = 0.1};
  const Shape of_parameters(shape.dims().last(static_cast<int>(options.normalized_rank)));
  const bool center = draw.Flag(), has_weight = draw.Flag();
  Tensors operands = {draw.Values(shape)};
  if (has_weight) {
    for (int i = 0; i < 2; ++i) operands.push_back(draw.Values(of_parameters));
  }
  const auto run = [=](const Tensors& in) {
    NormParameters parameters;
    if (has_weight) parameters = {in[1], in[2]};
    return center ? LayerNormWithStatistics(in[0], parameters, options)
                  : RmsNormWithStatistics(in[0], parameters, options);
  };
  return {
      operands, [=](const Tensors& in) { return run(in).y; },
      [=](const Tensors& in, const Tensor& g) {
        std::optional<Tensor> weight;
        if (has_weight) weight = in[1];
        if (center) {
          const NormGradients gradients = LayerNormBackward(g, in[0], run(in), weight, options);
          return Tensors{gradients.x, gradients.weight, gradients.bias};
        }
        const NormGradients gradients = RmsNormBackward(g, in[0], run(in), weight, options);
        std::vector<int64_t> rows(g.rank() - options.normalized_rank);
        for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
        return Tensors{gradients.x, gradients.weight, rows.empty() ? g : Sum(g, {.axes = rows})};
      }};
}

Configuration MakeBatchNorm(Draw& draw) {
  Shape shape = draw.RandomShape(2, 5, 3);
  shape.set_dim(0, draw.Number(2, 4));
  const int64_t channels = shape.dim(1);
  const bool training = draw.Flag(), has_weight = draw.Flag();
  const BatchNormOptions options = {.eps = 0.1};
  const Tensor running_mean = draw.Values({channels}), running_var = draw.Positive({channels});
  Tensors operands = {draw.Values(shape)};
  if (has_weight) {
    for (int i = 0; i < 2; ++i) operands.push_back(draw.Values({channels}));
  }
  const auto parameters_of = [=](const Tensors& in) {
    return has_weight ? NormParameters{in[1], in[2]} : NormParameters{};
  };
  return {operands,
          [=](const Tensors& in) {
            return training
                       ? BatchNormInTraining(in[0], running_mean, running_var, parameters_of(in),
                                             options)
                             .y
                       : BatchNorm(in[0], running_mean, running_var, parameters_of(in), options);
          },
          [=](const Tensors& in, const Tensor& g) {
            Tensor mean = running_mean, invstd = Rsqrt(running_var + options.eps);
            if (training) {
              const BatchNormResult forward =
                  BatchNormInTraining(in[0], running_mean, running_var, parameters_of(in), options);
              mean = forward.mean;
              invstd = forward.invstd;
            }
            const NormGradients gradients =
                BatchNormBackward(g, in[0], mean, invstd, parameters_of(in).weight, training);
            return Tensors{gradients.x, gradients.weight, gradients.bias};
          }};
}

// ---------------------------------------------------------------- convolution, pooling

Configuration MakeConv(Draw& draw) {
  const int axes = static_cast<int>(draw.Number(1, 3));
  const int64_t groups = draw.Number(1, 3);
  const Ints kernel = draw.Numbers(axes, 1, axes == 3 ? 2 : 3);
  ConvOptions options = {.stride = draw.Numbers(axes, 1, 2),
                         .padding = draw.Numbers(2 * axes, 0, 2),
                         .dilation = draw.Numbers(axes, 1, 2),
                         .groups = groups};
  Shape of_x({draw.Number(1, 2), groups * draw.Number(1, 2)});
  Shape of_weight({groups * draw.Number(1, 2), of_x.dim(1) / groups});
  for (int d = 0; d < axes; ++d) {
    of_x.AppendDim((kernel[d] - 1) * options.dilation[d] + draw.Number(1, axes == 1 ? 5 : 2));
    of_weight.AppendDim(kernel[d]);
  }
  if (draw.Number(0, 3) == 0) {  // padding="same"
    options.stride.clear();
    options.padding.clear();
    options.same_padding = true;
  }
  const auto conv = axes == 1 ? Conv1d : axes == 2 ? Conv2d : Conv3d;
  return {{draw.Values(of_x), draw.Values(of_weight), draw.Values({of_weight.dim(0)})},
          [=](const Tensors& in) { return conv(in[0], in[1], in[2], options); },
          [=](const Tensors& in, const Tensor& g) {
            std::vector<int64_t> all_but_channels = {0};
            for (int d = 0; d < axes; ++d) all_but_channels.push_back(2 + d);
            return Tensors{ConvBackwardInput(g, in[1], of_x, options),
                           ConvBackwardWeight(g, in[0], of_weight, options),
                           Sum(g, {.axes = all_but_channels})};
          }};
}

// Draws windows, and returns the sizes of the axes that they slide along.
Ints DrawWindows(Draw& draw, bool dilate, PoolOptions* options) {
  const int axes = static_cast<int>(draw.Number(1, 3));
  options->kernel = draw.Numbers(axes, 1, 3);
  if (draw.Flag()) options->stride = draw.Numbers(axes, 1, 3);
  for (const int64_t size : options->kernel) options->padding.push_back(draw.Number(0, size / 2));
  if (dilate && draw.Flag()) options->dilation = draw.Numbers(axes, 1, 2);
  options->ceil_mode = draw.Flag();
  Ints sizes;
  for (int d = 0; d < axes; ++d) {
    const int64_t dilation = options->dilation.empty() ? 1 : options->dilation[d];
    sizes.push_back((options->kernel[d] - 1) * dilation + draw.Number(1, axes == 1 ? 9 : 3));
  }
  return sizes;
}

Shape PooledShape(Draw& draw, const Ints& sizes) {
  Shape shape = draw.RandomShape(0, sizes.size() == 3 ? 1 : 2, 2);
  for (const int64_t size : sizes) shape.AppendDim(size);
  return shape;
}

Configuration MakeMaxPool(Draw& draw) {
  PoolOptions options;
  const Ints sizes = DrawWindows(draw, true, &options);
  return {{draw.DistinctValues(PooledShape(draw, sizes))},
          [=](const Tensors& in) { return MaxPool(in[0], options); },
          [=](const Tensors& in, const Tensor& g) {
            const Tensor indices = MaxPoolWithIndices(in[0], options).indices;
            return Tensors{MaxPoolBackward(g, indices, sizes, options)};
          }};
}

Configuration MakeAvgPool(Draw& draw) {
  PoolOptions windows;
  const Ints sizes = DrawWindows(draw, false, &windows);
  const AvgPoolOptions options = {.kernel = windows.kernel,
                                  .stride = windows.stride,
                                  .padding = windows.padding,
                                  .ceil_mode = windows.ceil_mode,
                                  .count_include_pad = draw.Flag(),
                                  .divisor = draw.Number(0, 1) * draw.Number(1, 5)};
  return {
      {draw.Values(PooledShape(draw, sizes))},
      [=](const Tensors& in) { return AvgPool(in[0], options); },
      [=](const Tensors&, const Tensor& g) { return Tensors{AvgPoolBackward(g, sizes, options)}; }};
}

// ---------------------------------------------------------------- attention

Shape Join(const Shape& front, std::initializer_list<int64_t> back) {
  Shape shape = front;
  for (const int64_t dim : back) shape.AppendDim(dim);
  return shape;
}

Configuration MakeAttention(Draw& draw) {
  const Shape batch = draw.RandomShape(0, 1, 2);
  const int64_t shared = draw.Number(1, 2), heads = shared * draw.Number(1, 2);
  const int64_t length = draw.Number(1, 5), keys = draw.Number(1, 5), depth = draw.Number(1, 4);
  const bool has_heads = batch.rank() > 0 || draw.Flag();
  const auto shape = [&](int64_t h, int64_t rows, int64_t columns) {
    return has_heads ? Join(batch, {h, rows, columns}) : Shape({rows, columns});
  };
  AttentionOptions options;
  if (draw.Flag()) options.scale = 0.25 * static_cast<double>(draw.Number(1, 4));
  if (draw.Flag()) {
    options.dropout_p = 0.25;
    options.stream = RandomStream{draw.Number(0, 9), draw.Number(0, 9)};
  }
  Tensors operands = {draw.Values(shape(heads, length, depth)),
                      draw.Values(shape(shared, keys, depth)),
                      draw.Values(shape(shared, keys, draw.Number(1, 3)))};
  const int64_t kind = draw.Number(0, 3);
  const Shape of_mask =
      draw.Flag() ? shape(heads, length, keys) : Shape({draw.Flag() ? length : 1, keys});
  options.causal = kind == 1;
  if (kind == 2) options.mask = draw.Bools(of_mask);  // some rows may have no keys
  const bool differentiates_mask = kind == 3;
  if (differentiates_mask) operands.push_back(draw.Values(of_mask));
  const auto options_for = [=](const Tensors& in) {
    AttentionOptions result = options;
    if (differentiates_mask) result.mask = in[3];
    return result;
  };
  return {operands,
          [=](const Tensors& in) {
            return ScaledDotProductAttention(in[0], in[1], in[2], options_for(in));
          },
          [=](const Tensors& in, const Tensor& g) {
            const AttentionResult forward =
                ScaledDotProductAttentionWithStatistics(in[0], in[1], in[2], options_for(in));
            const AttentionGradients gradients = ScaledDotProductAttentionBackward(
                g, in[0], in[1], in[2], forward, options_for(in), differentiates_mask);
            return Tensors{gradients.q, gradients.k, gradients.v, gradients.mask};
          }};
}

Configuration MakeGroupNorm(Draw& draw) {
  const GroupNormOptions options = {.groups = draw.Number(1, 2)};
  const int64_t channels = options.groups * draw.Number(1, 3);
  Tensors operands = {draw.Values({draw.Number(1, 3), channels, draw.Number(2, 4)})};
  const bool has_weight = draw.Flag();
  if (has_weight) {
    operands.push_back(draw.Values({channels}));
    operands.push_back(draw.Values({channels}));
  }
  const auto forward = [=](const Tensors& in) {
    NormParameters parameters;
    if (has_weight) parameters = {in[1], in[2]};
    return GroupNormWithStatistics(in[0], options, parameters);
  };
  return {operands, [=](const Tensors& in) { return forward(in).y; },
          [=](const Tensors& in, const Tensor& g) {
            const auto weight = has_weight ? std::optional<Tensor>(in[1]) : std::nullopt;
            const NormGradients gradients =
                GroupNormBackward(g, in[0], forward(in), weight, options);
            if (!has_weight) return Tensors{gradients.x};
            return Tensors{gradients.x, gradients.weight, gradients.bias};
          }};
}

// ---------------------------------------------------------------- cells of recurrent layers

Configuration MakeLstmCell(Draw& draw) {
  const int64_t n = draw.Number(1, 3), size = draw.Number(1, 3);
  const bool of_c = draw.Flag();  // the gradient is that of c, not of h
  const Tensor zero = draw.Values({n, size}) * 0.0;
  return {{draw.Values({n, 4 * size}), draw.Values({n, 4 * size}), draw.Values({n, size})},
          [=](const Tensors& in) {
            const LstmCellResult result = LstmCell(in[0], in[1], in[2]);
            return of_c ? result.c : result.h;
          },
          [=](const Tensors& in, const Tensor& g) {
            const LstmCellResult forward = LstmCell(in[0], in[1], in[2]);
            const LstmCellGradients gradients =
                LstmCellBackward(of_c ? zero : g, of_c ? g : zero, in[2], forward);
            return Tensors{gradients.gates, gradients.gates, gradients.c};
          }};
}
Configuration MakeGruCell(Draw& draw) {
  const int64_t n = draw.Number(1, 3), size = draw.Number(1, 3);
  return {{draw.Values({n, 3 * size}), draw.Values({n, 3 * size}), draw.Values({n, size})},
          [=](const Tensors& in) { return GruCell(in[0], in[1], in[2]).h; },
          [=](const Tensors& in, const Tensor& g) {
            const GruCellGradients gradients = GruCellBackward(g, GruCell(in[0], in[1], in[2]));
            return Tensors{gradients.input_gates, gradients.hidden_gates, gradients.h};
          }};
}

// ---------------------------------------------------------------- recurrent layers

// The operands: x, h, c of an LSTM, the weights, and maybe the biases. The gradient is that of the
// output or of one of the last states.
template <int kStates, int kGates, typename Forward, typename Backward>
Configuration MakeLayer(Draw& draw, const RecurrentLayerOptions& options, Forward forward,
                        Backward backward) {
  const int64_t t = draw.Number(1, 3), n = draw.Number(1, 2), i = draw.Number(1, 2),
                h = draw.Number(1, 2);
  Tensors operands = {draw.Values({t, n, i}), draw.Values({n, h})};
  if (kStates == 2) operands.push_back(draw.Values({n, h}));
  operands.push_back(draw.Values({kGates * h, i}));
  operands.push_back(draw.Values({kGates * h, h}));
  if (draw.Flag()) {
    for (int bias = 0; bias < 2; ++bias) operands.push_back(draw.Values({kGates * h}));
  }
  const auto weights = [](const Tensors& in) {
    RecurrentWeights all = {in[kStates + 1], in[kStates + 2]};
    if (in.size() > kStates + 3) {
      all.bias_ih = in[kStates + 3];
      all.bias_hh = in[kStates + 4];
    }
    return all;
  };
  const int64_t of = draw.Number(0, kStates);  // the result whose gradient is given
  const Tensor zero = Zeros(operands[0].device(), {}, {.dtype = operands[0].dtype()});
  return {operands,
          [=](const Tensors& in) {
            const RecurrentLayerResult made = forward(in, weights(in), options);
            return of == 0 ? made.output : of == 1 ? made.h : made.c;
          },
          [=](const Tensors& in, const Tensor& g) {
            const auto given = [&](int64_t result) { return of == result ? g : zero; };
            const RecurrentLayerGradients made =
                backward(Tensors{given(0), given(1), given(2)}, in, weights(in), options);
            Tensors gradients = {made.x, made.h};
            if (kStates == 2) gradients.push_back(made.c);
            const RecurrentWeights& own = made.weights;
            for (const Tensor& each : {own.ih, own.hh, *own.bias_ih, *own.bias_hh}) {
              gradients.push_back(each);
            }
            gradients.resize(in.size());
            return gradients;
          }};
}
Configuration MakeLstmLayer(Draw& draw) {
  const RecurrentLayerOptions options = {.reverse = draw.Flag()};
  return MakeLayer<2, 4>(
      draw, options,
      [](const Tensors& in, const RecurrentWeights& weights, const auto& layer) {
        return LstmLayer(in[0], in[1], in[2], weights, layer);
      },
      [](const Tensors& g, const Tensors& in, const RecurrentWeights& weights, const auto& layer) {
        return LstmLayerBackward(g[0], g[1], g[2], in[0], in[1], in[2], weights,
                                 LstmLayer(in[0], in[1], in[2], weights, layer), layer);
      });
}
Configuration MakeGruLayer(Draw& draw) {
  const RecurrentLayerOptions options = {.reverse = draw.Flag()};
  return MakeLayer<1, 3>(
      draw, options,
      [](const Tensors& in, const RecurrentWeights& weights, const auto& layer) {
        return GruLayer(in[0], in[1], weights, layer);
      },
      [](const Tensors& g, const Tensors& in, const RecurrentWeights& weights, const auto& layer) {
        return GruLayerBackward(g[0], g[1], in[0], in[1], weights,
                                GruLayer(in[0], in[1], weights, layer), layer);
      });
}
Configuration MakeRnnLayer(Draw& draw) {
  const RecurrentLayerOptions options = {.reverse = draw.Flag(), .relu = draw.Flag()};
  return MakeLayer<1, 1>(
      draw, options,
      [](const Tensors& in, const RecurrentWeights& weights, const auto& layer) {
        return RnnLayer(in[0], in[1], weights, layer);
      },
      [](const Tensors& g, const Tensors& in, const RecurrentWeights& weights, const auto& layer) {
        return RnnLayerBackward(g[0], g[1], in[0], in[1], weights,
                                RnnLayer(in[0], in[1], weights, layer), layer);
      });
}

// ---------------------------------------------------------------- indexing, dropout

Configuration MakeEmbedding(Draw& draw) {
  const int64_t rows = draw.Number(2, 5);
  const Tensor indices = draw.Integers(draw.RandomShape(0, 2, 4), -rows, rows - 1);
  // PyTorch's options padding_idx and scale_grad_by_freq change the gradient, but not the result.
  return {{draw.Values({rows, draw.Number(1, 3)})},
          [=](const Tensors& in) { return Embedding(indices, in[0]); },
          [=](const Tensors&, const Tensor& g) {
            return Tensors{EmbeddingBackward(g, indices, rows)};
          }};
}
Configuration MakeDropout(Draw& draw) {
  const double p = 0.25 * static_cast<double>(draw.Number(0, 4));
  const RandomStream stream = {draw.Number(0, 9), draw.Number(0, 9)};
  return OfArgument(
      draw, [=](const Tensor& x) { return Dropout(x, p, stream); },
      [=](const Tensor& g, const Tensor& x) {
        return DropoutBackward(g, DropoutWithMask(x, p, stream).mask, p);
      });
}
Configuration MakeSelect(Draw& draw) {
  const Shape shape = draw.RandomShape(1, 3, 4);
  const int64_t axis = draw.Number(-shape.rank(), shape.rank() - 1);
  const int64_t size = shape.dim(static_cast<int>(axis < 0 ? axis + shape.rank() : axis));
  const int64_t index = draw.Number(-size, size - 1);
  return {{draw.Values(shape)},
          [=](const Tensors& in) { return Select(in[0], axis, index); },
          [=](const Tensors&, const Tensor& g) {
            return Tensors{SelectBackward(g, shape, axis, index)};
          }};
}
Configuration MakeSlice(Draw& draw) {
  const Shape shape = draw.RandomShape(1, 3, 5);
  const SliceScatterOptions slice = {.axis = draw.Number(0, shape.rank() - 1),
                                     .start = draw.Number(-6, 6),
                                     .stop = draw.Flag() ? kToEnd : draw.Number(-6, 6),
                                     .step = draw.Number(1, 3)};
  return {{draw.Values(shape)},
          [=](const Tensors& in) {
            return Slice(in[0], {slice.start}, {slice.stop},
                         {.axes = {slice.axis}, .steps = {slice.step}});
          },
          [=](const Tensors&, const Tensor& g) { return Tensors{SliceBackward(g, shape, slice)}; }};
}

const Case kLayerCases[] = {
    {{"layer_norm_backward"}, 20, MakeLayerNorm},
    {{"batch_norm_backward"}, 20, MakeBatchNorm},
    {{"conv_backward_input", "conv_backward_weight"}, 30, MakeConv},
    {{"max_pool_backward"}, 20, MakeMaxPool},
    {{"avg_pool_backward"}, 20, MakeAvgPool},
    {{"sdpa_backward"}, 30, MakeAttention},
    {{"group_norm_backward"}, 12, MakeGroupNorm},
    {{"lstm_cell_backward", "lstm_gates_backward"}, 8, MakeLstmCell},
    {{"gru_cell_backward", "gru_gates_backward"}, 8, MakeGruCell},
    {{"lstm_layer_backward"}, 12, MakeLstmLayer},
    {{"gru_layer_backward"}, 12, MakeGruLayer},
    {{"rnn_layer_backward"}, 16, MakeRnnLayer},
    {{"embedding_backward"}, 6, MakeEmbedding},
    {{"dropout_backward"}, 6, MakeDropout},
    {{"select_backward"}, 6, MakeSelect},
    {{"slice_backward"}, 12, MakeSlice},
};

}  // namespace

absl::Span<const Case> LayerCases() { return kLayerCases; }

}  // namespace tensord::integration
