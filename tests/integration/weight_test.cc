// Fair scheduling on a busy device, by the callers' weights.
#include <thread>

#include "tensord/common/util/mutex.h"
#include "tensord/tests/integration/fault_socket.h"
#include "tensord/tests/integration/identity_fixture.h"

namespace tensord::integration {
namespace {

constexpr uint64_t kInput = 1;

// A caller with a session and its stream.
class WeightedCaller {
 public:
  WeightedCaller(const std::string& address, const std::string& token)
      : client_(address, {.token = token}), session_(client_), stream_(client_.SessionStream()) {
    EXPECT_TRUE(session_.Ones(kInput, {1 << 18}).ok());
    v1::SessionStreamRequest attach = session_.Attach();
    EXPECT_TRUE(stream_->Send(attach));
  }

  // Sends ops that are ready to run, and requests the result of each.
  void Post(int ops) {
    v1::SessionStreamRequest message;
    for (int i = 0; i < ops; ++i) {
      v1::Op& op = *message.add_commands()->mutable_op();
      op.set_name("sum");
      op.add_inputs(kInput);
      op.set_output(++last_);
      v1::GetElements& get = *message.add_commands()->mutable_get_elements();
      get.set_handle(last_);
      get.set_request_id(last_);
    }
    EXPECT_TRUE(stream_->Send(message));
  }

  // Blocks until `results` results have arrived. Calls `taken` for each.
  void Take(int results, const std::function<void()>& taken) {
    while (results > 0) {
      const auto response = stream_->Next();
      ASSERT_TRUE(response.has_value());
      for (const v1::Elements& elements : response->elements()) {
        EXPECT_EQ(elements.data().size(), sizeof(float));
        taken();
        --results;
      }
    }
  }

 private:
  RpcClient client_;
  RpcSession session_;
  std::unique_ptr<StreamCall> stream_;
  uint64_t last_ = kInput;
};

// Kernels take 25 milliseconds each. On a busy machine, a caller may wait for a processor: this
// takes no longer than a few kernels.
class WeightTest : public IdentityFixture {
 protected:
  void SetUp() override {
    WriteTokens(4);
    StartDaemon(
        {"--token-file=" + folder_.File("tokens"), "--fault-socket=" + folder_.File("faults")},
        "faulty:cpu=1GiB");
    FaultSocket faults(folder_.File("faults"));
    ASSERT_EQ(faults.Send("cpu:0 delay-kernel 25"), "ok\n");
    for (const char* token : {"a", "b"}) {
      callers_.push_back(std::make_unique<WeightedCaller>(daemon_->address(), token));
    }
  }
  void TearDown() override {
    callers_.clear();
    IdentityFixture::TearDown();
  }

  void WriteTokens(int alices_weight) {
    folder_.Write("tokens",
                  Line("alice", "a", absl::InfiniteFuture(), alices_weight) + Line("bob", "b"));
  }

  // Both callers queue `ops` ops. Returns how many of bob's ran between alice's tenth op and her
  // last one.
  int BobsShare(int ops) {
    Mutex mu;
    int taken[2] = {};
    int first = 0, share = 0;
    std::thread threads[2];
    for (int caller : {0, 1}) {
      callers_[caller]->Post(ops);
      threads[caller] = std::thread([&, caller] {
        callers_[caller]->Take(ops, [&] {
          MutexLock lock(&mu);
          ++taken[caller];
          if (caller == 0 && taken[0] == 10) first = taken[1];
          if (caller == 0 && taken[0] == ops) share = taken[1] - first;
        });
      });
    }
    for (std::thread& thread : threads) thread.join();
    return share;
  }

  std::vector<std::unique_ptr<WeightedCaller>> callers_;  // alice, bob
};

TEST_F(WeightTest, SharesTheDeviceByWeight) {
  const int share = BobsShare(70);
  // By weight, 15 of bob's ops run during 60 of alice's. Without weights, 60 of bob's would run.
  EXPECT_GE(share, 2);
  EXPECT_LE(share, 30);
}

TEST_F(WeightTest, WeightChangeAppliesAtOnce) {
  WriteTokens(1);
  ASSERT_TRUE(Says("reloaded"));
  const int share = BobsShare(40);
  // By weight, 30 of bob's ops run during 30 of alice's. By alice's old weight, 7 would run.
  EXPECT_GE(share, 16);
  EXPECT_LE(share, 56);
}

}  // namespace
}  // namespace tensord::integration
