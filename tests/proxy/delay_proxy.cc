#include "tensord/tests/proxy/delay_proxy.h"

#include <utility>

#include "tensord/tests/proxy/loop.h"

namespace tensord::proxy {

DelayProxy::DelayProxy(std::string address, std::unique_ptr<Loop> loop)
    : address_(std::move(address)), loop_(std::move(loop)) {}

DelayProxy::~DelayProxy() = default;

absl::StatusOr<std::unique_ptr<DelayProxy>> DelayProxy::Start(const DelayProxyOptions& options) {
  auto loop = Loop::Start(options);
  if (!loop.ok()) return loop.status();
  std::string address = (*loop)->address();
  return std::unique_ptr<DelayProxy>(new DelayProxy(std::move(address), *std::move(loop)));
}

void DelayProxy::SetDelay(std::chrono::microseconds one_way) {
  SetDelay(Direction::kToServer, one_way);
  SetDelay(Direction::kToClient, one_way);
}

void DelayProxy::SetDelay(Direction direction, std::chrono::microseconds one_way) {
  loop_->Run([=](Loop& loop) { loop.settings(direction).delay = one_way; });
}

void DelayProxy::SetBandwidth(int64_t bytes_per_second) {
  loop_->Run([=](Loop& loop) {
    loop.settings(Direction::kToServer).bytes_per_second = bytes_per_second;
    loop.settings(Direction::kToClient).bytes_per_second = bytes_per_second;
  });
}

void DelayProxy::SetHeld(Direction direction, bool held) {
  loop_->Run([=](Loop& loop) { loop.settings(direction).held = held; });
}

void DelayProxy::SetDiscarding(Direction direction, bool discarding) {
  loop_->Run([=](Loop& loop) { loop.settings(direction).discarding = discarding; });
}

void DelayProxy::SetResets(int connections) {
  loop_->Run([=](Loop& loop) { loop.SetResets(connections); });
}

void DelayProxy::SetAccepting(bool accepting) {
  loop_->Run([=](Loop& loop) { loop.SetAccepting(accepting); });
}

void DelayProxy::SetCallFault(const CallFault& call_fault) {
  loop_->Run([&](Loop& loop) { loop.SetCallFault(call_fault); });
}

void DelayProxy::ClearCallFault() {
  loop_->Run([](Loop& loop) { loop.SetCallFault(std::nullopt); });
}

void DelayProxy::CutAll() {
  loop_->Run([](Loop& loop) { loop.CutAll(); });
}

ProxyStats DelayProxy::stats() const { return loop_->stats(); }

bool DelayProxy::Await(const std::function<bool(const ProxyStats&)>& condition,
                       std::chrono::milliseconds timeout) const {
  return loop_->Await(condition, timeout);
}

}  // namespace tensord::proxy
