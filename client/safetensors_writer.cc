#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/client/internal/safetensors_header.h"
#include "tensord/client/safetensors.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {
namespace {

using Tensors = std::map<std::string, Tensor>;

// A new file next to `path`. Commit renames it to `path`. Without Commit, the destructor deletes
// it.
class ReplacementFile {
 public:
  explicit ReplacementFile(const std::string& path)
      : path_(path),
        temporary_(absl::StrCat(path, ".", absl::Hex(std::random_device()()), ".tmp")),
        fd_(open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {}
  ~ReplacementFile() {
    if (fd_ < 0) return;
    close(fd_);
    if (!committed_) unlink(temporary_.c_str());
  }
  ReplacementFile(const ReplacementFile&) = delete;
  ReplacementFile& operator=(const ReplacementFile&) = delete;

  absl::Status Append(absl::Span<const uint8_t> data) {
    while (!data.empty()) {
      const ssize_t written = fd_ < 0 ? -1 : write(fd_, data.data(), data.size());
      if (written < 0 && fd_ >= 0 && errno == EINTR) continue;
      if (written < 0) return Error();
      data.remove_prefix(written);
    }
    return absl::OkStatus();
  }

  absl::Status Commit() {
    if (fsync(fd_) != 0 || rename(temporary_.c_str(), path_.c_str()) != 0) return Error();
    committed_ = true;
    return absl::OkStatus();
  }

 private:
  absl::Status Error() const { return absl::ErrnoToStatus(errno, absl::StrCat("writing ", path_)); }

  const std::string path_;
  const std::string temporary_;
  const int fd_;
  bool committed_ = false;
};

// Orders the tensors by decreasing element size, so that each is aligned to its elements.
std::vector<Tensors::const_pointer> InFileOrder(const Tensors& tensors) {
  std::vector<Tensors::const_pointer> order;
  for (const auto& entry : tensors) order.push_back(&entry);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return SizeOf(a->second.dtype()) > SizeOf(b->second.dtype());
  });
  return order;
}

absl::StatusOr<std::string> MakeHeader(const std::vector<Tensors::const_pointer>& tensors,
                                       const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t offset = 0;
  for (const auto* entry : tensors) {
    const auto& [name, tensor] = *entry;
    if (name == "__metadata__") {
      return absl::InvalidArgumentError(
          "a tensor can't be named \"__metadata__\": the format uses this name for other data");
    }
    if (!tensor.ok()) {
      return WithPrefix(tensor.status(), absl::StrCat("tensor \"", name, "\": "));
    }
    const absl::Span<const int64_t> dims = tensor.shape().dims();
    const std::vector<int64_t> shape(dims.begin(), dims.end());
    const absl::string_view dtype = internal::SafetensorsDTypeName(tensor.dtype());
    if (dtype.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor \"", name, "\" has dtype ", DTypeName(tensor.dtype()),
                       ", for which the safetensors format has no name"));
    }
    header[name] = {{"dtype", std::string(dtype)},
                    {"shape", shape},
                    {"data_offsets", {offset, offset + tensor.size_bytes()}}};
    offset += tensor.size_bytes();
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    return absl::InvalidArgumentError("a name or a metadata entry isn't UTF-8");
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > internal::kMaxSafetensorsHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the header would have ", text.size(),
                                                   " bytes; the limit is ",
                                                   internal::kMaxSafetensorsHeaderBytes));
  }
  return text;
}

absl::Span<const uint8_t> AsBytes(const void* data, size_t size_bytes) {
  return {static_cast<const uint8_t*>(data), size_bytes};
}

}  // namespace

absl::Status SaveSafetensors(const std::string& path, const Tensors& tensors,
                             const std::map<std::string, std::string>& metadata) {
  const std::vector<Tensors::const_pointer> order = InFileOrder(tensors);
  TENSORD_ASSIGN_OR_RETURN(const std::string header, MakeHeader(order, metadata));
  const uint64_t header_bytes = header.size();
  ReplacementFile file(path);
  TENSORD_RETURN_IF_ERROR(file.Append(AsBytes(&header_bytes, sizeof(header_bytes))));
  TENSORD_RETURN_IF_ERROR(file.Append(AsBytes(header.data(), header.size())));
  for (const auto* entry : order) {
    TENSORD_ASSIGN_OR_RETURN(const std::vector<uint8_t> data, entry->second.ReadBytes());
    TENSORD_RETURN_IF_ERROR(file.Append(data));
  }
  return file.Commit();
}

}  // namespace tensord
