// Parses and checks the JSON header of a safetensors file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tensord/common/dtype.h"
#include "tensord/common/shape.h"

namespace tensord::internal {

// The largest header that is read, as in the format's own library.
inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;

struct SafetensorsEntry {
  std::string name;
  std::string dtype_name;             // as the file has it: "F32"
  DType dtype = DType::kUnspecified;  // kUnspecified if tensord doesn't support it
  Shape shape;
  uint64_t begin = 0;  // bytes from the end of the header
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the header's order
  std::map<std::string, std::string> metadata;
};

// Parses the header of a file that has `data_bytes` after the header. Returns INVALID_ARGUMENT if
// it is malformed, has a name twice, a tensor has an unknown dtype, an invalid shape or a wrong
// size, or the tensors don't cover the data without gaps or overlaps.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view json,
                                                         uint64_t data_bytes);

// Returns the name of a dtype in a file: "F32" for float32.
absl::string_view SafetensorsDTypeName(DType dtype);

}  // namespace tensord::internal
