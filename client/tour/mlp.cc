#include "tensord/client/tour/mlp.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tensord/client/creation.h"
#include "tensord/client/ops.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::tour {
namespace {

absl::Status FileError(const std::string& path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

absl::StatusOr<TensorSpec> FindTensor(const SafetensorsFile& file, const std::string& path,
                                      const std::string& name, absl::string_view flag) {
  if (file.contains(name)) return file.spec(name);
  return absl::NotFoundError(absl::StrCat(path, ": there is no tensor \"", name, "\"; it holds ",
                                          absl::StrJoin(file.names(), ", "), ". Choose one with --",
                                          flag));
}

// Returns the number of elements of one row, or an error if it isn't `wanted`.
absl::StatusOr<int64_t> RowElements(const std::string& path, const std::string& name,
                                    const TensorSpec& spec, int64_t wanted) {
  if (spec.shape.rank() < 2 || IsBool(spec.dtype)) {
    return FileError(path, absl::StrCat("\"", name, "\" is ", spec.ToString(),
                                        "; inputs are numbers in rows, (rows, ", wanted, ")"));
  }
  const int64_t rows = spec.shape.dim(0);
  const int64_t columns = rows == 0 ? wanted : spec.num_elements() / rows;
  if (columns == wanted) return columns;
  return FileError(path, absl::StrCat("a row of \"", name, "\", ", spec.ToString(), ", has ",
                                      columns, " numbers, but the model takes ", wanted));
}

absl::Status CheckLabels(const std::string& path, const std::string& name, const TensorSpec& labels,
                         int64_t rows) {
  if (labels.shape == Shape({rows})) return absl::OkStatus();
  return FileError(path, absl::StrCat("\"", name, "\" is ", labels.ToString(), "; there are ", rows,
                                      " rows, so it should be of shape [", rows, "]"));
}

}  // namespace

absl::StatusOr<Mlp> Mlp::Load(const std::string& path, const Device& device,
                              const TransferOptions& options) {
  TENSORD_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  std::map<std::string, TensorSpec> specs;
  for (const std::string& name : file.names()) {
    TENSORD_ASSIGN_OR_RETURN(specs[name], file.spec(name));
  }
  absl::StatusOr<std::vector<MlpLayer>> layers = FindMlpLayers(specs);
  if (!layers.ok()) return FileError(path, layers.status().message());
  Mlp mlp;
  mlp.layers_ = *std::move(layers);
  mlp.metadata_ = file.metadata();
  TENSORD_ASSIGN_OR_RETURN(mlp.tensors_, file.LoadAll(device, options));
  return mlp;
}

Tensor Mlp::Forward(const Tensor& x) const {
  Tensor h = x;
  for (const MlpLayer& layer : layers_) {
    const LinearOptions options = {.activation = &layer == &layers_.back() ? Activation::kNone
                                                                           : Activation::kRelu};
    const Tensor& weight = tensors_.at(layer.weight);
    h = layer.bias.empty() ? Linear(h, weight, options)
                           : Linear(h, weight, tensors_.at(layer.bias), options);
  }
  return h;
}

absl::StatusOr<Dataset> Dataset::Open(const std::string& path, const Mlp& model,
                                      const DatasetOptions& options) {
  TENSORD_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(path));
  Dataset dataset(std::move(file));
  TENSORD_ASSIGN_OR_RETURN(const TensorSpec images,
                           FindTensor(dataset.file_, path, options.images, "images"));
  TENSORD_ASSIGN_OR_RETURN(const TensorSpec labels,
                           FindTensor(dataset.file_, path, options.labels, "labels"));
  TENSORD_ASSIGN_OR_RETURN(const int64_t columns,
                           RowElements(path, options.images, images, model.in_features()));
  TENSORD_RETURN_IF_ERROR(CheckLabels(path, options.labels, labels, images.shape.dim(0)));
  TENSORD_ASSIGN_OR_RETURN(dataset.rows_, ParseRows(options.rows, images.shape.dim(0)));
  const RowRange rows = dataset.rows_;
  dataset.spec_ = {images.dtype, Shape({rows.size(), columns})};

  const int64_t row_bytes = columns * SizeOf(images.dtype);
  TENSORD_ASSIGN_OR_RETURN(const auto image_bytes, dataset.file_.bytes(options.images));
  dataset.bytes_ = image_bytes.subspan(rows.first * row_bytes, rows.size() * row_bytes);
  const int64_t label_bytes = SizeOf(labels.dtype);
  TENSORD_ASSIGN_OR_RETURN(const auto all_labels, dataset.file_.bytes(options.labels));
  absl::StatusOr<std::vector<int64_t>> decoded =
      DecodeLabels(labels, all_labels.subspan(rows.first * label_bytes, rows.size() * label_bytes),
                   model.out_features());
  if (!decoded.ok()) return FileError(path, decoded.status().message());
  dataset.labels_ = *std::move(decoded);
  return dataset;
}

Tensor Dataset::Upload(const Device& device, const TransferOptions& options) const {
  return FromBytes(device, spec_, bytes_, options);
}

absl::StatusOr<Confusion> Compare(absl::Span<const int64_t> labels,
                                  absl::Span<const int64_t> predictions, int64_t classes) {
  if (labels.size() != predictions.size()) {
    return absl::InternalError(
        absl::StrCat(predictions.size(), " predictions came back for ", labels.size(), " rows"));
  }
  Confusion confusion(static_cast<int>(classes));
  for (size_t i = 0; i < labels.size(); ++i) {
    if (predictions[i] < 0 || predictions[i] >= classes) {
      return absl::InternalError(
          absl::StrCat("row ", i, " came back as class ", predictions[i], " of ", classes));
    }
    confusion.Add(static_cast<int>(labels[i]), static_cast<int>(predictions[i]));
  }
  return confusion;
}

}  // namespace tensord::tour
