#include "tensord/server/log.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/mutex.h"

namespace tensord::server {
namespace {

// If standard error is closed or broken, the lines are lost.
void WriteToStandardError(absl::string_view lines) {
  while (!lines.empty()) {
    const ssize_t written = write(STDERR_FILENO, lines.data(), lines.size());
    if (written < 0 && errno == EAGAIN) {
      pollfd room = {STDERR_FILENO, POLLOUT, 0};
      poll(&room, 1, /*timeout=*/-1);
    } else if (written < 0 && errno != EINTR) {
      return;
    }
    if (written > 0) lines.remove_prefix(static_cast<size_t>(written));
  }
}

class LogQueue {
 public:
  void Add(absl::string_view text) {
    MutexLock lock(&mu_);
    if (!has_thread_) return WriteToStandardError(absl::StrCat("tensord: ", text, "\n"));
    if (waiting_.size() + text.size() > kMaxLogBytes) {
      ++dropped_;
      return;
    }
    if (dropped_ > 0) {
      absl::StrAppend(&waiting_, "tensord: ", std::exchange(dropped_, 0),
                      " lines of the log were dropped, because standard error wasn't read\n");
    }
    absl::StrAppend(&waiting_, "tensord: ", text, "\n");
    changed_.SignalAll();
  }

  void Start() {
    MutexLock lock(&mu_);
    has_thread_ = true;
    // Detached, because nothing can join a thread that a reader blocks.
    std::thread([this] { Run(); }).detach();
  }

  bool Flush(std::chrono::milliseconds timeout) {
    const auto end = std::chrono::steady_clock::now() + timeout;
    MutexLock lock(&mu_);
    while (writing_ || !waiting_.empty()) {
      const auto left = end - std::chrono::steady_clock::now();
      if (left <= left.zero()) return false;
      changed_.WaitFor(&mu_, left);
    }
    return true;
  }

 private:
  void Run() {
    pthread_setname_np(pthread_self(), "log");
    MutexLock lock(&mu_);
    while (true) {
      while (waiting_.empty()) changed_.Wait(&mu_);
      const std::string lines = std::exchange(waiting_, {});
      writing_ = true;
      mu_.Unlock();
      WriteToStandardError(lines);
      mu_.Lock();
      writing_ = false;
      changed_.SignalAll();
    }
  }

  Mutex mu_;
  CondVar changed_;
  bool has_thread_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  std::string waiting_ ABSL_GUARDED_BY(mu_);
  int64_t dropped_ ABSL_GUARDED_BY(mu_) = 0;
};

// Never destroyed, because its thread runs until the process ends.
LogQueue& TheQueue() {
  static LogQueue* const queue = new LogQueue;
  return *queue;
}

}  // namespace

void LogLine(absl::string_view text) { TheQueue().Add(text); }
void StartLogThread() { TheQueue().Start(); }
bool FlushLog(std::chrono::milliseconds timeout) { return TheQueue().Flush(timeout); }

}  // namespace tensord::server
