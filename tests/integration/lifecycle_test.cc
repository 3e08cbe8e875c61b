// Starting and ending the daemon: flags, addresses, draining.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/tests/integration/daemon_fixture.h"
#include "tensord/tests/integration/fault_socket.h"

namespace tensord::integration {
namespace {

using Code = absl::StatusCode;
using testing::HasSubstr;

TEST(LifecycleTest, RefusesInvalidFlags) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--no-such-flag"}, "no-such-flag"},
      {{"--device=cpu"}, "Did you mean --devices?"},
      {{"--listen=127.0.0.1:0", "--devices=gpu"}, "gpu"},
      {{"--listen=127.0.0.1:0", "--devices=cpu=0"}, "cpu=0"},
      {{"--listen=127.0.0.1:0", "--devices=cpu=lots"}, "lots"},
      {{"--listen=127.0.0.1:0", "--devices=cpu=999TiB"}, "which is too much"},
      {{"--listen=127.0.0.1:0", "--devices=cuda:99"}, "cuda"},
      {{"--listen=nonsense", "--devices=cpu"}, "nonsense"},
      {{"--listen=127.0.0.1:99999", "--devices=cpu"}, "99999"},
      {{"--listen=0.0.0.0:0", "--devices=cpu"}, "--allow-insecure-remote"},
      {{"--listen=127.0.0.1:0", "--devices=cpu", "--port-file=/no/such/folder/port"}, "/no/such"},
      {{"--listen=127.0.0.1:0", "--devices=cpu", "--port-file=/tmp"}, "/tmp: it is a directory"},
      {{"--listen=127.0.0.1:0", "--devices=cpu", "--metrics-listen=127.0.0.1:99999"}, "99999"}};
  for (const auto& [flags, word] : cases) {
    std::string output;
    const auto exit_code = RunDaemon(flags, &output);
    ASSERT_TRUE(exit_code.ok()) << exit_code.status();
    EXPECT_THAT(*exit_code, testing::AnyOf(1, 2)) << word << ": " << output;
    EXPECT_THAT(output, HasSubstr(word));
    EXPECT_THAT(output, testing::Not(HasSubstr("listening")));
  }
}

TEST(LifecycleTest, PortInUseIsRefusedWithTheWayToChooseAnotherPort) {
  auto daemon = DaemonProcess::Start({"--devices=cpu"});
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  std::string output;
  const auto exit_code = RunDaemon({"--listen=" + (*daemon)->address(), "--devices=cpu"}, &output);
  ASSERT_TRUE(exit_code.ok()) << exit_code.status();
  EXPECT_EQ(*exit_code, 1) << output;
  EXPECT_THAT(output, HasSubstr("another program listens there"));
  EXPECT_THAT(output, HasSubstr("--listen=HOST:PORT"));
}

TEST(LifecycleTest, RefusesToStartWithTooFewDescriptors) {
  for (const int limit : {8, 20, 127}) {
    std::string output;
    const auto exit_code =
        RunDaemon({"--listen=127.0.0.1:0", "--devices=cpu=64MiB"}, &output, limit);
    ASSERT_TRUE(exit_code.ok()) << exit_code.status();
    EXPECT_EQ(*exit_code, 1) << output;
    EXPECT_THAT(output, HasSubstr("needs at least 128 file descriptors"));
    EXPECT_THAT(output, HasSubstr(absl::StrCat("is ", limit, ": raise it")));
    EXPECT_THAT(output, HasSubstr("ulimit -n 1024"));
    EXPECT_THAT(output, testing::Not(HasSubstr("listening")));
  }
}

TEST(LifecycleTest, PrintsHelpAndVersion) {
  std::string output;
  EXPECT_EQ(*RunDaemon({"--help"}, &output), 0);
  for (const char* word :
       {"--listen", "--devices", "--port-file", "--reflection", "--no-fusion", "--no-graphs"}) {
    EXPECT_THAT(output, HasSubstr(word));
  }
  // Versions of CLI11 write defaults in different ways.
  EXPECT_THAT(output, testing::ContainsRegex("--peer-connections N(=4| \\[4])"));
  EXPECT_THAT(output, testing::Not(HasSubstr("{false}")));
  EXPECT_EQ(*RunDaemon({"--version"}, &output), 0);
  EXPECT_THAT(output, HasSubstr("tensord "));
}

// A pipe that a daemon gets as its standard input.
class InputPipe {
 public:
  InputPipe() { EXPECT_EQ(pipe2(ends_, O_CLOEXEC), 0); }
  ~InputPipe() {
    close(ends_[0]);
    CloseWriteEnd();
  }
  // Starts a daemon that reads from the pipe. This process's standard input stays as it is.
  absl::StatusOr<std::unique_ptr<DaemonProcess>> Start(const std::vector<std::string>& flags) {
    const int saved = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    dup2(ends_[0], STDIN_FILENO);
    auto daemon = DaemonProcess::Start(flags);
    if (saved >= 0) {
      dup2(saved, STDIN_FILENO);
      close(saved);
    } else {
      close(STDIN_FILENO);
    }
    return daemon;
  }
  void Write(absl::string_view text) {
    EXPECT_EQ(write(ends_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void CloseWriteEnd() {
    if (ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
  }

 private:
  int ends_[2] = {-1, -1};
};

TEST(LifecycleTest, EndsAtTheEndOfStandardInput) {
  InputPipe input;
  auto daemon = input.Start({"--devices=cpu", "--until-eof"});
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  input.Write("the daemon discards what it reads\n");
  RpcClient client((*daemon)->address());
  ASSERT_TRUE(client.Health("").ok());
  EXPECT_TRUE((*daemon)->running());
  input.CloseWriteEnd();
  (*daemon)->ExpectEndsCleanly();
  EXPECT_THAT((*daemon)->Output(), HasSubstr("draining"));
}

TEST(LifecycleTest, IgnoresStandardInputWithoutUntilEof) {
  InputPipe input;
  auto daemon = input.Start({"--devices=cpu"});
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  input.CloseWriteEnd();
  RpcClient client((*daemon)->address());
  EXPECT_TRUE(client.Health("").ok());
  (*daemon)->ExpectTerminatesCleanly();
}

TEST(LifecycleTest, TwoDaemonsNeverShareAPort) {
  auto first = DaemonProcess::Start({"--devices=cpu"});
  ASSERT_TRUE(first.ok()) << first.status();
  std::string output;
  EXPECT_EQ(*RunDaemon({"--devices=cpu", "--listen=" + (*first)->address()}, &output), 1);
  EXPECT_THAT(output, HasSubstr((*first)->address()));
  (*first)->ExpectTerminatesCleanly();
}

TEST(LifecycleTest, TwoDaemonsNeverShareASocket) {
  const std::string address =
      "unix:" + testing::TempDir() + "/tensord_" + std::to_string(getpid()) + ".sock";
  auto first = DaemonProcess::Start({"--devices=cpu", "--listen=" + address});
  ASSERT_TRUE(first.ok()) << first.status();
  std::string output;
  EXPECT_EQ(*RunDaemon({"--devices=cpu", "--listen=" + address}, &output), 1);
  EXPECT_THAT(output, HasSubstr("another server"));
  (*first)->ExpectTerminatesCleanly();
}

// Other users of the machine can't connect, whatever umask starts the daemon.
TEST(LifecycleTest, UnixSocketsAreClosedToOtherUsers) {
  const std::string path =
      testing::TempDir() + "/tensord_mode_" + std::to_string(getpid()) + ".sock";
  for (const auto& [mask, mode] : {std::pair<mode_t, mode_t>{0, 0770}, {077, 0700}}) {
    const mode_t before = umask(mask);
    auto daemon = DaemonProcess::Start({"--devices=cpu=64MiB", "--listen=unix:" + path});
    umask(before);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    struct stat made = {};
    ASSERT_EQ(stat(path.c_str(), &made), 0);
    EXPECT_EQ(made.st_mode & 0777, mode);
    (*daemon)->ExpectTerminatesCleanly();
  }
}

// A symbolic link to /dev/full simulates a full disk: writes fail with ENOSPC.
TEST(LifecycleTest, LeavesNoPortFileOnAFullDisk) {
  const std::string port = testing::TempDir() + "/tensord_port_" + std::to_string(getpid());
  const std::string temporary = port + ".tmp";
  ASSERT_EQ(symlink("/dev/full", temporary.c_str()), 0);
  std::string output;
  const auto exit_code =
      RunDaemon({"--listen=127.0.0.1:0", "--devices=cpu=64MiB", "--port-file=" + port}, &output);
  ASSERT_TRUE(exit_code.ok()) << exit_code.status();
  EXPECT_EQ(*exit_code, 1);
  EXPECT_THAT(output, HasSubstr("can't write " + port + ": No space left on device"));
  for (const std::string& path : {port, temporary}) {
    struct stat left = {};
    EXPECT_NE(lstat(path.c_str(), &left), 0) << path;
  }
}

// If a host name has several addresses, the daemon listens on all of them that this machine has.
TEST(LifecycleTest, ListensOnAllAddressesOfAHostName) {
  auto daemon = DaemonProcess::Start({"--devices=cpu", "--listen=localhost:0"});
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  const std::string output = (*daemon)->Output();
  const size_t begin = output.find("localhost:");
  ASSERT_NE(begin, std::string::npos) << output;
  const size_t colon = output.find(':', begin);
  const std::string port =
      output.substr(colon, output.find_first_not_of("0123456789", colon + 1) - colon);
  for (const std::string host : {"localhost", "127.0.0.1"}) {
    RpcClient client(host + port);
    EXPECT_TRUE(client.Health("").ok()) << host;
  }
  (*daemon)->ExpectTerminatesCleanly();
}

TEST(LifecycleTest, EndsOnEitherSignal) {
  for (int signal_number : {SIGTERM, SIGINT}) {
    auto daemon = DaemonProcess::Start({"--devices=cpu,cpu"});
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    (*daemon)->Signal(signal_number);
    (*daemon)->ExpectEndsCleanly();
  }
}

TEST(LifecycleTest, SighupWithoutFilesChangesNothing) {
  auto daemon = DaemonProcess::Start({"--devices=cpu"});
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  (*daemon)->Signal(SIGHUP);
  (*daemon)->Signal(SIGTERM);
  (*daemon)->ExpectEndsCleanly();
}

// timeout(1), and users who press Ctrl-C again, send a second signal during the drain.
TEST(LifecycleTest, RepeatedSignalsDoNotDisturbTheDrain) {
  for (int i = 0; i < 5; ++i) {
    auto daemon = DaemonProcess::Start({"--devices=cpu,cpu"});
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    for (int signals = 0; signals < 200 && (*daemon)->running(); ++signals) {
      (*daemon)->Signal(SIGTERM);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    (*daemon)->ExpectEndsCleanly();
  }
}

class DrainTest : public DaemonFixture {
 protected:
  DrainTest() : DaemonFixture({"--grace-seconds=120"}) { expect_alive_ = false; }
};

// The daemon answers all commands that it has received. Then it ends the stream with the reason,
// and exits with 0.
TEST_F(DrainTest, FinishesReceivedCommands) {
  const int64_t size = 1024;
  auto stream = client_->SessionStream();
  v1::SessionStreamRequest message = session_->Attach();
  const auto add = [&](const std::string& name, const std::vector<uint64_t>& inputs,
                       uint64_t output) -> v1::Op& {
    v1::Op& op = *message.add_commands()->mutable_op();
    op.set_name(name);
    for (uint64_t input : inputs) op.add_inputs(input);
    op.set_output(output);
    return op;
  };
  v1::Op& ones = add("ones", {}, 1);
  ones.set_device("cpu:0");
  for (int i = 0; i < 2; ++i) (*ones.mutable_attrs())["shape"].mutable_ints()->add_values(size);
  for (uint64_t handle = 2; handle < 12; ++handle) {
    add("matmul", {1, 1}, handle);
    if (handle > 2) message.add_commands()->mutable_drop()->add_handles(handle - 1);
  }
  add("max", {11}, 12);
  message.add_commands()->mutable_get_elements()->set_handle(12);
  ASSERT_TRUE(stream->Send(message));
  const auto acknowledged = stream->Next();
  ASSERT_TRUE(acknowledged.has_value());
  EXPECT_EQ(acknowledged->commands_received(), static_cast<uint64_t>(message.commands_size()));

  daemon_->Signal(SIGTERM);
  std::vector<v1::Elements> elements(acknowledged->elements().begin(),
                                     acknowledged->elements().end());
  while (const auto answer = stream->Next()) {
    elements.insert(elements.end(), answer->elements().begin(), answer->elements().end());
  }
  ASSERT_EQ(elements.size(), 1u);
  EXPECT_EQ(elements[0].code(), 0) << elements[0].message();
  float largest = 0;
  ASSERT_EQ(elements[0].data().size(), sizeof(largest));
  std::memcpy(&largest, elements[0].data().data(), sizeof(largest));
  EXPECT_EQ(largest, size);
  ExpectError(stream->Finish(), Code::kUnavailable, {"shutting down"});
  daemon_->ExpectEndsCleanly();
}

// Starts a product of two matrices of size x size, and waits for it by a barrier.
std::unique_ptr<StreamCall> StartProduct(const RpcSession& session, int64_t size) {
  auto stream = session.client().SessionStream();
  v1::SessionStreamRequest message = session.Attach();
  v1::Op& ones = *message.add_commands()->mutable_op();
  ones.set_name("ones");
  ones.set_output(1);
  ones.set_device("cpu:0");
  for (int i = 0; i < 2; ++i) (*ones.mutable_attrs())["shape"].mutable_ints()->add_values(size);
  (*ones.mutable_attrs())["dtype"].set_dtype(v1::DTYPE_UINT8);
  v1::Op& product = *message.add_commands()->mutable_op();
  product.set_name("matmul");
  for (int i = 0; i < 2; ++i) product.add_inputs(1);
  product.set_output(2);
  message.add_commands()->mutable_barrier()->set_barrier_id(1);
  EXPECT_TRUE(stream->Send(message));
  EXPECT_TRUE(stream->Next().has_value());
  return stream;
}

class GraceTest : public DaemonFixture {
 protected:
  GraceTest() : DaemonFixture({"--grace-seconds=0.5", "--cpu-threads=2"}) { expect_alive_ = false; }
};

// The product takes one thread many minutes. It stops with its session.
TEST_F(GraceTest, StopsAnOpThatOutlastsTheGracePeriod) {
  const auto stream = StartProduct(*session_, 16384);
  daemon_->ExpectTerminatesCleanly();
  EXPECT_THAT(daemon_->Output(), HasSubstr("tensord: stopped"));
}

// A kernel that is delayed for a minute doesn't check whether it must stop.
TEST(ExitTest, EndsTheProcessDuringAnOpThatDoesNotStop) {
  const std::string path =
      testing::TempDir() + "/tensord_exit_" + std::to_string(getpid()) + ".sock";
  auto daemon = DaemonProcess::Start(
      {"--devices=faulty:cpu", "--fault-socket=" + path, "--grace-seconds=0.5"});
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  ASSERT_EQ(FaultSocket(path).Send("cpu:0 delay-kernel 600000"), "ok\n");
  RpcClient client((*daemon)->address());
  const RpcSession session(client);
  const auto stream = StartProduct(session, 512);
  (*daemon)->ExpectTerminatesCleanly();
  EXPECT_THAT((*daemon)->Output(), HasSubstr("stopped with work still running"));
}

TEST_F(GraceTest, EndsCallsThatOutlastTheGracePeriod) {
  RpcClient waiting(daemon_->address());
  v1::GetTensorRequest never;
  never.set_session(session_->id());
  never.set_handle(5);
  never.set_after_command(1000);
  std::thread caller([&] { EXPECT_FALSE(waiting.Call<v1::Tensor>("GetTensor", never).ok()); });
  auto stream = client_->SessionStream();
  v1::SessionStreamRequest message = session_->Attach();
  v1::Promise& promise = *message.add_commands()->mutable_promise();
  promise.set_handle(1);
  promise.mutable_spec()->set_dtype(v1::DTYPE_FLOAT32);
  promise.set_device("cpu:0");
  message.add_commands()->mutable_get_elements()->set_handle(1);
  ASSERT_TRUE(stream->Send(message));
  ASSERT_TRUE(stream->Next().has_value());
  auto write = client_->Write();
  ASSERT_TRUE(write->Send(session_->FirstWrite(2, {DType::kFloat32, {1000}})));
  daemon_->ExpectTerminatesCleanly();
  while (stream->Next().has_value()) {
  }
  EXPECT_FALSE(stream->Finish().ok());
  EXPECT_FALSE(write->Finish().ok());
  caller.join();
}

}  // namespace
}  // namespace tensord::integration
