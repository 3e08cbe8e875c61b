// A multilayer perceptron on a device, and its dataset.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/client/safetensors.h"
#include "tensord/client/tensor.h"
#include "tensord/client/tour/confusion.h"
#include "tensord/client/tour/mlp_layout.h"

namespace tensord::tour {

// Linear layers with ReLU between them.
class Mlp {
 public:
  // Sends the file's tensors to the device. Blocks. Errors name `path`.
  static absl::StatusOr<Mlp> Load(const std::string& path, const Device& device,
                                  const TransferOptions& options = {});

  // (rows, in) -> (rows, out). Doesn't wait; errors are in the result's status.
  Tensor Forward(const Tensor& x) const;

  int64_t in_features() const { return layers_.front().in_features; }
  int64_t out_features() const { return layers_.back().out_features; }
  absl::Span<const MlpLayer> layers() const { return layers_; }
  // The file's "__metadata__".
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  std::vector<MlpLayer> layers_;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

struct DatasetOptions {
  std::string images = "images";  // name of the tensor of inputs, (rows, …)
  std::string labels = "labels";  // name of the tensor of labels, (rows)
  std::string rows = ":";         // in the form that ParseRows accepts
};

// Rows of a file, with their labels. The file stays mapped.
class Dataset {
 public:
  // Maps the file, and checks that its inputs have the model's width and its labels are classes of
  // the model. Errors name the file, the tensor and the problem.
  static absl::StatusOr<Dataset> Open(const std::string& path, const Mlp& model,
                                      const DatasetOptions& options = {});

  RowRange rows() const { return rows_; }
  absl::Span<const int64_t> labels() const { return labels_; }
  // The spec and the elements that Upload sends.
  const TensorSpec& spec() const { return spec_; }
  absl::Span<const uint8_t> bytes() const { return bytes_; }

  // Uploads the rows in their own dtype, (rows, in).
  Tensor Upload(const Device& device, const TransferOptions& options = {}) const;

 private:
  explicit Dataset(SafetensorsFile file) : file_(std::move(file)) {}

  SafetensorsFile file_;
  RowRange rows_;
  TensorSpec spec_;
  absl::Span<const uint8_t> bytes_;  // of file_
  std::vector<int64_t> labels_;
};

// Counts the predictions for each label. Labels must be below `classes`. If the lengths differ, or
// a prediction isn't below `classes`, returns INTERNAL.
absl::StatusOr<Confusion> Compare(absl::Span<const int64_t> labels,
                                  absl::Span<const int64_t> predictions, int64_t classes);

}  // namespace tensord::tour
