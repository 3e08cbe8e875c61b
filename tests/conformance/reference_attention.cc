// Scaled dot product attention and its gradient.
#include <cmath>

#include "tensord/tests/conformance/reference.h"
#include "tensord/tests/conformance/reference_internal.h"

namespace tensord::conformance {
namespace {

// The arguments of sdpa and of its gradient.
struct Attention {
  const Values &q, &k, &v;
  const Values* mask = nullptr;
  Shape scores;  // (…,H,L,S)
  int64_t heads = 1, shared_heads = 1, length, keys, depth, value_depth;
  double scale;
  bool causal;
  double dropout_p;
  uint64_t seed, stream;

  // `first` is the number of the input q, and `optional` that of the first optional input.
  Attention(const Attributes& attrs, Inputs inputs, size_t first, size_t optional)
      : q(inputs[first]), k(inputs[first + 1]), v(inputs[first + 2]) {
    const Shape& shape = q.spec.shape;
    const int rank = shape.rank();
    if (rank >= 3) {
      heads = shape.dim(rank - 3);
      shared_heads = k.spec.shape.dim(rank - 3);
    }
    length = shape.dim(rank - 2);
    keys = k.spec.shape.dim(rank - 2);
    depth = shape.dim(rank - 1);
    value_depth = v.spec.shape.dim(rank - 1);
    scores = Shape(shape.dims().first(rank - 1));
    scores.AppendDim(keys);
    scale = Get<double>(attrs, "scale", 0.0);
    if (scale == 0) scale = depth == 0 ? 1 : 1 / std::sqrt(static_cast<double>(depth));
    causal = Get<bool>(attrs, "causal", false);
    dropout_p = Get<double>(attrs, "dropout_p", 0.0);
    seed = static_cast<uint64_t>(Get<int64_t>(attrs, "seed", 0));
    stream = static_cast<uint64_t>(Get<int64_t>(attrs, "stream", 0));
    size_t next = optional;
    if (inputs.size() > next && inputs[next].spec.dtype != DType::kInt64) mask = &inputs[next++];
    if (inputs.size() > next) {
      seed = static_cast<uint64_t>(inputs[next].whole[0]);
      stream = static_cast<uint64_t>(inputs[next].whole[1]);
    }
  }

  // Returns the first key of a row of q, in the flattened leading dimensions.
  int64_t FirstKeyOf(int64_t row) const {
    const int64_t head = row / length;
    return (head / heads * shared_heads + head % heads / (heads / shared_heads)) * keys;
  }

  // Returns the score, and the magnitude of its terms.
  double ScoreOf(int64_t row, int64_t j, double* magnitude) const {
    const int64_t key = FirstKeyOf(row) + j;
    double score = 0;
    *magnitude = 0;
    for (int64_t e = 0; e < depth; ++e) {
      const double term = q.real[row * depth + e] * k.real[key * depth + e] * scale;
      score += term;
      *magnitude += std::fabs(term);
    }
    if (causal && j > row % length) return -kInfinity;
    if (mask == nullptr) return score;
    const int64_t at = RavelBroadcast(Unravel(row * keys + j, scores), mask->spec.shape);
    if (mask->spec.dtype == DType::kBool) return mask->whole[at] != 0 ? score : -kInfinity;
    *magnitude += FiniteOrZero(std::fabs(mask->real[at]));
    return score + mask->real[at];
  }

  double FactorOf(int64_t row, int64_t j) const {
    if (dropout_p == 0) return 1;
    const auto at = static_cast<uint64_t>(row * keys + j), block = at / 4;
    const auto low = [](uint64_t bits) { return static_cast<uint32_t>(bits); };
    const auto high = [](uint64_t bits) { return static_cast<uint32_t>(bits >> 32); };
    const Words words = ReferencePhilox({low(block), high(block), low(stream), high(stream)},
                                        {low(seed), high(seed)});
    const double u = (words.word[at % 4] >> 8) * 0x1p-24;
    return u >= dropout_p ? 1 / (1 - dropout_p) : 0;
  }
};

DType ComputedIn(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

std::vector<Values> Sdpa(const Attributes& attrs, Inputs inputs) {
  const Attention a(attrs, inputs, 0, 3);
  const Shape rows(a.q.spec.shape.dims().first(a.q.spec.shape.rank() - 1));
  Shape shape = rows;
  shape.AppendDim(a.value_depth);
  Values o = Values::Of(a.q.spec.dtype, shape), lse = Values::Of(ComputedIn(a.q.spec.dtype), rows);
  o.scale.resize(o.size());
  lse.scale.resize(lse.size());
  for (int64_t row = 0; row < rows.num_elements(); ++row) {
    std::vector<double> weight(a.keys), magnitude(a.keys);
    double max = -kInfinity, sum = 0, mean_magnitude = 0;
    for (int64_t j = 0; j < a.keys; ++j) {
      weight[j] = a.ScoreOf(row, j, &magnitude[j]);
      max = std::max(max, weight[j]);
    }
    for (double& w : weight) {
      w = max == -kInfinity ? 0 : std::exp(w - max);
      sum += w;
    }
    lse.real[row] = max + std::log(sum);
    for (int64_t j = 0; j < a.keys && sum > 0; ++j) {
      weight[j] /= sum;
      mean_magnitude += weight[j] * magnitude[j];
    }
    lse.scale[row] = FiniteOrZero(std::fabs(max) + 1 + mean_magnitude);
    for (int64_t j = 0; j < a.keys && sum > 0; ++j) {
      const double factor = weight[j] * a.FactorOf(row, j);
      for (int64_t e = 0; e < a.value_depth; ++e) {
        const double term = factor * a.v.real[(a.FirstKeyOf(row) + j) * a.value_depth + e];
        o.real[row * a.value_depth + e] += term;
        o.scale[row * a.value_depth + e] += std::fabs(term) * (1 + magnitude[j] + mean_magnitude);
      }
    }
  }
  return {o, lse};
}

std::vector<Values> SdpaBackward(const Attributes& attrs, Inputs inputs) {
  const Attention a(attrs, inputs, 1, 6);
  const Values &g = inputs[0], &o = inputs[4], &lse = inputs[5];
  std::vector<Values> out;
  for (const Values* of : {&a.q, &a.k, &a.v})
    out.push_back(Values::Of(of->spec.dtype, of->spec.shape));
  const bool mask_gradient = Get<bool>(attrs, "mask_gradient", false);
  if (mask_gradient) out.push_back(Values::Of(a.mask->spec.dtype, a.mask->spec.shape));
  for (Values& values : out) values.scale.resize(values.size());
  const auto add = [](Values& to, int64_t at, double term, double magnitude) {
    to.real[at] += term;
    to.scale[at] += magnitude;
  };
  for (int64_t row = 0; row < lse.size(); ++row) {
    const double* of_row = g.real.data() + row * a.value_depth;
    double delta = 0, of_delta = 0;
    for (int64_t e = 0; e < a.value_depth; ++e) {
      const double term = of_row[e] * o.real[row * a.value_depth + e];
      delta += term;
      of_delta += std::fabs(term);
    }
    for (int64_t j = 0; j < a.keys; ++j) {
      double magnitude = 0;
      const double score = a.ScoreOf(row, j, &magnitude);
      if (score == -kInfinity || lse.real[row] == -kInfinity) continue;
      const int64_t key = a.FirstKeyOf(row) + j;
      const double p = std::exp(score - lse.real[row]), factor = a.FactorOf(row, j);
      const double error = 1 + magnitude + std::fabs(lse.real[row]);
      double of_weight = 0, of_weight_magnitude = 0;
      for (int64_t e = 0; e < a.value_depth; ++e) {
        const double term = of_row[e] * a.v.real[key * a.value_depth + e] * factor;
        of_weight += term;
        of_weight_magnitude += std::fabs(term);
        add(out[2], key * a.value_depth + e, p * factor * of_row[e],
            p * factor * std::fabs(of_row[e]) * error);
      }
      const double of_score = p * (of_weight - delta);
      const double of_score_magnitude = p * (of_weight_magnitude + of_delta) * error;
      for (int64_t e = 0; e < a.depth; ++e) {
        const double of_q = a.k.real[key * a.depth + e] * a.scale;
        const double of_k = a.q.real[row * a.depth + e] * a.scale;
        add(out[0], row * a.depth + e, of_score * of_q, of_score_magnitude * std::fabs(of_q));
        add(out[1], key * a.depth + e, of_score * of_k, of_score_magnitude * std::fabs(of_k));
      }
      if (!mask_gradient) continue;
      add(out[3], RavelBroadcast(Unravel(row * a.keys + j, a.scores), a.mask->spec.shape), of_score,
          of_score_magnitude);
    }
  }
  return out;
}

}  // namespace

void AddAttentionReferences(ReferenceTable& table) {
  table["sdpa"] = Sdpa;
  table["sdpa_backward"] = SdpaBackward;
}

}  // namespace tensord::conformance
