// Internal declarations of the reference.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/common/attributes.h"
#include "tensord/tests/conformance/host_tensor.h"

namespace tensord::conformance {

using Inputs = absl::Span<const Values>;
using Real = long double;

inline Real SigmoidOf(Real x) { return 1 / (1 + std::exp(-x)); }
using ReferenceFunction = std::function<Values(const Attributes&, Inputs)>;

// The reference of an op with any number of outputs: a function that returns Values, or a vector of
// them.
class OpReference {
 public:
  OpReference() = default;
  template <typename F>
  OpReference(F function) {  // NOLINT: implicit
    if constexpr (std::is_same_v<std::invoke_result_t<F, const Attributes&, Inputs>, Values>) {
      function_ = [function](const Attributes& attrs, Inputs inputs) {
        return std::vector<Values>{function(attrs, inputs)};
      };
    } else {
      function_ = function;
    }
  }

  std::vector<Values> operator()(const Attributes& attrs, Inputs inputs) const {
    return function_(attrs, inputs);
  }

 private:
  std::function<std::vector<Values>(const Attributes&, Inputs)> function_;
};
using ReferenceTable = absl::flat_hash_map<std::string, OpReference>;

void AddActivationReferences(ReferenceTable& table);
void AddAttentionReferences(ReferenceTable& table);
void AddBatchNormReferences(ReferenceTable& table);
void AddConvReferences(ReferenceTable& table);
void AddElementwiseReferences(ReferenceTable& table);
void AddIndexingReferences(ReferenceTable& table);
void AddLossReferences(ReferenceTable& table);
void AddMatmulReferences(ReferenceTable& table);
void AddMovementReferences(ReferenceTable& table);
void AddNetworkReferences(ReferenceTable& table);
void AddOptimizerReferences(ReferenceTable& table);
void AddPoolReferences(ReferenceTable& table);
void AddGroupNormReferences(ReferenceTable& table);
void AddRecurrentReferences(ReferenceTable& table);
void AddRecurrentLayerReferences(ReferenceTable& table);
void AddSpecialReferences(ReferenceTable& table);
void AddReductionReferences(ReferenceTable& table);
void AddVarMeanReferences(ReferenceTable& table);
void AddScanReferences(ReferenceTable& table);
void AddShapeReferences(ReferenceTable& table);
void AddSmallReferences(ReferenceTable& table);
void AddStridedReferences(ReferenceTable& table);
void AddCreationReferences(ReferenceTable& table);
void AddSortReferences(ReferenceTable& table);
void AddRandomReferences(ReferenceTable& table);

// Returns the value, or 0 if it isn't finite in double: Values::scale has only finite elements.
double FiniteOrZero(long double value);

// Returns values whose elements and scales are 0.
Values ScaledValues(DType dtype, const Shape& shape);

// Returns the dtype to which all inputs are promoted.
DType PromotedOf(Inputs inputs);

// Returns the derivative of f at x by five-point differences with the step h = 2e-4. The error is
// about h^4 times the fifth derivative.
long double DifferenceQuotient(const std::function<long double(long double)>& f, long double x);

// Returns an attribute, or `otherwise` if it isn't given. For double, also converts integers and
// bool.
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

// Returns the attribute "dtype", or `otherwise` if it isn't given or unspecified.
inline DType DTypeAttr(const Attributes& attrs, DType otherwise) {
  const DType dtype = Get(attrs, "dtype", otherwise);
  return dtype == DType::kUnspecified ? otherwise : dtype;
}

// Returns the reference of a value of the attribute "activation": that of the op of this name. If
// there is none, the results are NaN, so that the rows fail.
double (*ActivationReference(const std::string& name))(double);

// Returns an index or axis that may count from the end, counted from 0.
inline int64_t FromZero(int64_t index, int64_t size) { return index < 0 ? index + size : index; }
// Returns the attribute "axis", counted from 0.
inline int AxisOf(const Attributes& attrs, const Shape& shape) {
  return static_cast<int>(FromZero(Get<int64_t>(attrs, "axis", 0), shape.rank()));
}

// A position in a tensor, with one entry for each dimension.
using Index = absl::InlinedVector<int64_t, 6>;

// Convert between the flat position of an element in a row-major tensor and its index.
Index Unravel(int64_t flat, const Shape& shape);
int64_t Ravel(const Index& index, const Shape& shape);

// Returns the flat position, in a tensor of shape `from`, of the element that is broadcast to
// `index` of a larger shape.
int64_t RavelBroadcast(const Index& index, const Shape& from);

// Returns the broadcast shape by NumPy's rule. The shapes must be compatible.
Shape Broadcast(const Shape& a, const Shape& b);

// Returns the dtype to which two dtypes of one kind are promoted.
DType Promote(DType a, DType b);

// Returns for each axis whether the attribute "axes" of a reduction has it.
std::vector<bool> ReducedAxes(const Attributes& attrs, int rank);
Shape ReducedShape(const Shape& shape, const std::vector<bool>& reduced, bool keepdims);
// Returns for each element of a reduction's result the flat positions of the input that it reduces,
// in row-major order.
using Group = std::vector<int64_t>;
std::vector<Group> Groups(const Shape& shape, const std::vector<bool>& reduced);

// Converts the elements to another dtype. Real elements become the real parts of complex ones.
Values Cast(const Values& values, DType dtype);

// Returns whether a < b. The integers of dtype uint64 are the bits of the elements.
inline bool WholeLess(DType dtype, int64_t a, int64_t b) {
  if (dtype == DType::kUInt64) return static_cast<uint64_t>(a) < static_cast<uint64_t>(b);
  return a < b;
}

// Sets element `i` of `to` to element `at` of `from`. Both must have the same dtype.
void CopyElement(const Values& from, int64_t at, Values& to, int64_t i);

}  // namespace tensord::conformance
