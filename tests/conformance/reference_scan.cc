#include <cmath>

#include "tensord/tests/conformance/reference_internal.h"

namespace tensord::conformance {
namespace {

// Returns the sums or products of the elements of a line up to each one, in the order of the scan.
template <typename T>
std::vector<T> ScanOfLine(const std::vector<T>& x, bool product, bool exclusive) {
  std::vector<T> results;
  T carry = product ? 1 : 0;
  for (const T& element : x) {
    const T before = carry;
    carry = product ? carry * element : carry + element;
    results.push_back(exclusive ? before : carry);
  }
  return results;
}

void ScanGroup(const Values& x, Group group, const Attributes& attrs, bool product, Values& out) {
  if (Get(attrs, "reverse", false)) group = Group(group.rbegin(), group.rend());
  const bool exclusive = Get(attrs, "exclusive", false);
  if (!x.floating()) {
    std::vector<uint64_t> line;
    for (int64_t at : group) line.push_back(static_cast<uint64_t>(x.whole[at]));
    const std::vector<uint64_t> results = ScanOfLine(line, product, exclusive);
    for (size_t k = 0; k < group.size(); ++k) {
      out.whole[group[k]] = WrapTo(out.spec.dtype, static_cast<int64_t>(results[k]));
    }
    return;
  }
  std::vector<long double> line, magnitudes;
  for (int64_t at : group) line.push_back(x.real[at]);
  for (int64_t at : group) magnitudes.push_back(std::fabs(x.real[at]));
  const std::vector<long double> results = ScanOfLine(line, product, exclusive);
  const std::vector<long double> scales = ScanOfLine(magnitudes, product, exclusive);
  for (size_t k = 0; k < group.size(); ++k) {
    out.real[group[k]] = static_cast<double>(results[k]);
    out.scale[group[k]] = std::isfinite(scales[k]) ? static_cast<double>(scales[k]) : 0;
  }
}

ReferenceFunction Scan(bool product) {
  return [=](const Attributes& attrs, Inputs inputs) {
    const DType in = inputs[0].spec.dtype;
    DType dtype = Get(attrs, "dtype", DType::kUnspecified);
    if (dtype == DType::kUnspecified) dtype = IsFloating(in) ? in : DType::kInt64;
    const Values x = Cast(inputs[0], dtype);
    Values out = Values::Of(dtype, x.spec.shape);
    if (out.floating()) out.scale.resize(out.size());
    if (out.size() == 0) return out;
    const int rank = x.spec.shape.rank();
    const int64_t axis = Get<int64_t>(attrs, "axis", 0);
    std::vector<bool> along(rank, false);
    if (rank > 0) along[axis < 0 ? axis + rank : axis] = true;
    for (const Group& group : Groups(x.spec.shape, along)) {
      ScanGroup(x, group, attrs, product, out);
    }
    return out;
  };
}

}  // namespace

void AddScanReferences(ReferenceTable& table) {
  table["cumsum"] = Scan(false);
  table["cumprod"] = Scan(true);
}

}  // namespace tensord::conformance
