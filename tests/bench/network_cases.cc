// Network ops on resident tensors beside PyTorch 2.
#include <algorithm>
#include <memory>
#include <utility>

#include "tensord/tests/bench/array_case.h"

namespace tensord::bench {
namespace {

ArrayCase SoftmaxBackwardCase() {
  return {"softmax_backward over 4096x4096 float32",
          4,
          [](const Device& device) {
            const Tensor y = Softmax(Normal(device, {4096, 4096}, /*seed=*/1));
            const Tensor g = Normal(device, {4096, 4096}, /*seed=*/2);
            return [y, g] { return SoftmaxBackward(g, y); };
          },
          "y = torch.softmax(torch.randn(4096, 4096), 1) | g = torch.randn(4096, 4096)",
          "torch._softmax_backward_data(g, y, 1, torch.float32)",
          1.2};
}

constexpr char kLayerNormInputs[] =
    "x = torch.randn(512, 768) | w = torch.randn(768) | b = torch.randn(768)";

ArrayCase LayerNormCase() {
  return {"layer_norm of 512x768 float32",
          128,
          [](const Device& device) {
            const Tensor x = Normal(device, {512, 768}, /*seed=*/1);
            const NormParameters parameters = {Normal(device, {768}, 2), Normal(device, {768}, 3)};
            return [x, parameters] { return LayerNorm(x, parameters); };
          },
          kLayerNormInputs,
          "torch.nn.functional.layer_norm(x, (768,), w, b)",
          1.2};
}

ArrayCase LayerNormBackwardCase() {
  return {"layer_norm_backward of 512x768 float32",
          128,
          [](const Device& device) {
            const Tensor x = Normal(device, {512, 768}, /*seed=*/1);
            const Tensor g = Normal(device, {512, 768}, /*seed=*/4);
            const NormParameters parameters = {Normal(device, {768}, 2), Normal(device, {768}, 3)};
            const LayerNormResult forward = LayerNormWithStatistics(x, parameters);
            return [=] { return LayerNormBackward(g, x, forward, parameters.weight).x; };
          },
          absl::StrCat(kLayerNormInputs,
                       " | g = torch.randn(512, 768)"
                       " | y, m, r = torch.native_layer_norm(x, (768,), w, b, 1e-5)"),
          "torch.ops.aten.native_layer_norm_backward(g, x, (768,), m, r, w, b, [True] * 3)",
          1.2};
}

ArrayCase BatchNormCase() {
  return {"batch_norm in training of 8x64x56x56 float32",
          4,
          [](const Device& device) {
            const Tensor x = Normal(device, {8, 64, 56, 56}, /*seed=*/1);
            const Tensor zeros = Zeros(device, {64}), ones = Ones(device, {64});
            return [=] { return BatchNormInTraining(x, zeros, ones, {ones, zeros}).y; };
          },
          "x = torch.randn(8, 64, 56, 56) | z = torch.zeros(64) | o = torch.ones(64)",
          "torch.nn.functional.batch_norm(x, z, o, o, z, True)",
          1.2};
}

ArrayCase BatchNormBackwardCase() {
  return {"batch_norm_backward in training of 8x64x56x56 float32",
          4,
          [](const Device& device) {
            const Tensor x = Normal(device, {8, 64, 56, 56}, /*seed=*/1);
            const Tensor g = Normal(device, {8, 64, 56, 56}, /*seed=*/2);
            const Tensor zeros = Zeros(device, {64}), ones = Ones(device, {64});
            return [=] { return BatchNormBackward(g, x, zeros, ones, ones).x; };
          },
          "x = torch.randn(8, 64, 56, 56) | g = torch.randn(8, 64, 56, 56) | z = torch.zeros(64)"
          " | o = torch.ones(64)",
          "torch.ops.aten.native_batch_norm_backward(g, x, o, z, o, z, o, True, 1e-5, [True] * 3)",
          1.2};
}

ArrayCase MaxPoolCase() {
  return {"max_pool 3x3/2 of 8x64x112x112 float32",
          2,
          [](const Device& device) {
            const Tensor x = Normal(device, {8, 64, 112, 112}, /*seed=*/1);
            return [x] { return MaxPool(x, {.kernel = {3, 3}, .stride = {2}, .padding = {1}}); };
          },
          "x = torch.randn(8, 64, 112, 112)",
          "torch.nn.functional.max_pool2d(x, 3, 2, 1)",
          3.0};
}

ArrayCase AvgPoolCase() {
  return {"avg_pool 2x2 of 8x64x112x112 float32",
          2,
          [](const Device& device) {
            const Tensor x = Normal(device, {8, 64, 112, 112}, /*seed=*/1);
            return [x] { return AvgPool(x, {.kernel = {2, 2}}); };
          },
          "x = torch.randn(8, 64, 112, 112)",
          "torch.nn.functional.avg_pool2d(x, 2)",
          1.2};
}

// A convolution with as many images, channels, and elements along each spatial axis.
struct ConvSizes {
  int64_t images, in, size, out, kernel, stride, padding;
  double goal, goal_of_x, goal_of_weight;  // ratios

  int64_t result() const { return (size + 2 * padding - kernel) / stride + 1; }
  ConvOptions options() const { return {.stride = {stride}, .padding = {padding}}; }
  Shape x() const { return {images, in, size, size}; }
  Shape weight() const { return {out, in, kernel, kernel}; }
  Shape y() const { return {images, out, result(), result()}; }
  std::string Name(absl::string_view op) const {
    return absl::StrCat(op, " ", kernel, "x", kernel, stride == 1 ? "" : absl::StrCat("/", stride),
                        " ", in, "->", out, " of ", images, "x", size, "x", size, " float32");
  }
  // A few milliseconds of work.
  int repeats() const {
    const double products =
        static_cast<double>(images * out * in * kernel * kernel * result() * result());
    return static_cast<int>(std::clamp(3e8 / products, 1.0, 32.0));
  }
  std::string inputs() const {
    return absl::StrCat("x = torch.randn(", images, ", ", in, ", ", size, ", ", size,
                        ") | w = torch.randn(", out, ", ", in, ", ", kernel, ", ", kernel,
                        ") | b = torch.randn(", out, ") | g = torch.randn(", images, ", ", out,
                        ", ", result(), ", ", result(), ")");
  }
  std::string backward(absl::string_view mask) const {
    return absl::StrCat("torch.ops.aten.convolution_backward(g, x, w, None, [", stride, "] * 2, [",
                        padding, "] * 2, [1, 1], False, [0, 0], 1, ", mask, ")");
  }
};

constexpr ConvSizes kConvolutions[] = {
    {1, 64, 56, 64, 3, 1, 1, 1.0, 0.85, 0.85},  {1, 128, 28, 128, 3, 1, 1, 1.0, 0.85, 0.85},
    {2, 512, 7, 512, 3, 1, 1, 0.9, 0.85, 0.85}, {64, 6, 14, 16, 5, 1, 0, 1.1, 0.85, 0.85},
    {1, 3, 224, 64, 7, 2, 3, 0.95, 0.85, 0.85},
};

ArrayCase ConvCase(const ConvSizes& c) {
  return {c.Name("conv"),
          c.repeats(),
          [c](const Device& device) {
            const Tensor x = Normal(device, c.x(), /*seed=*/1);
            const Tensor w = Normal(device, c.weight(), /*seed=*/2);
            const Tensor b = Normal(device, {c.out}, /*seed=*/3);
            return [=] { return Conv2d(x, w, b, c.options()); };
          },
          c.inputs(),
          absl::StrCat("torch.nn.functional.conv2d(x, w, b, ", c.stride, ", ", c.padding, ")"),
          c.goal};
}

ArrayCase ConvBackwardInputCase(const ConvSizes& c) {
  return {c.Name("conv_backward_input"),
          c.repeats(),
          [c](const Device& device) {
            const Tensor g = Normal(device, c.y(), /*seed=*/1);
            const Tensor w = Normal(device, c.weight(), /*seed=*/2);
            return [=] { return ConvBackwardInput(g, w, c.x(), c.options()); };
          },
          c.inputs(),
          c.backward("[True, False, False]"),
          c.goal_of_x};
}

ArrayCase ConvBackwardWeightCase(const ConvSizes& c) {
  return {c.Name("conv_backward_weight"),
          c.repeats(),
          [c](const Device& device) {
            const Tensor g = Normal(device, c.y(), /*seed=*/1);
            const Tensor x = Normal(device, c.x(), /*seed=*/2);
            return [=] { return ConvBackwardWeight(g, x, c.weight(), c.options()); };
          },
          c.inputs(),
          c.backward("[False, True, False]"),
          c.goal_of_weight};
}

constexpr char kLossInputs[] = "x = torch.randn(256, 50257) | t = torch.randint(50257, (256,))";

Tensor Targets(const Device& device) { return RandInt(device, {256}, 0, 50257, /*source=*/2); }

ArrayCase CrossEntropyCase() {
  return {"cross entropy of 256x50257 float32",
          4,
          [](const Device& device) {
            const Tensor x = Normal(device, {256, 50257}, /*seed=*/1), target = Targets(device);
            return [x, target] { return CrossEntropy(x, target); };
          },
          kLossInputs,
          "torch.nn.functional.cross_entropy(x, t)",
          2.5};
}

ArrayCase CrossEntropyBackwardCase() {
  return {"cross entropy of 256x50257 float32, forward and backward", 2,
          [](const Device& device) {
            const Tensor x = Normal(device, {256, 50257}, /*seed=*/1), target = Targets(device);
            const Tensor g = Full(device, {}, 1.0);
            return [=] {
              return CrossEntropyBackward(g, x, CrossEntropyWithStatistics(x, target), target);
            };
          },
          // The peer runs all statements in inference mode, in which there are no gradients.
          "normal = torch.inference_mode(False) | "
          "x = normal(lambda: torch.randn(256, 50257, requires_grad=True))() | "
          "t = normal(lambda: torch.randint(50257, (256,)))() | "
          "run = normal(lambda: torch.autograd.grad(torch.nn.functional.cross_entropy(x, t), x))",
          "run()", 2.5};
}

// Attention of `rows` rows of q beside `keys` keys, with heads of 64 elements.
struct AttentionSizes {
  int64_t batch, heads, rows, keys;

  std::string ToString() const { return absl::StrCat(batch, "x", heads, "x", rows, "x64"); }
  Shape q() const { return {batch, heads, rows, 64}; }
  Shape k() const { return {batch, heads, keys, 64}; }
  // The same in Python, for as many rows as `length`.
  std::string Random(int64_t length, const char* options = "") const {
    return absl::StrCat("torch.randn(", batch, ", ", heads, ", ", length, ", 64", options, ")");
  }
  std::string PeerInputs() const {
    return absl::StrCat("q = ", Random(rows), " | k = ", Random(keys), " | v = ", Random(keys));
  }
};
constexpr AttentionSizes kManyHeads = {4, 12, 256, 256}, kLongRows = {1, 12, 1024, 1024};

ArrayCase AttentionCase(const AttentionSizes& sizes) {
  return {absl::StrCat("causal attention of ", sizes.ToString(), " float32"),
          4,
          [sizes](const Device& device) {
            const Tensor q = Normal(device, sizes.q(), /*seed=*/1);
            const Tensor k = Normal(device, sizes.k(), 2), v = Normal(device, sizes.k(), 3);
            return [=] { return ScaledDotProductAttention(q, k, v, {.causal = true}); };
          },
          sizes.PeerInputs(),
          "torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)",
          1.2};
}

ArrayCase AttentionBackwardCase(const AttentionSizes& sizes) {
  // The peer runs all statements in inference mode, in which there are no gradients.
  const auto leaf = [&](int64_t length) {
    return absl::StrCat("normal(lambda: ", sizes.Random(length, ", requires_grad=True"), ")()");
  };
  return {absl::StrCat("causal attention of ", sizes.ToString(), " float32, forward and backward"),
          2,
          [sizes](const Device& device) {
            const Tensor q = Normal(device, sizes.q(), /*seed=*/1);
            const Tensor k = Normal(device, sizes.k(), 2), v = Normal(device, sizes.k(), 3);
            const Tensor g = Normal(device, sizes.q(), /*seed=*/4);
            return [=] {
              const AttentionOptions options = {.causal = true};
              const AttentionResult forward =
                  ScaledDotProductAttentionWithStatistics(q, k, v, options);
              return ScaledDotProductAttentionBackward(g, q, k, v, forward, options).q;
            };
          },
          absl::StrCat("normal = torch.inference_mode(False) | q = ", leaf(sizes.rows),
                       " | k = ", leaf(sizes.keys), " | v = ", leaf(sizes.keys),
                       " | g = normal(lambda: ", sizes.Random(sizes.rows),
                       ")() | run = normal(lambda: torch.autograd.grad("
                       "torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True), "
                       "(q, k, v), g))"),
          "run()",
          1.0};
}

// One row beside the keys and values of earlier ones.
ArrayCase DecodeCase() {
  const AttentionSizes sizes = {1, 12, 1, 1024};
  return {"attention of 1x12x1x64 beside 1024 keys, float32",
          64,
          [sizes](const Device& device) {
            const Tensor q = Normal(device, sizes.q(), /*seed=*/1);
            const Tensor k = Normal(device, sizes.k(), 2), v = Normal(device, sizes.k(), 3);
            return [=] { return ScaledDotProductAttention(q, k, v); };
          },
          sizes.PeerInputs(),
          "torch.nn.functional.scaled_dot_product_attention(q, k, v)",
          1.0};
}

// Steps of one parameter of 29.5 M elements.
ArrayCase AdamCase(const std::string& kind, double goal) {
  constexpr int64_t kElements = 29'500'000;
  return {
      absl::StrCat("Adam of 29.5 M float32, beside ", kind),
      2,
      [](const Device& device) {
        const auto state = std::make_shared<AdamState>();
        state->p = Normal(device, {kElements}, /*seed=*/1);
        state->m = Zeros(device, {kElements});
        state->v = Zeros(device, {kElements});
        const Tensor g = Normal(device, {kElements}, /*seed=*/2);
        const Tensor step = FromScalar(device, 3.0), lr = FromScalar(device, 0.001);
        return [=] {
          *state = AdamStep(*state, g, step, lr);
          return state->p;
        };
      },
      absl::StrCat("p = torch.nn.Parameter(torch.randn(", kElements, ")) | p.grad = torch.randn(",
                   kElements, ") | o = torch.optim.Adam([p], 0.001, ", kind, "=True)"),
      "o.step()",
      goal};
}

}  // namespace

void NetworkCases(Bench& bench) {
  for (const auto& make : {SoftmaxBackwardCase, LayerNormCase, LayerNormBackwardCase, BatchNormCase,
                           BatchNormBackwardCase, MaxPoolCase, AvgPoolCase, CrossEntropyCase,
                           CrossEntropyBackwardCase}) {
    RunArrayCase(bench, make());
  }
  for (const ConvSizes& sizes : kConvolutions) {
    RunArrayCase(bench, ConvCase(sizes));
    RunArrayCase(bench, ConvBackwardInputCase(sizes));
    RunArrayCase(bench, ConvBackwardWeightCase(sizes));
  }
  for (const AttentionSizes& sizes : {kManyHeads, kLongRows}) {
    RunArrayCase(bench, AttentionCase(sizes));
    RunArrayCase(bench, AttentionBackwardCase(sizes));
  }
  RunArrayCase(bench, DecodeCase());
  RunArrayCase(bench, AdamCase("foreach", 5.0));
  RunArrayCase(bench, AdamCase("fused", 1.0));
}

}  // namespace tensord::bench
