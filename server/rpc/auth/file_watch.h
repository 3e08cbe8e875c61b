// Whether files have changed.
#pragma once

#include <string>
#include <vector>

namespace tensord::server {

// Looks at files when it is asked to. Not thread-safe.
class FileWatch {
 public:
  explicit FileWatch(std::vector<std::string> paths);

  // Whether the files are others than they were when this last said so (or was made), and the same
  // as when it was last asked: what is still being written isn't ready to be read.
  bool Changed();

 private:
  std::string Stamp() const;

  const std::vector<std::string> paths_;
  std::string taken_;
  std::string seen_;
};

}  // namespace tensord::server
