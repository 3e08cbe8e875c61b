// Tests a daemon whose standard streams are closed, or are full and not read.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tensord/tests/integration/daemon_fixture.h"

namespace tensord::attack {
namespace {

using integration::DaemonProcess;
using integration::Eventually;
using integration::RpcClient;
using integration::TestDevicesFlag;

// The smallest size of a pipe on Linux.
constexpr int kPipeBytes = 4096;

// A daemon that logs sessions to a pipe, which the test reads or not.
class UnreadLogTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(pipe2(pipe_, O_CLOEXEC), 0);
    ASSERT_EQ(fcntl(pipe_[1], F_SETPIPE_SZ, kPipeBytes), kPipeBytes);
    auto daemon = DaemonProcess::Start({"--log-sessions", "--grace-seconds=1", TestDevicesFlag()},
                                       {}, pipe_[1]);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
    close(pipe_[1]);
  }
  ~UnreadLogTest() override { close(pipe_[0]); }

  bool PipeIsFull() const {
    int unread = 0;
    return ioctl(pipe_[0], FIONREAD, &unread) == 0 && unread > kPipeBytes / 2;
  }

  int pipe_[2] = {-1, -1};
  std::unique_ptr<DaemonProcess> daemon_;
};

// Opens sessions whose lines are longer than the pipe.
void FillLog(RpcClient& client) {
  for (int i = 0; i < 64; ++i) {
    v1::OpenSessionRequest request;
    request.set_client_name(std::string(120, 'x'));
    ASSERT_TRUE(client.Call<v1::Session>("OpenSession", request).ok());
  }
}

TEST_F(UnreadLogTest, DelaysNoCallAndNoShutdown) {
  RpcClient client(daemon_->address());
  FillLog(client);
  EXPECT_TRUE(Eventually([&] { return PipeIsFull(); }));
  RpcClient another(daemon_->address());
  FillLog(another);
  daemon_->ExpectTerminatesCleanly();
}

TEST_F(UnreadLogTest, IsWrittenWhenItIsReadAgain) {
  RpcClient client(daemon_->address());
  FillLog(client);
  EXPECT_TRUE(Eventually([&] { return PipeIsFull(); }));
  daemon_->Signal(SIGTERM);
  std::string log;
  char part[1024];
  for (ssize_t count; (count = read(pipe_[0], part, sizeof(part))) > 0;) log.append(part, count);
  EXPECT_TRUE(absl::StrContains(log, "session 64 of (anonymous) opened")) << log;
  EXPECT_TRUE(absl::EndsWith(log, "tensord: stopped\n")) << log;
  daemon_->ExpectEndsCleanly();
}

TEST(ClosedStreamsTest, AreOpenedOnTheNullDevice) {
  const auto daemon = DaemonProcess::Start({"--log-sessions", TestDevicesFlag()}, {},
                                           DaemonProcess::kStreamsClosed);
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  for (int fd = 0; fd <= 2; ++fd) {
    const std::string link = absl::StrCat("/proc/", (*daemon)->pid(), "/fd/", fd);
    EXPECT_EQ(std::filesystem::read_symlink(link), "/dev/null") << fd;
  }
  RpcClient client((*daemon)->address());
  FillLog(client);
  (*daemon)->ExpectTerminatesCleanly();
}

}  // namespace
}  // namespace tensord::attack
