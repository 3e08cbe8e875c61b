#include "tensord/server/rpc/auth/file_watch.h"

#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace tensord::server {

FileWatch::FileWatch(std::vector<std::string> paths, Clock clock)
    : paths_(std::move(paths)), clock_(clock), reported_(Read()), last_(reported_) {}

bool FileWatch::Changed() {
  Stamp now = Read();
  const auto time = clock_();
  if (!(now == last_)) {
    last_ = std::move(now);
    changed_at_ = time;
    return false;
  }
  if (last_ == reported_) return false;
  if (last_.files == reported_.files && time - changed_at_ < kSettleTime) return false;
  reported_ = last_;
  return true;
}

FileWatch::Stamp FileWatch::Read() const {
  Stamp stamp;
  for (const std::string& path : paths_) {
    struct stat file = {};
    if (stat(path.c_str(), &file) != 0) {
      stamp.files += "none;";
    } else {
      absl::StrAppend(&stamp.files, file.st_dev, ",", file.st_ino, ";");
      absl::StrAppend(&stamp.contents, file.st_size, ",", file.st_mtim.tv_sec, ",",
                      file.st_mtim.tv_nsec, ",", file.st_mode, ";");
    }
  }
  return stamp;
}

}  // namespace tensord::server
