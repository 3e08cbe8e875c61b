#include "tensord/client/internal/background.h"

#include <thread>
#include <utility>

#include "tensord/common/util/tsan_annotations.h"

namespace tensord::internal {

Background& Background::Get() {
  static Background* const background = new Background;
  return *background;
}

Background::Background() {
  std::thread([this] { RunEvents(); }).detach();
  std::thread([this] { RunWork(); }).detach();
}

void Background::RunEvents() {
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
    TsanAcquire(tag);
    static_cast<Event*>(tag)->OnEvent();
  }
}

void Background::Post(std::function<void()> work) {
  MutexLock lock(&mu_);
  work_.push_back(std::move(work));
  posted_.Signal();
}

void Background::RunWork() {
  for (;;) {
    std::function<void()> work;
    {
      MutexLock lock(&mu_);
      while (work_.empty()) posted_.Wait(&mu_);
      work = std::move(work_.front());
      work_.pop_front();
    }
    work();
  }
}

}  // namespace tensord::internal
