#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tensord/client/creation.h"
#include "tensord/client/internal/safetensors_header.h"
#include "tensord/client/safetensors.h"
#include "tensord/common/util/nearest_word.h"
#include "tensord/common/util/owned_fd.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {
namespace internal {

// A whole file, mapped for reading, and its parsed header.
struct MappedSafetensors {
  MappedSafetensors() = default;
  ~MappedSafetensors() {
    if (base != nullptr) munmap(const_cast<uint8_t*>(base), size_bytes);
  }
  MappedSafetensors(const MappedSafetensors&) = delete;
  MappedSafetensors& operator=(const MappedSafetensors&) = delete;

  std::string path;
  const uint8_t* base = nullptr;
  uint64_t size_bytes = 0;
  const uint8_t* data = nullptr;  // the bytes after the header
  SafetensorsHeader header;
  std::vector<std::string> names;
  absl::flat_hash_map<std::string, const SafetensorsEntry*> by_name;
};

namespace {

absl::Status InvalidFileError(const std::string& path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": not a safetensors file: ", what));
}

// Returns what a file is by its first bytes, and how to go on, if it isn't a safetensors file. If
// the bytes are of no known format, returns "". The file has at least 8 bytes, which are
// `header_bytes` as a number.
std::string DescribeOtherFormat(absl::string_view bytes, uint64_t header_bytes) {
  const auto* first = reinterpret_cast<const uint8_t*>(bytes.data());
  const bool zip = absl::StartsWith(bytes, "PK\x03\x04");
  // Pickles of protocol 2 to 5. A header of 640 bytes begins like a pickle.
  const bool pickle = first[0] == 0x80 && first[1] >= 2 && first[1] <= 5 &&
                      header_bytes > kMaxSafetensorsHeaderBytes;
  if (zip || pickle) {
    return absl::StrCat(
        "it begins as ", zip ? "a zip archive" : "a pickle", ", so it may be a file of torch.save ",
        "(.pt, .pth); convert it in Python: safetensors.torch.save_file(torch.load(\"model.pt\"), "
        "\"model.safetensors\") (client/GUIDE.md, section PyTorch's files)");
  }
  if (absl::StartsWith(bytes, "\x93NUMPY")) {
    return "it begins as a NumPy file (.npy); convert it in Python: safetensors.numpy.save_file("
           "{\"x\": numpy.load(\"x.npy\")}, \"x.safetensors\")";
  }
  if (absl::StartsWith(bytes, "GGUF")) return "it begins as a GGUF file";
  if (absl::StartsWith(bytes, "\x89HDF")) return "it begins as an HDF5 file";
  if (absl::StartsWith(bytes, "version https://git-lfs")) {
    return "it begins as a pointer of Git LFS; get the file itself with \"git lfs pull\"";
  }
  const auto is_text = [](char c) { return absl::ascii_isprint(c) || absl::ascii_isspace(c); };
  const absl::string_view begin = bytes.substr(0, 16);
  return std::all_of(begin.begin(), begin.end(), is_text) ? "it begins as text" : "";
}

// Returns the error of a file whose header, by its first 8 bytes, would be too long.
absl::Status HeaderLengthError(const MappedSafetensors& file, uint64_t header_bytes,
                               absl::string_view problem) {
  const std::string other = DescribeOtherFormat(
      absl::string_view(reinterpret_cast<const char*>(file.base), file.size_bytes), header_bytes);
  return InvalidFileError(file.path, other.empty() ? absl::StrCat("its header would have ",
                                                                  header_bytes, " bytes", problem)
                                                   : other);
}

absl::Status Map(MappedSafetensors* file) {
  // Opens without blocking: otherwise, opening a pipe would wait for a writer.
  const OwnedFd fd(open(file->path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (fd.get() < 0 || fstat(fd.get(), &info) != 0) return absl::ErrnoToStatus(errno, file->path);
  if (!S_ISREG(info.st_mode)) return InvalidFileError(file->path, "it isn't a regular file");
  if (info.st_size < 8) {
    return InvalidFileError(file->path,
                            absl::StrCat("it has ", info.st_size, " bytes, and needs at least 8"));
  }
  const auto size_bytes = static_cast<uint64_t>(info.st_size);
  void* base = mmap(nullptr, size_bytes, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (base == MAP_FAILED) return absl::ErrnoToStatus(errno, absl::StrCat("mapping ", file->path));
  file->base = static_cast<const uint8_t*>(base);
  file->size_bytes = size_bytes;
  return absl::OkStatus();
}

absl::Status Parse(MappedSafetensors* file) {
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file->base, sizeof(header_bytes));
  const uint64_t rest_bytes = file->size_bytes - sizeof(header_bytes);
  if (header_bytes > kMaxSafetensorsHeaderBytes) {
    return HeaderLengthError(*file, header_bytes,
                             absl::StrCat("; the limit is ", kMaxSafetensorsHeaderBytes));
  }
  if (header_bytes > rest_bytes) {
    return HeaderLengthError(*file, header_bytes,
                             absl::StrCat(", but only ", rest_bytes, " bytes follow"));
  }
  const uint8_t* json = file->base + sizeof(header_bytes);
  file->data = json + header_bytes;
  absl::StatusOr<SafetensorsHeader> header =
      ParseSafetensorsHeader(absl::string_view(reinterpret_cast<const char*>(json), header_bytes),
                             rest_bytes - header_bytes);
  if (!header.ok()) return InvalidFileError(file->path, header.status().message());
  file->header = *std::move(header);
  for (const SafetensorsEntry& entry : file->header.entries) {
    file->names.push_back(entry.name);
    file->by_name[entry.name] = &entry;
  }
  return absl::OkStatus();
}

absl::StatusOr<const SafetensorsEntry*> Find(const MappedSafetensors& file,
                                             absl::string_view name) {
  const auto it = file.by_name.find(std::string(name));
  if (it == file.by_name.end()) {
    const std::string near = Nearest(name, file.names);
    return absl::NotFoundError(absl::StrCat(
        file.path, " has no tensor \"", name, "\"; ",
        near.empty() ? absl::StrCat("names() lists its tensors (", file.names.size(), ")")
                     : absl::StrCat("did you mean \"", near, "\"?")));
  }
  if (it->second->dtype == DType::kUnspecified) {
    return absl::UnimplementedError(absl::StrCat(file.path, ": tensor \"", name, "\" has dtype ",
                                                 it->second->dtype_name,
                                                 ", which tensord doesn't have"));
  }
  return it->second;
}

}  // namespace
}  // namespace internal

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  auto file = std::make_shared<internal::MappedSafetensors>();
  file->path = path;
  TENSORD_RETURN_IF_ERROR(internal::Map(file.get()));
  TENSORD_RETURN_IF_ERROR(internal::Parse(file.get()));
  return SafetensorsFile(std::move(file));
}

const std::vector<std::string>& SafetensorsFile::names() const { return file_->names; }

bool SafetensorsFile::contains(absl::string_view name) const {
  return file_->by_name.contains(std::string(name));
}

const std::map<std::string, std::string>& SafetensorsFile::metadata() const {
  return file_->header.metadata;
}

absl::StatusOr<TensorSpec> SafetensorsFile::spec(absl::string_view name) const {
  TENSORD_ASSIGN_OR_RETURN(const internal::SafetensorsEntry* entry, internal::Find(*file_, name));
  return TensorSpec{entry->dtype, entry->shape};
}

absl::StatusOr<absl::Span<const uint8_t>> SafetensorsFile::bytes(absl::string_view name) const {
  TENSORD_ASSIGN_OR_RETURN(const internal::SafetensorsEntry* entry, internal::Find(*file_, name));
  return absl::MakeConstSpan(file_->data + entry->begin, entry->end - entry->begin);
}

absl::StatusOr<Tensor> SafetensorsFile::Load(const Device& device, absl::string_view name,
                                             const TransferOptions& options) const {
  TENSORD_ASSIGN_OR_RETURN(const TensorSpec spec, this->spec(name));
  TENSORD_ASSIGN_OR_RETURN(const absl::Span<const uint8_t> data, bytes(name));
  Tensor tensor = FromBytes(device, spec, data, options);
  TENSORD_RETURN_IF_ERROR(tensor.status());
  return tensor;
}

absl::StatusOr<std::map<std::string, Tensor>> SafetensorsFile::LoadAll(
    const Device& device, const TransferOptions& options) const {
  int64_t total_bytes = 0;
  for (const std::string& name : names()) {
    TENSORD_ASSIGN_OR_RETURN(const TensorSpec spec, this->spec(name));
    total_bytes += spec.size_bytes();
  }
  int64_t done_bytes = 0;
  TransferOptions each;
  if (options.progress) {
    each.progress = [&](int64_t done, int64_t) {
      options.progress(done_bytes + done, total_bytes);
    };
  }
  std::map<std::string, Tensor> tensors;
  for (const std::string& name : names()) {
    TENSORD_ASSIGN_OR_RETURN(Tensor tensor, Load(device, name, each));
    done_bytes += tensor.size_bytes();
    tensors.emplace(name, std::move(tensor));
  }
  if (options.progress) options.progress(total_bytes, total_bytes);
  return tensors;
}

}  // namespace tensord
