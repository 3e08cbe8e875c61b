// SIGTERM under load. The daemon must execute and answer all commands that it has acknowledged.
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tensord/common/util/mutex.h"
#include "tensord/tests/integration/daemon_fixture.h"

namespace tensord::fault {
namespace {

using integration::DaemonProcess;
using integration::RpcClient;
using integration::RpcSession;
using integration::StreamCall;

// A session that counts: each message adds one and reads the sum. One thread sends and one reads,
// until the stream ends.
class Counting {
 public:
  explicit Counting(const std::string& address)
      : client_(address), session_(client_), stream_(client_.SessionStream()) {
    v1::SessionStreamRequest first = session_.Attach();
    Ones(&first, 1);
    Ones(&first, 2);
    stream_->Send(first);
    writer_ = std::thread([this] { Write(); });
    reader_ = std::thread([this] { Read(); });
  }
  ~Counting() { Join().IgnoreError(); }

  // Blocks until the first sum has arrived. Returns false if the stream has ended before.
  bool AwaitFirst() {
    MutexLock lock(&mu_);
    while (sums_.empty() && !ended_) changed_.Wait(&mu_);
    return !sums_.empty();
  }

  // Blocks until the stream has ended. Returns its status.
  absl::Status Join() {
    if (writer_.joinable()) {
      writer_.join();
      reader_.join();
      status_ = stream_->Finish();
    }
    return status_;
  }

  // Expects one answer to each acknowledged message. Call Join() first.
  void ExpectNothingLost() {
    MutexLock lock(&mu_);
    EXPECT_FALSE(twice_) << "the server sent an answer twice";
    // Message number n ends with command 2 + 3 n, and its sum is n + 1.
    for (uint64_t n = 1; 2 + 3 * n <= received_; ++n) {
      const auto sum = sums_.find(n);
      ASSERT_NE(sum, sums_.end()) << "no answer to message " << n << ", but " << received_
                                  << " commands were acknowledged";
      ASSERT_EQ(sum->second, static_cast<float>(n + 1));
    }
  }

 private:
  static constexpr uint64_t kMaxUnanswered = 200;

  static void Ones(v1::SessionStreamRequest* message, uint64_t handle) {
    v1::Op& ones = *message->add_commands()->mutable_op();
    ones.set_name("ones");
    ones.set_output(handle);
    ones.set_device("cpu:0");
    (*ones.mutable_attrs())["shape"].mutable_ints()->add_values(1);
  }

  void Write() {
    for (uint64_t n = 1;; ++n) {
      v1::SessionStreamRequest message;
      v1::Op& add = *message.add_commands()->mutable_op();
      add.set_name("add");
      add.add_inputs(1);
      add.add_inputs(n + 1);
      add.set_output(n + 2);
      message.add_commands()->mutable_drop()->add_handles(n + 1);
      v1::GetElements& get = *message.add_commands()->mutable_get_elements();
      get.set_handle(n + 2);
      get.set_request_id(n);
      if (!stream_->Send(message)) break;
      MutexLock lock(&mu_);
      while (!ending_ && n - sums_.size() > kMaxUnanswered) changed_.Wait(&mu_);
      if (ending_) break;
    }
    stream_->HalfClose();
  }

  void Read() {
    while (const auto answer = stream_->Next()) {
      MutexLock lock(&mu_);
      received_ = std::max(received_, answer->commands_received());
      ending_ = ending_ || answer->draining();
      for (const v1::Elements& elements : answer->elements()) {
        float sum = -1;
        if (elements.code() == 0 && elements.data().size() == sizeof(sum)) {
          std::memcpy(&sum, elements.data().data(), sizeof(sum));
        }
        twice_ |= !sums_.emplace(elements.request_id(), sum).second;
      }
      changed_.SignalAll();
    }
    MutexLock lock(&mu_);
    ended_ = ending_ = true;
    changed_.SignalAll();
  }

  RpcClient client_;
  RpcSession session_;
  const std::unique_ptr<StreamCall> stream_;
  absl::Status status_;
  Mutex mu_;
  CondVar changed_;
  std::map<uint64_t, float> sums_ ABSL_GUARDED_BY(mu_);  // by message
  uint64_t received_ ABSL_GUARDED_BY(mu_) = 0;           // acknowledged commands
  bool twice_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;  // the server accepts no more commands
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  std::thread writer_;
  std::thread reader_;
};

// The long form runs a thousand rounds.
TEST(DrainTest, NothingAcknowledgedIsLost) {
  const int rounds = std::getenv("TENSORD_TEST_LONG") != nullptr ? 1000 : 10;
  constexpr int kClients = 3;
  std::minstd_rand random(3);
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    auto daemon = DaemonProcess::Start({"--devices=cpu=64MiB", "--grace-seconds=20"});
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    std::vector<std::unique_ptr<Counting>> clients;
    for (int i = 0; i < kClients; ++i) {
      clients.push_back(std::make_unique<Counting>((*daemon)->address()));
    }
    for (auto& client : clients) ASSERT_TRUE(client->AwaitFirst()) << client->Join();
    // Each round sends the signal at another time.
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    (*daemon)->Signal(SIGTERM);
    for (auto& client : clients) {
      ExpectError(client->Join(), absl::StatusCode::kUnavailable, {"shutting down"});
      client->ExpectNothingLost();
      if (HasFailure()) return;
    }
    (*daemon)->ExpectEndsCleanly();
  }
}

}  // namespace
}  // namespace tensord::fault
