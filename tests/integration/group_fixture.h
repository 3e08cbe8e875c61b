// Four daemons, each with a session, and groups of their devices.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/tests/integration/daemon_fixture.h"

namespace tensord::integration {

// Calls `call(rank)` for all ranks at once. Returns the results, by rank.
template <typename Call>
auto AtOnce(int ranks, const Call& call) {
  using Result = decltype(call(0));
  std::vector<std::future<Result>> futures;
  for (int rank = 0; rank < ranks; ++rank) {
    futures.push_back(std::async(std::launch::async, [&call, rank] { return call(rank); }));
  }
  std::vector<Result> results;
  for (auto& future : futures) results.push_back(future.get());
  return results;
}

// A daemon, a client of it and a session.
struct ClusterServer {
  std::unique_ptr<DaemonProcess> daemon;
  std::unique_ptr<RpcClient> client;
  std::unique_ptr<RpcSession> session;
};

struct GroupOptions {
  uint32_t member = 1;  // the member's number in each session
  int size = 4;
  int64_t timeout_ms = 60000;
  std::string id = "0123456789abcdef";
};

class GroupFixture : public testing::Test {
 protected:
  static constexpr int kServers = 4;

  explicit GroupFixture(std::vector<std::string> flags = {}) : flags_(std::move(flags)) {
    flags_.push_back("--devices=cpu=128MiB");
  }

  void SetUp() override {
    servers_.resize(kServers);
    for (int rank = 0; rank < kServers; ++rank) Restart(rank);
  }

  // Expects that each daemon that still runs exits with 0.
  void TearDown() override {
    for (ClusterServer& server : servers_) {
      if (server.daemon == nullptr || !server.daemon->running()) continue;
      server.session.reset();
      server.client.reset();
      server.daemon->ExpectTerminatesCleanly();
    }
  }

  void Restart(int rank) {
    ClusterServer& server = servers_[rank];
    server = {};
    auto daemon = DaemonProcess::Start(flags_);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    server.daemon = *std::move(daemon);
    server.client = std::make_unique<RpcClient>(server.daemon->address());
    server.session = std::make_unique<RpcSession>(*server.client);
    ASSERT_FALSE(server.session->id().empty());
  }

  RpcSession& session(int rank) { return *servers_[rank].session; }
  RpcClient& client(int rank) { return *servers_[rank].client; }

  absl::StatusOr<std::string> Join(int rank, const GroupOptions& options = {}) {
    v1::JoinGroupRequest request;
    request.set_session(session(rank).id());
    request.set_member(options.member);
    request.set_device("cpu:0");
    request.set_rank(rank);
    request.set_size(options.size);
    request.set_timeout_milliseconds(options.timeout_ms);
    request.set_group_id(options.id);
    const auto joined = client(rank).Call<v1::JoinGroupResponse>("JoinGroup", request);
    if (!joined.ok()) return joined.status();
    EXPECT_EQ(joined->backend(), "gloo");
    return joined->address();
  }

  absl::Status Connect(int rank, const std::vector<std::string>& addresses, uint32_t member = 1) {
    v1::ConnectGroupRequest request;
    request.set_session(session(rank).id());
    request.set_member(member);
    for (const std::string& address : addresses) request.add_addresses(address);
    return client(rank).Call<v1::ConnectGroupResponse>("ConnectGroup", request).status();
  }

  absl::Status Leave(int rank, uint32_t member = 1) {
    v1::LeaveGroupRequest request;
    request.set_session(session(rank).id());
    request.set_member(member);
    return client(rank).Call<v1::LeaveGroupResponse>("LeaveGroup", request).status();
  }

  std::vector<std::string> JoinAll(const GroupOptions& options = {}) {
    std::vector<std::string> addresses;
    for (int rank = 0; rank < options.size; ++rank) {
      const absl::StatusOr<std::string> address = Join(rank, options);
      EXPECT_TRUE(address.ok()) << address.status();
      addresses.push_back(address.value_or(""));
    }
    return addresses;
  }

  void MakeGroup(const GroupOptions& options = {}) {
    const std::vector<std::string> addresses = JoinAll(options);
    for (const absl::Status& connected :
         AtOnce(options.size, [&](int rank) { return Connect(rank, addresses, options.member); })) {
      ASSERT_TRUE(connected.ok()) << connected;
    }
  }

  // Returns a command for member 1 of a session.
  static v1::Collective Op(v1::CollectiveKind kind, const TensorSpec& spec, uint64_t input,
                           uint64_t output, v1::Reduction reduction = v1::REDUCTION_SUM) {
    v1::Collective op;
    op.set_member(1);
    op.set_kind(kind);
    op.set_reduction(reduction);
    op.set_input(input);
    op.set_output(output);
    *op.mutable_spec() = ToProto(spec);
    return op;
  }
  static v1::Collective Barrier(uint64_t output) {
    v1::Collective op;
    op.set_member(1);
    op.set_kind(v1::COLLECTIVE_KIND_BARRIER);
    op.set_output(output);
    return op;
  }

  absl::StatusOr<v1::Tensor> Run(int rank, const v1::Collective& op) {
    v1::RunCollectiveRequest request;
    request.set_session(session(rank).id());
    *request.mutable_collective() = op;
    return client(rank).Call<v1::Tensor>("RunCollective", request);
  }

  // Runs `op` at all ranks at once.
  std::vector<absl::StatusOr<v1::Tensor>> RunAll(const v1::Collective& op, int ranks = kServers) {
    return AtOnce(ranks, [&](int rank) { return Run(rank, op); });
  }

  // Creates float32 tensor `handle` in every session. Its elements are value + rank.
  void CreateAll(uint64_t handle, const std::vector<float>& values) {
    for (int rank = 0; rank < kServers; ++rank) {
      std::vector<float> own = values;
      for (float& value : own) value += static_cast<float>(rank);
      const auto made = session(rank).CreateFloats(handle, own);
      ASSERT_TRUE(made.ok()) << made.status();
    }
  }

  std::vector<std::string> flags_;
  std::vector<ClusterServer> servers_;
};

}  // namespace tensord::integration
