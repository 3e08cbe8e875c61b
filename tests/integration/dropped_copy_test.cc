// Copies between servers that the program drops, or whose source it donates, before they have
// ended.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tensord/tests/integration/cluster_fixture.h"
#include "tensord/tests/integration/metrics_fixture.h"
#include "tensord/tests/proxy/delay_proxy.h"

namespace tensord::integration {
namespace {

using proxy::DelayProxy;
using proxy::Direction;
using testing::ElementsAre;

// Runs an op of one input, which it donates.
Tensor DonateTo(absl::string_view op, const Tensor& input) {
  const auto outputs = RunOpWithOutputs(op, {input}, {}, {.donate = {0}});
  EXPECT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_EQ(input.status().code(), absl::StatusCode::kFailedPrecondition);
  return (*outputs)[0];
}

// Server 0 is the source and server 1 the destination. The tensor at the source is itself a copy
// from server 2, which doesn't begin before BeginSource: the client gets no answers from server 2.
class DroppedCopyTest : public ClusterFixture {
 protected:
  explicit DroppedCopyTest(std::vector<std::string> flags = {"--peers=127.0.0.1:*",
                                                             "--max-tickets-per-principal=1"})
      : ClusterFixture(3, std::move(flags)) {}

  std::vector<std::string> FlagsOf(int server) const override {
    std::vector<std::string> flags = flags_;
    if (server != 0) return flags;
    flags.push_back("--metrics-listen=127.0.0.1:0");
    flags.push_back("--metrics-port-file=" + folder_.File("metrics"));
    return flags;
  }

  void SetUp() override {
    ClusterFixture::SetUp();
    ASSERT_FALSE(HasFatalFailure());
    auto proxy = DelayProxy::Start({.target = addresses_[2]});
    ASSERT_TRUE(proxy.ok()) << proxy.status();
    proxy_ = *std::move(proxy);
    Connect({addresses_[0], addresses_[1], proxy_->address()});
    const Tensor origin = FromVector<float>(On(2), {1, 2, 3});
    ASSERT_TRUE(origin.Wait().ok());
    proxy_->SetHeld(Direction::kToClient, true);
    source_ = origin.To(On(0));
  }

  void TearDown() override { BeginSource(); }

  void BeginSource() { proxy_->SetHeld(Direction::kToClient, false); }

  // Waits until a metric of the source isn't 0.
  void AwaitMetric(const std::string& series) {
    std::string address;
    std::getline(std::ifstream(folder_.File("metrics")), address);
    EXPECT_TRUE(Eventually([&] {
      return ParseSamples(HttpRequest(address, "GET /metrics").body)[series] > 0;
    })) << series;
  }
  // Waits until the source has accepted a ticket: it has then sent the tensor's spec.
  void AwaitFetch() {
    AwaitMetric("tensord_principal_sent_bytes_total{principal=\"(anonymous)\",transfer=\"bulk\"}");
  }
  // Waits until the destination has released a ticket.
  void AwaitRelease() {
    AwaitMetric("tensord_calls_total{method=\"tensord.v1.PeerService/ReleaseTicket\",code=\"OK\"}");
  }

  // Waits until the client has this number of handles at the destination. Asks by another session,
  // because the client's own session would first wait for the copies.
  void ExpectHandles(size_t count) {
    const auto client = Client::Connect(addresses_[1]);
    ASSERT_TRUE(client.ok()) << client.status();
    EXPECT_TRUE(Eventually([&] { return client->ListAllTensors()->size() == count; }));
  }

  // Expects that the destination reports no error of the dropped copy to the client.
  void ExpectNoError() {
    Client destination = cluster_.servers()[1].client;
    const absl::Status status = destination.Synchronize();
    EXPECT_TRUE(status.ok()) << status;
  }

  // Requests a ticket for another tensor of the source, and revokes it.
  absl::Status RequestTicket() {
    RpcClient client(addresses_[0]);
    RpcSession session(client);
    EXPECT_TRUE(session.Ones(1, {1}, TestDevice(0)).ok());
    v1::CreateTicketRequest request;
    request.set_session(session.id());
    request.set_handle(1);
    request.set_destination_epoch("another server");
    const absl::Status status = client.Call<v1::Ticket>("CreateTicket", request).status();
    EXPECT_TRUE(session.Close().ok());
    return status;
  }

  TestFolder folder_;
  std::unique_ptr<DelayProxy> proxy_;
  Tensor source_;
};

// The source may issue only one ticket at a time, and the copy uses it.
TEST_F(DroppedCopyTest, FreesItsTicket) {
  Tensor copy = source_.To(On(1));
  AwaitFetch();
  ExpectError(RequestTicket(), absl::StatusCode::kResourceExhausted,
              {"--max-tickets-per-principal=1"});
  copy = Tensor();
  AwaitRelease();
  ExpectHandles(0);
  EXPECT_TRUE(RequestTicket().ok());
  ExpectNoError();
}

// The program drops the copy before the destination fetches it.
TEST_F(DroppedCopyTest, FreesItsTicketIfItIsDroppedAtOnce) {
  source_.To(On(1));
  AwaitRelease();
  ExpectHandles(0);
  EXPECT_TRUE(RequestTicket().ok());
  ExpectNoError();
}

TEST_F(DroppedCopyTest, ContinuesIfAnOpUsesIt) {
  Tensor copy = source_.To(On(1));
  const Tensor sum = copy + 1.0;
  AwaitFetch();
  copy = Tensor();
  BeginSource();
  EXPECT_THAT(*sum.Read<float>(), ElementsAre(2, 3, 4));
}

// The source is a running copy itself. It is donated before and after the destination has begun to
// fetch it.
TEST_F(DroppedCopyTest, ContinuesIfItsSourceIsDonated) {
  Tensor early = source_.To(On(1));
  const Tensor negative = DonateTo("neg", std::exchange(source_, Tensor()));
  AwaitFetch();
  BeginSource();
  EXPECT_THAT(*early.Read<float>(), ElementsAre(1, 2, 3));
  EXPECT_THAT(*negative.Read<float>(), ElementsAre(-1, -2, -3));
  EXPECT_TRUE(early.copy_report().ok());
}

TEST_F(DroppedCopyTest, ContinuesIfItsSourceIsDonatedWhileItIsFetched) {
  Tensor copy = source_.To(On(1));
  AwaitFetch();
  const Tensor negative = DonateTo("neg", std::exchange(source_, Tensor()));
  BeginSource();
  EXPECT_THAT(*copy.Read<float>(), ElementsAre(1, 2, 3));
  EXPECT_THAT(*negative.Read<float>(), ElementsAre(-1, -2, -3));
}

TEST_F(DroppedCopyTest, FreesTheDonatedSourceWhenTheCopyHasEnded) {
  {
    const Tensor copy = source_.To(On(1));
    DonateTo("neg", std::exchange(source_, Tensor()));
    BeginSource();
    EXPECT_TRUE(copy.copy_report().ok());
  }
  EXPECT_TRUE(Eventually([&] {
    const auto client = Client::Connect(addresses_[0]);
    return client.ok() && client->ListAllTensors()->empty();
  }));
}

// The destination is reached through a proxy, which cuts the connection before the answer that the
// copy has ended. The client requests the copy again. By then, an op has used the copy, which was
// donated to it.
class DonatedCopyTest : public ClusterFixture {
 protected:
  void SetUp() override {
    ClusterFixture::SetUp();
    ASSERT_FALSE(HasFatalFailure());
    auto proxy = DelayProxy::Start({.target = addresses_[1]});
    ASSERT_TRUE(proxy.ok()) << proxy.status();
    proxy_ = *std::move(proxy);
    Connect({addresses_[0], proxy_->address()});
  }

  std::unique_ptr<DelayProxy> proxy_;
};

TEST_F(DonatedCopyTest, LostAnswerLeavesNoTensor) {
  const Tensor origin = FromVector<float>(On(0), {1, 2, 3});
  ASSERT_TRUE(origin.Wait().ok());
  proxy_->SetCallFault({.position = {.method = "/tensord.v1.TensorService/PullTensor",
                                     .direction = Direction::kToClient}});
  {
    Tensor copy = origin.To(On(1));
    const Tensor negative = DonateTo("neg", std::exchange(copy, Tensor()));
    EXPECT_THAT(*negative.Read<float>(), ElementsAre(-1, -2, -3));
  }
  const auto client = Client::Connect(addresses_[1]);
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_TRUE(Eventually([&] { return client->ListAllTensors()->empty(); }));
  EXPECT_THAT(*origin.To(On(1)).Read<float>(), ElementsAre(1, 2, 3));
}

// The servers fetch nothing from each other, so the copies go through the client.
class DroppedRelayTest : public DroppedCopyTest {
 protected:
  DroppedRelayTest() : DroppedCopyTest({}) {}

  void AwaitRelays(int64_t count) {
    const Client destination = cluster_.servers()[1].client;
    EXPECT_TRUE(Eventually([&] { return destination.stats().copies_relayed == count; }));
  }
};

TEST_F(DroppedRelayTest, FreesItsHandle) {
  Tensor copy = source_.To(On(1));
  AwaitRelays(1);
  ExpectHandles(1);
  copy = Tensor();
  ExpectHandles(0);
  ExpectNoError();
}

TEST_F(DroppedRelayTest, ContinuesIfItsSourceIsDonated) {
  const Tensor copy = source_.To(On(1));
  AwaitRelays(1);
  const Tensor negative = DonateTo("neg", std::exchange(source_, Tensor()));
  BeginSource();
  EXPECT_THAT(*copy.Read<float>(), ElementsAre(1, 2, 3));
  EXPECT_THAT(*negative.Read<float>(), ElementsAre(-1, -2, -3));
}

TEST_F(DroppedRelayTest, ContinuesIfTheServerUsesIt) {
  const auto add_one = [](absl::Span<const Tensor> x) { return std::vector<Tensor>{x[0] + 1.0}; };
  const auto program = Program::Record(On(1), {source_.spec()}, add_one);
  ASSERT_TRUE(program.ok()) << program.status();
  const auto group = Group::Create({On(1), *cluster_.device(3)});
  ASSERT_TRUE(group.ok()) << group.status();
  const std::vector<std::function<Tensor(const Tensor&)>> uses = {
      [](const Tensor& x) { return x + 1.0; },
      [&](const Tensor& x) { return program->Run({x})[0]; },
      [&](const Tensor& x) {
        const auto captures = Program::Record(
            On(1), {}, [&](absl::Span<const Tensor>) { return std::vector<Tensor>{x + 1.0}; });
        return captures->Run({})[0];
      },
      [&](const Tensor& x) { return x.To(*cluster_.device(3)) + 1.0; },
      [&](const Tensor& x) { return group->Broadcast(x)[0] + 1.0; },
  };
  std::vector<Tensor> results;
  for (const auto& use : uses) results.push_back(use(source_.To(On(1))));
  AwaitRelays(static_cast<int64_t>(uses.size()));
  BeginSource();
  for (const Tensor& result : results) {
    const auto values = result.Read<float>();
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_THAT(*values, ElementsAre(2, 3, 4));
  }
}

}  // namespace
}  // namespace tensord::integration
