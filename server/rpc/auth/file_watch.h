// Detects changes of files.
#pragma once

#include <string>
#include <vector>

namespace tensord::server {

// Checks the files only when Changed() is called. An empty path stands for no file. Not
// thread-safe.
class FileWatch {
 public:
  explicit FileWatch(std::vector<std::string> paths);

  // Returns whether the files have changed since the last call that returned true, or since the
  // constructor. If they have changed since the last call, returns false: a program may still be
  // writing them.
  bool Changed();

 private:
  std::string Stamp() const;

  const std::vector<std::string> paths_;
  std::string reported_;  // the stamp when Changed() last returned true
  std::string last_;      // the stamp at the last call
};

}  // namespace tensord::server
