// Layers of recurrent networks and their gradients, step by step. The scale of an element is a
// bound of its error in units of the rounding error, to first order.
#include <cmath>
#include <string>
#include <vector>

#include "tensord/tests/conformance/reference_internal.h"

namespace tensord::conformance {
namespace {

enum class LayerKind { kLstm, kGru, kTanh, kRelu };

LayerKind RnnKind(const Attributes& attrs) {
  return Get<std::string>(attrs, "nonlinearity", "tanh") == "relu" ? LayerKind::kRelu
                                                                   : LayerKind::kTanh;
}

// A number with the scale of its error.
struct Estimate {
  Real value = 0;
  Real scale = 0;
};

Estimate operator+(const Estimate& a, const Estimate& b) {
  return {a.value + b.value, a.scale + b.scale + std::abs(a.value + b.value)};
}
Estimate operator-(const Estimate& a, const Estimate& b) { return a + Estimate{-b.value, b.scale}; }
Estimate operator*(const Estimate& a, const Estimate& b) {
  return {a.value * b.value,
          std::abs(a.value) * b.scale + std::abs(b.value) * a.scale + std::abs(a.value * b.value)};
}
// The slopes of these functions are at most 1, and their own errors a few units.
Estimate GateOf(const Estimate& x) { return {SigmoidOf(x.value), x.scale + 2}; }
Estimate TanhOf(const Estimate& x) { return {std::tanh(x.value), x.scale + 2}; }
Estimate ReluOf(const Estimate& x) { return {x.value > 0 ? x.value : 0, x.scale}; }

const Estimate kUnitEstimate = {1, 0};

// A tensor of them.
class Estimates {
 public:
  explicit Estimates(const Shape& shape) : shape_(shape), elements_(shape.num_elements()) {}
  explicit Estimates(const Values& values) : Estimates(values.spec.shape) {
    for (size_t i = 0; i < elements_.size(); ++i) elements_[i].value = values.real[i];
  }

  const Shape& shape() const { return shape_; }
  int64_t dim(int axis) const { return shape_.dim(axis); }
  Estimate& at(int64_t i) { return elements_[i]; }
  Estimate& at(int64_t i, int64_t j) { return elements_[i * shape_.dim(1) + j]; }
  Estimate& at(int64_t i, int64_t j, int64_t k) {
    return elements_[(i * shape_.dim(1) + j) * shape_.dim(2) + k];
  }
  // The only element, or that at (i,j,k).
  Estimate Given(int64_t i, int64_t j) { return shape_.rank() == 0 ? at(0) : at(i, j); }
  Estimate Given(int64_t i, int64_t j, int64_t k) {
    return shape_.rank() == 0 ? at(0) : at(i, j, k);
  }

  Values ToValues(DType dtype) const {
    Values values = ScaledValues(dtype, shape_);
    for (size_t i = 0; i < elements_.size(); ++i) {
      values.real[i] = static_cast<double>(elements_[i].value);
      values.scale[i] = static_cast<double>(elements_[i].scale);
    }
    return values;
  }

 private:
  Shape shape_;
  std::vector<Estimate> elements_;
};

std::vector<Estimates> AllEstimates(Inputs in) {
  std::vector<Estimates> all;
  for (const Values& values : in) all.emplace_back(values);
  return all;
}

std::vector<Values> AllValues(std::initializer_list<const Estimates*> estimates, DType dtype) {
  std::vector<Values> all;
  for (const Estimates* each : estimates) all.push_back(each->ToValues(dtype));
  return all;
}

// The number of states and gates.
int StatesOf(LayerKind kind) { return kind == LayerKind::kLstm ? 2 : 1; }
int64_t GatesOf(LayerKind kind) {
  return kind == LayerKind::kLstm ? 4 : kind == LayerKind::kGru ? 3 : 1;
}

std::vector<Values> RunLayer(LayerKind kind, const Attributes& attrs, Inputs in) {
  const bool reverse = Get(attrs, "reverse", false);
  std::vector<Estimates> all = AllEstimates(in);
  const int states = StatesOf(kind);
  Estimates &x = all[0], &weight_ih = all[states + 1], &weight_hh = all[states + 2];
  Estimates h = all[1], c = all[states];
  const bool biased = in.size() > static_cast<size_t>(states) + 3;
  const int64_t steps = x.dim(0), rows = x.dim(1), size = weight_hh.dim(1);
  Estimates output({steps, rows, size}), cells({steps, rows, size}),
      lstm_gates({steps, rows, 4 * size}), gru_gates({steps, rows, 5 * size});
  for (int64_t i = 0; i < steps; ++i) {
    const int64_t t = reverse ? steps - 1 - i : i;
    Estimates next_h = h, next_c = c;
    for (int64_t n = 0; n < rows; ++n) {
      // The products of gate j of unit k with x, and with h.
      const auto product = [&](Estimates& weight, int bias, int64_t row, auto element) {
        Estimate sum;
        for (int64_t k = 0; k < weight.dim(1); ++k) sum = sum + weight.at(row, k) * element(k);
        return biased ? sum + all[states + bias].at(row) : sum;
      };
      const auto of_x = [&](int64_t row) {
        return product(weight_ih, 3, row, [&](int64_t k) { return x.at(t, n, k); });
      };
      const auto of_h = [&](int64_t row) {
        return product(weight_hh, 4, row, [&](int64_t k) { return h.at(n, k); });
      };
      for (int64_t k = 0; k < size; ++k) {
        Estimate& next = next_h.at(n, k);
        if (kind == LayerKind::kTanh || kind == LayerKind::kRelu) {
          const Estimate sum = of_x(k) + of_h(k);
          next = kind == LayerKind::kTanh ? TanhOf(sum) : ReluOf(sum);
        } else if (kind == LayerKind::kLstm) {
          Estimate gates[4];
          for (int64_t j = 0; j < 4; ++j) {
            const Estimate sum = of_x(j * size + k) + of_h(j * size + k);
            gates[j] = j == 2 ? TanhOf(sum) : GateOf(sum);
            lstm_gates.at(t, n, j * size + k) = gates[j];
          }
          next_c.at(n, k) = gates[1] * c.at(n, k) + gates[0] * gates[2];
          next = gates[3] * TanhOf(next_c.at(n, k));
          cells.at(t, n, k) = next_c.at(n, k);
        } else {
          const Estimate r = GateOf(of_x(k) + of_h(k)), z = GateOf(of_x(size + k) + of_h(size + k)),
                         own = of_h(2 * size + k), fresh = TanhOf(of_x(2 * size + k) + r * own),
                         old = h.at(n, k);
          const Estimate kept[] = {r, z, fresh, old, own};
          for (int64_t j = 0; j < 5; ++j) gru_gates.at(t, n, j * size + k) = kept[j];
          next = fresh + z * (old - fresh);
        }
        output.at(t, n, k) = next;
      }
    }
    h = next_h;
    c = next_c;
  }
  const DType dtype = in[0].spec.dtype;
  if (kind == LayerKind::kLstm) return AllValues({&output, &h, &c, &cells, &lstm_gates}, dtype);
  if (kind == LayerKind::kGru) return AllValues({&output, &h, &gru_gates}, dtype);
  return AllValues({&output, &h}, dtype);
}

std::vector<Values> RunLayerBackward(LayerKind kind, const Attributes& attrs, Inputs in) {
  const bool reverse = Get(attrs, "reverse", false);
  std::vector<Estimates> all = AllEstimates(in);
  const int states = StatesOf(kind);
  Estimates &x = all[states + 1], &weight_ih = all[2 * states + 2],
            &weight_hh = all[2 * states + 3], &output = all[2 * states + 4];
  const int64_t steps = x.dim(0), rows = x.dim(1), size = weight_hh.dim(1);
  const int64_t columns = GatesOf(kind) * size;
  Estimates of_x(x.shape()), of_ih(weight_ih.shape()), of_hh(weight_hh.shape()),
      of_bias_ih({columns}), of_bias_hh({columns}), of_h({rows, size}), of_c({rows, size});
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t k = 0; k < size; ++k) {
      of_h.at(n, k) = all[1].Given(n, k);
      of_c.at(n, k) = all[states].Given(n, k);
    }
  }
  for (int64_t i = 0; i < steps; ++i) {
    const int64_t t = reverse ? i : steps - 1 - i, before = reverse ? t + 1 : t - 1;
    const bool is_first = i == steps - 1;
    // Before the step: h, and c of an LSTM.
    const auto old_of = [&](int state, Estimates& sequence, int64_t n, int64_t k) {
      return is_first ? all[states + 2 + state].at(n, k) : sequence.at(before, n, k);
    };
    Estimates next_h({rows, size});
    for (int64_t n = 0; n < rows; ++n) {
      std::vector<Estimate> of_input(columns), of_own(columns);
      for (int64_t k = 0; k < size; ++k) {
        const Estimate g = all[0].Given(t, n, k) + of_h.at(n, k);
        const auto kept = [&](int64_t j) { return all.back().at(t, n, j * size + k); };
        if (kind == LayerKind::kTanh || kind == LayerKind::kRelu) {
          const Estimate h = output.at(t, n, k);
          of_input[k] = kind == LayerKind::kTanh ? g * (kUnitEstimate - h * h)
                        : h.value > 0            ? g
                                                 : Estimate{};
          of_own[k] = of_input[k];
        } else if (kind == LayerKind::kLstm) {
          Estimates& cells = all[2 * states + 5];
          const Estimate input = kept(0), keep = kept(1), cell = kept(2), o = kept(3),
                         tanh = TanhOf(cells.at(t, n, k)),
                         gc = of_c.at(n, k) + g * o * (kUnitEstimate - tanh * tanh);
          const Estimate slopes[] = {gc * cell * input * (kUnitEstimate - input),
                                     gc * old_of(1, cells, n, k) * keep * (kUnitEstimate - keep),
                                     gc * input * (kUnitEstimate - cell * cell),
                                     g * tanh * o * (kUnitEstimate - o)};
          for (int64_t j = 0; j < 4; ++j) of_input[j * size + k] = of_own[j * size + k] = slopes[j];
          of_c.at(n, k) = gc * keep;
        } else {
          const Estimate r = kept(0), z = kept(1), fresh = kept(2), old = kept(3), own = kept(4),
                         gn = g * (kUnitEstimate - z) * (kUnitEstimate - fresh * fresh),
                         gr = gn * own * r * (kUnitEstimate - r),
                         gz = g * (old - fresh) * z * (kUnitEstimate - z);
          const Estimate slopes[] = {gr, gz, gn};
          for (int64_t j = 0; j < 3; ++j) of_input[j * size + k] = of_own[j * size + k] = slopes[j];
          of_own[2 * size + k] = gn * r;
          next_h.at(n, k) = g * z;
        }
      }
      for (int64_t row = 0; row < columns; ++row) {
        of_bias_ih.at(row) = of_bias_ih.at(row) + of_input[row];
        of_bias_hh.at(row) = of_bias_hh.at(row) + of_own[row];
        for (int64_t k = 0; k < x.dim(2); ++k) {
          of_ih.at(row, k) = of_ih.at(row, k) + of_input[row] * x.at(t, n, k);
          of_x.at(t, n, k) = of_x.at(t, n, k) + of_input[row] * weight_ih.at(row, k);
        }
        for (int64_t k = 0; k < size; ++k) {
          of_hh.at(row, k) = of_hh.at(row, k) + of_own[row] * old_of(0, output, n, k);
          next_h.at(n, k) = next_h.at(n, k) + of_own[row] * weight_hh.at(row, k);
        }
      }
    }
    of_h = next_h;
  }
  std::vector<const Estimates*> gradients = {&of_x, &of_h};
  if (kind == LayerKind::kLstm) gradients.push_back(&of_c);
  for (const Estimates* each : {&of_ih, &of_hh, &of_bias_ih, &of_bias_hh})
    gradients.push_back(each);
  std::vector<Values> results;
  const auto wanted = Get<std::vector<int64_t>>(attrs, "gradients", {});
  for (size_t i = 0; wanted.empty() && i < gradients.size(); ++i) {
    results.push_back(gradients[i]->ToValues(in[0].spec.dtype));
  }
  for (const int64_t i : wanted) results.push_back(gradients[i]->ToValues(in[0].spec.dtype));
  return results;
}

}  // namespace

void AddRecurrentLayerReferences(ReferenceTable& table) {
  using Reference = std::vector<Values> (*)(LayerKind, const Attributes&, Inputs);
  const auto of = [](Reference reference, LayerKind kind) {
    return [=](const Attributes& attrs, Inputs in) { return reference(kind, attrs, in); };
  };
  table["lstm_layer"] = of(RunLayer, LayerKind::kLstm);
  table["lstm_layer_backward"] = of(RunLayerBackward, LayerKind::kLstm);
  table["gru_layer"] = of(RunLayer, LayerKind::kGru);
  table["gru_layer_backward"] = of(RunLayerBackward, LayerKind::kGru);
  table["rnn_layer"] = [](const Attributes& attrs, Inputs in) {
    return RunLayer(RnnKind(attrs), attrs, in);
  };
  table["rnn_layer_backward"] = [](const Attributes& attrs, Inputs in) {
    return RunLayerBackward(RnnKind(attrs), attrs, in);
  };
}

}  // namespace tensord::conformance
