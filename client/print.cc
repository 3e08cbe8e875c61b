#include "tensord/client/print.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tensord/client/internal/element_text.h"
#include "tensord/client/internal/format.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {
namespace internal {
namespace {

constexpr absl::string_view kOpening = "tensor(";

int64_t EdgeItems(const PrintOptions& options) { return std::max<int64_t>(options.edge_items, 1); }

// Nested brackets around the elements, broken into lines.
class Layout {
 public:
  Layout(const Shape& shape, const Shape& shown, const ElementTexts& elements,
         const PrintOptions& options)
      : shape_(shape), shown_(shown), elements_(elements), options_(options) {}

  // Returns the text of the axes from `axis` on. It begins with shown element number `first`, in
  // column `indent`.
  std::string Text(int axis, int64_t first, int indent) const {
    if (axis == shape_.rank()) return Padded(first);
    if (axis + 1 == shape_.rank()) return Row(axis, first, indent);
    int64_t stride = 1;
    for (int i = axis + 1; i < shown_.rank(); ++i) stride *= shown_.dim(i);
    std::vector<std::string> parts;
    for (int64_t i = 0; i < shown_.dim(axis); ++i) {
      if (IsGap(axis, i)) parts.push_back("...");
      parts.push_back(Text(axis + 1, first + i * stride, indent + 1));
    }
    const int newlines = shape_.rank() - axis - 1;
    return absl::StrCat("[", absl::StrJoin(parts, LineBreak(newlines, indent)), "]");
  }

 private:
  // Returns whether elements are left out before shown index `i` of the axis.
  bool IsGap(int axis, int64_t i) const {
    return shown_.dim(axis) < shape_.dim(axis) && i == EdgeItems(options_);
  }

  std::string Padded(int64_t i) const {
    const std::string& text = elements_.texts[i];
    if (!elements_.aligned) return text;
    const size_t width = std::max(elements_.width, text.size());
    return absl::StrCat(std::string(width - text.size(), ' '), text);
  }

  static std::string LineBreak(int newlines, int indent) {
    return absl::StrCat(",", std::string(newlines, '\n'), std::string(indent + 1, ' '));
  }

  std::string Row(int axis, int64_t first, int indent) const {
    std::vector<std::string> cells;
    for (int64_t i = 0; i < shown_.dim(axis); ++i) {
      if (IsGap(axis, i)) cells.push_back(" ...");
      cells.push_back(Padded(first + i));
    }
    const auto per_line = static_cast<size_t>(
        std::max((options_.line_width - indent) / (static_cast<int>(elements_.width) + 2), 1));
    std::vector<std::string> lines;
    for (size_t begin = 0; begin < cells.size(); begin += per_line) {
      const size_t end = std::min(begin + per_line, cells.size());
      lines.push_back(absl::StrJoin(cells.begin() + begin, cells.begin() + end, ", "));
    }
    return absl::StrCat("[", absl::StrJoin(lines, LineBreak(1, indent)), "]");
  }

  const Shape& shape_;
  const Shape& shown_;
  const ElementTexts& elements_;
  const PrintOptions& options_;
};

std::vector<std::string> Suffixes(const TensorSpec& spec, absl::string_view device) {
  const bool empty = spec.num_elements() == 0;
  std::vector<std::string> suffixes = {absl::StrCat("device='", device, "'")};
  if (empty && spec.shape.rank() != 1) {
    suffixes.push_back(absl::StrCat("size=(", absl::StrJoin(spec.shape.dims(), ", "), ")"));
  }
  // The printed values identify float32, int64, bool and complex64. Without values, only float32
  // isn't named.
  const bool implied = spec.dtype == DType::kFloat32 ||
                       (!empty && (spec.dtype == DType::kInt64 || spec.dtype == DType::kBool ||
                                   spec.dtype == DType::kComplex64));
  if (!implied) suffixes.push_back(absl::StrCat("dtype=", DTypeName(spec.dtype)));
  return suffixes;
}

}  // namespace

Shape ShownShape(const Shape& shape, const PrintOptions& options) {
  if (shape.num_elements() <= options.threshold) return shape;
  Shape shown = shape;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    shown.set_dim(axis, std::min(shape.dim(axis), 2 * EdgeItems(options)));
  }
  return shown;
}

std::string FormatShown(const TensorSpec& spec, absl::Span<const uint8_t> shown,
                        absl::string_view device, const PrintOptions& options) {
  const int indent = static_cast<int>(kOpening.size());
  std::string text(kOpening);
  if (spec.num_elements() == 0) {
    text += "[]";
  } else {
    const Shape shape = ShownShape(spec.shape, options);
    const ElementTexts elements = FormatElements(spec.dtype, shown, std::max(options.precision, 0));
    text += Layout(spec.shape, shape, elements, options).Text(0, 0, indent);
  }
  // PyTorch counts the length of the last line plus two.
  size_t column = text.size() - (text.rfind('\n') + 1) + 2;
  for (const std::string& suffix : Suffixes(spec, device)) {
    if (column + suffix.size() + 2 > static_cast<size_t>(options.line_width)) {
      absl::StrAppend(&text, ",\n", std::string(indent, ' '), suffix);
      column = indent + suffix.size();
    } else {
      absl::StrAppend(&text, ", ", suffix);
      column += suffix.size() + 2;
    }
  }
  return text + ")";
}

namespace {

// Appends the shown elements of `axis` and the axes within it to `out`.
void AppendShown(const TensorSpec& spec, const Shape& shown, const Dims& strides, int axis,
                 const uint8_t* from, std::vector<uint8_t>* out) {
  const int64_t element = SizeOf(spec.dtype);
  if (axis == spec.shape.rank()) {
    out->insert(out->end(), from, from + element);
    return;
  }
  const int64_t skipped = spec.shape.dim(axis) - shown.dim(axis);
  for (int64_t i = 0; i < shown.dim(axis); ++i) {
    const int64_t at = i < shown.dim(axis) / 2 || skipped == 0 ? i : i + skipped;
    AppendShown(spec, shown, strides, axis + 1, from + at * strides[axis] * element, out);
  }
}

}  // namespace
}  // namespace internal

absl::StatusOr<std::string> FormatTensor(const TensorSpec& spec, absl::Span<const uint8_t> data,
                                         absl::string_view device, const PrintOptions& options) {
  TENSORD_RETURN_IF_ERROR(spec.Validate());
  if (static_cast<int64_t>(data.size()) != spec.size_bytes()) {
    return absl::InvalidArgumentError(absl::StrCat(spec.ToString(), " has ", spec.size_bytes(),
                                                   " bytes; the given data has ", data.size()));
  }
  const Shape shown = internal::ShownShape(spec.shape, options);
  if (shown == spec.shape) return internal::FormatShown(spec, data, device, options);
  std::vector<uint8_t> gathered;
  internal::AppendShown(spec, shown, RowMajorStrides(spec.shape), 0, data.data(), &gathered);
  return internal::FormatShown(spec, gathered, device, options);
}

std::ostream& operator<<(std::ostream& out, DeviceKind kind) { return out << kind.name(); }
std::ostream& operator<<(std::ostream& out, const DeviceName& device) {
  return out << device.ToString();
}
std::ostream& operator<<(std::ostream& out, DType dtype) { return out << DTypeName(dtype); }
std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.ToString(); }
std::ostream& operator<<(std::ostream& out, const TensorSpec& spec) {
  return out << spec.ToString();
}

}  // namespace tensord
