// Every method of the service with every way in which a connection can fail it: the caller gets the
// right result or the error that is promised, the session lives on, and nothing is left behind.
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/tests/fault/call_cases.h"
#include "tensord/tests/integration/daemon_fixture.h"

namespace tensord::fault {
namespace {

using integration::DaemonFixture;
using integration::Eventually;
using integration::RpcSession;
using proxy::CallSpot;
using proxy::Direction;
using proxy::Trap;

// Faults mostly wait.
constexpr int kAtOnce = 12;
constexpr int kMaxSessions = 64;

bool Long() { return std::getenv("TENSORD_TEST_LONG") != nullptr; }

Fault Break(const CallSpot& spot, bool cut, bool all) {
  return {.name = absl::StrCat(cut ? "cut" : "half open", all ? ", all connections" : "", ", ",
                               spot.direction == Direction::kToServer ? "to server" : "to client",
                               " after ", spot.messages, " messages and ", spot.bytes, " bytes",
                               spot.at_end ? ", at the end" : ""),
          .trap = Trap{.spot = spot, .cut = cut, .all = all}};
}

// Before the request arrives and in the middle of it; when it has been answered, in the middle of
// that, and before the status.
const CallSpot kBefore = {.direction = Direction::kToServer};
const CallSpot kInRequest = {.direction = Direction::kToServer, .bytes = 40};
const CallSpot kAnswered = {.direction = Direction::kToClient};
const CallSpot kInAnswer = {.direction = Direction::kToClient, .bytes = 15};
const CallSpot kBeforeStatus = {.direction = Direction::kToClient, .messages = 1};

class EveryCallTest : public DaemonFixture {
 protected:
  EveryCallTest() : DaemonFixture({absl::StrCat("--max-sessions-per-principal=", kMaxSessions)}) {}

  void SetUp() override {
    DaemonFixture::SetUp();
    descriptors_ = Descriptors();
  }

  int64_t Descriptors() const {
    const std::filesystem::directory_iterator open("/proc/" + std::to_string(daemon_->pid()) +
                                                   "/fd");
    return std::distance(begin(open), end(open));
  }

  struct Job {
    CallCase call;
    Fault fault;
    bool must_spring = true;
  };

  // Runs them, some at a time. How many of the traps have sprung.
  int Run(const std::vector<Job>& jobs) {
    std::atomic<size_t> next{0};
    std::atomic<int> all_sprung{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < kAtOnce; ++t) {
      threads.emplace_back([&] {
        for (size_t i = next++; i < jobs.size(); i = next++) {
          const Job& job = jobs[i];
          bool sprung = false;
          const absl::Status status = RunCase(daemon_->address(), job.call, job.fault, &sprung);
          EXPECT_TRUE(status.ok()) << job.call.method << ": " << job.fault.name << ": " << status;
          EXPECT_TRUE(sprung || !job.must_spring || !job.fault.trap || !status.ok())
              << job.call.method << ": " << job.fault.name << ": it never came to that";
          all_sprung += sprung ? 1 : 0;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return all_sprung;
  }

  // Sessions that can be opened besides the fixture's own.
  int FreeSessions() {
    std::vector<std::unique_ptr<RpcSession>> sessions;
    while (true) {
      sessions.push_back(std::make_unique<RpcSession>(*client_, /*lease_seconds=*/1));
      if (sessions.back()->id().empty()) break;
    }
    sessions.pop_back();
    for (const auto& session : sessions) EXPECT_TRUE(session->Close().ok());
    return static_cast<int>(sessions.size());
  }

  void ExpectNothingLeft() {
    EXPECT_TRUE(Eventually([&] { return FreeSessions() == kMaxSessions - 1; }))
        << kMaxSessions - 1 - FreeSessions() << " sessions";
    EXPECT_TRUE(Eventually([&] { return Used(0) == 0 && Used(1) == 0; }))
        << Used(0) << " and " << Used(1) << " bytes";
    EXPECT_TRUE(Eventually([&] { return Descriptors() <= descriptors_; }))
        << Descriptors() << " descriptors instead of " << descriptors_;
    v1::ListTensorsRequest all;
    all.set_session("-");
    const auto tensors = client_->Call<v1::ListTensorsResponse>("ListTensors", all);
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    EXPECT_EQ(tensors->tensors_size(), 0) << tensors->DebugString();
  }

  int64_t descriptors_ = 0;
};

TEST_F(EveryCallTest, EveryMethodHasItsCase) {
  std::set<std::string> have;
  for (const CallCase& call : CallCases()) have.insert(call.method);
  std::set<std::string> wanted;
  const auto* service = v1::ServerInfo::descriptor()->file()->FindServiceByName("TensorService");
  for (int i = 0; i < service->method_count(); ++i) wanted.insert(service->method(i)->name());
  EXPECT_EQ(have, wanted);
}

TEST_F(EveryCallTest, Cut) {
  std::vector<Job> jobs;
  for (const CallCase& call : CallCases()) {
    for (const CallSpot& spot : {kBefore, kInRequest, kAnswered, kInAnswer, kBeforeStatus}) {
      jobs.push_back({call, Break(spot, /*cut=*/true, /*all=*/false)});
    }
    for (const CallSpot& spot : {kBefore, kAnswered}) {
      jobs.push_back({call, Break(spot, /*cut=*/true, /*all=*/true)});
    }
  }
  Run(jobs);
  ExpectNothingLeft();
}

TEST_F(EveryCallTest, HalfOpen) {
  std::vector<Job> jobs;
  for (const CallCase& call : CallCases()) {
    jobs.push_back({call, Break(kBefore, /*cut=*/false, /*all=*/false)});
    jobs.push_back({call, Break(kAnswered, /*cut=*/false, /*all=*/true)});
    if (!Long()) continue;
    for (const CallSpot& spot : {kBefore, kInRequest, kAnswered, kInAnswer, kBeforeStatus}) {
      for (const bool all : {false, true}) {
        jobs.push_back({call, Break(spot, /*cut=*/false, all)});
      }
    }
  }
  Run(jobs);
  ExpectNothingLeft();
}

// Whatever takes long comes in the end.
TEST_F(EveryCallTest, SlowNetworks) {
  std::vector<Job> jobs;
  for (const CallCase& call : CallCases()) {
    jobs.push_back({call, {.name = "delayed", .delay = std::chrono::milliseconds(30)}});
    const bool large = call.method == "Write" || call.method == "Read" ||
                       call.method == "GetUpload" || call.method == "SharedMemory";
    jobs.push_back({call, {.name = "a trickle", .bytes_per_second = large ? 2 << 20 : 4 << 10}});
  }
  Run(jobs);
  ExpectNothingLeft();
}

// In the long form, at every byte of question and answer, for as long as they last.
TEST_F(EveryCallTest, CutAtEveryByte) {
  const int64_t most_bytes = Long() ? 500 : 0;
  int sprung = 0;
  for (const CallCase& call : CallCases()) {
    for (const Direction direction : {Direction::kToServer, Direction::kToClient}) {
      constexpr int64_t kBatch = 4 * kAtOnce;
      for (int64_t begin = 0; begin < most_bytes; begin += kBatch) {
        std::vector<Job> jobs;
        for (int64_t bytes = begin; bytes < begin + kBatch; ++bytes) {
          jobs.push_back({call,
                          Break({.direction = direction, .bytes = bytes}, /*cut=*/true,
                                /*all=*/bytes % 2 == 1),
                          /*must_spring=*/false});
        }
        const int here = Run(jobs);
        sprung += here;
        if (here == 0 || HasFailure()) break;
      }
    }
  }
  if (Long()) EXPECT_GT(sprung, 1000);
  std::printf("%d cuts\n", sprung);
  ExpectNothingLeft();
}

}  // namespace
}  // namespace tensord::fault
