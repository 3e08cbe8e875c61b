#include "tensord/server/rpc/auth/file_watch.h"

#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace tensord::server {

FileWatch::FileWatch(std::vector<std::string> paths)
    : paths_(std::move(paths)), reported_(Stamp()), last_(reported_) {}

bool FileWatch::Changed() {
  std::string now = Stamp();
  const bool unchanged = now == last_;
  last_ = std::move(now);
  if (!unchanged || last_ == reported_) return false;
  reported_ = last_;
  return true;
}

std::string FileWatch::Stamp() const {
  std::string stamp;
  for (const std::string& path : paths_) {
    struct stat file = {};
    if (stat(path.c_str(), &file) != 0) {
      absl::StrAppend(&stamp, "none;");
    } else {
      absl::StrAppend(&stamp, file.st_dev, ",", file.st_ino, ",", file.st_size, ",",
                      file.st_mtim.tv_sec, ",", file.st_mtim.tv_nsec, ",", file.st_mode, ";");
    }
  }
  return stamp;
}

}  // namespace tensord::server
