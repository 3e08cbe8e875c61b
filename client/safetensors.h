// Reading and writing safetensors files.
//
// The format, as https://github.com/huggingface/safetensors describes it: 8 bytes little-endian
// with the length of a JSON header, the header, then the tensors' bytes without holes or overlaps.
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

// A file, memory-mapped: what isn't looked at isn't read. A value whose copies share the mapping.
// Whoever truncates the file while it is mapped ends the process (SIGBUS), as with any mapped file.
class SafetensorsFile {
 public:
  // Checks the whole header, so that nothing in it can lead outside the file. INVALID_ARGUMENT
  // naming the file and what is wrong with it; NOT_FOUND or PERMISSION_DENIED where it can't be
  // opened.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  // In the order of the header.
  const std::vector<std::string>& names() const;
  bool contains(absl::string_view name) const;
  // The header's "__metadata__".
  const std::map<std::string, std::string>& metadata() const;

  // The next three: NOT_FOUND where there is no such tensor, UNIMPLEMENTED naming it where its
  // dtype is one that the format knows and we don't.
  absl::StatusOr<TensorSpec> spec(absl::string_view name) const;
  // The elements, row-major; valid as long as this object or a copy. Not necessarily aligned.
  absl::StatusOr<absl::Span<const uint8_t>> bytes(absl::string_view name) const;
  // Sends one tensor to a device.
  absl::StatusOr<Tensor> Load(const Device& device, absl::string_view name,
                              const TransferOptions& options = {}) const;
  // Sends all of them. `progress` counts over all.
  absl::StatusOr<std::map<std::string, Tensor>> LoadAll(const Device& device,
                                                        const TransferOptions& options = {}) const;

 private:
  explicit SafetensorsFile(std::shared_ptr<const internal::MappedSafetensors> file)
      : file_(std::move(file)) {}

  std::shared_ptr<const internal::MappedSafetensors> file_;
};

// Reads the tensors and writes them to `path`, which is replaced in one step once all is written:
// after an error it is as it was.
absl::Status SaveSafetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                             const std::map<std::string, std::string>& metadata = {});

}  // namespace tensord
