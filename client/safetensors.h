// Reading and writing safetensors files.
//
// https://github.com/huggingface/safetensors describes the format. A file has 8 bytes little-endian
// with the length of a JSON header, the header, then the tensors' bytes without gaps or overlaps.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/client/device.h"
#include "tensord/client/tensor.h"
#include "tensord/common/tensor_spec.h"

namespace tensord {

namespace internal {
struct MappedSafetensors;
}

// A memory-mapped file: only the parts that are used are read. A SafetensorsFile is a value: copies
// share the mapping. Thread-safe. If another process truncates the file, reading it ends this
// process with SIGBUS, as for any mapped file.
class SafetensorsFile {
 public:
  // Maps the file and checks the whole header: no entry reaches outside the file. If the header is
  // invalid, returns INVALID_ARGUMENT with the file and the reason. If the file begins as those of
  // torch.save do, the error says how to convert it. If the file can't be opened,
  // returns the system's error, such as NOT_FOUND or PERMISSION_DENIED.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  // Returns the tensors' names in the order of the header.
  const std::vector<std::string>& names() const;
  bool contains(absl::string_view name) const;
  // Returns the header's "__metadata__".
  const std::map<std::string, std::string>& metadata() const;

  // The next three functions return NOT_FOUND if there is no such tensor, and UNIMPLEMENTED if
  // tensord doesn't support its dtype.
  absl::StatusOr<TensorSpec> spec(absl::string_view name) const;
  // Returns the elements, row-major. They are valid as long as this object or a copy exists, and
  // need not be aligned.
  absl::StatusOr<absl::Span<const uint8_t>> bytes(absl::string_view name) const;
  // Sends one tensor to a device, as FromBytes does.
  absl::StatusOr<Tensor> Load(const Device& device, absl::string_view name,
                              const TransferOptions& options = {}) const;
  // Sends all tensors. `progress` counts the bytes of all tensors together.
  absl::StatusOr<std::map<std::string, Tensor>> LoadAll(const Device& device,
                                                        const TransferOptions& options = {}) const;

 private:
  explicit SafetensorsFile(std::shared_ptr<const internal::MappedSafetensors> file)
      : file_(std::move(file)) {}

  std::shared_ptr<const internal::MappedSafetensors> file_;
};

// Reads the tensors from their servers and writes them to `path`. Replaces the file atomically when
// everything is written: after an error the file is unchanged. If a tensor is complex128, which the
// format lacks, returns INVALID_ARGUMENT. Blocks.
absl::Status SaveSafetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                             const std::map<std::string, std::string>& metadata = {});

}  // namespace tensord
