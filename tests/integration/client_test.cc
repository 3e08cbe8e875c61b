// The C++ client against the real daemon.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tensord/client/internal/poller_election.h"
#include "tensord/tests/integration/client_fixture.h"

namespace tensord::integration {
namespace {

using Code = absl::StatusCode;
using testing::ElementsAre;
using testing::HasSubstr;

class ClientTest : public ClientFixture {};

TEST_F(ClientTest, OperatorsComputeTheirResults) {
  const Tensor x = Floats({1, 2, 3});
  const Tensor y = Floats({4, 5, 6});
  EXPECT_THAT(*(x + y).Read<float>(), ElementsAre(5, 7, 9));
  EXPECT_THAT(*(x - y).Read<float>(), ElementsAre(-3, -3, -3));
  EXPECT_THAT(*(x * y).Read<float>(), ElementsAre(4, 10, 18));
  EXPECT_THAT(*(y / x).Read<float>(), ElementsAre(4, 2.5, 2));
  EXPECT_THAT(*(-x).Read<float>(), ElementsAre(-1, -2, -3));
  EXPECT_THAT(*(x + 1).Read<float>(), ElementsAre(2, 3, 4));
  EXPECT_THAT(*(1 - x).Read<float>(), ElementsAre(0, -1, -2));
  EXPECT_THAT(*(x * 2.5).Read<float>(), ElementsAre(2.5, 5, 7.5));
  EXPECT_THAT(*(6 / x).Read<float>(), ElementsAre(6, 3, 2));
  EXPECT_THAT(*Lt(x, 2).Read<bool>(), ElementsAre(true, false, false));
  EXPECT_EQ(*Matmul(x, y).Item<float>(), 32);
  EXPECT_EQ(*Sum(x).Item<double>(), 6);
  Tensor z = x;
  z += y;
  EXPECT_THAT(*z.Read<float>(), ElementsAre(5, 7, 9));
  EXPECT_THAT(*x.Read<float>(), ElementsAre(1, 2, 3)) << "tensors don't change";
}

TEST_F(ClientTest, EveryElementwiseOpHasAFunction) {
  const Tensor x = Floats({0.5, 1, 2});
  const Tensor y = Floats({2, 1, 0.5});
  const auto expect_same = [](const Tensor& by_function, const Tensor& by_name) {
    const absl::StatusOr<std::vector<uint8_t>> bytes = by_function.ReadBytes();
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    EXPECT_EQ(by_function.dtype(), by_name.dtype());
    EXPECT_EQ(*bytes, *by_name.ReadBytes());
  };
#define TENSORD_CHECK(name, Function, typing, cost, doc) \
  expect_same(Function(x), RunOp(#name, {x}));
  TENSORD_UNARY_OPS(TENSORD_CHECK)
#undef TENSORD_CHECK
  // Ops of bits don't take floats.
  const Tensor whole = x.To(DType::kInt32);
#define TENSORD_CHECK(name, Function, typing, cost, doc)               \
  if (const Tensor result = RunOp(#name, {x, y}); result.ok()) {       \
    expect_same(Function(x, y), result);                               \
  } else {                                                             \
    expect_same(Function(whole, whole), RunOp(#name, {whole, whole})); \
  }
  TENSORD_BINARY_OPS(TENSORD_CHECK)
#undef TENSORD_CHECK
  const Tensor weight = FromVector<float>(first_, {1, 3}, {1, -1, 0.5});
#define TENSORD_CHECK(name, Function, typing, cost, doc)                  \
  expect_same(Linear(x, weight, {.activation = Activation::k##Function}), \
              RunOp("linear", {x, weight}, {{"activation", std::string(#name)}}));
  TENSORD_ACTIVATIONS(TENSORD_CHECK)
#undef TENSORD_CHECK
  EXPECT_NEAR(*Log1p(Floats({1e-10f})).Item<float>(), 1e-10, 1e-16);
}

TEST_F(ClientTest, PromotesDtypeOnlyForANumberOfAHigherKind) {
  const Tensor whole = FromVector<int32_t>(first_, {3}, {1, 2, 3});
  EXPECT_EQ((whole + 1).dtype(), DType::kInt32);
  EXPECT_EQ((whole + 0.5).dtype(), DType::kFloat32);
  EXPECT_THAT(*(whole + 0.5).Read<float>(), ElementsAre(1.5, 2.5, 3.5));
  EXPECT_EQ((whole / 2).dtype(), DType::kFloat32);
  EXPECT_EQ((Floats({1}).To(DType::kFloat16) * 2.5).dtype(), DType::kFloat16);
  EXPECT_EQ((Floats({1}).To(DType::kFloat64) + 1).dtype(), DType::kFloat64);
  EXPECT_EQ((Eq(whole, 1) + 1).dtype(), DType::kInt64);
}

TEST_F(ClientTest, RejectsCrossDeviceOpsWithoutSending) {
  const Tensor x = Ones(first_, {2, 3});
  const Tensor y = Ones(second_, {2, 3});
  ASSERT_TRUE(client_.Synchronize().ok());
  const ClientStats before = client_.stats();
  const Tensor sum = x + y;
  const Tensor later = Relu(sum * 2);
  const ClientStats after = client_.stats();
  EXPECT_EQ(after.commands_sent, before.commands_sent);
  EXPECT_EQ(after.messages_sent, before.messages_sent);
  EXPECT_EQ(after.waits, before.waits);
  ExpectError(sum.status(), Code::kInvalidArgument,
              {"add", std::to_string(x.handle()), std::to_string(y.handle()), "float32[2, 3]",
               "cpu:0", "cpu:1", "Tensor::To"});
  EXPECT_EQ(later.status(), sum.status());
  EXPECT_EQ(later.Read<float>().status(), sum.status());
  EXPECT_TRUE((x + y.To(first_)).Read<float>().ok());
}

TEST_F(ClientTest, ReportsInferenceErrorsAtTheCall) {
  const Tensor x = Ones(first_, {2, 3});
  ExpectError(Matmul(x, x).status(), Code::kInvalidArgument, {"matmul"});
  ExpectError((x + Ones(first_, {4})).status(), Code::kInvalidArgument, {"add"});
  ExpectError((x + Ones(first_, {3}, {.dtype = DType::kInt32})).status(), Code::kInvalidArgument,
              {"float32", "int32"});
  ExpectError(Sum(x, {.axes = {2}}).status(), Code::kInvalidArgument, {"sum"});
  ExpectError(RunOp("sine", {x}).status(), Code::kNotFound, {"sine"});
  ExpectError(Zeros(first_, {-1}).status(), Code::kInvalidArgument, {"-1"});
  ExpectError(FromVector<float>(first_, {2, 2}, {1, 2, 3}).status(), Code::kInvalidArgument);
  ExpectError(x.Read<int32_t>(), Code::kInvalidArgument, {"float32", "int32"});
  ExpectError(x.Item<float>(), Code::kInvalidArgument);
  EXPECT_FALSE(Tensor().ok());
  EXPECT_FALSE((Tensor() + x).ok());
  EXPECT_FALSE(Ones(Device(), {2}).ok());
  std::vector<float> room(5);
  EXPECT_FALSE(x.ReadInto(absl::MakeSpan(room)).ok());
  EXPECT_TRUE(x.Read<float>().ok());
}

TEST_F(ClientTest, CountsDevicesOfAKind) {
  EXPECT_EQ(client_.DeviceCount(DeviceKind::kCpu), 2);
  EXPECT_TRUE(client_.IsAvailable(DeviceKind::kCpu));
  EXPECT_FALSE(client_.IsAvailable(DeviceKind("none")));
  EXPECT_EQ(Client().DeviceCount(DeviceKind::kCpu), 0);
}

// With absl::StatusOr, the loops would read memory that is freed.
TEST_F(ClientTest, ListsAndReadsCanBeLoopedOverDirectly) {
  std::vector<std::string> names;
  for (const DeviceInfo& device : *client_.ListDevices()) names.push_back(device.name.ToString());
  EXPECT_THAT(names, ElementsAre(first_.name(), second_.name()));
  float sum = 0;
  for (const float value : *Arange(first_, 4, {.dtype = DType::kFloat32}).Read<float>()) {
    sum += value;
  }
  EXPECT_EQ(sum, 6);
  const Tensor kept = Ones(first_, {3});
  int64_t bytes = 0;
  for (const TensorInfo& tensor : client_.ListTensors().value()) bytes += tensor.size_bytes;
  EXPECT_EQ(bytes, 12);
}

TEST_F(ClientTest, RandomTensorsWithoutASeedDiffer) {
  const Shape shape = {64};
  EXPECT_NE(*Uniform(first_, shape).Read<float>(), *Uniform(first_, shape).Read<float>());
  EXPECT_NE(*Normal(first_, shape).Read<float>(), *Normal(first_, shape).Read<float>());
  EXPECT_EQ(*Normal(first_, shape, 7).Read<float>(), *Normal(second_, shape, 7).Read<float>());
  EXPECT_GE((*Uniform(first_, shape, {.low = 5, .high = 6}).Read<float>())[0], 5);
}

TEST_F(ClientTest, CopyToADeviceOfAClusterByNameNamesTheRemedy) {
  ExpectError(Ones(first_, {2}).To("gpu-b/cuda:0").status(), Code::kInvalidArgument,
              {"gpu-b/cuda:0", "To(*cluster.device(\"gpu-b/cuda:0\"))"});
}

TEST_F(ClientTest, ErrorTextHasNoPayload) {
  const absl::Status error = Ones(second_, {17 << 20}).Read<float>().status();
  EXPECT_TRUE(absl::StartsWith(ErrorText(error), "RESOURCE_EXHAUSTED: ")) << ErrorText(error);
  EXPECT_THAT(ErrorText(error), testing::Not(HasSubstr("type.googleapis.com")));
}

TEST_F(ClientTest, ServerErrorsStickToTensors) {
  const Tensor big = Ones(second_, {17 << 20});
  const Tensor later = Sum(Relu(big) + 1);
  const Tensor well = Ones(second_, {3}) + 1;
  EXPECT_TRUE(big.ok()) << "the client learns of the server's error only by a read";
  const absl::Status root = later.Item<float>().status();
  ExpectError(root, Code::kResourceExhausted, {"ones", "cpu:1", "67108864"});
  EXPECT_EQ(big.Read<float>().status().code(), Code::kResourceExhausted);
  EXPECT_THAT(*well.Read<float>(), ElementsAre(2, 2, 2));
  const Tensor never_read = Ones(second_, {18 << 20}) + 1;
  ExpectError(client_.Synchronize(), Code::kResourceExhausted, {"ones", "75497472"});
  EXPECT_TRUE(client_.Synchronize().ok()) << "an error is reported once";
  EXPECT_TRUE((well + 1).Read<float>().ok());
}

TEST_F(ClientTest, NamesTheTwoConnectionsOfInputs) {
  const auto other = Client::Connect(daemon_->address());
  ASSERT_TRUE(other.ok()) << other.status();
  const Tensor x = Ones(first_, {2});
  const Tensor y = Ones(*other->device(TestDevice(0)), {2});
  ExpectError((x + y).status(), Code::kInvalidArgument,
              {"belong to two connections", daemon_->address(), "copy b to the device of a"});
  EXPECT_THAT(*(x + y.To(first_)).Read<float>(), ElementsAre(2, 2));
}

TEST_F(ClientTest, FreesTensorsThatGoOutOfScope) {
  {
    Tensor x = Ones(first_, {1000});
    for (int i = 0; i < 1000; ++i) x = x + 1;
    EXPECT_EQ((*x.Read<float>())[0], 1001);
  }
  EXPECT_TRUE(Eventually([this] { return Used(first_) == 0; })) << Used(first_);
  EXPECT_EQ(client_.ListTensors()->size(), 0u);
  const auto memory = client_.memory(first_);
  EXPECT_LT(memory->peak_bytes, 1 << 20) << "a long chain needs a few buffers, not a thousand";
}

TEST_F(ClientTest, TransfersLargeTensors) {
  std::vector<int32_t> values(3'000'000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(i * 2654435761u);
  int64_t sent = 0;
  const Tensor x = FromVector<int32_t>(first_, {1000, 3000}, values,
                                       {.progress = [&](int64_t done, int64_t) { sent = done; }});
  ASSERT_TRUE(x.ok()) << x.status();
  EXPECT_EQ(sent, 12'000'000);
  const Tensor wrapped = x * 3;
  const auto read = wrapped.Read<int32_t>();
  ASSERT_TRUE(read.ok()) << read.status();
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ((*read)[i], static_cast<int32_t>(static_cast<uint32_t>(values[i]) * 3u)) << i;
  }
  EXPECT_TRUE(*x.Read<int32_t>() == values);
}

// A tensor larger than kMaxInlineBytes goes over a separate connection. The stream promises it.
TEST_F(ClientTest, UploadsNeverOvertakeTheirPromises) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([this] {
      const std::vector<int32_t> values(20'000, 1);
      for (int i = 0; i < 200; ++i) {
        const Tensor x = FromVector<int32_t>(first_, {20'000}, values);
        const auto sum = Sum(x).Item<int64_t>();
        ASSERT_TRUE(sum.ok()) << sum.status();
        EXPECT_EQ(*sum, 20'000);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(ClientTest, ManyThreadsShareAClient) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      Tensor x = Full(first_, {16}, t);
      for (int i = 0; i < 200; ++i) x = x + 1;
      const auto values = x.Read<int64_t>();
      EXPECT_TRUE(values.ok() && (*values)[15] == t + 200) << values.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// One waiting thread polls for all. When it has its answer, another thread must take over.
TEST_F(ClientTest, ManyThreadsWaitAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([this, t] {
      Tensor x = Full(first_, {16}, t);
      for (int i = 1; i <= 100; ++i) {
        x = x + 1;
        const auto values = x.Read<int64_t>();
        ASSERT_TRUE(values.ok() && (*values)[0] == t + i) << values.status();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// While the client pushes ops without a wait, its background thread sends them. A wait takes the
// polling over from that thread. It must also send the commands that the thread has held back.
TEST_F(ClientTest, WaitsThatFollowManyOpsEnd) {
  using Clock = std::chrono::steady_clock;
  const Tensor x = Floats({1, 2});
  for (int i = 0; i < 500; ++i) {
    const auto end =
        Clock::now() + internal::PollerElection::kPause + std::chrono::microseconds(i % 100 * 5);
    Tensor y = Neg(x);
    while (Clock::now() < end) y = Neg(x);
    ASSERT_THAT(*y.Read<float>(), ElementsAre(-1, -2));
  }
}

template <typename T>
concept TakesNullDevice = requires(const T& t) {
  t.device(nullptr);
};
static_assert(!TakesNullDevice<Client> && !TakesNullDevice<Cluster>);

TEST_F(ClientTest, DevicesAreFoundByIndex) {
  EXPECT_EQ(client_.device(0)->id(), client_.devices()[0].id());
  const std::vector<Device> devices = client_.devices();
  for (size_t i = 0; i < devices.size(); ++i) EXPECT_EQ(*client_.device(i), devices[i]);
  for (int index : {static_cast<int>(devices.size()), -1}) {
    ExpectError(client_.device(index), Code::kOutOfRange,
                {absl::StrCat("index ", index), absl::StrCat("it has ", devices.size())});
  }
  ExpectError(Client().device(0), Code::kFailedPrecondition);
}

TEST_F(ClientTest, TryDeviceFallsBackToTheProcessor) {
  if (!client_.info().unavailable_devices.contains("cuda")) GTEST_SKIP() << "there is a GPU";
  EXPECT_EQ(client_.TryDevice(), first_);
  EXPECT_EQ(client_.TryDevice(5), first_);
  EXPECT_THAT(client_.TryAllDevices(), ElementsAre(first_));
  const std::string& reason = client_.info().unavailable_devices.at("cuda");
  ASSERT_FALSE(reason.empty());
  ExpectError(client_.device("cuda"), Code::kNotFound,
              {"cuda:0", "cpu:0", "cpu:1", "and no cuda device: " + reason});
  ExpectError(client_.device("tpu"), Code::kNotFound, {"tpu:0", "cpu:0", "cpu:1"});
  ExpectError(client_.device("no sense"), Code::kInvalidArgument);
}

// The trained network, on the 597 digits that it was not trained on.
TEST_F(ClientTest, DigitsNetworkClassifies556Correctly) {
  auto digits = SafetensorsFile::Open(TENSORD_TEST_DATA "/digits.safetensors");
  auto weights = SafetensorsFile::Open(TENSORD_TEST_DATA "/digits_mlp.safetensors");
  ASSERT_TRUE(digits.ok()) << digits.status();
  ASSERT_TRUE(weights.ok()) << weights.status();
  nn::Sequential model(nn::Linear(64, 128), nn::ReLU(), nn::Linear(128, 64), nn::ReLU(),
                       nn::Linear(64, 10));
  for (const Device& device : {first_, second_}) {
    ASSERT_TRUE(model.To(device).ok());
    const absl::Status loaded = model.LoadStateDict(*weights->LoadAll(device));
    ASSERT_TRUE(loaded.ok()) << loaded;
    const Tensor images = *digits->Load(device, "images");
    const Tensor labels = *digits->Load(device, "labels");
    const Tensor x = Slice(images, {1200}, {kToEnd}).To(DType::kFloat32) / 16;
    const Tensor predicted = Argmax(model(x), {.axes = {1}});
    const Tensor right = Eq(predicted, Slice(labels, {1200}, {kToEnd}).To(DType::kInt64));
    EXPECT_EQ(right.num_elements(), 597);
    EXPECT_EQ(*Sum(right).Item<int64_t>(), 556) << "on " << device.name();
  }
}

TEST_F(ClientTest, CallsFailAfterTheServerIsKilled) {
  const Tensor x = Ones(first_, {1000});
  ASSERT_TRUE(x.Wait().ok());
  daemon_->Signal(SIGKILL);
  ASSERT_TRUE(daemon_->WaitForEnd().ok());
  ExpectError((x + 1).Read<float>(), Code::kUnavailable);
  ExpectError(x.Read<float>(), Code::kUnavailable);
  ExpectError(client_.Synchronize(), Code::kUnavailable);
  ExpectError(client_.ListDevices(), Code::kUnavailable);
  EXPECT_TRUE(Eventually([&] { return client_.status().code() == Code::kUnavailable; }));
  ExpectError(Ones(first_, {10}).status(), Code::kUnavailable);
  ExpectError(FromVector<float>(first_, std::vector<float>(1 << 20)).status(), Code::kUnavailable);
  client_.Close();
}

TEST_F(ClientTest, ReadEndsIfTheServerIsKilledDuringIt) {
  std::thread killer;
  {
    Tensor x = Ones(first_, {512, 512});
    for (int i = 0; i < 200; ++i) x = Matmul(x, x) / 512;
    killer = std::thread([this] { daemon_->Signal(SIGKILL); });
    const auto values = x.Read<float>();
    if (!values.ok()) {
      EXPECT_EQ(values.status().code(), Code::kUnavailable) << values.status();
    }
  }
  killer.join();
  ASSERT_TRUE(daemon_->WaitForEnd().ok());
  EXPECT_TRUE(Eventually([&] { return !client_.status().ok(); }));
}

TEST_F(ClientTest, CallsFailAfterTheServerDrains) {
  const Tensor x = Ones(first_, {10}) + 1;
  ASSERT_TRUE(x.Wait().ok());
  daemon_->ExpectTerminatesCleanly();
  ExpectError(x.Read<float>(), Code::kUnavailable);
}

TEST_F(ClientTest, DrainFinishesAnActiveRead) {
  const Tensor x = Ones(first_, {32 << 20});
  std::vector<float> values(x.num_elements());
  bool signalled = false;
  const absl::Status read =
      x.ReadInto<float>(absl::MakeSpan(values), {.progress = [&](int64_t, int64_t) {
                          if (!std::exchange(signalled, true)) daemon_->Signal(SIGTERM);
                        }});
  EXPECT_TRUE(read.ok()) << read;
  EXPECT_TRUE(signalled);
  EXPECT_EQ(std::count(values.begin(), values.end(), 1.0f), x.num_elements());
  daemon_->ExpectEndsCleanly();
}

TEST(ClientConnectTest, ConnectFailsInTimeWithoutAServer) {
  // This port is bound, but no socket listens on it.
  const int taken = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(at);
  auto* const generic = reinterpret_cast<sockaddr*>(&at);
  ASSERT_EQ(bind(taken, generic, size), 0);
  ASSERT_EQ(getsockname(taken, generic, &size), 0);
  const std::string address = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  const auto client = Client::Connect(address, {.connect_timeout = absl::Milliseconds(500)});
  ExpectError(client, Code::kUnavailable, {address});
  close(taken);
  EXPECT_FALSE(Client::Connect("", {.connect_timeout = absl::Milliseconds(500)}).ok());
}

TEST_F(ClientTest, CallsFailAfterClose) {
  const Tensor x = Ones(first_, {10});
  ASSERT_TRUE(x.Wait().ok());
  client_.Close();
  ExpectError(x.Read<float>(), Code::kFailedPrecondition);
  ExpectError((x + 1).status(), Code::kFailedPrecondition);
  ExpectError(client_.Synchronize(), Code::kFailedPrecondition);
  client_.Close();
}

}  // namespace
}  // namespace tensord::integration
