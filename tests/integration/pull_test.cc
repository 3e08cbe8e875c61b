// Copies from server to server over the network: right data, access control and resumption.
#include <signal.h>

#include "absl/strings/str_cat.h"
#include "tensord/tests/integration/identity_fixture.h"
#include "tensord/tests/integration/peer_fixture.h"
#include "tensord/tests/proxy/delay_proxy.h"

namespace tensord::integration {
namespace {

using proxy::DelayProxy;
using proxy::Direction;
using Code = absl::StatusCode;
using testing::HasSubstr;

const TensorSpec kLarge{DType::kFloat32, {8 << 20}};  // 32 MiB

class PullTest : public testing::Test {
 protected:
  explicit PullTest(int peer_timeout_seconds = 10)
      : b_({Node::kAnyPeer, absl::StrCat("--peer-timeout-seconds=", peer_timeout_seconds)}, {},
           {kNoSharedMemory}) {}

  void TearDown() override {
    for (Node* node : {&a_, &b_}) node->TerminateIfRunning();
  }

  std::unique_ptr<DelayProxy> ProxyTo(const Node& node, int64_t bytes_per_second = 0) {
    return *DelayProxy::Start({.target = node.address(), .bytes_per_second = bytes_per_second});
  }

  // Returns a ticket of server a for server b.
  std::string Ticket(uint64_t handle) {
    const auto ticket = a_.Ticket(handle, b_);
    EXPECT_TRUE(ticket.ok()) << ticket.status();
    return ticket.ok() ? ticket->ticket() : "";
  }

  // The daemon shares no memory, so that a proxy can count and cut the transfers.
  Node a_{{Node::kAnyPeer}, {}, {kNoSharedMemory}};
  Node b_;
};

// Has a short timeout, for tests that wait until it has passed.
class PullTimeoutTest : public PullTest {
 protected:
  PullTimeoutTest() : PullTest(/*peer_timeout_seconds=*/2) {}
};

TEST_F(PullTest, CopiesBytesUnchanged) {
  EXPECT_THAT(a_.info.features(), testing::Contains("peer-copy"));
  EXPECT_EQ(a_.info.peer_address(), a_.address());
  a_.Random(1, 1 << 20);
  const auto pulled = b_.Pull(5, kMillion, a_, Ticket(1));
  ASSERT_TRUE(pulled.ok()) << pulled.status();
  EXPECT_EQ(pulled->tensor().handle(), 5u);
  EXPECT_EQ(pulled->path(), v1::COPY_PATH_NETWORK);
  EXPECT_EQ(pulled->bytes(), 4 << 20);
  EXPECT_GT(pulled->transfer_nanoseconds(), 0);
  EXPECT_EQ(pulled->resumptions(), 0);
  EXPECT_EQ(*b_.Bytes(5), *a_.Bytes(1));
  EXPECT_EQ(UsedBytes(*b_.client, "cpu:0"), 4 << 20);
}

TEST_F(PullTest, CopiesEveryShape) {
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{}, {0}, {1}, {3, 5}, {131072}, {131073}, {0, 7}}) {
    const uint64_t handle = 10 + a_.session->List()->tensors_size();
    const TensorSpec spec{DType::kFloat32, Shape(shape)};
    ASSERT_TRUE(a_.session->Ones(handle, shape).ok());
    const auto pulled = b_.Pull(handle, spec, a_, Ticket(handle));
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    EXPECT_EQ(*b_.Bytes(handle), *a_.Bytes(handle));
  }
}

TEST_F(PullTest, CopyFulfillsAPromiseAndRunsWaitingOps) {
  a_.Random(1, 1 << 20);
  b_.Promise(2, kMillion);
  v1::Command add;
  add.mutable_op()->set_name("add");
  add.mutable_op()->add_inputs(2);
  add.mutable_op()->add_inputs(2);
  add.mutable_op()->set_output(3);
  b_.Command(add);
  ASSERT_TRUE(b_.Pull(2, kMillion, a_, Ticket(1)).ok());
  ASSERT_TRUE(a_.session->Add(1, 1, 2).ok());
  EXPECT_EQ(*b_.Bytes(3), *a_.Bytes(2));
}

// The ticket and the copy are requested before the tensor has data.
TEST_F(PullTest, CopyWaitsForAPromisedSource) {
  a_.Promise(1, {DType::kFloat32, {3}});
  const std::string ticket = Ticket(1);
  auto pulled = b_.PullAsync(2, {DType::kFloat32, {3}}, a_, ticket);
  v1::WriteRequest write = a_.FirstWrite(1, {DType::kFloat32, {3}});
  const float values[] = {1, 2, 3};
  write.set_data(std::string(reinterpret_cast<const char*>(values), sizeof(values)));
  auto call = a_.client->Write();
  ASSERT_TRUE(call->Send(write));
  ASSERT_TRUE(call->Finish().ok());
  ASSERT_TRUE(pulled.get().ok());
  EXPECT_THAT(*b_.session->ReadFloats(2), testing::ElementsAre(1, 2, 3));
}

TEST_F(PullTest, CopyCarriesTheErrorOfItsSource) {
  a_.Promise(1, kMillion);
  const std::string ticket = Ticket(1);
  b_.Promise(2, kMillion);
  auto pulled = b_.PullAsync(2, kMillion, a_, ticket);
  a_.FailPromise(1, Code::kUnavailable, "the root of it");
  ExpectError(pulled.get(), Code::kUnavailable, {"the root of it"});
  ExpectError(b_.session->Get(2), Code::kUnavailable, {"the root of it"});
  ExpectError(b_.Pull(2, kMillion, a_, ticket), Code::kUnavailable, {"the root of it"});
  // A failed tensor gives no ticket.
  ExpectError(a_.Ticket(1, b_), Code::kUnavailable, {"the root of it"});
}

TEST_F(PullTest, FailCommandFailsOnlyPromises) {
  b_.Promise(1, kMillion);
  const uint64_t failed = b_.FailPromise(1, Code::kAborted, "no upload follows");
  ExpectError(b_.session->Get(1, failed), Code::kAborted, {"no upload follows"});
  // A tensor that isn't a promise doesn't change.
  ASSERT_TRUE(b_.session->Ones(2, {3}).ok());
  const uint64_t passed = b_.FailPromise(2, Code::kAborted, "");
  EXPECT_TRUE(b_.session->Get(2, passed).ok());
}

TEST_F(PullTest, TicketIsValidOnce) {
  a_.Random(1, 1 << 20);
  const std::string ticket = Ticket(1);
  ASSERT_TRUE(b_.Pull(2, kMillion, a_, ticket).ok());
  b_.Promise(3, kMillion);
  ExpectError(b_.Pull(3, kMillion, a_, ticket), Code::kPermissionDenied, {"ticket"});
  // The promise remains, and a new ticket can fulfill it.
  EXPECT_EQ(b_.Upload(3)->received_bytes(), 0);
  EXPECT_TRUE(b_.Pull(3, kMillion, a_, Ticket(1)).ok());
}

TEST_F(PullTest, RejectsAlteredTickets) {
  a_.Random(1, 1 << 10);
  const TensorSpec spec{DType::kFloat32, {1 << 10}};
  const std::string good = Ticket(1);
  std::string message;
  for (size_t i = 0; i <= good.size(); ++i) {
    std::string bad = good;
    if (i == good.size()) {
      bad.pop_back();
    } else {
      bad[i] = static_cast<char>(bad[i] ^ 1);
    }
    const auto pulled = b_.Pull(2, spec, a_, bad);
    ExpectError(pulled, Code::kPermissionDenied, {"ticket"});
    if (message.empty()) message = std::string(pulled.status().message());
    EXPECT_EQ(std::string(pulled.status().message()), message) << "the same message each time";
  }
  ExpectError(b_.Pull(2, spec, a_, ""), Code::kPermissionDenied, {"ticket"});
  EXPECT_TRUE(b_.Pull(2, spec, a_, good).ok()) << "and uses nothing up";
}

TEST_F(PullTest, TicketIsValidForOneDestinationAndOneSource) {
  a_.Random(1, 1 << 20);
  Node c;
  ExpectError(c.Pull(2, kMillion, a_, Ticket(1)), Code::kPermissionDenied, {"ticket"});
  ExpectError(b_.Pull(2, kMillion, c, Ticket(1)), Code::kPermissionDenied, {"ticket"});
}

TEST_F(PullTest, TicketIsValidForOneTensor) {
  a_.Random(1, 1 << 20);
  const TensorSpec other{DType::kFloat32, {2 << 20}};
  ExpectError(b_.Pull(2, other, a_, Ticket(1)), Code::kInvalidArgument,
              {"1048576", "2097152", "tensor 2"});
  ExpectError(b_.session->Get(2), Code::kNotFound);
  ASSERT_TRUE(b_.session->Ones(3, {4}).ok());
  ExpectError(b_.Pull(3, kMillion, a_, Ticket(1)), Code::kAlreadyExists);
  ExpectError(a_.Ticket(99, b_), Code::kNotFound, {"99"});
}

TEST_F(PullTest, ATicketEndsWithItsSession) {
  a_.Random(1, 1 << 20);
  const std::string ticket = Ticket(1);
  ASSERT_TRUE(a_.session->Close().ok());
  EXPECT_TRUE(Eventually([&] { return UsedBytes(*a_.client, "cpu:0") == 0; }));
  ExpectError(b_.Pull(2, kMillion, a_, ticket), Code::kPermissionDenied, {"ticket"});
}

TEST_F(PullTest, ATicketKeepsItsTensorUntilItIsFetched) {
  a_.Random(1, 1 << 20);
  const std::string bytes = *a_.Bytes(1);
  const std::string ticket = Ticket(1);
  ASSERT_TRUE(a_.session->Delete({1}).ok());
  EXPECT_EQ(UsedBytes(*a_.client, "cpu:0"), 4 << 20);
  ASSERT_TRUE(b_.Pull(2, kMillion, a_, ticket).ok());
  EXPECT_EQ(*b_.Bytes(2), bytes);
  EXPECT_TRUE(Eventually([&] { return UsedBytes(*a_.client, "cpu:0") == 0; }));
}

TEST_F(PullTest, ConnectsOnlyToListedPeers) {
  a_.Random(1, 1 << 20);
  const auto proxy = ProxyTo(a_);
  Node unlisting(std::vector<std::string>{});
  Node listing({"--peers=127.0.0.1:1,*.example:*,localhost:" +
                proxy->address().substr(proxy->address().rfind(':') + 1)});
  for (Node* node : {&unlisting, &listing}) {
    const auto ticket = a_.Ticket(1, *node);
    node->Promise(2, kMillion);
    for (const std::string& address : std::vector<std::string>{
             proxy->address(), "ipv4:" + proxy->address(), "dns:///" + proxy->address(),
             "unix:/tmp/x", "[::ffff:127.0.0.1]:1", ""}) {
      v1::PullTensorRequest request;
      request.mutable_tensor()->set_session(node->session->id());
      request.mutable_tensor()->set_handle(2);
      request.set_source_address(address);
      request.set_ticket(ticket->ticket());
      ExpectError(node->client->Call<v1::PullTensorResponse>("PullTensor", request),
                  Code::kPermissionDenied, {"--peers"});
      v1::CheckPeerRequest check;
      check.set_address(address);
      const auto checked = node->client->Call<v1::CheckPeerResponse>("CheckPeer", check);
      ASSERT_TRUE(checked.ok()) << checked.status();
      EXPECT_EQ(checked->code(), static_cast<int>(Code::kPermissionDenied));
    }
    EXPECT_EQ(node->Upload(2)->received_bytes(), 0) << "still promised";
  }
  EXPECT_EQ(proxy->stats().accepted, 0);
}

// The copy can't end before the upload of its source, so each cut hits it.
TEST_F(PullTest, ResumesAfterConnectionsAreCut) {
  PartialUpload upload(a_, 1, kLarge, Pattern(32 << 20));
  const auto proxy = ProxyTo(a_);
  auto pulled = b_.PullAsync(2, kLarge, a_, Ticket(1), proxy->address());
  for (int64_t cut = 1; cut <= 3; ++cut) {
    const int64_t passed = proxy->stats().bytes_to_client;
    upload.SendTo(cut * (8 << 20));
    ASSERT_TRUE(proxy->Await(
        [=](const auto& stats) { return stats.bytes_to_client > passed + (6 << 20); }));
    proxy->CutAll();
  }
  ASSERT_TRUE(upload.Finish().ok());
  const auto outcome = pulled.get();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_GE(outcome->resumptions(), 1);
  EXPECT_EQ(outcome->bytes(), 32 << 20) << "bytes that have arrived aren't received again";
  EXPECT_TRUE(*b_.Bytes(2) == upload.bytes());
}

TEST_F(PullTimeoutTest, LostSourceKeepsThePromise) {
  PartialUpload to_source(a_, 1, kLarge, Pattern(32 << 20));
  const auto proxy = ProxyTo(a_);
  b_.Promise(2, kLarge);
  auto pulled = b_.PullAsync(2, kLarge, a_, Ticket(1), proxy->address());
  to_source.SendTo(24 << 20);
  ASSERT_TRUE(proxy->Await([](const auto& stats) { return stats.bytes_to_client > (16 << 20); }));
  a_.daemon->Signal(SIGKILL);
  ExpectError(pulled.get(), Code::kUnavailable, {proxy->address(), "2 s"});
  const auto upload = b_.Upload(2);
  ASSERT_TRUE(upload.ok()) << upload.status();
  EXPECT_FALSE(upload->done());
  EXPECT_GT(upload->received_bytes(), 4 << 20);
  // The test uploads the rest.
  ASSERT_TRUE(b_.UploadBytes(2, kLarge, to_source.bytes(), upload->received_bytes()).ok());
  EXPECT_TRUE(*b_.Bytes(2) == to_source.bytes());
}

TEST_F(PullTimeoutTest, UnreachableSourceFailsInTime) {
  a_.Random(1, 1 << 20);
  const auto proxy = ProxyTo(a_);
  const std::string address = proxy->address();
  proxy->SetAccepting(false);
  b_.Promise(2, kMillion);
  ExpectError(b_.Pull(2, kMillion, a_, Ticket(1), address), Code::kUnavailable, {address, "2 s"});
  EXPECT_EQ(b_.Upload(2)->received_bytes(), 0);
  proxy->SetAccepting(true);
  EXPECT_TRUE(b_.Pull(2, kMillion, a_, Ticket(1), address).ok());
}

TEST_F(PullTest, RepeatedPullReturnsTheSameOutcome) {
  a_.Random(1, 1 << 20);
  const auto proxy = ProxyTo(a_);
  proxy->SetHeld(Direction::kToClient, true);
  const std::string ticket = Ticket(1);
  std::vector<std::future<absl::StatusOr<v1::PullTensorResponse>>> asked;
  for (int i = 0; i < 3; ++i) {
    asked.push_back(b_.PullAsync(2, kMillion, a_, ticket, proxy->address()));
  }
  // This client cancels its call, as after a broken connection. The pull continues.
  ASSERT_TRUE(proxy->Await([](const auto& stats) { return stats.accepted == 1; }));
  const auto hasty = std::make_unique<RpcClient>(b_.address());
  hasty->set_deadline_seconds(0.2);
  ExpectError(hasty->Call<v1::PullTensorResponse>(
                  "PullTensor", b_.PullRequest(2, kMillion, a_, ticket, proxy->address())),
              Code::kDeadlineExceeded);
  proxy->SetHeld(Direction::kToClient, false);
  for (auto& answer : asked) {
    const auto pulled = answer.get();
    ASSERT_TRUE(pulled.ok()) << pulled.status();
    EXPECT_EQ(pulled->bytes(), 4 << 20);
  }
  const auto again = b_.Pull(2, kMillion, a_, ticket, proxy->address());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->bytes(), 4 << 20);
  EXPECT_EQ(proxy->stats().accepted, 1);
}

TEST_F(PullTest, DroppingTheHandleEndsItsPull) {
  a_.Promise(1, kMillion);  // never fulfilled
  b_.Promise(2, kMillion);
  const auto proxy = ProxyTo(a_);
  auto pulled = b_.PullAsync(2, kMillion, a_, Ticket(1), proxy->address());
  ASSERT_TRUE(proxy->Await([](const auto& stats) { return stats.bytes_to_client > 0; }));
  v1::Command drop;
  drop.mutable_drop()->add_handles(2);
  const uint64_t dropped = b_.Command(drop);
  ExpectError(b_.session->Get(2, dropped), Code::kNotFound);
  EXPECT_FALSE(pulled.get().ok());
}

TEST_F(PullTest, APullEndsWithItsSession) {
  a_.Promise(1, kMillion);
  auto pulled = b_.PullAsync(2, kMillion, a_, Ticket(1));
  ASSERT_TRUE(Eventually([&] { return b_.session->List()->tensors_size() == 1; }));
  ASSERT_TRUE(b_.session->Close().ok());
  EXPECT_FALSE(pulled.get().ok());
}

// If the destination didn't release the ticket, the ticket would hold its tensor for a minute.
class TicketReleaseTest : public PullTest {
 protected:
  // Starts the copy of a tensor that never gets data. The source may issue only one ticket at a
  // time, and the copy uses it.
  void SetUp() override {
    source_.Promise(1, kMillion);
    b_.Promise(2, kMillion);
    proxy_ = ProxyTo(source_);
    const auto ticket = source_.Ticket(1, b_);
    ASSERT_TRUE(ticket.ok()) << ticket.status();
    pulled_ = b_.PullAsync(2, kMillion, source_, ticket->ticket(), proxy_->address());
    ASSERT_TRUE(proxy_->Await([](const auto& stats) { return stats.bytes_to_client > 0; }));
    ExpectError(source_.Ticket(1, b_), Code::kResourceExhausted, {"--max-tickets-per-principal=1"});
  }

  void ExpectReleased() {
    EXPECT_FALSE(pulled_.get().ok());
    EXPECT_TRUE(Eventually([this] { return source_.Ticket(1, b_).ok(); }));
  }

  Node source_{{Node::kAnyPeer, "--max-tickets-per-principal=1"}, {}, {kNoSharedMemory}};
  std::unique_ptr<DelayProxy> proxy_;
  std::future<absl::StatusOr<v1::PullTensorResponse>> pulled_;
};

TEST_F(TicketReleaseTest, DroppingTheCopyFreesItsTicket) {
  v1::Command drop;
  drop.mutable_drop()->add_handles(2);
  b_.Command(drop);
  ExpectReleased();
}

TEST_F(TicketReleaseTest, EndOfTheSessionFreesItsTickets) {
  ASSERT_TRUE(b_.session->Close().ok());
  ExpectReleased();
}

// While the destination pauses before it calls again, there is no call that it could cancel.
TEST_F(TicketReleaseTest, DroppingTheCopyAfterABrokenConnectionFreesItsTicket) {
  proxy_->CutAll();
  v1::Command drop;
  drop.mutable_drop()->add_handles(2);
  b_.Command(drop);
  ExpectReleased();
}

TEST_F(PullTest, DroppingAPartlyReceivedCopyEndsItsPull) {
  a_.Promise(1, kMillion);
  b_.Promise(2, kMillion);
  auto pulled = b_.PullAsync(2, kMillion, a_, Ticket(1));
  auto write = a_.client->Write();
  ASSERT_TRUE(write->Send(a_.FirstWrite(1, kMillion)));
  v1::WriteRequest half;
  half.set_data(std::string(2 << 20, 'x'));
  ASSERT_TRUE(write->Send(half));
  ASSERT_TRUE(Eventually([&] { return UsedBytes(*b_.client, "cpu:0") > 0; }));
  v1::Command drop;
  drop.mutable_drop()->add_handles(2);
  b_.Command(drop);
  EXPECT_FALSE(pulled.get().ok());
  EXPECT_TRUE(Eventually([&] { return UsedBytes(*b_.client, "cpu:0") == 0; }));
}

// GetUpload ends an active pull, as it ends an active Write. The client can then upload the rest.
TEST_F(PullTest, GetUploadEndsTheActivePull) {
  a_.Promise(1, {DType::kFloat32, {2}});
  b_.Promise(2, {DType::kFloat32, {2}});
  const auto proxy = ProxyTo(a_);
  auto pulled = b_.PullAsync(2, {DType::kFloat32, {2}}, a_, Ticket(1), proxy->address());
  ASSERT_TRUE(proxy->Await([](const auto& stats) { return stats.bytes_to_client > 0; }));
  EXPECT_EQ(b_.Upload(2)->received_bytes(), 0);
  ExpectError(pulled.get(), Code::kUnavailable, {"broken off"});
  v1::WriteRequest write = b_.FirstWrite(2, {DType::kFloat32, {2}});
  write.set_data(std::string(8, '\0'));
  auto call = b_.client->Write();
  ASSERT_TRUE(call->Send(write));
  ASSERT_TRUE(call->Finish().ok());
  EXPECT_THAT(*b_.session->ReadFloats(2), testing::ElementsAre(0, 0));
}

TEST_F(PullTest, DrainFinishesActivePulls) {
  a_.Random(1, 8 << 20);
  const auto proxy = ProxyTo(a_, 32 << 20);
  auto pulled = b_.PullAsync(2, kLarge, a_, Ticket(1), proxy->address());
  ASSERT_TRUE(proxy->Await([](const auto& stats) { return stats.bytes_to_client > (4 << 20); }));
  b_.daemon->ExpectTerminatesCleanly();
  const auto outcome = pulled.get();
  EXPECT_TRUE(outcome.ok()) << outcome.status();
}

// Server c copies from b while b still copies from a. Server b forwards the bytes that it has.
TEST_F(PullTest, ChainForwardsReceivedBytes) {
  Node c;
  a_.Random(1, 8 << 20);
  const auto to_a = ProxyTo(a_, 64 << 20);
  const auto to_b = ProxyTo(b_);
  b_.Promise(2, kLarge);
  auto third = c.PullAsync(3, kLarge, b_, b_.Ticket(2, c)->ticket(), to_b->address());
  auto second = b_.PullAsync(2, kLarge, a_, Ticket(1), to_a->address());
  ASSERT_TRUE(to_a->Await([](const auto& stats) { return stats.bytes_to_client > (8 << 20); }));
  to_a->SetHeld(Direction::kToClient, true);
  EXPECT_TRUE(to_b->Await([](const auto& stats) { return stats.bytes_to_client > (4 << 20); }));
  to_a->SetHeld(Direction::kToClient, false);
  ASSERT_TRUE(second.get().ok());
  const auto outcome = third.get();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(*c.Bytes(3), *a_.Bytes(1));
}

TEST_F(PullTest, ForwardsAnActiveUpload) {
  const std::string bytes(4 << 20, 'x');
  a_.Promise(1, kMillion);
  const auto proxy = ProxyTo(a_);
  auto pulled = b_.PullAsync(2, kMillion, a_, Ticket(1), proxy->address());
  auto write = a_.client->Write();
  ASSERT_TRUE(write->Send(a_.FirstWrite(1, kMillion)));
  v1::WriteRequest half;
  half.set_data(bytes.substr(0, 2 << 20));
  ASSERT_TRUE(write->Send(half));
  ASSERT_TRUE(proxy->Await([](const auto& stats) { return stats.bytes_to_client > (2 << 20); }));
  half.set_offset(2 << 20);
  ASSERT_TRUE(write->Send(half));
  ASSERT_TRUE(write->Finish().ok());
  ASSERT_TRUE(pulled.get().ok());
  EXPECT_EQ(*b_.Bytes(2), bytes);
}

TEST_F(PullTest, FailedUploadFailsItsCopy) {
  a_.Promise(1, kMillion);
  const auto proxy = ProxyTo(a_);
  auto pulled = b_.PullAsync(2, kMillion, a_, Ticket(1), proxy->address());
  auto write = a_.client->Write();
  ASSERT_TRUE(write->Send(a_.FirstWrite(1, kMillion)));
  v1::WriteRequest all;
  all.set_data(std::string(4 << 20, 'x'));
  ASSERT_TRUE(write->Send(all));
  ASSERT_TRUE(proxy->Await([](const auto& stats) { return stats.bytes_to_client > (3 << 20); }));
  all.set_offset(4 << 20);
  write->Send(all);
  ExpectError(write->Finish(), Code::kInvalidArgument);
  ExpectError(pulled.get(), Code::kInvalidArgument, {"4194304"});
}

TEST_F(PullTest, ErrorsNameTheLimits) {
  Node few({Node::kAnyPeer, "--max-tickets-per-principal=2", "--max-pulls-per-principal=1"});
  few.Promise(1, kMillion);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(few.Ticket(1, b_).ok());
  ExpectError(few.Ticket(1, b_), Code::kResourceExhausted, {"--max-tickets-per-principal=2"});
  a_.Promise(1, kMillion);
  const std::string ticket = a_.Ticket(1, few)->ticket();
  auto pulled = few.PullAsync(2, kMillion, a_, ticket);
  ASSERT_TRUE(Eventually([&] { return few.session->List()->tensors_size() == 2; }));
  ASSERT_TRUE(Eventually([&] {
    return few.Pull(3, kMillion, a_, ticket).status().code() == Code::kResourceExhausted;
  }));
  a_.FailPromise(1, Code::kAborted, "");
  EXPECT_FALSE(pulled.get().ok());
}

}  // namespace
}  // namespace tensord::integration
