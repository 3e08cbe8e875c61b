#include "tensord/client/tour/mlp_layout.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "tensord/client/cli/args.h"
#include "tensord/client/cli/text.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::tour {
namespace {

// Returns the number in "12.weight", or nullopt if the name isn't of this form.
std::optional<int> LayerNumber(absl::string_view name, absl::string_view suffix) {
  int number = 0;
  if (!absl::ConsumeSuffix(&name, suffix) || name.empty() || name.size() > 6) return std::nullopt;
  if (!std::all_of(name.begin(), name.end(), absl::ascii_isdigit)) return std::nullopt;
  if (!absl::SimpleAtoi(name, &number)) return std::nullopt;
  return number;
}

absl::Status CheckLayer(const MlpLayer& layer, const std::map<std::string, TensorSpec>& tensors) {
  const TensorSpec& weight = tensors.at(layer.weight);
  if (!IsFloating(weight.dtype)) {
    return absl::InvalidArgumentError(absl::StrCat("\"", layer.weight, "\" is ", weight.ToString(),
                                                   "; weights are floating-point numbers"));
  }
  if (weight.shape.rank() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", layer.weight, "\" is ", weight.ToString(),
                     "; a linear layer's weight has two dimensions, (out, in)"));
  }
  if (layer.bias.empty()) return absl::OkStatus();
  const TensorSpec& bias = tensors.at(layer.bias);
  if (bias.shape != Shape({weight.shape.dim(0)}) || !IsFloating(bias.dtype)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", layer.bias, "\" is ", bias.ToString(), " and doesn't fit \"", layer.weight, "\", ",
        weight.ToString(), ": it should be of shape [", weight.shape.dim(0), "]"));
  }
  return absl::OkStatus();
}

absl::Status CheckChain(absl::Span<const MlpLayer> layers) {
  for (size_t i = 1; i < layers.size(); ++i) {
    if (layers[i].in_features == layers[i - 1].out_features) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", layers[i].weight, "\" takes ", layers[i].in_features, " features, but \"",
        layers[i - 1].weight, "\" before it gives ", layers[i - 1].out_features));
  }
  return absl::OkStatus();
}

template <typename T>
std::vector<int64_t> Widen(absl::Span<const uint8_t> bytes) {
  std::vector<int64_t> values(bytes.size() / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T value;  // the file's bytes need not be aligned
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = static_cast<int64_t>(value);
  }
  return values;
}

absl::StatusOr<int64_t> ParseBound(absl::string_view text, absl::string_view whole, int64_t rows,
                                   int64_t otherwise) {
  if (text.empty()) return otherwise;
  int64_t bound = 0;
  if (!absl::SimpleAtoi(text, &bound)) {
    return cli::UsageError(
        absl::StrCat("\"", whole, "\" isn't a range of rows; write FIRST:END, FIRST: or :END"));
  }
  if (bound < 0) bound += rows;
  return std::clamp<int64_t>(bound, 0, rows);
}

}  // namespace

absl::StatusOr<std::vector<MlpLayer>> FindMlpLayers(
    const std::map<std::string, TensorSpec>& tensors) {
  std::map<int, MlpLayer> layers;
  for (const auto& [name, spec] : tensors) {
    if (const auto number = LayerNumber(name, ".weight")) {
      layers[*number].weight = name;
    } else if (const auto number = LayerNumber(name, ".bias")) {
      layers[*number].bias = name;
    } else {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", cli::Printable(name),
          "\" isn't a tensor of a multilayer perceptron; they are named ",
          "\"0.weight\", \"0.bias\", \"2.weight\", … as PyTorch's nn.Sequential names them"));
    }
  }
  if (layers.empty()) return absl::InvalidArgumentError("it holds no tensors");
  std::vector<MlpLayer> result;
  for (auto& [number, layer] : layers) {
    if (layer.weight.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is a \"", layer.bias, "\" but no \"", number, ".weight\""));
    }
    TENSORD_RETURN_IF_ERROR(CheckLayer(layer, tensors));
    layer.out_features = tensors.at(layer.weight).shape.dim(0);
    layer.in_features = tensors.at(layer.weight).shape.dim(1);
    result.push_back(std::move(layer));
  }
  TENSORD_RETURN_IF_ERROR(CheckChain(result));
  return result;
}

std::string DescribeLayers(absl::Span<const MlpLayer> layers) {
  if (layers.empty()) return "";
  std::string out = absl::StrCat(layers[0].in_features);
  for (const MlpLayer& layer : layers) absl::StrAppend(&out, " → ", layer.out_features);
  return out;
}

absl::StatusOr<RowRange> ParseRows(absl::string_view text, int64_t rows) {
  const size_t colon = text.find(':');
  RowRange range;
  if (colon == absl::string_view::npos) {
    if (text.empty())
      return cli::UsageError("an empty range of rows; write FIRST:END, FIRST: or :END");
    TENSORD_ASSIGN_OR_RETURN(range.first, ParseBound(text, text, rows, 0));
    range.last = std::min(range.first + 1, rows);
  } else {
    TENSORD_ASSIGN_OR_RETURN(range.first, ParseBound(text.substr(0, colon), text, rows, 0));
    TENSORD_ASSIGN_OR_RETURN(range.last, ParseBound(text.substr(colon + 1), text, rows, rows));
  }
  if (range.first < range.last) return range;
  return cli::UsageError(absl::StrCat("\"", text, "\" selects none of the ", rows, " rows"));
}

std::optional<double> ScaleFromMetadata(const std::map<std::string, std::string>& metadata) {
  const auto it = metadata.find("input");
  if (it == metadata.end()) return std::nullopt;
  absl::string_view text = it->second;
  double divisor = 0;
  if (!absl::ConsumePrefix(&text, "pixel/") || !absl::SimpleAtod(text, &divisor) ||
      !std::isfinite(divisor) || divisor <= 0) {
    return std::nullopt;
  }
  return 1 / divisor;
}

absl::StatusOr<std::vector<int64_t>> DecodeLabels(const TensorSpec& spec,
                                                  absl::Span<const uint8_t> bytes,
                                                  int64_t classes) {
  std::vector<int64_t> labels;
  switch (spec.dtype) {
    case DType::kUInt8:
      labels = Widen<uint8_t>(bytes);
      break;
    case DType::kInt8:
      labels = Widen<int8_t>(bytes);
      break;
    case DType::kInt32:
      labels = Widen<int32_t>(bytes);
      break;
    case DType::kInt64:
      labels = Widen<int64_t>(bytes);
      break;
    case DType::kInt16:
      labels = Widen<int16_t>(bytes);
      break;
    case DType::kUInt16:
      labels = Widen<uint16_t>(bytes);
      break;
    case DType::kUInt32:
      labels = Widen<uint32_t>(bytes);
      break;
    case DType::kUInt64:
      labels = Widen<uint64_t>(bytes);
      break;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("labels are ", spec.ToString(), "; they must be whole numbers"));
  }
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] >= 0 && labels[i] < classes) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "label ", labels[i], " of row ", i, " isn't a class of the model, 0 to ", classes - 1));
  }
  return labels;
}

}  // namespace tensord::tour
