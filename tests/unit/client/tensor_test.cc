// Tensors and clients without a server.
#include "tensord/client/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sstream>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/client/client.h"
#include "tensord/client/ops.h"

namespace tensord {
namespace {

using ::testing::HasSubstr;

const absl::Status kRoot = absl::ResourceExhaustedError("the root of it");

TEST(TensorTest, EmptyTensorHasAnError) {
  const Tensor tensor;
  EXPECT_EQ(tensor.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(tensor.dtype(), DType::kUnspecified);
  EXPECT_EQ(tensor.handle(), 0u);
  EXPECT_EQ(tensor.num_elements(), 0);
  EXPECT_FALSE(tensor.device().valid());
  EXPECT_EQ(tensor.Read<float>().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(tensor.Wait().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(TensorTest, OpsOnAFailedTensorFailWithTheRootError) {
  const Tensor failed = Tensor::Failed(kRoot);
  const Tensor results[] = {failed + failed,
                            failed * 2.0,
                            1 - failed,
                            -failed,
                            Sum(failed),
                            Where(failed, failed, 0.0),
                            Transpose(failed),
                            failed.To(DType::kInt32),
                            failed.To(Device()),
                            Concat({failed, failed}),
                            Linear(failed, failed, failed)};
  for (const Tensor& result : results) EXPECT_EQ(result.status(), kRoot);
  Tensor sum = failed;
  sum += 1;
  EXPECT_EQ(sum.status(), kRoot);
}

static_assert(std::is_copy_assignable_v<Tensor> && std::is_move_assignable_v<Tensor>);
static_assert(std::is_nothrow_move_constructible_v<Tensor>);
static_assert(!std::is_assignable_v<Tensor, Tensor> &&
                  !std::is_assignable_v<Tensor, const Tensor&> &&
                  !std::is_assignable_v<decltype(std::declval<const Tensor&>()[0]), Tensor>,
              "x[0] = y must not compile, because it would change nothing");

template <typename Index>
concept IndexesTensors = requires(const Tensor& x, Index index) {
  x[index];
};
static_assert(IndexesTensors<int> && IndexesTensors<int64_t> && IndexesTensors<uint32_t> &&
              IndexesTensors<size_t>);
static_assert(!IndexesTensors<double> && !IndexesTensors<float> && !IndexesTensors<bool>,
              "x[0.9] and x[true] must not compile");

TEST(TensorTest, ConcatNeedsATensor) {
  const absl::Status status = Concat({}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the list of tensors is empty"));
}

TEST(TensorTest, OpFailsWithTheErrorOfItsFirstFailedInput) {
  EXPECT_EQ(Add(Tensor::Failed(kRoot), Tensor()).status(), kRoot);
}

TEST(TensorTest, EveryReadOfAFailedTensorGivesItsError) {
  const Tensor failed = Tensor::Failed(kRoot);
  float room[1];
  EXPECT_EQ(failed.Read<float>().status(), kRoot);
  EXPECT_EQ(failed.ReadAs<int64_t>().status(), kRoot);
  EXPECT_EQ(failed.ReadBytes().status(), kRoot);
  EXPECT_EQ(failed.ReadInto(absl::MakeSpan(room)), kRoot);
  EXPECT_EQ(failed.Item<double>().status(), kRoot);
  EXPECT_EQ(failed.Wait(), kRoot);
}

TEST(TensorTest, FailedTensorPrintsItsError) {
  std::ostringstream out;
  out << Tensor::Failed(kRoot);
  EXPECT_EQ(out.str(), "tensor(<error: RESOURCE_EXHAUSTED: the root of it>)");
  EXPECT_EQ(Tensor::Failed(kRoot).Describe(),
            "Tensor(<error: RESOURCE_EXHAUSTED: the root of it>)");
}

TEST(TensorTest, OpOnTwoNumbersFails) {
  const Tensor sum = Add(1, 2.5);
  EXPECT_EQ(sum.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(sum.status().message(), HasSubstr("add: both operands are scalars"));
}

TEST(TensorTest, AnOpWithoutInputsNeedsADevice) {
  EXPECT_EQ(RunOp("concat", {}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RunOp(Device(), "zeros").status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ClientTest, CallsFailWithoutAConnection) {
  Client client;
  EXPECT_EQ(client.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(client.Synchronize().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(client.ListDevices().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(client.device("cpu").status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(client.TryDevice().valid());
  EXPECT_TRUE(client.TryAllDevices().empty());
  client.Close();
}

TEST(ClientTest, InvalidAddressIsRefused) {
  for (const char* address :
       {"", "host", "host:", ":5", "host:0", "host:65536", "host:x", "unix:", "http://host:5"}) {
    const absl::Status status = Client::Connect(address).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("\"", address, "\"")));
  }
}

// A bound port of this machine on which no process listens. The destructor closes it.
class DeadPort {
 public:
  DeadPort() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    bind(fd_, reinterpret_cast<sockaddr*>(&address), size);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
  }
  ~DeadPort() { close(fd_); }
  DeadPort(const DeadPort&) = delete;
  DeadPort& operator=(const DeadPort&) = delete;
  int fd() const { return fd_; }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  int fd_;
  int port_ = 0;
};

TEST(ClientTest, UnreachableServerIsUnavailableAndNamed) {
  const DeadPort port;
  const absl::Status status = Client::Connect(port.address()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(status.message(), HasSubstr(port.address()));
}

TEST(ClientTest, SilentServerIsUnavailableInTime) {
  const DeadPort port;
  ASSERT_EQ(listen(port.fd(), 8), 0);  // the kernel accepts connections, and no server answers
  const absl::Status status =
      Client::Connect(port.address(), {.connect_timeout = absl::Milliseconds(200)}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(status.message(), HasSubstr(port.address()));
}

TEST(ClientTest, TooLongClientNameIsRefused) {
  const DeadPort port;
  EXPECT_EQ(Client::Connect(port.address(), {.client_name = std::string(129, 'x')}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tensord
