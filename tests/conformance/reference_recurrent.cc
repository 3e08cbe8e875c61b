// Cells of recurrent layers and their gradients.
#include <cmath>
#include <vector>

#include "tensord/tests/conformance/reference_internal.h"

namespace tensord::conformance {
namespace {

// A result under construction, with its scale.
struct Result {
  Values values;

  Result(DType dtype, const Shape& shape) : values(ScaledValues(dtype, shape)) {}
  void Set(int64_t at, Real value, Real scale) {
    values.real[at] = static_cast<double>(value);
    values.scale[at] = static_cast<double>(scale);
  }
  void Add(int64_t at, Real value, Real scale) {
    Set(at, values.real[at] + value, values.scale[at] + scale);
  }
};

// Element [n, k] of a matrix, or the only one.
Real At(const Values& x, int64_t n, int64_t k) {
  return x.size() == 1 ? x.real[0] : x.real[n * x.spec.shape.dim(1) + k];
}

Real BiasAt(Inputs inputs, size_t first, int64_t k) {
  return inputs.size() > first ? inputs[first].real[k] : 0;
}

std::vector<Values> LstmCell(const Attributes& /*attrs*/, Inputs in) {
  const DType dtype = PromotedOf(in);
  const int64_t rows = in[2].spec.shape.dim(0), size = in[2].spec.shape.dim(1);
  Result h(dtype, {rows, size}), c(dtype, {rows, size}), gates(dtype, {rows, 4 * size});
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t k = 0; k < size; ++k) {
      Real gate[4], magnitude[4];
      for (int64_t j = 0; j < 4; ++j) {
        const int64_t at = j * size + k;
        const Real terms[] = {At(in[0], n, at), At(in[1], n, at), BiasAt(in, 3, at),
                              BiasAt(in, 4, at)};
        Real sum = 0;
        magnitude[j] = 1;
        for (const Real term : terms) {
          sum += term;
          magnitude[j] += std::abs(term);
        }
        gate[j] = j == 2 ? std::tanh(sum) : SigmoidOf(sum);
        gates.Set(n * 4 * size + at, gate[j], magnitude[j]);
      }
      const Real old = At(in[2], n, k), next = gate[1] * old + gate[0] * gate[2];
      const Real scale = std::abs(old) * magnitude[1] + magnitude[0] + magnitude[2];
      c.Set(n * size + k, next, scale);
      h.Set(n * size + k, gate[3] * std::tanh(next), scale + magnitude[3]);
    }
  }
  return {h.values, c.values, gates.values};
}

std::vector<Values> LstmCellBackward(const Attributes& /*attrs*/, Inputs in) {
  const DType dtype = PromotedOf(in);
  const int64_t rows = in[2].spec.shape.dim(0), size = in[2].spec.shape.dim(1);
  Result of_gates(dtype, {rows, 4 * size}), of_c(dtype, {rows, size}), of_bias(dtype, {4 * size});
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t k = 0; k < size; ++k) {
      const auto gate = [&](int64_t j) { return At(in[4], n, j * size + k); };
      const Real i = gate(0), f = gate(1), g = gate(2), o = gate(3);
      const Real other = in.size() > 5 ? At(in[5], n, k) : 0;
      const Real gh = At(in[0], n, k) + other, old = At(in[2], n, k),
                 tanh = std::tanh(At(in[3], n, k));
      const Real gc = At(in[1], n, k) + gh * o * (1 - tanh * tanh);
      const Real size_of_gh = std::abs(At(in[0], n, k)) + std::abs(other);
      const Real size_of_gc = std::abs(At(in[1], n, k)) + 2 * size_of_gh * std::abs(o);
      of_c.Set(n * size + k, gc * f, size_of_gc * std::abs(f));
      const Real slopes[] = {gc * g * i * (1 - i), gc * old * f * (1 - f), gc * i * (1 - g * g),
                             gh * tanh * o * (1 - o)};
      const Real scales[] = {size_of_gc * std::abs(g * i) * (1 + std::abs(i)),
                             size_of_gc * std::abs(old * f) * (1 + std::abs(f)),
                             size_of_gc * std::abs(i) * (1 + g * g),
                             size_of_gh * std::abs(o) * (1 + std::abs(o))};
      for (int64_t j = 0; j < 4; ++j) {
        of_gates.Set((n * 4 + j) * size + k, slopes[j], scales[j]);
        of_bias.Add(j * size + k, slopes[j], scales[j]);
      }
    }
  }
  return {of_gates.values, of_c.values, of_bias.values};
}

std::vector<Values> GruCell(const Attributes& /*attrs*/, Inputs in) {
  const DType dtype = PromotedOf(in);
  const int64_t rows = in[2].spec.shape.dim(0), size = in[2].spec.shape.dim(1);
  Result h(dtype, {rows, size}), gates(dtype, {rows, 5 * size});
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t k = 0; k < size; ++k) {
      const auto part = [&](int input, int64_t j) {
        return At(in[input], n, j * size + k) + BiasAt(in, 3 + input, j * size + k);
      };
      const Real r = SigmoidOf(part(0, 0) + part(1, 0)), z = SigmoidOf(part(0, 1) + part(1, 1));
      const Real old = At(in[2], n, k), hn = part(1, 2), next = std::tanh(part(0, 2) + r * hn);
      Real scale = 1;
      for (const int input : {0, 1}) {
        for (int64_t j = 0; j < 3; ++j) {
          scale += std::abs(At(in[input], n, j * size + k)) +
                   std::abs(BiasAt(in, 3 + input, j * size + k));
        }
      }
      scale *= 1 + std::abs(old);
      h.Set(n * size + k, next + z * (old - next), 2 * scale);
      const Real kept[] = {r, z, next, old, hn};
      for (int64_t j = 0; j < 5; ++j) gates.Set((n * 5 + j) * size + k, kept[j], scale);
    }
  }
  return {h.values, gates.values};
}

std::vector<Values> GruCellBackward(const Attributes& /*attrs*/, Inputs in) {
  const DType dtype = PromotedOf(in);
  const int64_t rows = in[0].spec.shape.dim(0), size = in[0].spec.shape.dim(1);
  Result of_x(dtype, {rows, 3 * size}), of_own(dtype, {rows, 3 * size}), of_h(dtype, {rows, size});
  Result bias_x(dtype, {3 * size}), bias_own(dtype, {3 * size});
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t k = 0; k < size; ++k) {
      const auto gate = [&](int64_t j) { return At(in[1], n, j * size + k); };
      const Real other = in.size() > 2 ? At(in[2], n, k) : 0;
      const Real g = At(in[0], n, k) + other,
                 size_of_g = std::abs(At(in[0], n, k)) + std::abs(other);
      const Real r = gate(0), z = gate(1), next = gate(2), old = gate(3), hn = gate(4);
      const Real gz = g * (old - next) * z * (1 - z), gn = g * (1 - z) * (1 - next * next);
      const Real gr = gn * hn * r * (1 - r);
      const Real size_z =
          size_of_g * std::abs(z) * (std::abs(old) + std::abs(next)) * (1 + std::abs(z));
      const Real size_n = size_of_g * (1 + std::abs(z)) * (1 + next * next);
      const Real size_r = size_n * std::abs(hn * r) * (1 + std::abs(r));
      of_h.Set(n * size + k, g * z, size_of_g * std::abs(z));
      const Real x[] = {gr, gz, gn}, own[] = {gr, gz, gn * r};
      const Real x_scale[] = {size_r, size_z, size_n};
      const Real own_scale[] = {size_r, size_z, size_n * std::abs(r)};
      for (int64_t j = 0; j < 3; ++j) {
        of_x.Set((n * 3 + j) * size + k, x[j], x_scale[j]);
        of_own.Set((n * 3 + j) * size + k, own[j], own_scale[j]);
        bias_x.Add(j * size + k, x[j], x_scale[j]);
        bias_own.Add(j * size + k, own[j], own_scale[j]);
      }
    }
  }
  return {of_x.values, of_own.values, of_h.values, bias_x.values, bias_own.values};
}

// The results but for the last `count`.
auto WithoutBiases(std::vector<Values> (*reference)(const Attributes&, Inputs), int count) {
  return [=](const Attributes& attrs, Inputs in) {
    std::vector<Values> results = reference(attrs, in);
    results.resize(results.size() - count, Values());
    return results;
  };
}

}  // namespace

void AddRecurrentReferences(ReferenceTable& table) {
  table["lstm_cell"] = LstmCell;
  table["lstm_cell_backward"] = LstmCellBackward;
  table["lstm_gates_backward"] = WithoutBiases(LstmCellBackward, 1);
  table["gru_cell"] = GruCell;
  table["gru_cell_backward"] = GruCellBackward;
  table["gru_gates_backward"] = WithoutBiases(GruCellBackward, 2);
  AddRecurrentLayerReferences(table);
}

}  // namespace tensord::conformance
