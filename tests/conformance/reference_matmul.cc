#include <cmath>
#include <utility>

#include "tensord/tests/conformance/elementwise_cases.h"
#include "tensord/tests/conformance/reference_internal.h"

namespace tensord::conformance {
namespace {

// An operand as a batch of matrices: (batch…, rows, cols).
struct Matrices {
  const Values* values;
  Shape batch;
  int64_t rows;
  int64_t cols;
  bool transposed;  // stored as (cols, rows)

  int64_t At(int64_t matrix, int64_t row, int64_t col) const {
    return matrix * rows * cols + (transposed ? col * rows + row : row * cols + col);
  }
};

Matrices ToMatrices(const Values& values, bool transposed) {
  const Shape& shape = values.spec.shape;
  const int rank = shape.rank();
  Matrices matrices{&values, Shape(shape.dims().first(rank - 2)), shape.dim(rank - 2),
                    shape.dim(rank - 1), transposed};
  if (transposed) std::swap(matrices.rows, matrices.cols);
  return matrices;
}

Values WithShape(Values values, Shape shape) {
  values.spec.shape = std::move(shape);
  return values;
}

// (…,M,K)·(…,K,N) -> (…,M,N). Sums floating elements in long double, integers modulo 2^64.
Values Multiply(const Matrices& a, const Matrices& b, DType dtype) {
  Shape shape = Broadcast(a.batch, b.batch);
  const Shape batch = shape;
  shape.AppendDim(a.rows);
  shape.AppendDim(b.cols);
  Values out = Values::Of(dtype, shape);
  if (out.floating()) out.scale.resize(out.size());
  int64_t i = 0;
  for (int64_t matrix = 0; matrix < batch.num_elements(); ++matrix) {
    const Index index = Unravel(matrix, batch);
    const int64_t in_a = RavelBroadcast(index, a.batch);
    const int64_t in_b = RavelBroadcast(index, b.batch);
    for (int64_t row = 0; row < a.rows; ++row) {
      for (int64_t col = 0; col < b.cols; ++col, ++i) {
        long double sum = 0, magnitude = 0;
        uint64_t whole = 0;
        for (int64_t k = 0; k < a.cols; ++k) {
          const int64_t ia = a.At(in_a, row, k);
          const int64_t ib = b.At(in_b, k, col);
          if (out.floating()) {
            const long double product =
                static_cast<long double>(a.values->real[ia]) * b.values->real[ib];
            sum += product;
            magnitude += std::fabs(product);
          } else {
            whole += static_cast<uint64_t>(a.values->whole[ia]) *
                     static_cast<uint64_t>(b.values->whole[ib]);
          }
        }
        if (out.floating()) {
          out.real[i] = static_cast<double>(sum);
          out.scale[i] = static_cast<double>(magnitude);
        } else {
          out.whole[i] = WrapTo(dtype, static_cast<int64_t>(whole));
        }
      }
    }
  }
  return out;
}

Values MatMul(const Attributes& attrs, Inputs inputs) {
  const DType dtype = Promote(inputs[0].spec.dtype, inputs[1].spec.dtype);
  Values a = Cast(inputs[0], dtype);
  Values b = Cast(inputs[1], dtype);
  const bool vector_a = a.spec.shape.rank() == 1;
  const bool vector_b = b.spec.shape.rank() == 1;
  if (vector_a) a = WithShape(a, {1, a.size()});
  if (vector_b) b = WithShape(b, {b.size(), 1});
  Values out = Multiply(ToMatrices(a, Get(attrs, "transpose_a", false)),
                        ToMatrices(b, Get(attrs, "transpose_b", false)), dtype);
  Shape shape;
  for (int axis = 0; axis < out.spec.shape.rank(); ++axis) {
    const int from_end = out.spec.shape.rank() - axis;
    if ((vector_a && from_end == 2) || (vector_b && from_end == 1)) continue;
    shape.AppendDim(out.spec.shape.dim(axis));
  }
  return WithShape(std::move(out), shape);
}

// x (…,in), w (out,in), b (out) -> (…,out).
Values Linear(const Attributes& attrs, Inputs inputs) {
  DType dtype = inputs[0].spec.dtype;
  for (const Values& input : inputs) dtype = Promote(dtype, input.spec.dtype);
  const Shape& shape = inputs[0].spec.shape;
  const int64_t in = shape.dim(shape.rank() - 1);
  int64_t rows = 1;
  for (int axis = 0; axis + 1 < shape.rank(); ++axis) rows *= shape.dim(axis);
  const Values x = WithShape(Cast(inputs[0], dtype), {rows, in});
  const Values w = Cast(inputs[1], dtype);
  Values out = Multiply(ToMatrices(x, false), ToMatrices(w, true), dtype);
  const int64_t columns = w.spec.shape.dim(0);
  const auto activate = ActivationReference(Get<std::string>(attrs, "activation", "none"));
  const Values b = inputs.size() > 2 ? Cast(inputs[2], dtype) : Values{};
  for (int64_t i = 0; i < out.size(); ++i) {
    if (inputs.size() > 2) {
      out.real[i] += b.real[i % columns];
      out.scale[i] += std::fabs(b.real[i % columns]);
    }
    out.real[i] = activate(out.real[i]);
  }
  Shape result(shape.dims().first(shape.rank() - 1));
  result.AppendDim(columns);
  return WithShape(std::move(out), result);
}

}  // namespace

double (*ActivationReference(const std::string& name))(double) {
  if (name == "none") return [](double x) { return x; };
  if (name == "gelu_tanh") return GeluByTanh;
  for (const UnaryCase& op : UnaryCases()) {
    if (op.op == name) return op.real;
  }
  return [](double) { return std::nan(""); };
}

void AddMatmulReferences(ReferenceTable& table) {
  table["matmul"] = MatMul;
  table["linear"] = Linear;
}

}  // namespace tensord::conformance
