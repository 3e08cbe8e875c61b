// A fixture that runs cases over networks that fail, and checks that the daemon leaks nothing.
#pragma once

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/tests/fault/call_cases.h"
#include "tensord/tests/integration/daemon_fixture.h"

namespace tensord::fault {

// The number of concurrent cases. Cases mostly wait. Under ThreadSanitizer they need more CPU time.
#ifdef __SANITIZE_THREAD__
inline constexpr int kMaxConcurrentCases = 6;
#else
inline constexpr int kMaxConcurrentCases = 24;
#endif
inline constexpr int kMaxSessions = 64;

inline bool Long() { return std::getenv("TENSORD_TEST_LONG") != nullptr; }

inline Fault Break(const proxy::CallPosition& position, bool cut, bool all) {
  return {.name = absl::StrCat(
              cut ? "cut" : "half open", all ? ", all connections" : "", ", ",
              position.direction == proxy::Direction::kToServer ? "to server" : "to client",
              " after ", position.messages, " messages and ", position.bytes, " bytes",
              position.at_end ? ", at the end" : ""),
          .call_fault = proxy::CallFault{.position = position, .cut = cut, .all = all}};
}

class NetworkFaultFixture : public integration::DaemonFixture {
 protected:
  NetworkFaultFixture()
      : DaemonFixture(
            {absl::StrCat("--max-sessions-per-principal=", kMaxSessions), "--peers=127.0.0.1:*"}) {}

  void SetUp() override {
    DaemonFixture::SetUp();
    ASSERT_TRUE(session_->Close().ok());  // its lease would expire during a test
    // The server keeps its connection to a peer, which is the server itself here. The copy opens
    // this connection before the descriptors are counted.
    CopyOnce();
    descriptors_ = Descriptors();
  }

  void CopyOnce() {
    const auto from = Client::Connect(daemon_->address());
    const auto to = Client::Connect(daemon_->address());
    ASSERT_TRUE(from.ok() && to.ok()) << from.status() << to.status();
    const Tensor copy = Ones(*from->device("cpu:0"), {8}).To(*to->device("cpu:0"));
    ASSERT_TRUE(copy.copy_report().ok()) << copy.copy_report().status();
  }

  int64_t Descriptors() const {
    const std::filesystem::directory_iterator open("/proc/" + std::to_string(daemon_->pid()) +
                                                   "/fd");
    return std::distance(begin(open), end(open));
  }

  struct Job {
    CallCase call;
    Fault fault;
    bool must_inject = true;
  };

  // Runs the job and returns whether the fault has acted. If the fault must act and hasn't, tries
  // again: on a busy machine, connection admission may close a new connection before the
  // connection's first call.
  bool RunJob(const Job& job) {
    const bool must_inject = job.fault.call_fault && job.must_inject;
    for (int i = 0; i < 10; ++i) {
      bool injected = false;
      const absl::Status status = RunCase(daemon_->address(), job.call, job.fault, &injected);
      EXPECT_TRUE(status.ok()) << job.call.method << ": " << job.fault.name << ": " << status;
      if (injected || !must_inject || !status.ok()) return injected;
    }
    ADD_FAILURE() << job.call.method << ": " << job.fault.name << ": the fault never acted";
    return false;
  }

  // Runs the jobs, kMaxConcurrentCases at a time. Returns how many of the faults have acted.
  int Run(const std::vector<Job>& jobs) {
    std::atomic<size_t> next{0};
    std::atomic<int> num_injected{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < kMaxConcurrentCases; ++t) {
      threads.emplace_back([&] {
        for (size_t i = next++; i < jobs.size(); i = next++) {
          num_injected += RunJob(jobs[i]) ? 1 : 0;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return num_injected;
  }

  // Returns how many sessions can be opened.
  int FreeSessions() {
    std::vector<std::unique_ptr<integration::RpcSession>> sessions;
    while (true) {
      sessions.push_back(std::make_unique<integration::RpcSession>(*client_, /*lease_seconds=*/20));
      if (sessions.back()->id().empty()) break;
    }
    sessions.pop_back();
    for (const auto& session : sessions) EXPECT_TRUE(session->Close().ok());
    return static_cast<int>(sessions.size());
  }

  void ExpectNoLeaks() {
    EXPECT_TRUE(integration::Eventually([&] { return FreeSessions() == kMaxSessions; }))
        << kMaxSessions - FreeSessions() << " sessions";
    EXPECT_TRUE(integration::Eventually([&] { return Used(0) == 0 && Used(1) == 0; }))
        << Used(0) << " and " << Used(1) << " bytes";
    EXPECT_TRUE(integration::Eventually([&] { return Descriptors() <= descriptors_; }))
        << Descriptors() << " descriptors instead of " << descriptors_;
    v1::ListTensorsRequest all;
    all.set_session("-");
    const auto tensors = client_->Call<v1::ListTensorsResponse>("ListTensors", all);
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    EXPECT_EQ(tensors->tensors_size(), 0) << tensors->DebugString();
  }

  int64_t descriptors_ = 0;
};

}  // namespace tensord::fault
