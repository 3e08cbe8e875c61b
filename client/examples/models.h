// Code that the examples with models share.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "tensord/client/examples/check.h"

namespace tensord::examples {

// Opens the file at `path`. If `path` is empty, writes the result of `make_state` to a
// file `name` in the folder for temporary files, and opens that file.
inline absl::StatusOr<SafetensorsFile> OpenOrCreate(
    const std::string& path, const std::string& name,
    const std::function<absl::StatusOr<nn::StateDict>()>& make_state) {
  if (!path.empty()) return SafetensorsFile::Open(path);
  std::string folder = (std::filesystem::temp_directory_path() / "tensord_XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrCat("can't make the folder ", folder));
  }
  const std::string created = absl::StrCat(folder, "/", name);
  TENSORD_ASSIGN_OR_RETURN(const nn::StateDict state, make_state());
  TENSORD_RETURN_IF_ERROR(SaveSafetensors(created, state));
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(created);
  std::filesystem::remove_all(folder);  // the file stays mapped
  return file;
}

using ModelExample = absl::Status (*)(const std::string& server, const std::string& model_path);

// The main function of an example with a model.
inline int ModelMain(int argc, char** argv, const std::string& meaning, ModelExample example) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  const bool wants_help = !args.empty() && (args[0] == "--help" || args[0] == "-h");
  if (wants_help || args.size() > 2) {
    (wants_help ? std::cout : std::cerr) << "usage: " << argv[0] << " [SERVER] [MODEL]\n\n"
                                         << meaning << "\n"
                                         << "SERVER: $TENSORD_SERVER or 127.0.0.1:50051 by "
                                            "default.\n";
    return wants_help ? 0 : 2;
  }
  const bool named = std::getenv("TENSORD_SERVER") != nullptr;
  const absl::Status status = example(!args.empty() ? args[0]
                                      : named       ? ""
                                                    : "127.0.0.1:50051",
                                      args.size() > 1 ? args[1] : "");
  if (!status.ok()) std::cerr << status.message() << "\n";
  return status.ok() ? 0 : 1;
}

}  // namespace tensord::examples
