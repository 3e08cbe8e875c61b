// Detects changes of files.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace tensord::server {

// Checks the files only when Changed() is called. An empty path stands for no file. Not
// thread-safe.
class FileWatch {
 public:
  using Clock = std::chrono::steady_clock::time_point (*)();
  // A program that writes a file in place may pause, and the part that it has written may be valid.
  // Such a change is reported when the file hasn't changed for this time. A program that replaces
  // the file by a rename need not wait.
  static constexpr std::chrono::milliseconds kSettleTime{1000};

  explicit FileWatch(std::vector<std::string> paths, Clock clock = &std::chrono::steady_clock::now);

  // Returns whether the files have changed since the last call that returned true, or since the
  // constructor. If they have changed since the last call, or a file was written in place less than
  // kSettleTime ago, returns false: a program may still be writing them.
  bool Changed();

 private:
  struct Stamp {
    std::string files;     // which files the paths name
    std::string contents;  // sizes, times and modes
    bool operator==(const Stamp& other) const {
      return files == other.files && contents == other.contents;
    }
  };
  Stamp Read() const;

  const std::vector<std::string> paths_;
  const Clock clock_;
  Stamp reported_;                                    // when Changed() last returned true
  Stamp last_;                                        // at the last call
  std::chrono::steady_clock::time_point changed_at_;  // of last_
};

}  // namespace tensord::server
