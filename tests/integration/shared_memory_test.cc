// Transfers through memory shared with the daemon: data, resources and access control.
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <thread>

#include "tensord/client/tensord.h"
#include "tensord/tests/integration/daemon_fixture.h"
#include "tensord/tests/integration/receive_region.h"
#include "tensord/tests/mib.h"

namespace tensord::integration {
namespace {

using Code = absl::StatusCode;

constexpr int kMaxRings = 32;
constexpr int kMaxRingsPerSession = 2;
constexpr int64_t kReceiveTimeoutMs = 60'000;

std::vector<uint8_t> Pattern(int64_t size) {
  std::vector<uint8_t> bytes(size);
  for (int64_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(i * 2654435761u >> 11);
  return bytes;
}

class SharedMemoryTest : public DaemonFixture {
 protected:
  // Returns the number of shared memory regions that the daemon has mapped.
  int Regions() const {
    std::ifstream maps("/proc/" + std::to_string(daemon_->pid()) + "/maps");
    int regions = 0;
    for (std::string line; std::getline(maps, line);) {
      if (line.find("memfd:tensord") != std::string::npos) ++regions;
    }
    return regions;
  }

  // Uploads a tensor of `size` bytes and reads it. Expects the same bytes.
  static void RoundTrip(const Client& client, int64_t size) {
    const std::vector<uint8_t> bytes = Pattern(size);
    const Tensor tensor = FromBytes(*client.device(TestDevice(0)), {DType::kUInt8, {size}}, bytes);
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    const auto read = tensor.ReadBytes();
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(*read == bytes) << size;
  }

  static v1::SharedMemoryRequest OpenRequest(const std::string& session) {
    v1::SharedMemoryRequest request;
    request.mutable_open()->set_session(session);
    return request;
  }

  // Opens a ring of the fixture's session.
  std::unique_ptr<SharedMemoryCall> Open(v1::SharedRing* ring) {
    auto call = client_->SharedMemory();
    EXPECT_TRUE(call->Send(OpenRequest(session_->id())));
    const auto response = call->Next();
    EXPECT_TRUE(response.has_value() && response->has_ring());
    if (response.has_value()) *ring = response->ring();
    return call;
  }

  v1::SharedMemoryRequest WriteRequest(uint64_t handle, int64_t size) const {
    v1::SharedMemoryRequest request;
    *request.mutable_write() =
        session_->FirstWrite(handle, {DType::kUInt8, {size}}, TestDevice(0)).spec();
    return request;
  }

  static v1::SharedMemoryRequest Slot(uint32_t slot, int64_t bytes) {
    v1::SharedMemoryRequest request;
    request.mutable_slot()->set_slot(slot);
    request.mutable_slot()->set_bytes(bytes);
    return request;
  }

  // Sends these requests after `open`. Expects that the server ends the call with `code`.
  void ExpectRefused(const std::vector<v1::SharedMemoryRequest>& requests, Code code) {
    v1::SharedRing ring;
    const auto call = Open(&ring);
    for (const v1::SharedMemoryRequest& request : requests) call->Send(request);
    while (call->Next().has_value()) {
    }
    ExpectError(call->Finish(), code);
    EXPECT_TRUE(Eventually([this] { return Used(0) == 0 && Regions() == 0; }));
  }
};

TEST_F(SharedMemoryTest, TransfersTensorsOfAnySizeBothWays) {
  const auto client = Client::Connect(daemon_->address());
  ASSERT_TRUE(client.ok()) << client.status();
  for (int64_t size : {12 * kMiB, 12 * kMiB + 1, 4 * kMiB - 1, 37 * kMiB + 4093, 2 * kMiB}) {
    ASSERT_NO_FATAL_FAILURE(RoundTrip(*client, size));
  }
  const ClientStats stats = client->stats();
  EXPECT_GT(stats.bytes_shared, 0);
  EXPECT_EQ(stats.bytes_shared, stats.bytes_uploaded + stats.bytes_downloaded);
  EXPECT_EQ(Regions(), 1) << "one ring serves one transfer after the other";
}

TEST_F(SharedMemoryTest, ThreadsShareTheRings) {
  const auto client = Client::Connect(daemon_->address());
  ASSERT_TRUE(client.ok()) << client.status();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] { RoundTrip(*client, 9 * kMiB + i); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(client->stats().bytes_shared, 0);
  EXPECT_LE(Regions(), kMaxRingsPerSession);
}

TEST_F(SharedMemoryTest, ReportsTheSameErrorsAsTheConnection) {
  const auto client = Client::Connect(daemon_->address());
  ASSERT_TRUE(client.ok()) << client.status();
  ASSERT_NO_FATAL_FAILURE(RoundTrip(*client, 8 * kMiB));
  const std::vector<uint8_t> bytes(65 * kMiB);
  const TensorSpec spec{DType::kUInt8, {65 * kMiB}};
  ExpectError(FromBytes(*client->device(TestDevice(1)), spec, bytes).status(),
              Code::kResourceExhausted, {TestDevice(1), "67108864"});
  const Tensor failed = Relu(Ones(*client->device(TestDevice(1)), {17 * kMiB}));
  ExpectError(failed.ReadBytes(), Code::kResourceExhausted, {TestDevice(1)});
  ASSERT_NO_FATAL_FAILURE(RoundTrip(*client, 8 * kMiB));
}

TEST_F(SharedMemoryTest, CanBeSwitchedOff) {
  const auto by_option = Client::Connect(daemon_->address(), {.shared_memory = false});
  ASSERT_TRUE(by_option.ok()) << by_option.status();
  setenv("TENSORD_SHARED_MEMORY", "0", 1);
  const auto by_environment = Client::Connect(daemon_->address());
  unsetenv("TENSORD_SHARED_MEMORY");
  ASSERT_TRUE(by_environment.ok()) << by_environment.status();
  for (const Client& client : {*by_option, *by_environment}) {
    ASSERT_NO_FATAL_FAILURE(RoundTrip(client, 9 * kMiB));
    EXPECT_EQ(client.stats().bytes_shared, 0);
    EXPECT_EQ(client.stats().bytes_uploaded, 9 * kMiB);
  }
  EXPECT_EQ(Regions(), 0);
}

TEST_F(SharedMemoryTest, WithoutARingTransfersGoOverTheConnection) {
  std::vector<std::unique_ptr<RpcSession>> sessions;
  std::vector<std::unique_ptr<SharedMemoryCall>> calls;
  for (int i = 0; i < kMaxRings; ++i) {
    if (i % kMaxRingsPerSession == 0) sessions.push_back(std::make_unique<RpcSession>(*client_));
    calls.push_back(client_->SharedMemory());
    ASSERT_TRUE(calls.back()->Send(OpenRequest(sessions.back()->id())));
    ASSERT_TRUE(calls.back()->Next().has_value()) << i;
  }
  const auto client = Client::Connect(daemon_->address());
  ASSERT_TRUE(client.ok()) << client.status();
  ASSERT_NO_FATAL_FAILURE(RoundTrip(*client, 9 * kMiB));
  EXPECT_EQ(client->stats().bytes_shared, 0);
  for (const auto& call : calls) call->Cancel();
  ASSERT_TRUE(Eventually([this] { return Regions() == 0; }));
  ASSERT_NO_FATAL_FAILURE(RoundTrip(*client, 9 * kMiB));
  EXPECT_GT(client->stats().bytes_shared, 0) << "a ring is free again";
}

// In a new network namespace, the client can't reach the daemon's socket for shared memory.
TEST(SharedMemoryFallbackTest, TransfersGoOverTheConnectionIfTheSocketIsUnreachable) {
  const std::string address =
      "unix:" + testing::TempDir() + "/tensord_shared_" + std::to_string(getpid()) + ".sock";
  const auto daemon = DaemonProcess::Start({"--devices=cpu=1GiB", "--listen=" + address});
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  const auto client = Client::Connect(address);
  ASSERT_TRUE(client.ok()) << client.status();
  bool unshared = false;
  absl::Status made;
  const std::vector<uint8_t> bytes = Pattern(9 * kMiB);
  std::thread([&] {
    unshared = unshare(CLONE_NEWNET) == 0;
    if (!unshared) return;
    made = FromBytes(*client->device(TestDevice(0)), {DType::kUInt8, {9 * kMiB}}, bytes).status();
  }).join();
  if (!unshared) GTEST_SKIP() << "no network namespace may be made here";
  EXPECT_TRUE(made.ok()) << made;
  EXPECT_EQ(client->stats().bytes_shared, 0);
  EXPECT_EQ(client->stats().bytes_uploaded, 9 * kMiB);
}

TEST_F(SharedMemoryTest, CancelledUploadFreesItsMemory) {
  {
    RpcClient doomed(daemon_->address());
    auto call = doomed.SharedMemory();
    ASSERT_TRUE(call->Send(OpenRequest(session_->id())));
    ASSERT_TRUE(call->Next().has_value());
    ASSERT_TRUE(call->Send(WriteRequest(1, 20 * kMiB)));
    ASSERT_TRUE(call->Send(Slot(0, 4 * kMiB)));
    ASSERT_TRUE(Eventually([this] { return Used(0) == 20 * kMiB; }));
    EXPECT_EQ(Regions(), 1);
    call->Cancel();
  }
  EXPECT_TRUE(Eventually([this] { return Used(0) == 0 && Regions() == 0; }));
  ExpectError(session_->Get(1), Code::kNotFound);
}

TEST_F(SharedMemoryTest, CancelledReadFreesItsMemory) {
  ASSERT_TRUE(session_->Ones(1, {5 * kMiB}).ok());
  v1::SharedRing ring;
  auto call = Open(&ring);
  v1::SharedMemoryRequest request;
  *request.mutable_read() = session_->ReadRequest(1);
  ASSERT_TRUE(call->Send(request));
  for (uint32_t slot = 0; slot < ring.slots(); ++slot) {
    const auto filled = call->Next();
    ASSERT_TRUE(filled.has_value());
    EXPECT_EQ(filled->slot().slot(), slot);
    EXPECT_EQ(filled->slot().bytes(), ring.slot_bytes());
  }
  call->Cancel();
  EXPECT_TRUE(Eventually([this] { return Regions() == 0; }));
  ASSERT_TRUE(session_->Delete({1}).ok());
  EXPECT_TRUE(Eventually([this] { return Used(0) == 0; }));
}

TEST_F(SharedMemoryTest, ARingEndsWithItsSession) {
  v1::SharedRing ring;
  auto call = Open(&ring);
  EXPECT_EQ(Regions(), 1);
  ASSERT_TRUE(session_->Close().ok());
  EXPECT_FALSE(call->Next().has_value());
  EXPECT_FALSE(call->Finish().ok());
  EXPECT_TRUE(Eventually([this] { return Regions() == 0; }));
}

TEST_F(SharedMemoryTest, OnlyTheSecretGetsARegionAndOnlyOnce) {
  v1::SharedRing ring;
  auto call = Open(&ring);
  EXPECT_EQ(ReceiveRegion(ring.socket_name(), std::string(32, '0')), -1);
  EXPECT_EQ(ReceiveRegion(ring.socket_name(), ring.secret().substr(1)), -1);
  EXPECT_EQ(ReceiveRegion(ring.socket_name(), ring.secret() + "0"), -1);
  EXPECT_EQ(ReceiveRegion(ring.socket_name(), session_->id()), -1);
  const int fd = ReceiveRegion(ring.socket_name(), ring.secret(), kReceiveTimeoutMs);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(ReceiveRegion(ring.socket_name(), ring.secret()), -1) << "it has been used";
  struct stat info = {};
  ASSERT_EQ(fstat(fd, &info), 0);
  EXPECT_EQ(info.st_size, ring.slots() * ring.slot_bytes());
  EXPECT_NE(ftruncate(fd, 0), 0) << "a client can't shrink the server's memory";
  EXPECT_NE(ftruncate(fd, 2 * info.st_size), 0);
  close(fd);
  v1::SharedRing unused;
  auto second = Open(&unused);
  second->Cancel();
  ASSERT_TRUE(Eventually([this] { return Regions() == 1; }));
  EXPECT_EQ(ReceiveRegion(ring.socket_name(), unused.secret()), -1) << "its ring has been freed";
}

// If descriptors kept the memory, a client could hold the memory of any number of rings.
TEST_F(SharedMemoryTest, KeptDescriptorHoldsNoMemoryAfterTheCall) {
  v1::SharedRing ring;
  auto call = Open(&ring);
  const int fd = ReceiveRegion(ring.socket_name(), ring.secret(), kReceiveTimeoutMs);
  ASSERT_GE(fd, 0);
  const auto blocks = [fd] {
    struct stat info = {};
    EXPECT_EQ(fstat(fd, &info), 0);
    return info.st_blocks;
  };
  EXPECT_EQ(blocks() * 512, static_cast<int64_t>(ring.slots()) * ring.slot_bytes());
  call->Cancel();
  EXPECT_TRUE(Eventually([&] { return blocks() == 0; }));
  close(fd);
}

TEST_F(SharedMemoryTest, RejectsTransfersOfAnotherSession) {
  RpcSession other(*client_);
  const uint8_t byte = 1;
  ASSERT_TRUE(other.Create(1, {DType::kUInt8, {1}}, std::string(1, static_cast<char>(byte))).ok());
  v1::SharedMemoryRequest read;
  *read.mutable_read() = other.ReadRequest(1);
  v1::SharedMemoryRequest write = WriteRequest(2, 10);
  write.mutable_write()->set_session(other.id());
  for (const auto& request : {read, write}) {
    v1::SharedRing ring;
    const auto call = Open(&ring);
    call->Send(request);
    EXPECT_FALSE(call->Next().has_value());
    ExpectError(call->Finish(), Code::kInvalidArgument, {"session"});
  }
  auto foreign = client_->SharedMemory();
  foreign->Send(OpenRequest(std::string(32, 'f')));
  EXPECT_FALSE(foreign->Next().has_value());
  ExpectError(foreign->Finish(), Code::kNotFound, {"session"});
}

TEST_F(SharedMemoryTest, RejectsInvalidRequests) {
  const int64_t size = 10 * kMiB;
  const auto write = WriteRequest(1, size);
  for (const auto& lie :
       {Slot(1, 4 * kMiB), Slot(3, 4 * kMiB), Slot(UINT32_MAX, 4 * kMiB), Slot(0, 4 * kMiB - 1),
        Slot(0, 4 * kMiB + 1), Slot(0, 0), Slot(0, -1), Slot(0, INT64_MAX), Slot(0, size)}) {
    ExpectRefused({write, lie}, Code::kInvalidArgument);
  }
  ExpectRefused({write, Slot(0, 4 * kMiB), Slot(0, 4 * kMiB)}, Code::kInvalidArgument);
  ExpectRefused({write, write}, Code::kInvalidArgument);
  ExpectRefused({Slot(0, 4 * kMiB)}, Code::kInvalidArgument);
  ExpectRefused({OpenRequest(session_->id())}, Code::kInvalidArgument);
  ExpectRefused({v1::SharedMemoryRequest()}, Code::kInvalidArgument);
  ExpectRefused({WriteRequest(0, size)}, Code::kInvalidArgument);
  ExpectRefused({WriteRequest(1, 2048 * kMiB)}, Code::kResourceExhausted);
  v1::SharedMemoryRequest read;
  *read.mutable_read() = session_->ReadRequest(99);
  ExpectRefused({read}, Code::kNotFound);
}

TEST_F(SharedMemoryTest, SlotsAreReturnedInOrder) {
  ASSERT_TRUE(session_->Ones(1, {5 * kMiB}).ok());
  v1::SharedMemoryRequest read;
  *read.mutable_read() = session_->ReadRequest(1);
  for (const auto& lie : {Slot(1, 0), Slot(0, 1), Slot(3, 0), Slot(UINT32_MAX, 0)}) {
    v1::SharedRing ring;
    const auto call = Open(&ring);
    call->Send(read);
    call->Send(lie);
    while (call->Next().has_value()) {
    }
    ExpectError(call->Finish(), Code::kInvalidArgument, {"slot"});
  }
  v1::SharedMemoryRequest outside = read;
  outside.mutable_read()->set_offset(21 * kMiB);
  v1::SharedRing ring;
  const auto call = Open(&ring);
  call->Send(outside);
  EXPECT_FALSE(call->Next().has_value());
  ExpectError(call->Finish(), Code::kOutOfRange);
}

}  // namespace
}  // namespace tensord::integration
