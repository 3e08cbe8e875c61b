// Tensors that go from server to server through memory that the two share: right, to nobody else,
// and with nothing left of it.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tensord/server/rpc/shared_broker.h"
#include "tensord/tests/integration/fake_source.h"
#include "tensord/tests/integration/fetch_region.h"
#include "tensord/tests/integration/peer_fixture.h"
#include "tensord/tests/proxy/delay_proxy.h"

namespace tensord::integration {
namespace {

using proxy::DelayProxy;
using Code = absl::StatusCode;

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kSlot = 4 * kMiB;   // of sources that a test plays
constexpr int64_t kLeast = 4 * kMiB;  // that go through memory

std::string Pattern(int64_t size) {
  std::string bytes(size, '\0');
  for (int64_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 11);
  return bytes;
}

TensorSpec Bytes(int64_t size) { return {DType::kUInt8, {size}}; }

// Regions of shared memory that a daemon has mapped.
int Regions(const Node& node) {
  std::ifstream maps(absl::StrCat("/proc/", node.daemon->pid(), "/maps"));
  int regions = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:tensord") != std::string::npos) ++regions;
  }
  return regions;
}

// Descriptors of memory files that it holds.
int MemoryFiles(const Node& node) {
  int files = 0;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator(
           absl::StrCat("/proc/", node.daemon->pid(), "/fd"), gone)) {
    const std::string to = std::filesystem::read_symlink(entry.path(), gone).string();
    if (to.find("memfd:tensord") != std::string::npos) ++files;
  }
  return files;
}

class PullSharedTest : public testing::Test {
 protected:
  // Who has used a session may send as fast as they can.
  void SetUp() override { ASSERT_TRUE(a_.session->List().ok()); }

  // However it went, both servers are alive, hold no ring, and end as they should.
  void TearDown() override {
    for (Node* node : {&a_, &b_}) {
      if (!node->daemon->running()) continue;
      EXPECT_TRUE(Eventually([&] { return Regions(*node) == 0 && MemoryFiles(*node) == 0; }));
      node->stream.reset();
      const auto exit_code = node->daemon->Terminate();
      ASSERT_TRUE(exit_code.ok()) << exit_code.status();
      EXPECT_EQ(*exit_code, 0) << node->daemon->Output();
    }
  }

  std::string Ticket(uint64_t handle) {
    const auto ticket = a_.Ticket(handle, b_);
    EXPECT_TRUE(ticket.ok()) << ticket.status();
    return ticket.ok() ? ticket->ticket() : "";
  }

  // An upload of a's that the test brings piece by piece.
  void BeginUpload(uint64_t handle, const std::string& bytes) {
    const TensorSpec spec = Bytes(static_cast<int64_t>(bytes.size()));
    a_.Promise(handle, spec);
    bytes_ = bytes;
    sent_ = 0;
    upload_ = a_.client->Write();
    ASSERT_TRUE(upload_->Send(a_.session->FirstWrite(handle, spec)));
  }
  void UploadTo(int64_t end) {
    while (sent_ < end) {
      v1::WriteRequest chunk;
      chunk.set_offset(sent_);
      chunk.set_data(bytes_.substr(sent_, std::min(kMiB, end - sent_)));
      sent_ += static_cast<int64_t>(chunk.data().size());
      ASSERT_TRUE(upload_->Send(chunk));
    }
  }
  void Make(uint64_t handle, const TensorSpec& spec, const std::string& bytes) {
    auto write = a_.client->Write();
    ASSERT_TRUE(write->Send(a_.session->FirstWrite(handle, spec)));
    for (int64_t at = 0; at < static_cast<int64_t>(bytes.size()); at += kMiB) {
      v1::WriteRequest chunk;
      chunk.set_offset(at);
      chunk.set_data(bytes.substr(at, kMiB));
      ASSERT_TRUE(write->Send(chunk));
    }
    ASSERT_TRUE(write->Finish().ok());
  }

  // Both have a ring, and bytes have gone through it: b has taken memory for them.
  bool UnderWay() {
    return Eventually(
        [&] { return Regions(a_) == 1 && Regions(b_) == 1 && UsedBytes(*b_.client, "cpu:0") > 0; });
  }

  // What b says to a when it fetches.
  v1::FetchRequest First(const std::string& ticket) {
    v1::FetchRequest request;
    request.set_ticket(ticket);
    request.set_destination_epoch(b_.info.epoch());
    request.set_principal_kind("anonymous");
    request.set_principal_name("anonymous");
    request.set_fetch_id("0123456789abcdef");
    request.set_boot_id(a_.info.boot_id());
    return request;
  }
  static v1::FetchRequest Mapped(bool mapped) {
    v1::FetchRequest answer;
    answer.set_ring_mapped(mapped);
    return answer;
  }
  static v1::FetchRequest Emptied(uint32_t slot, int64_t bytes = 0) {
    v1::FetchRequest answer;
    answer.mutable_slot()->set_slot(slot);
    answer.mutable_slot()->set_bytes(bytes);
    return answer;
  }
  // A fetch of a's tensor that has come to the ring.
  std::unique_ptr<FetchCall> Offered(uint64_t handle, v1::SharedRing* ring) {
    auto call = a_.client->Fetch();
    EXPECT_TRUE(call->Send(First(Ticket(handle))));
    const auto spec = call->Next();
    EXPECT_TRUE(spec.has_value() && spec->has_spec());
    const auto offer = call->Next();
    EXPECT_TRUE(offer.has_value() && offer->has_ring());
    if (offer.has_value()) *ring = offer->ring();
    return call;
  }
  static absl::Status ReadToEnd(FetchCall& call) {
    while (call.Next().has_value()) {
    }
    return call.Finish();
  }

  Node a_{{Node::kAnyPeer, "--peer-timeout-seconds=2"}};
  Node b_{{Node::kAnyPeer, "--peer-timeout-seconds=2"}};
  std::string bytes_;
  int64_t sent_ = 0;
  std::unique_ptr<WriteCall> upload_;
};

TEST_F(PullSharedTest, TensorsOfAnySizeAndKindComeAsTheyAre) {
  uint64_t handle = 0;
  for (const TensorSpec& spec :
       {Bytes(kLeast), Bytes(3 * kSlot), Bytes(3 * kSlot + 1), Bytes(37 * kMiB + 4093),
        TensorSpec{DType::kFloat32, {1031, 1033}}, TensorSpec{DType::kFloat64, {5, 1 << 20}},
        TensorSpec{DType::kBFloat16, {2 * kMiB + 3}}, TensorSpec{DType::kInt32, {7, 11, 13, 1051}},
        TensorSpec{DType::kBool, {kSlot + 5}}}) {
    ++handle;
    const std::string bytes = spec.dtype == DType::kBool ? std::string(spec.size_bytes(), '\1')
                                                         : Pattern(spec.size_bytes());
    ASSERT_NO_FATAL_FAILURE(Make(handle, spec, bytes));
    const auto pulled = b_.Pull(handle, spec, a_, Ticket(handle));
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    EXPECT_EQ(pulled->path(), v1::COPY_PATH_SHARED_MEMORY) << spec.ToString();
    EXPECT_EQ(pulled->bytes(), spec.size_bytes());
    EXPECT_GT(pulled->transfer_nanoseconds(), 0);
    EXPECT_EQ(pulled->resumptions(), 0);
    EXPECT_TRUE(*b_.Bytes(handle) == bytes) << spec.ToString();
  }
  EXPECT_TRUE(Eventually([&] { return Regions(a_) + Regions(b_) == 0; })) << "a ring a copy";
}

TEST_F(PullSharedTest, SmallOnesGoOverTheNetwork) {
  ASSERT_NO_FATAL_FAILURE(Make(1, Bytes(kLeast - 1), Pattern(kLeast - 1)));
  const auto pulled = b_.Pull(1, Bytes(kLeast - 1), a_, Ticket(1));
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(pulled->path(), v1::COPY_PATH_NETWORK);
  EXPECT_EQ(*b_.Bytes(1), Pattern(kLeast - 1));
}

TEST_F(PullSharedTest, CanBeSwitchedOffAtEitherEnd) {
  Node off({Node::kAnyPeer}, {}, {kNoSharedMemory});
  EXPECT_THAT(off.info.boot_id(), testing::IsEmpty());
  EXPECT_THAT(off.info.features(), testing::Not(testing::Contains("shared-memory")));
  a_.Random(1, 4 * kMiB);
  off.Random(1, 4 * kMiB);
  const TensorSpec spec{DType::kFloat32, {4 * kMiB}};
  for (const auto& [source, destination] :
       {std::pair<Node*, Node*>{&a_, &off}, std::pair<Node*, Node*>{&off, &a_}}) {
    const auto pulled =
        destination->Pull(2, spec, *source, source->Ticket(1, *destination)->ticket());
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    EXPECT_EQ(pulled->path(), v1::COPY_PATH_NETWORK);
    EXPECT_EQ(*destination->Bytes(2), *source->Bytes(1));
  }
  ExpectError(off.client->CallAnyKind("/tensord.v1.TensorService/SharedMemory",
                                      [&] {
                                        v1::SharedMemoryRequest open;
                                        open.mutable_open()->set_session(off.session->id());
                                        return open.SerializeAsString();
                                      }()),
              Code::kFailedPrecondition);
}

TEST_F(PullSharedTest, ManyAtOnceAllCome) {
  constexpr int kCopies = 6;
  std::vector<std::future<absl::StatusOr<v1::PullTensorResponse>>> pulled;
  const TensorSpec spec{DType::kFloat32, {5 * kMiB}};
  for (uint64_t handle = 1; handle <= kCopies; ++handle) {
    a_.Random(handle, 5 * kMiB);
    pulled.push_back(b_.PullSoon(handle, spec, a_, Ticket(handle)));
  }
  std::map<v1::CopyPath, int> ways;
  for (auto& copy : pulled) {
    const auto outcome = copy.get();
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    ++ways[outcome->path()];
  }
  EXPECT_GE(ways[v1::COPY_PATH_SHARED_MEMORY], 1);
  EXPECT_EQ(ways[v1::COPY_PATH_SHARED_MEMORY] + ways[v1::COPY_PATH_NETWORK], kCopies);
  for (uint64_t handle = 1; handle <= kCopies; ++handle) {
    EXPECT_TRUE(*b_.Bytes(handle) == *a_.Bytes(handle));
  }
}

TEST_F(PullSharedTest, AnUploadIsSentOnAsItComes) {
  ASSERT_NO_FATAL_FAILURE(BeginUpload(1, Pattern(32 * kMiB + 7)));
  auto pulled = b_.PullSoon(2, Bytes(32 * kMiB + 7), a_, Ticket(1));
  UploadTo(20 * kMiB);
  ASSERT_TRUE(UnderWay());
  UploadTo(32 * kMiB + 7);
  ASSERT_TRUE(upload_->Finish().ok());
  const auto outcome = pulled.get();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->path(), v1::COPY_PATH_SHARED_MEMORY);
  EXPECT_TRUE(*b_.Bytes(2) == bytes_);
}

TEST_F(PullSharedTest, AnUploadThatFailsFailsWhatItWasSentTo) {
  ASSERT_NO_FATAL_FAILURE(BeginUpload(1, Pattern(32 * kMiB)));
  auto pulled = b_.PullSoon(2, Bytes(32 * kMiB), a_, Ticket(1));
  UploadTo(20 * kMiB);
  ASSERT_TRUE(UnderWay());
  a_.FailPromise(1, Code::kAborted, "the root of it");
  upload_->Cancel();
  const auto outcome = pulled.get();
  EXPECT_FALSE(outcome.ok());
  EXPECT_TRUE(Eventually([&] { return UsedBytes(*b_.client, "cpu:0") == 0; }));
}

TEST_F(PullSharedTest, ABrokenConnectionGoesOnOverTheNetwork) {
  ASSERT_NO_FATAL_FAILURE(BeginUpload(1, Pattern(48 * kMiB)));
  const auto proxy = *DelayProxy::Start({.target = a_.address()});
  auto pulled = b_.PullSoon(2, Bytes(48 * kMiB), a_, Ticket(1), proxy->address());
  UploadTo(36 * kMiB);
  ASSERT_TRUE(UnderWay());
  ASSERT_TRUE(proxy->Await([](const auto& stats) { return stats.bytes_to_client > 0; }));
  proxy->CutAll();
  EXPECT_TRUE(Eventually([&] { return Regions(a_) == 0 && Regions(b_) == 0; }));
  UploadTo(48 * kMiB);
  ASSERT_TRUE(upload_->Finish().ok());
  const auto outcome = pulled.get();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_GE(outcome->resumptions(), 1);
  EXPECT_EQ(outcome->bytes(), 48 * kMiB);
  EXPECT_TRUE(*b_.Bytes(2) == bytes_);
}

TEST_F(PullSharedTest, AKilledSourceLeavesThePromise) {
  ASSERT_NO_FATAL_FAILURE(BeginUpload(1, Pattern(32 * kMiB)));
  b_.Promise(2, Bytes(32 * kMiB));
  auto pulled = b_.PullSoon(2, Bytes(32 * kMiB), a_, Ticket(1));
  UploadTo(20 * kMiB);
  ASSERT_TRUE(UnderWay());
  a_.daemon->Signal(SIGKILL);
  ExpectError(pulled.get(), Code::kUnavailable, {a_.info.peer_address()});
  const auto upload = b_.Upload(2);
  ASSERT_TRUE(upload.ok()) << upload.status();
  EXPECT_FALSE(upload->done());
  EXPECT_GT(upload->received_bytes(), 0);
  EXPECT_LE(upload->received_bytes(), 20 * kMiB);
  // The rest by another way.
  auto write = b_.client->Write();
  ASSERT_TRUE(write->Send(b_.session->FirstWrite(2, Bytes(32 * kMiB))));
  for (int64_t at = upload->received_bytes(); at < 32 * kMiB;) {
    v1::WriteRequest chunk;
    chunk.set_offset(at);
    chunk.set_data(bytes_.substr(at, kMiB));
    at += static_cast<int64_t>(chunk.data().size());
    ASSERT_TRUE(write->Send(chunk));
  }
  ASSERT_TRUE(write->Finish().ok());
  EXPECT_TRUE(*b_.Bytes(2) == bytes_);
}

TEST_F(PullSharedTest, AKilledDestinationLeavesNothing) {
  ASSERT_NO_FATAL_FAILURE(BeginUpload(1, Pattern(32 * kMiB)));
  auto pulled = b_.PullSoon(2, Bytes(32 * kMiB), a_, Ticket(1));
  UploadTo(20 * kMiB);
  ASSERT_TRUE(UnderWay());
  b_.daemon->Signal(SIGKILL);
  EXPECT_FALSE(pulled.get().ok());
  EXPECT_TRUE(Eventually([&] { return Regions(a_) == 0 && MemoryFiles(a_) == 0; }));
  UploadTo(32 * kMiB);
  ASSERT_TRUE(upload_->Finish().ok());
  EXPECT_TRUE(*a_.Bytes(1) == bytes_);
}

TEST_F(PullSharedTest, WhatNobodyWantsAnyMoreIsNotFetched) {
  ASSERT_NO_FATAL_FAILURE(BeginUpload(1, Pattern(32 * kMiB)));
  b_.Promise(2, Bytes(32 * kMiB));
  auto pulled = b_.PullSoon(2, Bytes(32 * kMiB), a_, Ticket(1));
  UploadTo(20 * kMiB);
  ASSERT_TRUE(UnderWay());
  ASSERT_TRUE(b_.session->Close().ok());
  EXPECT_FALSE(pulled.get().ok());
  EXPECT_TRUE(Eventually(
      [&] { return Regions(a_) + Regions(b_) == 0 && UsedBytes(*b_.client, "cpu:0") == 0; }));
  upload_->Cancel();
}

TEST_F(PullSharedTest, ADrainLetsFetchesFinish) {
  ASSERT_NO_FATAL_FAILURE(BeginUpload(1, Pattern(32 * kMiB)));
  auto pulled = b_.PullSoon(2, Bytes(32 * kMiB), a_, Ticket(1));
  UploadTo(20 * kMiB);
  ASSERT_TRUE(UnderWay());
  a_.daemon->Signal(SIGTERM);
  UploadTo(32 * kMiB);
  ASSERT_TRUE(upload_->Finish().ok());
  const auto outcome = pulled.get();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_TRUE(*b_.Bytes(2) == bytes_);
  a_.stream.reset();
  EXPECT_EQ(*a_.daemon->WaitForEnd(), 0) << a_.daemon->Output();
}

// Those who fetch, scripted.

TEST_F(PullSharedTest, WithoutAGoodTicketThereIsNoMemory) {
  ASSERT_NO_FATAL_FAILURE(Make(1, Bytes(8 * kMiB), Pattern(8 * kMiB)));
  const std::string used = Ticket(1);
  ASSERT_TRUE(b_.Pull(2, Bytes(8 * kMiB), a_, used).ok());
  ASSERT_TRUE(Eventually([&] { return Regions(a_) == 0; }));
  v1::FetchRequest other = First(Ticket(1));
  other.set_destination_epoch(a_.info.epoch());
  for (const v1::FetchRequest& request : {First(""), First(used), other}) {
    auto call = a_.client->Fetch();
    ASSERT_TRUE(call->Send(request));
    EXPECT_FALSE(call->Next().has_value());
    ExpectError(call->Finish(), Code::kPermissionDenied, {"ticket"});
    EXPECT_EQ(Regions(a_), 0);
  }
}

TEST_F(PullSharedTest, WhoIsOnAnotherHostOrDoesNotAskGetsMessages) {
  ASSERT_NO_FATAL_FAILURE(Make(1, Bytes(8 * kMiB), Pattern(8 * kMiB)));
  for (const char* boot_id : {"", "a5a5a5a5-0000-0000-0000-000000000000"}) {
    v1::FetchRequest request = First(Ticket(1));
    request.set_boot_id(boot_id);
    auto call = a_.client->Fetch();
    ASSERT_TRUE(call->Send(request));
    call->HalfClose();  // as those do who know of no answers
    std::string bytes;
    while (const auto message = call->Next()) {
      EXPECT_FALSE(message->has_ring() || message->has_slot());
      bytes += message->data();
    }
    EXPECT_TRUE(call->Finish().ok());
    EXPECT_TRUE(bytes == Pattern(8 * kMiB));
  }
}

TEST_F(PullSharedTest, WhoCannotMapTheRingGetsMessages) {
  ASSERT_NO_FATAL_FAILURE(Make(1, Bytes(8 * kMiB), Pattern(8 * kMiB)));
  v1::SharedRing ring;
  const auto call = Offered(1, &ring);
  EXPECT_EQ(Regions(a_), 1);
  ASSERT_TRUE(call->Send(Mapped(false)));
  std::string bytes;
  while (const auto message = call->Next()) bytes += message->data();
  EXPECT_TRUE(call->Finish().ok());
  EXPECT_TRUE(bytes == Pattern(8 * kMiB));
  EXPECT_EQ(Regions(a_), 0);
}

TEST_F(PullSharedTest, ADestinationThatLiesEndsItsOwnFetch) {
  ASSERT_NO_FATAL_FAILURE(Make(1, Bytes(40 * kMiB), Pattern(40 * kMiB)));
  const auto nothing = v1::FetchRequest();
  const std::vector<std::vector<v1::FetchRequest>> lies = {
      {nothing},
      {Emptied(0)},
      {First("")},
      {Mapped(true), Mapped(true)},
      {Mapped(true), nothing},
      {Mapped(true), Emptied(1)},
      {Mapped(true), Emptied(3)},
      {Mapped(true), Emptied(UINT32_MAX)},
      {Mapped(true), Emptied(0, 1)},
      {Mapped(true), Emptied(0, -1)},
      {Mapped(true), Emptied(0), Emptied(0)},
  };
  for (const auto& answers : lies) {
    v1::SharedRing ring;
    const auto call = Offered(1, &ring);
    for (const v1::FetchRequest& answer : answers) {
      // What is given back has to have been filled.
      if (answer.has_slot() && answers.size() > 1) EXPECT_TRUE(call->Next().has_value());
      call->Send(answer);
    }
    ExpectError(ReadToEnd(*call), Code::kInvalidArgument);
    EXPECT_TRUE(Eventually([&] { return Regions(a_) == 0; }));
  }
  v1::SharedRing ring;
  const auto closed = Offered(1, &ring);
  closed->HalfClose();
  EXPECT_FALSE(ReadToEnd(*closed).ok());
}

TEST_F(PullSharedTest, ADestinationThatFallsSilentIsNotWaitedForLong) {
  ASSERT_NO_FATAL_FAILURE(Make(1, Bytes(40 * kMiB), Pattern(40 * kMiB)));
  v1::SharedRing ring;
  const auto speechless = Offered(1, &ring);
  const auto keeps_slots = Offered(1, &ring);
  ASSERT_TRUE(keeps_slots->Send(Mapped(true)));
  for (const auto& call : {&speechless, &keeps_slots}) {
    ExpectError(ReadToEnd(**call), Code::kDeadlineExceeded, {"2 s"});
  }
  EXPECT_TRUE(Eventually([&] { return Regions(a_) == 0; }));
}

TEST_F(PullSharedTest, NobodySeesWhatLayInAnothersRing) {
  ASSERT_NO_FATAL_FAILURE(Make(1, Bytes(40 * kMiB), std::string(40 * kMiB, '\xa5')));
  for (int i = 0; i < 3; ++i) {
    v1::SharedRing ring;
    const auto call = Offered(1, &ring);
    const int fd = FetchRegion(ring.socket_name(), ring.secret(), 30'000);
    ASSERT_GE(fd, 0);
    EXPECT_EQ(FetchRegion(ring.socket_name(), ring.secret()), -1) << "it has been used";
    const int64_t size = ring.slots() * ring.slot_bytes();
    void* const data = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
    ASSERT_NE(data, MAP_FAILED);
    EXPECT_EQ(std::memchr(data, '\xa5', size), nullptr);
    ASSERT_TRUE(call->Send(Mapped(true)));
    ASSERT_TRUE(call->Next().has_value());
    EXPECT_NE(std::memchr(data, '\xa5', size), nullptr);
    munmap(data, size);
    close(fd);
    call->Cancel();
    EXPECT_FALSE(ReadToEnd(*call).ok());
  }
}

// A source that isn't one: what it gives for a tensor of 40 MiB, with memory of its own.
class LyingSourceTest : public PullSharedTest {
 protected:
  static constexpr int64_t kSize = 40 * kMiB;

  static v1::FetchResponse Spec(int64_t size = kSize) {
    v1::FetchResponse response;
    *response.mutable_spec() = ToProto(Bytes(size));
    return response;
  }
  v1::FetchResponse Ring() {
    absl::StatusOr<std::shared_ptr<server::SharedRegion>> region =
        server::SharedRegion::Make(3 * kSlot);
    EXPECT_TRUE(region.ok()) << region.status();
    std::memset((*region)->data(), 'x', 3 * kSlot);
    v1::FetchResponse response;
    response.mutable_ring()->set_socket_name(broker_.socket_name());
    response.mutable_ring()->set_secret(broker_.Offer(*region));
    response.mutable_ring()->set_slot_bytes(kSlot);
    response.mutable_ring()->set_slots(3);
    return response;
  }
  static v1::FetchResponse Slot(uint32_t slot, int64_t bytes, int64_t offset = 0) {
    v1::FetchResponse response;
    response.set_offset(offset);
    response.mutable_slot()->set_slot(slot);
    response.mutable_slot()->set_bytes(bytes);
    return response;
  }
  static v1::FetchResponse Data(int64_t offset, int64_t bytes) {
    v1::FetchResponse response;
    response.set_offset(offset);
    response.set_data(std::string(bytes, 'm'));
    return response;
  }

  // How b's fetch from it goes.
  absl::StatusOr<v1::PullTensorResponse> PullFrom(const FakeSource& source, int64_t size = kSize) {
    return b_.Pull(++handle_, Bytes(size), a_, "a ticket", source.address());
  }
  // That a fetch fails which is answered so, whatever the destination says to it.
  void ExpectRefused(const std::vector<v1::FetchResponse>& responses, int64_t size = kSize) {
    FakeSource source([&](FakeSource::Call& call) {
      call.Next();
      for (const v1::FetchResponse& response : responses) {
        call.Send(response);
        if (response.has_ring()) call.Next();
      }
      while (call.Next().has_value()) {
      }
      return 0;
    });
    const auto pulled = PullFrom(source, size);
    EXPECT_FALSE(pulled.ok()) << responses.back().ShortDebugString();
    EXPECT_TRUE(Eventually([&] {
      return Regions(b_) == 0 && MemoryFiles(b_) == 0 && UsedBytes(*b_.client, "cpu:0") == 0;
    }));
  }

  server::SharedBroker broker_{[] {}};
  uint64_t handle_ = 0;
};

TEST_F(LyingSourceTest, OneThatKeepsTheRulesIsBelieved) {
  FakeSource source([&](FakeSource::Call& call) {
    const auto first = call.Next();
    EXPECT_EQ(first->boot_id(), b_.info.boot_id());
    call.Send(Spec());
    call.Send(Ring());
    const auto mapped = call.Next();
    EXPECT_TRUE(mapped.has_value() && mapped->ring_mapped());
    for (int64_t at = 0; at < kSize; at += kSlot) {
      call.Send(Slot(at / kSlot % 3, kSlot, at));
      const auto emptied = call.Next();
      EXPECT_TRUE(emptied.has_value() && emptied->slot().slot() == at / kSlot % 3);
    }
    return 0;
  });
  const auto pulled = PullFrom(source);
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(pulled->path(), v1::COPY_PATH_SHARED_MEMORY);
  EXPECT_TRUE(*b_.Bytes(handle_) == std::string(kSize, 'x'));
}

TEST_F(LyingSourceTest, OneThatKnowsOfNoMemorySendsMessages) {
  FakeSource source([&](FakeSource::Call& call) {
    call.Next();  // and no more: it knows of one request alone
    call.Send(Spec());
    for (int64_t at = 0; at < kSize; at += kMiB) call.Send(Data(at, kMiB));
    return 0;
  });
  const auto pulled = PullFrom(source);
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(pulled->path(), v1::COPY_PATH_NETWORK);
}

TEST_F(LyingSourceTest, SlotsThatAreNotDueAreRefused) {
  for (const auto& slot : {Slot(1, kSlot), Slot(3, kSlot), Slot(UINT32_MAX, kSlot), Slot(0, 0),
                           Slot(0, -1), Slot(0, kSlot + 1), Slot(0, INT64_MAX), Slot(0, INT64_MIN),
                           Slot(0, kSlot, 1), Slot(0, kSlot, -1), Slot(0, kSlot, INT64_MAX)}) {
    ExpectRefused({Spec(), Ring(), slot});
  }
  ExpectRefused({Spec(), Slot(0, kSlot)});
  ExpectRefused({Spec(), Ring(), Slot(0, kSlot), Slot(0, kSlot, kSlot)});
  ExpectRefused({Spec(), Ring(), Ring()});
  ExpectRefused({Spec(kSlot), Ring(), Slot(0, kSlot), Slot(1, 1, kSlot)}, kSlot);
  // Of a small one no memory was asked for.
  ExpectRefused({Spec(kMiB), Ring(), Slot(0, kMiB)}, kMiB);
}

// It is asked once, and then sends messages; and isn't asked again for a while.
TEST_F(LyingSourceTest, MemoryThatCannotBeReachedIsDoneWithout) {
  const std::vector<std::function<void(v1::SharedRing&)>> lies = {
      [](v1::SharedRing& ring) { ring.set_slots(0); },
      [](v1::SharedRing& ring) { ring.set_slots(UINT32_MAX); },
      [](v1::SharedRing& ring) { ring.set_slots(2); },
      [](v1::SharedRing& ring) { ring.set_slots(4); },
      [](v1::SharedRing& ring) { ring.set_slots(64); },
      [](v1::SharedRing& ring) { ring.set_slot_bytes(0); },
      [](v1::SharedRing& ring) { ring.set_slot_bytes(-kSlot); },
      [](v1::SharedRing& ring) { ring.set_slot_bytes(INT64_MAX); },
      [](v1::SharedRing& ring) { ring.set_socket_name(""); },
      [](v1::SharedRing& ring) { ring.set_socket_name("tensord-" + std::string(32, '0')); },
      [](v1::SharedRing& ring) { ring.set_socket_name(std::string(1000, 'x')); },
      [](v1::SharedRing& ring) { ring.set_secret("not the secret"); },
  };
  std::vector<std::unique_ptr<FakeSource>> sources;  // each at an address that was nobody's before
  for (const auto& lie : lies) {
    int asked = 0;
    sources.push_back(std::make_unique<FakeSource>([&](FakeSource::Call& call) {
      const auto first = call.Next();
      asked += first->boot_id().empty() ? 0 : 1;
      call.Send(Spec());
      if (!first->boot_id().empty()) {
        v1::FetchResponse ring = Ring();
        lie(*ring.mutable_ring());
        call.Send(ring);
        const auto answer = call.Next();
        EXPECT_TRUE(answer.has_value() && !answer->ring_mapped());
      }
      for (int64_t at = 0; at < kSize; at += 4 * kMiB) call.Send(Data(at, 4 * kMiB));
      return 0;
    }));
    for (int i = 0; i < 2; ++i) {
      const auto pulled = PullFrom(*sources.back());
      ASSERT_TRUE(pulled.ok()) << pulled.status();
      EXPECT_EQ(pulled->path(), v1::COPY_PATH_NETWORK);
      ASSERT_TRUE(b_.session->Delete({handle_}).ok());
    }
    EXPECT_EQ(asked, 1);
    EXPECT_EQ(Regions(b_) + MemoryFiles(b_), 0);
  }
}

}  // namespace
}  // namespace tensord::integration
