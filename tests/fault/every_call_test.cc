// Calls each method of the service while its connection fails. The caller must get the right result
// or a documented error, the session must still work, and the server must not leak resources.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tensord/tests/fault/network_fault_fixture.h"

namespace tensord::fault {
namespace {

using proxy::CallPosition;
using proxy::Direction;

// The phases of a call: before and within the request, before and within the response, and before
// the status.
const CallPosition kBefore = {.direction = Direction::kToServer};
const CallPosition kInRequest = {.direction = Direction::kToServer, .bytes = 40};
const CallPosition kAnswered = {.direction = Direction::kToClient};
const CallPosition kInAnswer = {.direction = Direction::kToClient, .bytes = 15};
const CallPosition kBeforeStatus = {.direction = Direction::kToClient, .messages = 1};

class EveryCallTest : public NetworkFaultFixture {};

TEST_F(EveryCallTest, EveryMethodHasACase) {
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
    for (const CallPosition& position :
         {kBefore, kInRequest, kAnswered, kInAnswer, kBeforeStatus}) {
      jobs.push_back({call, Break(position, /*cut=*/true, /*all=*/false)});
    }
    for (const CallPosition& position : {kBefore, kAnswered}) {
      jobs.push_back({call, Break(position, /*cut=*/true, /*all=*/true)});
    }
  }
  Run(jobs);
  ExpectNoLeaks();
}

TEST_F(EveryCallTest, HalfOpen) {
  std::vector<Job> jobs;
  for (const CallCase& call : CallCases()) {
    jobs.push_back({call, Break(kBefore, /*cut=*/false, /*all=*/false)});
    jobs.push_back({call, Break(kAnswered, /*cut=*/false, /*all=*/true)});
    if (!Long()) continue;
    for (const CallPosition& position :
         {kBefore, kInRequest, kAnswered, kInAnswer, kBeforeStatus}) {
      for (const bool all : {false, true}) {
        jobs.push_back({call, Break(position, /*cut=*/false, all)});
      }
    }
  }
  Run(jobs);
  ExpectNoLeaks();
}

// All calls on a slow network must succeed in the end.
TEST_F(EveryCallTest, SlowNetworks) {
  std::vector<Job> jobs;
  for (const CallCase& call : CallCases()) {
    jobs.push_back({call, {.name = "delayed", .delay = std::chrono::milliseconds(30)}});
    const bool large = call.method == "Write" || call.method == "Read" ||
                       call.method == "GetUpload" || call.method == "SharedMemory";
    jobs.push_back({call, {.name = "throttled", .bytes_per_second = large ? 2 << 20 : 4 << 10}});
  }
  Run(jobs);
  ExpectNoLeaks();
}

// The long form cuts at each of the first 500 bytes of the request and of the response. The short
// form cuts at some of them.
TEST_F(EveryCallTest, CutAtEveryByte) {
  const int64_t stride = Long() ? 1 : 53;
  const int64_t max_bytes = Long() ? 500 : 7 * stride;
  const int64_t batch_bytes = 4 * kMaxConcurrentCases * stride;
  int injected = 0;
  for (const CallCase& call : CallCases()) {
    for (const Direction direction : {Direction::kToServer, Direction::kToClient}) {
      for (int64_t begin = 0; begin < max_bytes; begin += batch_bytes) {
        std::vector<Job> jobs;
        for (int64_t bytes = begin; bytes < std::min(begin + batch_bytes, max_bytes);
             bytes += stride) {
          jobs.push_back({call,
                          Break({.direction = direction, .bytes = bytes}, /*cut=*/true,
                                /*all=*/bytes % 2 == 1),
                          /*must_inject=*/false});
        }
        const int here = Run(jobs);
        injected += here;
        if (here == 0 || HasFailure()) break;
      }
    }
  }
  EXPECT_GT(injected, Long() ? 2000 : 80);
  RecordProperty("cuts", injected);
  ExpectNoLeaks();
}

}  // namespace
}  // namespace tensord::fault
