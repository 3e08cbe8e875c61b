#include <cmath>

#include "tensord/tests/conformance/reference.h"
#include "tensord/tests/conformance/reference_internal.h"

namespace tensord::conformance {

namespace {

bool IsFloat(const AttrValue* value) {
  return value != nullptr && std::holds_alternative<double>(*value);
}

// Returns a tensor whose elements are all `value`.
Values Filled(const AttrValue& value, DType dtype, const Shape& shape) {
  Values one;
  if (const double* real = std::get_if<double>(&value)) {
    one = Values::Of(DType::kFloat64, {});
    one.real[0] = *real;
  } else if (const int64_t* whole = std::get_if<int64_t>(&value)) {
    one = Values::Of(DType::kInt64, {});
    one.whole[0] = *whole;
  } else {
    one = Values::Of(DType::kBool, {});
    one.whole[0] = std::get<bool>(value);
  }
  one = Cast(one, dtype);
  Values out = Values::Of(dtype, shape);
  for (double& element : out.real) element = one.real[0];  // imaginary parts stay 0
  for (int64_t& element : out.whole) element = one.whole[0];
  return out;
}

Values Full(const Attributes& attrs, Inputs) {
  const AttrValue& value = *attrs.Find("value");
  const DType natural = std::holds_alternative<double>(value)    ? DType::kFloat32
                        : std::holds_alternative<int64_t>(value) ? DType::kInt64
                                                                 : DType::kBool;
  return Filled(value, DTypeAttr(attrs, natural), Shape(attrs.Ints("shape")));
}

ReferenceFunction Constant(int64_t value) {
  return [value](const Attributes& attrs, Inputs) {
    return Filled(value, DTypeAttr(attrs, DType::kFloat32), Shape(attrs.Ints("shape")));
  };
}

Values Arange(const Attributes& attrs, Inputs) {
  const bool real =
      IsFloat(attrs.Find("start")) || IsFloat(attrs.Find("stop")) || IsFloat(attrs.Find("step"));
  const double start = Get<double>(attrs, "start", 0.0);
  const double step = Get<double>(attrs, "step", 1.0);
  // Integers are subtracted as integers, because a double can't represent all large ones.
  const double span =
      real ? Get<double>(attrs, "stop", 0.0) - start
           : static_cast<double>(attrs.Int("stop") - Get<int64_t>(attrs, "start", 0));
  const auto count = static_cast<int64_t>(std::max(0.0, std::ceil(span / step)));
  Values exact = Values::Of(real ? DType::kFloat64 : DType::kInt64, {count});
  for (int64_t i = 0; i < count; ++i) {
    if (real) {
      exact.real[i] = start + static_cast<double>(i) * step;
    } else {
      exact.whole[i] = Get<int64_t>(attrs, "start", 0) + i * Get<int64_t>(attrs, "step", 1);
    }
  }
  return Cast(exact, DTypeAttr(attrs, real ? DType::kFloat32 : DType::kInt64));
}

Values Linspace(const Attributes& attrs, Inputs) {
  const DType dtype = DTypeAttr(attrs, DType::kFloat32);
  const int64_t count = attrs.Int("count");
  const bool endpoint = Get<bool>(attrs, "endpoint", true);
  const auto end = [&](const char* name) {
    const Values value = Filled(*attrs.Find(name), dtype, {});
    return value.floating() ? value.real[0] : static_cast<double>(value.whole[0]);
  };
  const long double start = end("start"), stop = end("stop");
  Values exact = Values::Of(DType::kFloat64, {count});
  for (int64_t i = 0; i < count; ++i) {
    const auto steps = static_cast<long double>(std::max<int64_t>(endpoint ? count - 1 : count, 1));
    exact.real[i] = static_cast<double>(start + (stop - start) * i / steps);
  }
  Values out = Cast(exact, dtype);
  if (out.floating()) out.scale.assign(count, std::max(std::fabs(start), std::fabs(stop)));
  return out;
}

Values Eye(const Attributes& attrs, Inputs) {
  const int64_t rows = attrs.Int("rows");
  int64_t cols = Get<int64_t>(attrs, "cols", -1);
  if (cols == -1) cols = rows;
  Values out = Values::Of(DTypeAttr(attrs, DType::kFloat32), {rows, cols});
  const int64_t k = Get<int64_t>(attrs, "k", 0);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      if (j - i != k) continue;
      if (out.floating()) {
        out.real[i * cols + j] = 1;
      } else {
        out.whole[i * cols + j] = 1;
      }
    }
  }
  return out;
}

Values Literal(const Attributes& attrs, Inputs) {
  const std::string& data = attrs.Data("data");
  HostTensor tensor{{attrs.Type("dtype"), Shape(attrs.Ints("shape"))}, {}};
  tensor.bytes.assign(data.begin(), data.end());
  return Widen(tensor);
}

}  // namespace

void AddCreationReferences(ReferenceTable& table) {
  table["zeros"] = Constant(0);
  table["ones"] = Constant(1);
  table["full"] = Full;
  table["arange"] = Arange;
  table["linspace"] = Linspace;
  table["eye"] = Eye;
  table["constant"] = Literal;
}

}  // namespace tensord::conformance
