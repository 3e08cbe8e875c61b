// Reads the metrics of a daemon.
#pragma once

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "tensord/tests/http_get.h"
#include "tensord/tests/integration/fault_socket.h"
#include "tensord/tests/integration/identity_fixture.h"

namespace tensord::integration {

// The samples of a scrape, by series as in the text: "name{label="value"}". A missing series has
// the value 0.
using Samples = std::map<std::string, double>;

inline Samples ParseSamples(const std::string& text) {
  Samples samples;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const size_t blank = line.rfind(' ');
    if (line.empty() || line[0] == '#' || blank == line.npos) continue;
    double value = 0;
    EXPECT_TRUE(absl::SimpleAtod(line.substr(blank + 1), &value)) << line;
    EXPECT_TRUE(samples.emplace(line.substr(0, blank), value).second) << "twice: " << line;
  }
  return samples;
}

// A daemon with the callers alice and bob, a device whose faults a test controls, and metrics.
class MetricsFixture : public IdentityFixture {
 protected:
  void SetUp() override {
    folder_.Write("tokens", Line("alice", "a") + Line("bob", "b"));
    StartWith({"--token-file=" + folder_.File("tokens")});
  }

  void StartWith(std::vector<std::string> flags) {
    flags.push_back("--metrics-listen=127.0.0.1:0");
    flags.push_back("--metrics-port-file=" + folder_.File("metrics"));
    flags.push_back("--fault-socket=" + folder_.File("faults"));
    flags.push_back("--max-bytes-per-session=16MiB");
    StartDaemon(flags, "faulty:cpu=256MiB,cpu=64MiB");
    std::getline(std::ifstream(folder_.File("metrics")), metrics_address_);
  }

  void Order(const std::string& order) {
    EXPECT_EQ(FaultSocket(folder_.File("faults")).Send("cpu:0 " + order), "ok\n");
  }

  std::string Text() { return HttpRequest(metrics_address_, "GET /metrics").body; }
  Samples Scrape() { return ParseSamples(Text()); }
  double Value(const std::string& series) { return Scrape()[series]; }

  // Waits until the series has the value.
  void ExpectEventually(const std::string& series, double value) {
    EXPECT_TRUE(Eventually([&] { return Value(series) == value; }))
        << series << " is " << Value(series) << ", not " << value;
  }

  std::string metrics_address_;
};

}  // namespace tensord::integration
