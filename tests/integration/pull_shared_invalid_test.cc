// Copies through shared memory with an untrusted source or destination: only the two servers of a
// copy get its memory, and false messages harm only that copy.
#include <grpcpp/grpcpp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "tensord/common/util/mutex.h"
#include "tensord/server/rpc/bulk/shared_broker.h"
#include "tensord/tests/integration/fake_source.h"
#include "tensord/tests/integration/pull_shared_fixture.h"
#include "tensord/tests/integration/receive_region.h"

namespace tensord::integration {
namespace {

using Code = absl::StatusCode;

TEST_F(PullSharedTest, InvalidTicketGetsNoMemory) {
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

TEST_F(PullSharedTest, DestinationOnAnotherHostGetsMessages) {
  ASSERT_NO_FATAL_FAILURE(Make(1, Bytes(8 * kMiB), Pattern(8 * kMiB)));
  for (const char* boot_id : {"", "a5a5a5a5-0000-0000-0000-000000000000"}) {
    v1::FetchRequest request = First(Ticket(1));
    request.set_boot_id(boot_id);
    auto call = a_.client->Fetch();
    ASSERT_TRUE(call->Send(request));
    call->HalfClose();  // as a destination does that doesn't know shared memory
    std::string bytes;
    while (const auto message = call->Next()) {
      EXPECT_FALSE(message->has_ring() || message->has_slot());
      bytes += message->data();
    }
    EXPECT_TRUE(call->Finish().ok());
    EXPECT_TRUE(bytes == Pattern(8 * kMiB));
  }
}

TEST_F(PullSharedTest, DestinationThatCannotMapTheRingGetsMessages) {
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

TEST_F(PullSharedTest, InvalidAnswersEndOnlyTheirFetch) {
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
      // Waits until the source has filled a slot, so that the slot may be returned.
      if (answer.has_slot() && answers.size() > 1) {
        EXPECT_TRUE(call->Next().has_value());
      }
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

TEST_F(PullSharedTimeoutTest, SilentDestinationTimesOut) {
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

TEST_F(PullSharedTest, NewRingHoldsNoOldData) {
  ASSERT_NO_FATAL_FAILURE(Make(1, Bytes(40 * kMiB), std::string(40 * kMiB, '\xa5')));
  for (int i = 0; i < 3; ++i) {
    v1::SharedRing ring;
    const auto call = Offered(1, &ring);
    const int fd = ReceiveRegion(ring.socket_name(), ring.secret(), 30'000);
    ASSERT_GE(fd, 0);
    EXPECT_EQ(ReceiveRegion(ring.socket_name(), ring.secret()), -1) << "it has been used";
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

// A fake source of a tensor of 40 MiB, with its own shared memory.
class FakeSourceTest : public PullSharedTest {
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
    {
      MutexLock lock(&mu_);
      regions_.push_back(*region);  // its destructor would withdraw the memory
    }
    v1::FetchResponse response;
    response.mutable_ring()->set_socket_name(broker_.socket_name());
    response.mutable_ring()->set_secret(broker_.Offer(*region));
    response.mutable_ring()->set_slot_bytes(kSlot);
    response.mutable_ring()->set_slots(3);
    return response;
  }
  // Withdraws the memory of all rings.
  void Withdraw() {
    MutexLock lock(&mu_);
    const int fd = dup(regions_.back()->fd());
    regions_.clear();
    EXPECT_TRUE(Eventually([fd] {  // the broker may still hold a reference
      struct stat info = {};
      return fstat(fd, &info) == 0 && info.st_blocks == 0;
    }));
    close(fd);
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

  // Copies the tensor from `source` to server b.
  absl::StatusOr<v1::PullTensorResponse> PullFrom(const FakeSource& source, int64_t size = kSize) {
    return b_.Pull(++handle_, Bytes(size), a_, "a ticket", source.address());
  }
  // Expects that a fetch fails if the source sends these responses. The source ignores what the
  // destination answers.
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
  Mutex mu_;
  std::vector<std::shared_ptr<server::SharedRegion>> regions_ ABSL_GUARDED_BY(mu_);
  uint64_t handle_ = 0;
};

TEST_F(FakeSourceTest, AcceptsAValidSource) {
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

// The source withdraws the ring while the destination may copy from it. The freed pages read as
// zeros, which must not become the tensor's bytes.
TEST_F(FakeSourceTest, NeverTakesBytesOfAWithdrawnRing) {
  std::atomic<int> calls = 0;
  FakeSource source([&](FakeSource::Call& call) {
    const auto first = call.Next();
    call.Send(Spec());
    if (++calls > 1) {
      EXPECT_TRUE(first->boot_id().empty());
      EXPECT_EQ(first->offset(), kSlot);
      for (int64_t at = first->offset(); at < kSize; at += kMiB) call.Send(Data(at, kMiB));
      return 0;
    }
    call.Send(Ring());
    call.Next();
    call.Send(Slot(0, kSlot));
    call.Next();
    Withdraw();
    call.Send(Slot(1, kSlot, kSlot));
    while (call.Next().has_value()) {
    }
    return static_cast<int>(grpc::StatusCode::UNAVAILABLE);
  });
  const auto pulled = PullFrom(source);
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(pulled->bytes(), kSize);
  EXPECT_TRUE(*b_.Bytes(handle_) == std::string(kSlot, 'x') + std::string(kSize - kSlot, 'm'));
}

TEST_F(FakeSourceTest, AcceptsASourceWithoutSharedMemory) {
  FakeSource source([&](FakeSource::Call& call) {
    call.Next();  // a source that doesn't know shared memory reads only one request
    call.Send(Spec());
    for (int64_t at = 0; at < kSize; at += kMiB) call.Send(Data(at, kMiB));
    return 0;
  });
  const auto pulled = PullFrom(source);
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(pulled->path(), v1::COPY_PATH_NETWORK);
}

TEST_F(FakeSourceTest, CompressedMessagesAreNotInflated) {
  constexpr int64_t kHuge = 256 * kMiB;
  const int64_t before = b_.daemon->MemoryBytes("VmHWM");
  FakeSource source([&](FakeSource::Call& call) {
    call.Compress();
    call.Next();
    call.Send(Spec());
    call.Send(Data(0, kHuge));
    return 0;
  });
  EXPECT_FALSE(PullFrom(source).ok());
  EXPECT_LT(b_.daemon->MemoryBytes("VmHWM") - before, kHuge / 4);
}

TEST_F(FakeSourceTest, TooLargeMessageEndsThePullAtOnce) {
  int calls = 0;
  FakeSource source([&](FakeSource::Call& call) {
    ++calls;
    call.Next();
    call.Send(Spec());
    call.Send(Data(0, 9 * kMiB));
    return 0;
  });
  EXPECT_THAT(PullFrom(source).status().message(), testing::HasSubstr("larger than max"));
  EXPECT_EQ(calls, 1);
}

TEST_F(FakeSourceTest, RejectsInvalidSlots) {
  for (const auto& slot : {Slot(1, kSlot), Slot(3, kSlot), Slot(UINT32_MAX, kSlot), Slot(0, 0),
                           Slot(0, -1), Slot(0, kSlot + 1), Slot(0, INT64_MAX), Slot(0, INT64_MIN),
                           Slot(0, kSlot, 1), Slot(0, kSlot, -1), Slot(0, kSlot, INT64_MAX)}) {
    ExpectRefused({Spec(), Ring(), slot});
  }
  ExpectRefused({Spec(), Slot(0, kSlot)});
  ExpectRefused({Spec(), Ring(), Slot(0, kSlot), Slot(0, kSlot, kSlot)});
  ExpectRefused({Spec(), Ring(), Ring()});
  ExpectRefused({Spec(kSlot), Ring(), Slot(0, kSlot), Slot(1, 1, kSlot)}, kSlot);
  // For a small tensor, the destination didn't ask for memory.
  ExpectRefused({Spec(kMiB), Ring(), Slot(0, kMiB)}, kMiB);
}

// The destination asks such a source for memory once. The source then sends messages, and the
// destination doesn't ask again for a while.
TEST_F(FakeSourceTest, FallsBackToMessagesIfTheRingIsInvalid) {
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
  std::vector<std::unique_ptr<FakeSource>> sources;  // all are kept, so each has a new address
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
