// The metrics of a daemon after its callers have used it.
#include <gmock/gmock.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tensord/tests/integration/metrics_fixture.h"

namespace tensord::integration {
namespace {

using testing::AllOf;
using testing::Ge;
using testing::HasSubstr;
using testing::Le;

std::string Calls(const std::string& method, const std::string& code) {
  return absl::StrCat("tensord_calls_total{method=\"tensord.v1.TensorService/", method,
                      "\",code=\"", code, "\"}");
}

// Returns a series of alice, or one of her series on a device.
std::string Alices(const std::string& name, const std::string& more = "") {
  return absl::StrCat("tensord_principal_", name, "{principal=\"alice\"", more, "}");
}

class MetricsTest : public MetricsFixture {
 protected:
  void SetUp() override {
    MetricsFixture::SetUp();
    alice_ = std::make_unique<RpcClient>(daemon_->address(), RpcCredentials{.token = "a"});
    session_ = std::make_unique<RpcSession>(*alice_);
    ASSERT_FALSE(session_->id().empty());
  }
  void TearDown() override {
    session_.reset();
    alice_.reset();
    MetricsFixture::TearDown();
  }

  std::unique_ptr<RpcClient> alice_;
  std::unique_ptr<RpcSession> session_;
};

TEST_F(MetricsTest, CountsCallsByMethodAndCode) {
  const std::string add_time = "{method=\"tensord.v1.TensorService/Add\"}";
  EXPECT_EQ(Value(Calls("Add", "OK")), 0);
  ASSERT_TRUE(session_->Ones(1, {4}).ok());
  ASSERT_TRUE(session_->Add(1, 1, 2).ok());
  EXPECT_FALSE(session_->Add(1, 99, 3).ok());
  EXPECT_FALSE(session_->Add(1, 1, 2).ok());
  Samples samples = Scrape();
  EXPECT_EQ(samples[Calls("Add", "OK")], 1);
  EXPECT_EQ(samples[Calls("Add", "NOT_FOUND")], 1);
  EXPECT_EQ(samples[Calls("Add", "ALREADY_EXISTS")], 1);
  EXPECT_EQ(samples["tensord_call_duration_seconds_count" + add_time], 3);
  EXPECT_GT(samples["tensord_call_duration_seconds_sum" + add_time], 0);
  EXPECT_EQ(samples["tensord_call_duration_seconds_bucket{method=\"tensord.v1.TensorService/Add\","
                    "le=\"+Inf\"}"],
            3);
}

TEST_F(MetricsTest, UnknownMethodsHaveOneLabel) {
  for (const char* path : {"/no.Such/Method", "/tensord.v1.TensorService/Sudo", "/x\"y/\nz"}) {
    alice_->CallAnyKind(path, "").IgnoreError();
  }
  EXPECT_TRUE(Eventually([&] {
    Samples samples = Scrape();
    return samples["tensord_calls_total{method=\"unknown\",code=\"UNIMPLEMENTED\"}"] >= 2;
  })) << Text();
  EXPECT_THAT(Text(), AllOf(testing::Not(HasSubstr("Sudo")), testing::Not(HasSubstr("no.Such"))));
}

TEST_F(MetricsTest, CountsMemoryHandlesAndSessionsOfACaller) {
  ASSERT_TRUE(session_->Ones(1, {1 << 20}, "cpu:1").ok());
  ASSERT_TRUE(session_->Ones(2, {1 << 10}, "cpu:0").ok());
  Samples samples = Scrape();
  EXPECT_EQ(samples[Alices("memory_bytes", ",device=\"cpu:1\"")], 4 << 20);
  EXPECT_EQ(samples[Alices("memory_bytes", ",device=\"cpu:0\"")], 4 << 10);
  EXPECT_EQ(samples[Alices("handles")], 2);
  EXPECT_EQ(samples[Alices("sessions")], 1);
  EXPECT_EQ(samples["tensord_sessions"], 1);
  EXPECT_EQ(samples["tensord_sessions_opened_total"], 1);
  EXPECT_EQ(samples["tensord_device_memory_used_bytes{device=\"cpu:1\"}"], 4 << 20);
  EXPECT_EQ(samples["tensord_device_memory_limit_bytes{device=\"cpu:1\"}"], 64 << 20);
  ASSERT_TRUE(session_->Close().ok());
  ExpectEventually(Alices("memory_bytes", ",device=\"cpu:1\""), 0);
  samples = Scrape();
  EXPECT_EQ(samples["tensord_device_memory_peak_bytes{device=\"cpu:1\"}"], 4 << 20);
  EXPECT_EQ(samples[Alices("handles")], 0);
  EXPECT_EQ(samples["tensord_sessions"], 0);
  EXPECT_EQ(samples["tensord_sessions_ended_total{reason=\"closed\"}"], 1);
}

// Bob holds a tensor that alice's closed session created.
TEST_F(MetricsTest, MemoryStaysWithTheCallerThatAllocatedIt) {
  ASSERT_TRUE(session_->Ones(1, {1 << 20}, "cpu:1").ok());
  v1::PublishTensorRequest publish;
  publish.set_session(session_->id());
  publish.set_handle(1);
  publish.set_name("weights");
  publish.add_principals("bob");
  ASSERT_TRUE(alice_->Call<v1::PublishTensorResponse>("PublishTensor", publish).ok());
  RpcClient bob(daemon_->address(), {.token = "b"});
  RpcSession bobs_session(bob);
  v1::OpenPublishedRequest open;
  open.set_session(bobs_session.id());
  open.set_output(1);
  open.set_name("weights");
  open.set_owner("alice");
  ASSERT_TRUE(bob.Call<v1::Tensor>("OpenPublished", open).ok());
  ASSERT_TRUE(session_->Close().ok());
  ExpectEventually("tensord_sessions", 1);
  Samples samples = Scrape();
  EXPECT_EQ(samples[Alices("memory_bytes", ",device=\"cpu:1\"")], 4 << 20);
  EXPECT_EQ(samples["tensord_principal_memory_bytes{principal=\"bob\",device=\"cpu:1\"}"], 0);
  ASSERT_TRUE(bobs_session.Delete({1}).ok());
  ExpectEventually(Alices("memory_bytes", ",device=\"cpu:1\""), 0);
}

TEST_F(MetricsTest, CountsRefusalsByReason) {
  EXPECT_FALSE(session_->Ones(1, {5 << 20}).ok());
  EXPECT_FALSE(session_->Ones(1, {5 << 20}).ok());
  EXPECT_EQ(Value(Alices("refusals_total", ",reason=\"SESSION_BYTES_EXCEEDED\"")), 2);
  // An error that sticks to a handle is one refusal, however often the handle is read.
  v1::SessionStreamRequest attach = session_->Attach();
  v1::Op* op = attach.add_commands()->mutable_op();
  op->set_name("ones");
  op->set_output(7);
  op->set_device("cpu:0");
  (*op->mutable_attrs())["shape"].mutable_ints()->add_values(5 << 20);
  attach.add_commands()->mutable_barrier()->set_barrier_id(1);
  ASSERT_TRUE(RunStream(*alice_, {attach}).ok());
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(session_->Read(7).ok());
  EXPECT_EQ(Value(Alices("refusals_total", ",reason=\"SESSION_BYTES_EXCEEDED\"")), 3);
}

// The server tries some ops of a batch twice.
TEST_F(MetricsTest, CountsARefusedOpOfABatchOnce) {
  constexpr int64_t kLimit = 16 << 20, kBytes = 4 << 10;
  ASSERT_TRUE(session_->Ones(1, {kBytes / 4}, "cpu:1").ok());
  ASSERT_TRUE(session_->Ones(2, {(kLimit - 2 * kBytes) / 4}, "cpu:1").ok());
  v1::SessionStreamRequest message = session_->Attach();
  AddDefinition(&message, 1, "neg", 1);
  v1::Batch& batch = *message.add_commands()->mutable_batch();
  for (uint64_t handle = 3; handle <= 5; ++handle) {
    batch.add_words(1);
    batch.add_words(handle == 3 ? handle : 1);
    batch.add_words(handle - 1);
  }
  ASSERT_TRUE(RunStream(*alice_, {message}).ok());
  EXPECT_TRUE(session_->Read(3).ok());  // it takes the rest of the limit
  for (const uint64_t handle : {4, 5}) EXPECT_FALSE(session_->Read(handle).ok());
  EXPECT_EQ(Value(Alices("refusals_total", ",reason=\"SESSION_BYTES_EXCEEDED\"")), 2);
}

TEST_F(MetricsTest, CountsBytesOfMessagesAndBulkData) {
  constexpr int64_t kBytes = 3 << 20;
  const TensorSpec spec{DType::kUInt8, {kBytes}};
  auto write = alice_->Write();
  v1::WriteRequest first = session_->FirstWrite(1, spec);
  first.set_data(std::string(kBytes, 'x'));
  ASSERT_TRUE(write->Send(first));
  ASSERT_TRUE(write->Finish().ok());
  auto read = alice_->Read(session_->ReadRequest(1));
  while (read->Next()) {
  }
  ASSERT_TRUE(read->Finish().ok());
  Samples samples = Scrape();
  const auto is_payload = AllOf(Ge(kBytes), Le(kBytes + 4096));
  EXPECT_THAT(samples[Alices("received_bytes_total", ",transfer=\"bulk\"")], is_payload);
  EXPECT_THAT(samples[Alices("sent_bytes_total", ",transfer=\"bulk\"")], is_payload);
  const double before = samples[Alices("received_bytes_total", ",transfer=\"message\"")];
  ASSERT_TRUE(session_->CreateFloats(2, std::vector<float>(10000)).ok());
  ASSERT_TRUE(session_->ReadFloats(2).ok());
  samples = Scrape();
  EXPECT_THAT(samples[Alices("received_bytes_total", ",transfer=\"message\"")] - before,
              AllOf(Ge(40000), Le(44000)));
  EXPECT_THAT(samples[Alices("sent_bytes_total", ",transfer=\"message\"")],
              AllOf(Ge(40000), Le(44000)));
}

TEST_F(MetricsTest, CountsTheTimeOfOpsForTheirCaller) {
  ASSERT_TRUE(session_->Ones(1, {1 << 18}).ok());
  Order("delay-kernel 20");
  for (uint64_t handle = 2; handle < 7; ++handle) {
    ASSERT_TRUE(session_->Run("sum", {1}, handle).ok());
  }
  // The last op is counted shortly after its answer.
  const std::string used = Alices("device_seconds_total", ",device=\"cpu:0\"");
  ASSERT_TRUE(Eventually([&] { return Value(used) >= 0.1; })) << Value(used);
  Samples samples = Scrape();
  EXPECT_GE(samples["tensord_device_busy_seconds_total{device=\"cpu:0\"}"], samples[used]);
  EXPECT_EQ(samples[Alices("device_seconds_total", ",device=\"cpu:1\"")], 0);
  EXPECT_EQ(samples["tensord_principal_device_seconds_total{principal=\"bob\",device=\"cpu:0\"}"],
            0);
  // Ops that run inline count, too.
  ASSERT_TRUE(session_->Ones(10, {4}, "cpu:1").ok());
  ASSERT_TRUE(session_->Add(10, 10, 11).ok());
  EXPECT_TRUE(
      Eventually([&] { return Value(Alices("device_seconds_total", ",device=\"cpu:1\"")) > 0; }));
}

TEST_F(MetricsTest, ScrapeDoesNotWaitForABusyDevice) {
  ASSERT_TRUE(session_->Ones(1, {1 << 18}).ok());
  Order("delay-kernel 3600000");
  auto stream = alice_->SessionStream();
  v1::SessionStreamRequest message = session_->Attach();
  for (uint64_t handle = 2; handle < 5; ++handle) {
    v1::Op* op = message.add_commands()->mutable_op();
    op->set_name("sum");
    op->add_inputs(1);
    op->set_output(handle);
  }
  ASSERT_TRUE(stream->Send(message));
  ExpectEventually("tensord_device_queued_tasks{device=\"cpu:0\"}", 3);
  EXPECT_EQ(Value("tensord_device_queued_tasks{device=\"cpu:1\"}"), 0);
  EXPECT_EQ(Value(Alices("handles")), 4);
  daemon_->Signal(SIGKILL);
  stream->Finish().IgnoreError();
  stream.reset();
  EXPECT_TRUE(daemon_->WaitForEnd().ok());
  daemon_.reset();
}

TEST_F(MetricsTest, CountsFaultsAndRestarts) {
  const std::string device = "{device=\"cpu:0\"}";
  const std::string serving = "tensord_device_state{device=\"cpu:0\",state=\"serving\"}";
  Samples samples = Scrape();
  EXPECT_EQ(samples[serving], 1);
  EXPECT_EQ(samples["tensord_device_faults_total" + device], 0);
  Order("no-return 1000000");
  Order("die");
  ExpectEventually(serving, 0);
  EXPECT_TRUE(Eventually([&] {
    Samples now = Scrape();
    return now["tensord_device_state{device=\"cpu:0\",state=\"lost\"}"] +
               now["tensord_device_state{device=\"cpu:0\",state=\"resetting\"}"] ==
           1;
  }));
  Order("clear");
  ExpectEventually(serving, 1);
  samples = Scrape();
  EXPECT_EQ(samples["tensord_device_faults_total" + device], 1);
  EXPECT_EQ(samples["tensord_device_restarts_total" + device], 1);
  EXPECT_EQ(samples["tensord_device_faults_total{device=\"cpu:1\"}"], 0);
}

TEST_F(MetricsTest, CountsAuthenticationFailuresButNoPublicHealthChecks) {
  const std::string failures = "tensord_authentication_failures_total{reason=";
  RpcClient anonymous(daemon_->address());
  EXPECT_TRUE(anonymous.Health("").ok());
  EXPECT_EQ(ListDevices(anonymous).status().code(), absl::StatusCode::kUnauthenticated);
  ExpectEventually(failures + "\"missing\"}", 1);
  EXPECT_FALSE(Ask("wrong").ok());
  ExpectEventually(failures + "\"invalid\"}", 1);
  EXPECT_EQ(Value(failures + "\"expired\"}"), 0);
  EXPECT_EQ(Value(Calls("ListDevices", "UNAUTHENTICATED")), 2);
}

TEST_F(MetricsTest, CountsConnectionsByState) {
  Samples samples = Scrape();
  EXPECT_EQ(samples["tensord_connections{state=\"admitted\"}"], 1);
  const double accepted = samples["tensord_connections_accepted_total"];
  {
    PlainConnection silent(daemon_->address());
    ASSERT_TRUE(silent.connected());
    ExpectEventually("tensord_connections{state=\"unadmitted\"}", 1);
    EXPECT_EQ(Value("tensord_connections_accepted_total"), accepted + 1);
  }
  ExpectEventually("tensord_connections{state=\"unadmitted\"}", 0);
}

TEST_F(MetricsTest, CountsConnectionsThatAdmissionCloses) {
  RpcClient anonymous(daemon_->address());
  EXPECT_TRUE(Eventually([&] {
    for (int i = 0; i < 20; ++i) ListDevices(anonymous).status().IgnoreError();
    return Value("tensord_connections_closed_total{reason=\"rejected_calls\"}") > 0;
  }));
  EXPECT_TRUE(ListDevices(*alice_).ok());
}

TEST_F(MetricsTest, AnonymousCallersHaveAReservedLabel) {
  session_.reset();
  alice_.reset();
  daemon_->ExpectTerminatesCleanly();
  StartWith({});
  RpcClient client(daemon_->address());
  RpcSession session(client);
  ASSERT_TRUE(session.Ones(1, {4}).ok());
  EXPECT_EQ(Value("tensord_principal_handles{principal=\"(anonymous)\"}"), 1);
}

// Connections that send nothing use up the connections of the metrics' HTTP server, and delay no
// calls.
TEST_F(MetricsTest, HostileScrapersDoNotDelayCalls) {
  std::vector<std::unique_ptr<PlainConnection>> silent;
  for (int i = 0; i < 60; ++i) {
    silent.push_back(std::make_unique<PlainConnection>(metrics_address_));
  }
  ASSERT_TRUE(session_->Ones(1, {4}).ok());
  EXPECT_TRUE(session_->Add(1, 1, 2).ok());
  RpcClient other(daemon_->address(), {.token = "b"});
  EXPECT_TRUE(ListDevices(other).ok());
  silent.clear();
  EXPECT_EQ(Value(Calls("Add", "OK")), 1);
}

TEST_F(MetricsTest, PromtoolAcceptsTheMetrics) {
  if (std::system("command -v promtool >/dev/null") != 0) {
    GTEST_SKIP() << "promtool isn't installed (Debian: prometheus)";
  }
  ASSERT_TRUE(session_->Ones(1, {4}).ok());
  EXPECT_FALSE(session_->Ones(2, {5 << 20}).ok());
  const std::string scraped = folder_.Write("scraped", Text());
  const std::string report = folder_.File("report");
  const int status =
      std::system(absl::StrCat("promtool check metrics <", scraped, " >", report, " 2>&1").c_str());
  std::string said;
  std::getline(std::ifstream(report), said, '\0');
  EXPECT_EQ(status, 0) << said;
}

TEST(MetricsFlagsTest, RefusesAddressesThatOtherMachinesCanReach) {
  std::string output;
  const auto refused = RunDaemon(
      {"--listen=127.0.0.1:0", "--metrics-listen=0.0.0.0:0", "--allow-insecure-remote"}, &output);
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_EQ(*refused, 1);
  EXPECT_THAT(output, HasSubstr("--metrics-allow-remote"));
}

TEST(MetricsFlagsTest, ReportsAnAddressThatIsInUse) {
  const auto daemon = DaemonProcess::Start({"--devices=cpu=64MiB"});
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  std::string output;
  const auto refused = RunDaemon(
      {"--listen=127.0.0.1:0", "--devices=cpu=64MiB", "--metrics-listen=" + (*daemon)->address()},
      &output);
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_EQ(*refused, 1);
  EXPECT_THAT(output, HasSubstr("can't serve metrics at " + (*daemon)->address()));
}

}  // namespace
}  // namespace tensord::integration
