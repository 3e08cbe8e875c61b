// Clients that are killed while they work, and clients on unreliable networks.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <random>
#include <utility>

#include "tensord/client/tensord.h"
#include "tensord/tests/fault/random_work.h"
#include "tensord/tests/integration/daemon_fixture.h"
#include "tensord/tests/proxy/delay_proxy.h"

namespace tensord::fault {
namespace {

using integration::DaemonFixture;
using integration::Eventually;
using proxy::DelayProxy;
using testing::Each;

bool Long() { return std::getenv("TENSORD_TEST_LONG") != nullptr; }

// A process of fault_client.
class KilledClient {
 public:
  explicit KilledClient(const std::string& address) {
    int ends[2];
    if (pipe(ends) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(ends[1], 1);
      execl(FAULT_CLIENT_PATH, FAULT_CLIENT_PATH, address.c_str(), nullptr);
      _exit(127);
    }
    close(ends[1]);
    char word[6];
    ready_ = read(ends[0], word, sizeof(word)) == sizeof(word);
    close(ends[0]);
  }
  ~KilledClient() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  bool ready() const { return ready_; }

 private:
  pid_t pid_ = -1;
  bool ready_ = false;
};

class FaultTest : public DaemonFixture {
 protected:
  int64_t Descriptors() const {
    const std::filesystem::directory_iterator open("/proc/" + std::to_string(daemon_->pid()) +
                                                   "/fd");
    return std::distance(begin(open), end(open));
  }
};

// The long form kills ten thousand clients. A killed client's session ends when its lease of one
// second has expired.
TEST_F(FaultTest, ReleasesResourcesOfKilledClients) {
  const int rounds = Long() ? 2500 : 5;
  constexpr int kMaxConcurrentCases = 4;
  ASSERT_TRUE(session_->Ones(1, {16}).ok());
  const int64_t used = Used(0);
  const int64_t descriptors = Descriptors();
  std::minstd_rand random(1);
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::unique_ptr<KilledClient>> clients;
    for (int i = 0; i < kMaxConcurrentCases; ++i) {
      clients.push_back(std::make_unique<KilledClient>(daemon_->address()));
      ASSERT_TRUE(clients.back()->ready());
    }
    for (auto& client : clients) {
      // Kills each client at another phase of its work.
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 30));
      client.reset();
    }
    const auto values = session_->ReadFloats(1);
    ASSERT_TRUE(values.ok()) << values.status();
    EXPECT_THAT(*values, Each(1.0f));
  }
  EXPECT_TRUE(Eventually([&] { return Used(0) == used; })) << Used(0) << " bytes";
  EXPECT_TRUE(Eventually([&] { return Descriptors() <= descriptors; })) << Descriptors();
}

// Runs random programs over a network that cuts, delays, throttles and holds connections. The
// client must read correct results. When the client has ended, the server must hold no memory for
// the client.
TEST_F(FaultTest, ResultsAreCorrectOnUnreliableNetwork) {
  auto proxy = DelayProxy::Start({.target = daemon_->address()});
  ASSERT_TRUE(proxy.ok()) << proxy.status();
  const int programs = Long() ? 2000 : 40;
  const int64_t used = Used(0);
  {
    auto client = Client::Connect((*proxy)->address(), {.lease = absl::Seconds(30),
                                                        .keepalive_interval = absl::Seconds(1),
                                                        .keepalive_timeout = absl::Seconds(1),
                                                        .shared_memory = false});
    ASSERT_TRUE(client.ok()) << client.status();
    const Device device = *client->device("cpu:0");
    std::minstd_rand random(7);
    const RandomFaults faults(proxy->get(), 7);
    for (int program = 0; program < programs; ++program) {
      const absl::Status done = RunRandomWork(device, random);
      ASSERT_TRUE(done.ok()) << "program " << program << ": " << done;
    }
    while (faults.cuts() < 3 || client->stats().reconnects == 0) {
      const absl::Status done = RunRandomWork(device, random);
      ASSERT_TRUE(done.ok()) << done;
    }
  }
  EXPECT_TRUE(Eventually([&] { return Used(0) == used; })) << Used(0) << " bytes";
}

}  // namespace
}  // namespace tensord::fault
