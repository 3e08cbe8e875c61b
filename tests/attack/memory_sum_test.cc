// Callers that use every kind of memory at once, in a container of a given size. The daemon must
// stay below 95 % of the container, and still serve.
#include <gmock/gmock.h>

#include <cstdlib>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/tests/attack/http2_fixture.h"
#include "tensord/tests/attack/memory_cgroup.h"
#include "tensord/tests/mib.h"

namespace tensord::attack {
namespace {

using integration::RpcClient;
using integration::RpcSession;

// Uses memory of a daemon until it is refused. The destructor gives everything back.
class Attacker {
 public:
  Attacker(const std::string& address, const std::string& token)
      : address_(address),
        token_(token),
        credentials_{{"authorization", "Bearer " + token}},
        client_(address, {.token = token}),
        session_(client_, /*lease_seconds=*/600) {
    client_.set_deadline_seconds(20);
  }

  void UseAll() {
    LeaveReadBuffers();
    ReadNothing();
    ReadNoElements();
    FillDevice();
    Sort();
    OpenRings();
    SendEmptyOps();
    BeginCalls();
    Promise();
    SendUploadsThatWait();
    SendParts();
  }

 private:
  RawHttp2* Connect(const std::string& settings) {
    auto& connection = connections_.emplace_back(std::make_unique<RawHttp2>(address_));
    connection->set_send_timeout(std::chrono::milliseconds(500));
    EXPECT_TRUE(connection->SendPreface());
    if (!settings.empty()) EXPECT_TRUE(connection->SendFrame(kSettings, 0, 0, settings));
    return connection.get();
  }

  // Leaves connections idle that have received large messages.
  void LeaveReadBuffers() {
    const std::string bytes(6 << 20, 'x');
    const TensorSpec spec{DType::kUInt8, {static_cast<int64_t>(bytes.size())}};
    for (int i = 0; i < 24; ++i) {
      clients_.push_back(
          std::make_unique<RpcClient>(address_, integration::RpcCredentials{.token = token_}));
      RpcSession session(*clients_.back(), /*lease_seconds=*/600);
      for (int upload = 0; upload < 2; ++upload) {
        if (!session.Create(1, spec, bytes).ok() || !session.Delete({1}).ok()) break;
      }
    }
  }

  // Requests responses of 15 MiB each, and reads none of them.
  void ReadNothing() {
    EXPECT_TRUE(session_.Ones(1, {15 << 18}).ok());
    v1::ReadTensorRequest request;
    request.set_session(session_.id());
    request.set_handle(1);
    RawHttp2* const connection = Connect(kNoResponses);
    for (uint32_t stream = 1; stream < 2 * 200; stream += 2) {
      connection->BeginCall(stream, "ReadTensor", credentials_);
      connection->SendFrame(kData, kEndStream, stream, GrpcMessage(request.SerializeAsString()));
    }
  }

  // Requests 1 MiB on the stream of each of several sessions, and reads none of it.
  void ReadNoElements() {
    RawHttp2* const connection = Connect(kNoResponses);
    for (uint32_t i = 0; i < 48; ++i) {
      sessions_.push_back(std::make_unique<RpcSession>(client_, /*lease_seconds=*/600));
      if (!sessions_.back()->Ones(1, {1 << 18}).ok()) return;
      v1::SessionStreamRequest message = sessions_.back()->Attach();
      v1::GetElements& get = *message.add_commands()->mutable_get_elements();
      get.set_handle(1);
      get.set_request_id(1);
      connection->BeginCall(1 + 2 * i, "SessionStream", credentials_);
      connection->SendFrame(kData, kEndStream, 1 + 2 * i, GrpcMessage(message.SerializeAsString()));
    }
  }

  // Sends uploads of 8 MiB that wait for a command which never comes.
  void SendUploadsThatWait() {
    constexpr size_t kFrameBytes = 16000;
    v1::WriteRequest chunk = session_.FirstWrite(1'000'000, {DType::kUInt8, {16 << 20}});
    chunk.mutable_spec()->set_after_command(1 << 30);
    chunk.set_data(std::string(8 << 20, 'x'));
    const std::string message = GrpcMessage(chunk.SerializeAsString());
    for (int i = 0; i < 8; ++i) {
      RawHttp2* const connection = Connect("");
      bool open = connection->BeginCall(1, "Write", credentials_);
      for (size_t sent = 0; open && sent < message.size(); sent += kFrameBytes) {
        open = connection->SendFrame(kData, 0, 1, message.substr(sent, kFrameBytes));
      }
    }
  }

  // Begins to send requests of 15 MiB each, and completes none of them.
  void SendParts() {
    const std::string prefix = GrpcMessage(std::string(15 << 20, 'x')).substr(0, 5);
    const std::string data(16000, 'x');
    for (int i = 0; i < 4; ++i) {
      RawHttp2* const connection = Connect("");
      bool open = true;
      for (uint32_t call = 0; open && call < 32; ++call) {
        open = connection->BeginCall(1 + 2 * call, "CreateTensor", credentials_) &&
               connection->SendFrame(kData, 0, 1 + 2 * call, prefix);
      }
      for (int piece = 0; open && piece < 900; ++piece) {
        for (uint32_t call = 0; open && call < 32; ++call) {
          open = connection->SendFrame(kData, 0, 1 + 2 * call, data);
        }
      }
    }
  }

  void BeginCalls() {
    for (int i = 0; i < 8; ++i) {
      RawHttp2* const connection = Connect("");
      bool open = true;
      for (uint32_t stream = 1; open && stream < 2 * 1000; stream += 2) {
        open = connection->BeginCall(stream, "Write", credentials_);
      }
    }
  }

  void OpenRings() {
    for (int i = 0; i < 16; ++i) {
      sessions_.push_back(std::make_unique<RpcSession>(client_));
      for (int j = 0; j < 2; ++j) {
        auto& call = rings_.emplace_back(client_.SharedMemory());
        v1::SharedMemoryRequest request;
        request.mutable_open()->set_session(sessions_.back()->id());
        if (!call->Send(request) || !call->Next().has_value()) return;
      }
    }
  }

  // Fills the host memory of the caller with handles.
  void Promise() {
    uint64_t handle = 1000;
    absl::Status ended;
    for (int messages = 0; ended.ok() && messages < 400; ++messages) {
      v1::SessionStreamRequest message = session_.Attach();
      for (int i = 0; i < 10000; ++i) {
        v1::Promise& promise = *message.add_commands()->mutable_promise();
        promise.set_handle(++handle);
        promise.set_device("cpu:0");
        promise.mutable_spec()->set_dtype(v1::DTYPE_FLOAT32);
        promise.mutable_spec()->add_shape(16);
      }
      const absl::Status stream = integration::RunStream(
          client_, {message}, [&ended](const v1::SessionStreamResponse& response) {
            if (response.errors().empty()) return;
            ended = absl::ResourceExhaustedError(response.errors(0).message());
          });
      if (!stream.ok()) ended = stream;
    }
  }

  // An empty op has two bytes in a message, and a hundred times as many when it is parsed.
  void SendEmptyOps() {
    std::string ops;
    for (int i = 0; i < (7 << 20); ++i) ops.append("\x12\0", 2);
    for (int i = 0; i < 3; ++i) (void)client_.CallRaw("RunOps", ops);
  }

  void FillDevice() {
    uint64_t handle = 2;
    for (int64_t bytes = 64 * kMiB; bytes >= kMiB; bytes /= 4) {
      while (session_.Ones(++handle, {bytes / 4}).ok()) {
      }
    }
  }

  // Needs four times the memory of the tensor.
  void Sort() {
    if (!session_.Delete({3}).ok()) return;
    EXPECT_FALSE(session_.Run("sort", {1}, 500, {{"axis", int64_t{0}}}).ok() &&
                 session_.Run("sort", {4}, 600, {{"axis", int64_t{0}}}).ok());
  }

  const std::string address_;
  const std::string token_;
  const Headers credentials_;
  RpcClient client_;
  RpcSession session_;
  std::vector<std::unique_ptr<RpcClient>> clients_;
  std::vector<std::unique_ptr<RpcSession>> sessions_;
  std::vector<std::unique_ptr<integration::SharedMemoryCall>> rings_;
  std::vector<std::unique_ptr<RawHttp2>> connections_;
};

struct Container {
  int64_t mib;
  int callers;
  friend std::ostream& operator<<(std::ostream& out, const Container& container) {
    return out << container.mib << " MiB, " << container.callers << " callers";
  }
};

class MemorySumTest : public integration::IdentityFixture {
 protected:
  void TearDown() override {
    if (daemon_ == nullptr) return;
    daemon_->ExpectTerminatesCleanly();
    daemon_.reset();  // before the cgroup
  }

  std::unique_ptr<MemoryCgroup> cgroup_;
};

class AllCallersTest : public MemorySumTest, public testing::WithParamInterface<Container> {};

TEST_P(AllCallersTest, StaysBelowTheContainersMemory) {
  if (kSanitized) GTEST_SKIP() << "shadow memory counts as the daemon's";
  if (GetParam().mib > 2048 && getenv("TENSORD_TEST_LONG") == nullptr) {
    GTEST_SKIP() << "TENSORD_TEST_LONG isn't set";
  }
  auto cgroup = MemoryCgroup::Make(GetParam().mib * kMiB);
  if (!cgroup.ok()) GTEST_SKIP() << cgroup.status();
  cgroup_ = *std::move(cgroup);
  const DaemonWrapper wrapper(folder_, cgroup_->EnterCommand());
  std::vector<std::string> names = {"bob"};
  for (int i = 0; i < GetParam().callers; ++i) names.push_back(absl::StrCat("caller", i));
  StartDaemon({TokenFileFlag(names)}, /*devices=*/"cpu");
  ASSERT_FALSE(HasFatalFailure());

  RpcClient client(daemon_->address(), {.token = "bob-token"});
  RpcSession bob(client, /*lease_seconds=*/600);
  ASSERT_TRUE(bob.Ones(1, {16}).ok());
  std::vector<std::unique_ptr<Attacker>> attackers;
  for (int i = 0; i < GetParam().callers; ++i) {
    attackers.push_back(
        std::make_unique<Attacker>(daemon_->address(), absl::StrCat("caller", i, "-token")));
  }
  std::vector<std::thread> threads;
  for (const auto& attacker : attackers) threads.emplace_back([&attacker] { attacker->UseAll(); });
  for (std::thread& thread : threads) thread.join();
  const auto values = bob.ReadFloats(1);
  EXPECT_TRUE(values.ok()) << values.status();
  const int64_t peak_bytes = cgroup_->PeakBytes();
  RecordProperty("peak_mib", std::to_string(peak_bytes / kMiB));
  EXPECT_LT(peak_bytes, GetParam().mib * kMiB * 95 / 100);
  // The device is nearly full: the limits leave most of the memory for tensors.
  EXPECT_GT(peak_bytes, GetParam().mib * kMiB * 70 / 100);
}

INSTANTIATE_TEST_SUITE_P(Containers, AllCallersTest,
                         testing::Values(Container{1024, 1}, Container{2048, 4}, Container{1024, 4},
                                         Container{2048, 1}, Container{4096, 4},
                                         Container{16384, 4}),
                         [](const auto& info) {
                           return absl::StrCat("Of", info.param.mib, "MiBWith", info.param.callers,
                                               info.param.callers == 1 ? "Caller" : "Callers");
                         });

// Deleted tensors leave gaps between the remaining ones. Larger tensors don't fit into these gaps.
TEST_F(MemorySumTest, FragmentedMemoryStaysBelowTheContainersMemory) {
  if (kSanitized) GTEST_SKIP() << "shadow memory counts as the daemon's";
  constexpr int64_t kContainerBytes = 1024 * kMiB;
  auto cgroup = MemoryCgroup::Make(kContainerBytes);
  if (!cgroup.ok()) GTEST_SKIP() << cgroup.status();
  cgroup_ = *std::move(cgroup);
  const DaemonWrapper wrapper(folder_, cgroup_->EnterCommand());
  StartDaemon({}, /*devices=*/"cpu");
  ASSERT_FALSE(HasFatalFailure());

  RpcClient client(daemon_->address());
  RpcSession session(client, /*lease_seconds=*/600);
  std::vector<uint64_t> kept;
  uint64_t handle = 0;
  for (const int64_t elements : {10000, 15000, 25000, 3000, 3900, 60000, 200000}) {
    std::vector<uint64_t> deleted;
    for (int64_t bytes = 0; bytes < kContainerBytes; bytes += 4 * elements) {
      if (!session.Ones(++handle, {elements}).ok()) break;
      (handle % 4 == 0 ? kept : deleted).push_back(handle);
    }
    ASSERT_TRUE(session.Delete(deleted).ok());
  }
  EXPECT_LT(cgroup_->PeakBytes(), kContainerBytes * 95 / 100);
  EXPECT_GT(cgroup_->PeakBytes(), kContainerBytes * 70 / 100);
  ASSERT_TRUE(session.Delete(kept).ok());
  const auto large = session.Ones(++handle, {600 * kMiB / 4});
  EXPECT_TRUE(large.ok()) << large.status();
}

// Without a cgroup, but with a limit of address space, which also counts what isn't used.
class AddressSpaceTest : public integration::IdentityFixture {
 protected:
  static constexpr char kLimit[] = "ulimit -v 1500000";
};

TEST_F(AddressSpaceTest, NoCallEndsTheDaemon) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs terabytes of address space";
  const DaemonWrapper wrapper(folder_, kLimit);
  StartDaemon({TokenFileFlag({"caller", "bob"})}, "cpu");
  ASSERT_FALSE(HasFatalFailure());
  Attacker(daemon_->address(), "caller-token").UseAll();
  const absl::Status served = Ask("bob-token");
  EXPECT_TRUE(served.ok()) << served;
}

TEST_F(AddressSpaceTest, RefusesDeviceLimitAboveAddressSpace) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs terabytes of address space";
  const DaemonWrapper wrapper(folder_, kLimit);
  std::string output;
  const auto status =
      integration::RunDaemon({"--listen=127.0.0.1:0", "--devices=cpu=3GiB"}, &output);
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_NE(*status, 0);
  EXPECT_THAT(output, testing::HasSubstr("the limits in --devices add up to 3221225472 bytes"));
}

}  // namespace
}  // namespace tensord::attack
