// What the reference's files share.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/common/attributes.h"
#include "tensord/tests/conformance/host_tensor.h"

namespace tensord::conformance {

using Inputs = absl::Span<const Values>;
using ReferenceFunction = std::function<Values(const Attributes&, Inputs)>;
using ReferenceTable = absl::flat_hash_map<std::string, ReferenceFunction>;

void AddElementwiseReferences(ReferenceTable& table);
void AddMatmulReferences(ReferenceTable& table);
void AddReductionReferences(ReferenceTable& table);
void AddShapeReferences(ReferenceTable& table);
void AddCreationReferences(ReferenceTable& table);

// An attribute, or what it is where it isn't given. An integer is taken for a double.
template <typename T>
T Get(const Attributes& attrs, absl::string_view name, T otherwise) {
  const AttrValue* value = attrs.Find(name);
  if (value == nullptr) return otherwise;
  if constexpr (std::is_same_v<T, double>) {
    if (const int64_t* integer = std::get_if<int64_t>(value)) return static_cast<double>(*integer);
    if (const bool* flag = std::get_if<bool>(value)) return *flag ? 1.0 : 0.0;
  }
  return std::get<T>(*value);
}

// A position in a tensor, one entry a dimension.
using Index = absl::InlinedVector<int64_t, 6>;

// The position of element `flat` of a row-major tensor, and back.
Index Unravel(int64_t flat, const Shape& shape);
int64_t Ravel(const Index& index, const Shape& shape);

// The flat position in a tensor of shape `from` of what is broadcast to `index` of a larger shape.
int64_t RavelBroadcast(const Index& index, const Shape& from);

// NumPy's rule.
Shape Broadcast(const Shape& a, const Shape& b);

// The promotion table.
DType Promote(DType a, DType b);

// Every element in another dtype.
Values Cast(const Values& values, DType dtype);

}  // namespace tensord::conformance
