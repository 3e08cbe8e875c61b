// Two servers that fetch tensors from each other through shared memory.
#pragma once

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/tests/integration/peer_fixture.h"
#include "tensord/tests/mib.h"

namespace tensord::integration {

inline constexpr int64_t kSlot = 4 * kMiB;            // bytes of a slot of a FakeSource's ring
inline constexpr int64_t kMinSharedBytes = 4 * kMiB;  // smaller tensors go over the network

inline TensorSpec Bytes(int64_t size) { return {DType::kUInt8, {size}}; }

// Returns the number of shared memory regions that a daemon has mapped.
inline int Regions(const Node& node) {
  std::ifstream maps(absl::StrCat("/proc/", node.daemon->pid(), "/maps"));
  int regions = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:tensord") != std::string::npos) ++regions;
  }
  return regions;
}

// Returns the number of descriptors of shared memory that a daemon has open.
inline int MemoryFiles(const Node& node) {
  int files = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(
           absl::StrCat("/proc/", node.daemon->pid(), "/fd"), error)) {
    const std::string to = std::filesystem::read_symlink(entry.path(), error).string();
    if (to.find("memfd:tensord") != std::string::npos) ++files;
  }
  return files;
}

class PullSharedTest : public testing::Test {
 protected:
  // The servers use one connection, because a FakeSource can't split a copy into parts.
  explicit PullSharedTest(int peer_timeout_seconds = 10)
      : flags_({Node::kAnyPeer, "--peer-connections=1",
                absl::StrCat("--peer-timeout-seconds=", peer_timeout_seconds)}) {}

  // After a call that uses a session, the server trusts the connection and doesn't limit its bytes.
  void SetUp() override { ASSERT_TRUE(a_.session->List().ok()); }

  // Expects that each server that still runs releases its rings and exits with 0.
  void TearDown() override {
    for (Node* node : {&a_, &b_}) {
      if (!node->daemon->running()) continue;
      EXPECT_TRUE(Eventually([&] { return Regions(*node) == 0 && MemoryFiles(*node) == 0; }));
      node->TerminateIfRunning();
    }
  }

  std::string Ticket(uint64_t handle) {
    const auto ticket = a_.Ticket(handle, b_);
    EXPECT_TRUE(ticket.ok()) << ticket.status();
    return ticket.ok() ? ticket->ticket() : "";
  }

  // Starts an upload to server a. `upload_` sends the bytes later.
  void BeginUpload(uint64_t handle, const std::string& bytes) {
    upload_.emplace(a_, handle, Bytes(static_cast<int64_t>(bytes.size())), bytes);
  }
  void Make(uint64_t handle, const TensorSpec& spec, const std::string& bytes) {
    const absl::Status brought = a_.UploadBytes(handle, spec, bytes);
    ASSERT_TRUE(brought.ok()) << brought;
  }

  // Waits until both servers have mapped a ring and server b has allocated the tensor's memory.
  bool UnderWay() {
    return Eventually(
        [&] { return Regions(a_) == 1 && Regions(b_) == 1 && UsedBytes(*b_.client, "cpu:0") > 0; });
  }

  // Returns the first message that server b sends to server a in a Fetch call.
  v1::FetchRequest First(const std::string& ticket) {
    v1::FetchRequest request;
    request.set_ticket(ticket);
    request.set_destination_epoch(b_.info.epoch());
    request.set_principal_kind("anonymous");
    request.set_principal_name("anonymous");
    request.set_pull_id("0123456789abcdef");
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
  // Starts a Fetch of a tensor of server a. Returns once the server has offered a ring.
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

  const std::vector<std::string> flags_;
  Node a_{flags_};
  Node b_{flags_};
  std::optional<PartialUpload> upload_;
};

// Has a short timeout, for tests that wait until it has passed.
class PullSharedTimeoutTest : public PullSharedTest {
 protected:
  PullSharedTimeoutTest() : PullSharedTest(/*peer_timeout_seconds=*/2) {}
};

}  // namespace tensord::integration
