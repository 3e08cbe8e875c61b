// What a program may do after a fork, and that its children don't affect its connections.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tensord/tests/integration/cluster_fixture.h"
#include "tensord/tests/run_command.h"

namespace {
bool is_forked_child = false;
}

// LeakSanitizer calls this function when the process ends. A forked child has none of the parent's
// other threads, so memory that only these threads refer to would be reported as leaked.
extern "C" int __lsan_is_turned_off() { return is_forked_child ? 1 : 0; }

namespace tensord::integration {
namespace {

// A child that takes longer has hung: SIGALRM ends it.
constexpr int kChildSeconds = 60;

int Rounds() { return std::getenv("TENSORD_TEST_LONG") != nullptr ? 500 : 20; }

enum class Ending {
  kExit,       // exit(): destroys static objects
  kQuickExit,  // _exit()
};

// A forked child that runs `body` and ends. `body` returns what is wrong, or an empty string. It
// may also exec another program. Whatever that program writes to Child::output() is the child's
// answer, which Wait() returns.
class Child {
 public:
  explicit Child(const std::function<std::string()>& body, Ending ending = Ending::kExit) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return;
    std::fflush(nullptr);  // the child's exit() would print buffered output once more
    pid_ = fork();
    if (pid_ == 0) {
      is_forked_child = true;
      alarm(kChildSeconds);
      output_of_child_ = ends[1];
      const std::string problem = body();
      if (write(ends[1], problem.data(), problem.size()) < 0) _exit(3);
      if (ending == Ending::kQuickExit) _exit(0);
      exit(0);
    }
    close(ends[1]);
    output_ = ends[0];
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Returns the descriptor for the child's answer. Call it in the child.
  static int output() { return output_of_child_; }

  // Waits for the child. Returns its answer. If its exit code isn't 0, appends how it ended.
  std::string Wait() {
    std::string problem;
    char buffer[4096];
    for (ssize_t size = 1; size > 0;) {
      size = read(output_, buffer, sizeof(buffer));
      if (size > 0) problem.append(buffer, size);
    }
    close(output_);
    int status = 0;
    if (waitpid(pid_, &status, 0) != pid_) return "there is no child";
    if (WIFSIGNALED(status)) absl::StrAppend(&problem, " killed by signal ", WTERMSIG(status));
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
      absl::StrAppend(&problem, " ended with exit code ", WEXITSTATUS(status));
    }
    return problem;
  }

 private:
  static inline int output_of_child_ = -1;

  pid_t pid_ = -1;
  int output_ = -1;
};

// Returns a line that describes `result`, or an empty string if it is the error that a forked child
// gets.
template <typename Result>
std::string CheckRefused(absl::string_view call, const Result& result) {
  const absl::Status& status = StatusOf(result);
  const bool refused = absl::IsFailedPrecondition(status) &&
                       absl::StrContains(status.message(), "was forked from one that had") &&
                       absl::StrContains(status.message(), "\"spawn\"");
  return refused ? "" : absl::StrCat(call, ": ", status.ToString(), "\n");
}

bool connected_before = false;

TEST(ForkBeforeConnectTest, ParentAndChildrenConnect) {
  if (connected_before) GTEST_SKIP() << "an earlier test of this process has connected";
  auto daemon = DaemonProcess::Start({"--devices=cpu=64MiB"});
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  const auto use = [&]() -> std::string {
    auto client = Client::Connect((*daemon)->address());
    if (!client.ok()) return client.status().ToString();
    const auto sum = Sum(Ones(client->TryDevice(), {1000}) + 1).Item<int64_t>();
    if (!sum.ok()) return sum.status().ToString();
    return *sum == 2000 ? "" : absl::StrCat("the sum is ", *sum);
  };
  std::vector<std::unique_ptr<Child>> children;
  for (int i = 0; i < 4; ++i) children.push_back(std::make_unique<Child>(use));
  connected_before = true;
  EXPECT_EQ(use(), "");
  for (const auto& child : children) EXPECT_EQ(child->Wait(), "");
  EXPECT_EQ(use(), "");
}

// Objects that exit() destroys in a child, like the global objects of a program.
struct Globals {
  Client client;
  Cluster cluster;
  std::vector<Tensor> tensors;
  Program program;
  Group group;
};

std::optional<Globals>& GlobalObjects() {
  static std::optional<Globals> globals;
  return globals;
}

class ForkTest : public ClusterFixture {
 protected:
  static constexpr int64_t kBigElements = 2 << 20;  // 8 MiB: transferred through shared memory

  void SetUp() override {
    connected_before = true;
    ClusterFixture::SetUp();
    if (HasFatalFailure()) return;
    auto client = Client::Connect(addresses_[0]);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    device_ = client_.TryDevice();
    small_ = FromVector<float>(device_, {1, 2, 3});
    big_ = FromVector(device_, std::vector<float>(kBigElements, 1));
    ASSERT_TRUE(big_.Read<float>().ok());
    ASSERT_GT(client_.stats().bytes_shared, 0) << "no ring has been opened";
    copy_source_ = FromVector<float>(On(0), {4, 5});
    copy_ = copy_source_.To(On(1));  // starts the thread that tracks copies
    ASSERT_TRUE(copy_.copy_report().ok()) << copy_.copy_report().status();
    auto program = Program::Record(device_, {small_.spec()}, [](absl::Span<const Tensor> in) {
      return std::vector<Tensor>{in[0] * 2};
    });
    ASSERT_TRUE(program.ok()) << program.status();
    auto group = Group::Create({On(0), On(1)});
    ASSERT_TRUE(group.ok()) << group.status();
    GlobalObjects() =
        Globals{client_, cluster_, {small_, big_, copy_source_, copy_}, *program, *group};
    before_ = Listed();
  }

  void TearDown() override { GlobalObjects().reset(); }

  // Destroys all objects of the library in this process.
  void DestroyAllObjects() {
    GlobalObjects().reset();
    small_ = big_ = copy_source_ = copy_ = Tensor();
    device_ = Device();
    client_ = Client();
    cluster_ = Cluster();
  }

  // Returns the tensors of all sessions of this program, as the servers list them.
  std::vector<std::string> Listed() {
    std::vector<std::string> listed;
    for (const ClusterServer& server : cluster_.servers()) {
      const auto tensors = server.client.ListAllTensors();
      EXPECT_TRUE(tensors.ok()) << tensors.status();
      if (!tensors.ok()) continue;
      for (const TensorInfo& tensor : *tensors) {
        listed.push_back(absl::StrCat(server.name, " session ", tensor.session_number, " handle ",
                                      tensor.handle, " ", tensor.spec.ToString()));
      }
    }
    std::sort(listed.begin(), listed.end());
    return listed;
  }

  // Expects that the parent still has its tensors with their values, that it can compute, copy and
  // transfer, and that it has opened no new connection.
  void ExpectParentUnaffected() {
    EXPECT_EQ(Listed(), before_);
    EXPECT_THAT(*small_.Read<float>(), testing::ElementsAre(1, 2, 3));
    EXPECT_THAT(*copy_.Read<float>(), testing::ElementsAre(4, 5));
    EXPECT_THAT(*copy_source_.To(On(1)).Read<float>(), testing::ElementsAre(4, 5));
    EXPECT_EQ(*big_.Read<float>(), std::vector<float>(kBigElements, 1));
    EXPECT_EQ(*Sum(FromVector(device_, std::vector<float>(kBigElements, 2))).Item<int64_t>(),
              2 * kBigElements);
    EXPECT_THAT(*GlobalObjects()->program.Run({small_})[0].Read<float>(),
                testing::ElementsAre(2, 4, 6));
    EXPECT_THAT(*GlobalObjects()->group.AllReduce({copy_source_, copy_})[1].Read<float>(),
                testing::ElementsAre(8, 10));
    EXPECT_TRUE(client_.Synchronize().ok());
    EXPECT_TRUE(cluster_.Synchronize().ok());
    EXPECT_EQ(client_.stats().reconnects, 0);
    for (const ClusterServer& server : cluster_.servers()) {
      EXPECT_EQ(server.client.stats().reconnects, 0);
    }
  }

  // Runs children one after another. Checks the parent after the first and after the last.
  void RunChildren(const std::function<std::string()>& body, Ending ending = Ending::kExit) {
    for (int i = 0; i < Rounds() && !HasFailure(); ++i) {
      EXPECT_EQ(Child(body, ending).Wait(), "") << "child " << i;
      if (i == 0) ExpectParentUnaffected();
    }
    ExpectParentUnaffected();
  }

  std::string CheckTensorCallsRefused() {
    std::string problems;
    const auto check = [&](absl::string_view call, const auto& result) {
      problems += CheckRefused(call, result);
    };
    check("op", (small_ + 1).status());
    check("creation", Zeros(device_, {4}).status());
    check("constant", FromVector<float>(device_, {1}).status());
    check("upload", FromVector(device_, std::vector<float>(kBigElements)).status());
    check("read", small_.Read<float>());
    check("large read", big_.Read<float>());
    check("item", Sum(small_).Item<float>());
    check("To of a device", small_.To(*client_.device("cpu:1")).status());
    check("To of a server", copy_source_.To(On(1)).status());
    check("To of a dtype", small_.To(DType::kInt64).status());
    check("Wait", small_.Wait());
    check("copy_report", copy_.copy_report());
    check("Run", GlobalObjects()->program.Run({small_})[0].status());
    check("Record", Program::Record(device_, {small_.spec()}, [](absl::Span<const Tensor> in) {
            return std::vector<Tensor>{in[0]};
          }));
    const Group& group = GlobalObjects()->group;
    check("AllReduce", group.AllReduce({copy_source_, copy_})[0].status());
    check("AllGather", group.AllGather({copy_source_, copy_})[0].status());
    check("ReduceScatter", group.ReduceScatter({copy_source_, copy_})[1].status());
    check("Broadcast", group.Broadcast(copy_source_)[1].status());
    check("Barrier", group.Barrier());
    check("Group::Create", Group::Create({On(0), On(1)}));
    return problems;
  }

  std::string CheckClientCallsRefused() {
    std::string problems;
    const auto check = [&](absl::string_view call, const auto& result) {
      problems += CheckRefused(call, result);
    };
    check("status", client_.status());
    check("Synchronize", client_.Synchronize());
    check("GetServerInfo", client_.GetServerInfo());
    check("ListDevices", client_.ListDevices());
    check("memory", client_.memory(device_));
    check("ListTensors", client_.ListTensors());
    check("ListAllTensors", client_.ListAllTensors());
    check("CheckPeer", client_.CheckPeer(addresses_[1]));
    check("Publish", client_.Publish(small_, "name"));
    check("Unpublish", client_.Unpublish("name"));
    check("Open", client_.Open("name"));
    if (client_.connected()) problems += "connected()\n";
    check("Cluster::Synchronize", cluster_.Synchronize());
    for (const ClusterServer& server : cluster_.servers()) check("servers()", server.status);
    return problems;
  }

  std::string CheckConnectRefused() {
    return CheckRefused("Client::Connect", Client::Connect(addresses_[0])) +
           CheckRefused("Cluster::Connect", Cluster::Connect(addresses_)) +
           CheckRefused("Cluster::Connect", Cluster::Connect(absl::StrJoin(addresses_, ","))) +
           CheckRefused("Cluster::Connect", Cluster::Connect(addresses_, {.allow_none = true}));
  }

  std::string CheckEverythingRefused() {
    return CheckConnectRefused() + CheckTensorCallsRefused() + CheckClientCallsRefused();
  }

  Client client_;
  Device device_;
  Tensor small_;
  Tensor big_;
  Tensor copy_source_;  // on the first server of the cluster
  Tensor copy_;         // the copy of copy_source_ on the second server
  std::vector<std::string> before_;
};

TEST_F(ForkTest, ExitOfChildDoesNotAffectParent) {
  RunChildren([] { return ""; });
}

TEST_F(ForkTest, QuickExitOfChildDoesNotAffectParent) {
  RunChildren([] { return ""; }, Ending::kQuickExit);
}

TEST_F(ForkTest, DestructorsInChildDoNotAffectParent) {
  RunChildren([this] {
    DestroyAllObjects();
    return "";
  });
}

TEST_F(ForkTest, CloseInChildDoesNotAffectParent) {
  RunChildren([this] {
    client_.Close();
    cluster_.Close();
    DestroyAllObjects();
    return "";
  });
}

TEST_F(ForkTest, EveryCallInChildIsRefused) {
  RunChildren([this] { return CheckTensorCallsRefused() + CheckClientCallsRefused(); });
}

TEST_F(ForkTest, ConnectInChildIsRefused) {
  RunChildren([this] { return CheckConnectRefused(); });
}

TEST_F(ForkTest, ConnectInChildIsRefusedAfterParentClosed) {
  DestroyAllObjects();
  EXPECT_EQ(Child([this] { return CheckConnectRefused(); }).Wait(), "");
  Connect(addresses_);
  EXPECT_TRUE(cluster_.Synchronize().ok());
}

TEST_F(ForkTest, GrandchildIsRefusedToo) {
  RunChildren([this] { return Child([this] { return CheckEverythingRefused(); }).Wait(); });
}

TEST_F(ForkTest, ChildOfAnotherThreadDoesNotAffectParent) {
  for (int i = 0; i < Rounds(); ++i) {
    std::string problem;
    std::thread([&] {
      problem = Child([this] { return CheckEverythingRefused(); }).Wait();
    }).join();
    EXPECT_EQ(problem, "");
  }
  ExpectParentUnaffected();
}

// Runs each kind of work in a thread of its own until this object is destroyed.
class Workers {
 public:
  ~Workers() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  // Calls `work` again and again in a new thread. Returns when `work` has returned once.
  void Start(std::string name, std::function<std::string()> work) {
    auto rounds = std::make_shared<std::atomic<int>>(0);
    threads_.emplace_back([this, rounds, name = std::move(name), work = std::move(work)] {
      do {
        EXPECT_EQ(work(), "") << name << ", round " << *rounds;
        ++*rounds;
      } while (!stop_);
    });
    EXPECT_TRUE(Eventually([&] { return *rounds > 0; }));
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

TEST_F(ForkTest, ChildrenForkedUnderLoadDoNotAffectParent) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer doesn't support children of a process with busy threads";
#endif
  {
    Workers workers;
    workers.Start("transfers", [this] {
      const std::vector<float> values(kBigElements, 3);
      const auto back = (FromVector(device_, values) + 1).Read<float>();
      if (!back.ok()) return back.status().ToString();
      return std::string(*back == std::vector<float>(kBigElements, 4) ? "" : "wrong values");
    });
    workers.Start("transfers over the connection", [this] {
      const std::vector<float> values(kBigElements, 5);
      const auto back = (FromVector(On(1), values) + 1).Read<float>();
      if (!back.ok()) return back.status().ToString();
      return std::string(*back == std::vector<float>(kBigElements, 6) ? "" : "wrong values");
    });
    workers.Start("ops", [this] {
      Tensor x = small_;
      for (int i = 0; i < 200; ++i) x = x + 1;
      const auto sum = Sum(x).Item<double>();
      if (!sum.ok()) return sum.status().ToString();
      return *sum == 606 ? std::string() : absl::StrCat("the sum is ", *sum);
    });
    workers.Start("copies", [this] {
      const auto report = (copy_source_ + 0).To(On(1)).copy_report();
      return report.ok() ? std::string() : report.status().ToString();
    });
    for (int round = 0; round < Rounds(); ++round) {
      std::vector<std::unique_ptr<Child>> children;
      children.push_back(std::make_unique<Child>([] { return ""; }));
      children.push_back(std::make_unique<Child>([] { return ""; }, Ending::kQuickExit));
      children.push_back(std::make_unique<Child>([this] { return CheckEverythingRefused(); }));
      children.push_back(std::make_unique<Child>([this] {
        DestroyAllObjects();
        return CheckConnectRefused();
      }));
      for (const auto& child : children) EXPECT_EQ(child->Wait(), "") << "round " << round;
    }
  }
  // The servers may not have received the last deletions yet.
  EXPECT_TRUE(cluster_.Synchronize().ok() && client_.Synchronize().ok());
  ExpectParentUnaffected();
}

// SIGSTOP stops the servers, so that the parent's threads wait and hold their locks at each fork.
TEST_F(ForkTest, ChildrenForkedWhileParentWaitsDoNotAffectParent) {
  const Tensor waited_for = copy_source_ + 0;
  ASSERT_TRUE(cluster_.Synchronize().ok());
  for (const auto& daemon : daemons_) daemon->Signal(SIGSTOP);
  Tensor late = waited_for.To(On(1));
  std::vector<std::string> problems(5);
  std::vector<std::thread> threads;
  const auto wait = [&](auto call) {
    std::string& problem = problems[threads.size()];
    threads.emplace_back([&problem, call] { problem = StatusOf(call()).ToString(); });
  };
  wait([&] { return late.copy_report(); });
  wait([&] { return small_.Read<float>(); });
  wait([&] { return big_.Read<float>(); });
  wait([&] { return FromVector(device_, std::vector<float>(kBigElements)).status(); });
  wait([&] { return client_.Synchronize(); });
  for (int i = 0; i < Rounds(); ++i) {
    EXPECT_EQ(Child([&] {
                late = Tensor();
                const std::string problem = CheckEverythingRefused();
                DestroyAllObjects();
                return problem;
              }).Wait(),
              "");
  }
  for (const auto& daemon : daemons_) daemon->Signal(SIGCONT);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(problems, std::vector<std::string>(problems.size(), "OK"));
  EXPECT_THAT(*late.Read<float>(), testing::ElementsAre(4, 5));
}

// Returns what the descriptors of this process refer to, such as "socket:[123]".
std::set<std::string> OpenFiles() {
  std::set<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    files.insert(std::filesystem::read_symlink(entry.path(), error).string());
  }
  return files;
}

const std::set<std::string> open_at_start = OpenFiles();

TEST_F(ForkTest, NoDescriptorSurvivesExec) {
  const std::set<std::string> open = OpenFiles();
  EXPECT_THAT(open, testing::Contains(testing::StartsWith("socket:")));
  const std::string listed = Child([] {
                               dup2(Child::output(), STDOUT_FILENO);
                               execl("/bin/ls", "ls", "-l", "/proc/self/fd", nullptr);
                               return "exec";
                             }).Wait();
  EXPECT_THAT(listed, testing::HasSubstr("1 -> pipe:"));
  for (const std::string& file : open) {
    if (open_at_start.contains(file)) continue;
    EXPECT_THAT(listed, testing::Not(testing::HasSubstr(file)));
  }
}

TEST_F(ForkTest, ChildConnectsAfterExec) {
  for (int i = 0; i < Rounds(); ++i) {
    const std::string listed =
        Child([this] {
          dup2(Child::output(), STDOUT_FILENO);
          execl(TENSORCTL_PATH, "tensorctl", "--server", addresses_[0].c_str(), "devices", nullptr);
          return "exec";
        }).Wait();
    EXPECT_THAT(listed, testing::HasSubstr("cpu:1"));
    EXPECT_THAT(listed, testing::Not(testing::HasSubstr("ended with")));
  }
  ExpectParentUnaffected();
}

// Repeats some tests in a process whose gRPC registers fork handlers of its own.
TEST(ForkWithGrpcForkSupportTest, ChildrenDoNotAffectParent) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = absl::StrCat("GRPC_ENABLE_FORK_SUPPORT=1 ", program,
                                           " --gtest_filter='ForkTest.Exit*:ForkTest.Destructors*:"
                                           "ForkTest.EveryCall*:ForkTest.*UnderLoad*'");
  const CommandResult result = RunCommand(command);
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_THAT(result.out, testing::HasSubstr("[       OK ] ForkTest.EveryCallInChildIsRefused"));
}

}  // namespace
}  // namespace tensord::integration
