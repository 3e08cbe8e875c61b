#include "tensord/client/python/tensord/_core/debug.h"

#include <cstdlib>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tensord/client/python/tensord/_core/core.h"

namespace tensord::python {
namespace {

constexpr size_t kMaxLines = 1 << 20;  // of one session; older ones are forgotten

// For each session, lines by the handle of the last tensor that the line made. Handles ascend, so a
// function that runs several ops needs one entry. Guarded by the interpreter's lock.
using Lines = std::map<uint64_t, std::string>;
absl::flat_hash_map<const void*, Lines>& LinesOfSessions() {
  static auto* lines = new absl::flat_hash_map<const void*, Lines>;
  return *lines;
}

// Returns whether a file belongs to this package, to torch_tensord or to PyTorch.
bool IsLibrary(absl::string_view file) {
  return absl::StrContains(file, "/tensord/") || absl::StrContains(file, "/torch_tensord/") ||
         absl::StrContains(file, "-packages/torch/");
}

// Returns the innermost line outside these packages, or "" on a thread without Python code.
std::string CurrentLine() {
  nb::object frame = nb::borrow(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  std::string line;
  while (frame.is_valid() && !frame.is_none()) {
    const nb::object code = frame.attr("f_code");
    const auto file = nb::cast<std::string>(code.attr("co_filename"));
    line = absl::StrCat(file, ":", nb::cast<int>(frame.attr("f_lineno")), ", in ",
                        nb::cast<std::string>(code.attr("co_name")));
    if (!IsLibrary(file)) return line;
    frame = frame.attr("f_back");
  }
  return line;
}

}  // namespace

const DebugModes& Debug() {
  static const DebugModes modes = [] {
    const char* const text = std::getenv("TENSORD_DEBUG");
    const absl::string_view words = text == nullptr ? "" : text;
    return DebugModes{absl::StrContains(words, "sync"), absl::StrContains(words, "tracebacks")};
  }();
  return modes;
}

void RememberLine(const Tensor& tensor) {
  if (tensor.handle() == 0) return;
  Lines& lines = LinesOfSessions()[tensor.device().session().get()];
  lines[tensor.handle()] = CurrentLine();
  if (lines.size() > kMaxLines) lines.erase(lines.begin());
}

std::string LineOf(absl::string_view error_message) {
  // The server's errors begin "index (tensor 3): …".
  constexpr absl::string_view kBefore = "(tensor ";
  const size_t begin = error_message.find(kBefore);
  if (begin == absl::string_view::npos) return "";
  error_message.remove_prefix(begin + kBefore.size());
  uint64_t handle = 0;
  if (!absl::SimpleAtoi(error_message.substr(0, error_message.find(')')), &handle)) return "";
  std::string found;
  for (const auto& [session, lines] : LinesOfSessions()) {
    const auto line = lines.lower_bound(handle);
    if (line == lines.end()) continue;
    if (!found.empty()) return "";  // the error doesn't tell which session it is of
    found = line->second;
  }
  return found;
}

}  // namespace tensord::python
