// The unary methods of the real daemon, called by the generated stubs.
#include <cmath>
#include <set>

#include "tensord/tests/integration/daemon_fixture.h"

namespace tensord::integration {
namespace {

using Code = absl::StatusCode;
using Ints = std::vector<int64_t>;
using testing::ElementsAre;
using testing::HasSubstr;

using ServiceTest = DaemonFixture;

TEST_F(ServiceTest, DescribesTheServer) {
  const auto info = client_->Call<v1::ServerInfo>("GetServerInfo", v1::GetServerInfoRequest());
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_FALSE(info->version().empty());
  EXPECT_GE(info->min_protocol_version(), 1u);
  EXPECT_GE(info->max_protocol_version(), info->min_protocol_version());
  EXPECT_THAT(info->features(), testing::Contains("session-stream"));
  EXPECT_THAT(info->features(), testing::Contains("dtypes-2"));
  EXPECT_EQ(info->epoch().size(), 32u);
  EXPECT_EQ(info->max_message_bytes(), 16 << 20);
  EXPECT_FALSE(info->host_name().empty());
}

TEST_F(ServiceTest, ListsItsDevices) {
  const auto devices = ListDevices(*client_);
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 2u);
  const v1::Device& first = (*devices)[0];
  const v1::Device& second = (*devices)[1];
  EXPECT_EQ(first.name(), "cpu:0");
  EXPECT_EQ(second.name(), "cpu:1");
  EXPECT_EQ(first.kind(), "cpu");
  EXPECT_FALSE(first.model().empty());
  EXPECT_FALSE(first.uuid().empty());
  EXPECT_EQ(first.uuid(), second.uuid()) << "they are one physical device";
  EXPECT_EQ(first.memory_limit_bytes(), 1 << 30);
  EXPECT_EQ(second.memory_limit_bytes(), 64 << 20);
  EXPECT_GT(first.memory_total_bytes(), 0);
  EXPECT_EQ(first.memory_used_bytes(), 0);
  EXPECT_GE(first.threads(), 1);
}

TEST_F(ServiceTest, ListsItsOps) {
  const auto ops = client_->Call<v1::ListOpsResponse>("ListOps", v1::ListOpsRequest());
  ASSERT_TRUE(ops.ok()) << ops.status();
  std::string last;
  std::set<std::string> names;
  for (const v1::OpInfo& op : ops->ops()) {
    EXPECT_LT(last, op.name()) << "sorted by name";
    last = op.name();
    names.insert(last);
    EXPECT_FALSE(op.signature().empty()) << last;
    EXPECT_FALSE(op.description().empty()) << last;
    for (const v1::OpAttr& attr : op.attrs()) EXPECT_FALSE(attr.description().empty()) << last;
    if (last == "linear") EXPECT_THAT(op.input_names(), ElementsAre("x", "weight", "bias"));
    if (last == "concat") EXPECT_EQ(op.input_names_size(), 0) << "a list of tensors";
    if (last != "matmul") continue;
    EXPECT_THAT(op.input_names(), ElementsAre("a", "b"));
    EXPECT_EQ(op.min_inputs(), 2);
    EXPECT_EQ(op.max_inputs(), 2);
    ASSERT_EQ(op.attrs_size(), 3);
    EXPECT_EQ(op.attrs(0).name(), "transpose_a");
    EXPECT_EQ(op.attrs(0).type(), "bool");
    EXPECT_TRUE(op.attrs(0).has_default_value());
  }
  for (const char* name : {"add", "linear", "uniform", "log_softmax", "broadcast_to"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

class CreateTest : public DaemonFixture {
 protected:
  // Creates a float32 tensor from `request`'s source. Returns its elements.
  std::vector<float> Make(v1::CreateTensorRequest request, const Shape& shape) {
    request.set_session(session_->id());
    request.set_handle(++handle_);
    *request.mutable_spec() = ToProto(TensorSpec{DType::kFloat32, shape});
    request.set_device("cpu");
    const auto made = client_->Call<v1::Tensor>("CreateTensor", request);
    EXPECT_TRUE(made.ok()) << made.status();
    const auto values = session_->ReadFloats(handle_);
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? *values : std::vector<float>{};
  }
  uint64_t handle_ = 0;
};

TEST_F(CreateTest, CreatesFromEverySource) {
  v1::CreateTensorRequest request;
  EXPECT_THAT(Make(request, {2}), ElementsAre(0, 0)) << "no source: zeros";
  request.set_pattern(v1::PATTERN_ZEROS);
  EXPECT_THAT(Make(request, {2}), ElementsAre(0, 0));
  request.set_pattern(v1::PATTERN_ONES);
  EXPECT_THAT(Make(request, {2, 1}), ElementsAre(1, 1));
  request.mutable_full()->mutable_value()->set_f(2.5);
  EXPECT_THAT(Make(request, {2}), ElementsAre(2.5, 2.5));
  request.mutable_full()->mutable_value()->set_i(7);
  EXPECT_THAT(Make(request, {1}), ElementsAre(7));
  request.mutable_arange()->set_start(3);
  EXPECT_THAT(Make(request, {3}), ElementsAre(3, 4, 5)) << "a step that isn't set is 1";
  request.mutable_arange()->set_step(-0.5);
  EXPECT_THAT(Make(request, {4}), ElementsAre(3, 2.5, 2, 1.5));
  EXPECT_THAT(Make(request, {0}), ElementsAre());
  request.mutable_arange()->set_start(0);
  request.mutable_arange()->set_step(0.1);
  EXPECT_EQ(Make(request, {1000}).size(), 1000u);
  request.set_pattern(v1::PATTERN_EYE);
  EXPECT_THAT(Make(request, {2, 3}), ElementsAre(1, 0, 0, 0, 1, 0));
  request.mutable_uniform()->set_seed(0);
  EXPECT_FLOAT_EQ(Make(request, {4})[0], (0x6627e8d5 >> 8) * 0x1p-24f) << "high is 1";
  request.mutable_uniform()->set_low(10);
  request.mutable_uniform()->set_high(11);
  EXPECT_FLOAT_EQ(Make(request, {4})[0], 10 + (0x6627e8d5 >> 8) * 0x1p-24f);
  request.mutable_normal()->set_seed(1);
  const std::vector<float> standard = Make(request, {1000});
  request.mutable_normal()->set_mean(5);
  request.mutable_normal()->set_stddev(2);
  const std::vector<float> moved = Make(request, {1000});
  for (int i = 0; i < 1000; ++i) EXPECT_NEAR(moved[i], 5 + 2 * standard[i], 1e-5);
}

TEST_F(ServiceTest, AnswersWithTheTensor) {
  const auto made = session_->CreateFloats(7, {1, 2, 3}, "cpu:1");
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->handle(), 7u);
  EXPECT_EQ(made->device(), "cpu:1");
  EXPECT_EQ(made->size_bytes(), 12);
  EXPECT_EQ(FromProto(made->spec()), (TensorSpec{DType::kFloat32, {3}}));
  const auto got = session_->Get(7);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->SerializeAsString(), made->SerializeAsString());
  EXPECT_EQ(Used(0), 0);
  EXPECT_EQ(Used(1), 12);
}

TEST_F(ServiceTest, RunOpsRunsOpsInOrder) {
  ASSERT_TRUE(session_->CreateFloats(1, {1, -2, 3}).ok());
  v1::RunOpsRequest request;
  request.set_session(session_->id());
  v1::Op* neg = request.add_ops();
  neg->set_name("neg");
  neg->add_inputs(1);
  neg->set_output(2);
  neg->add_donate(0);
  v1::Op* add = request.add_ops();
  add->set_name("add");
  add->add_inputs(2);
  add->add_inputs(2);
  add->set_output(3);
  const auto made = client_->Call<v1::RunOpsResponse>("RunOps", request);
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_EQ(made->tensors_size(), 2);
  EXPECT_EQ(made->tensors(1).handle(), 3u);
  EXPECT_THAT(*session_->ReadFloats(3), ElementsAre(-2, 4, -6));
  ExpectError(session_->ReadFloats(1), Code::kNotFound);  // it was donated

  // The second op is refused: the first has taken effect, and the donated input remains.
  request.mutable_ops(0)->set_inputs(0, 3);
  request.mutable_ops(0)->set_output(4);
  request.mutable_ops(0)->clear_donate();
  request.mutable_ops(1)->set_inputs(0, 99);
  request.mutable_ops(1)->add_donate(1);
  ExpectError(client_->Call<v1::RunOpsResponse>("RunOps", request), Code::kNotFound,
              {"op 1 of RunOps", "99"});
  EXPECT_THAT(*session_->ReadFloats(4), ElementsAre(2, -4, 6));
  EXPECT_TRUE(session_->ReadFloats(2).ok());
  request.mutable_ops(1)->set_num_outputs(2);
  request.mutable_ops(1)->set_inputs(0, 2);
  request.mutable_ops(1)->set_output(6);
  request.mutable_ops(0)->set_output(5);
  ExpectError(client_->Call<v1::RunOpsResponse>("RunOps", request), Code::kInvalidArgument,
              {"add", "num_outputs is 2"});
  while (request.ops_size() < 17) *request.add_ops() = request.ops(0);
  ExpectError(client_->Call<v1::RunOpsResponse>("RunOps", request), Code::kInvalidArgument,
              {"16", "17"});
}

TEST_F(ServiceTest, ComputesByNamedMethodsAndByRunOp) {
  ASSERT_TRUE(session_->CreateFloats(1, {1, -2, 3}).ok());
  ASSERT_TRUE(session_->CreateFloats(2, {10, 20, 30}).ok());
  ASSERT_TRUE(session_->Add(1, 2, 3).ok());
  ASSERT_TRUE(session_->Run("add", {1, 2}, 4).ok());
  EXPECT_THAT(*session_->ReadFloats(3), ElementsAre(11, 18, 33));
  EXPECT_THAT(*session_->ReadFloats(4), ElementsAre(11, 18, 33));

  v1::MatMulRequest matmul;
  matmul.set_session(session_->id());
  matmul.set_a(1);
  matmul.set_b(2);
  matmul.set_output(5);
  ASSERT_TRUE(client_->Call<v1::Tensor>("MatMul", matmul).ok());
  EXPECT_THAT(*session_->ReadFloats(5), ElementsAre(60));

  ASSERT_TRUE(session_->Run("reshape", {2}, 6, {{"shape", Ints{1, 3}}}).ok());
  ASSERT_TRUE(session_->CreateFloats(7, {-100}).ok());
  v1::LinearForwardRequest linear;
  linear.set_session(session_->id());
  linear.set_input(1);
  linear.set_weight(6);
  linear.set_bias(7);
  linear.set_output(8);
  ASSERT_TRUE(client_->Call<v1::Tensor>("LinearForward", linear).ok());
  EXPECT_THAT(*session_->ReadFloats(8), ElementsAre(-40));
  linear.set_activation("relu");
  linear.set_output(9);
  ASSERT_TRUE(client_->Call<v1::Tensor>("LinearForward", linear).ok());
  EXPECT_THAT(*session_->ReadFloats(9), ElementsAre(0));
  linear.set_bias(0);
  linear.set_output(10);
  ASSERT_TRUE(client_->Call<v1::Tensor>("LinearForward", linear).ok());
  EXPECT_THAT(*session_->ReadFloats(10), ElementsAre(60));
}

TEST_F(ServiceTest, CopyToTheSameDeviceCopiesNothing) {
  ASSERT_TRUE(session_->CreateFloats(1, {1, 2, 3}).ok());
  const auto same = session_->Copy(1, 2, "cpu:0");
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_EQ(same->handle(), 1u);
  EXPECT_EQ(Used(0), 12);
  ExpectError(session_->Get(2), Code::kNotFound, {"2"});
  const auto other = session_->Copy(1, 2, "cpu:1");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->handle(), 2u);
  EXPECT_EQ(other->device(), "cpu:1");
  EXPECT_EQ(Used(0), 12);
  EXPECT_EQ(Used(1), 12);
  EXPECT_THAT(*session_->ReadFloats(2), ElementsAre(1, 2, 3));
}

TEST_F(ServiceTest, CrossDeviceErrorSuggestsACopy) {
  ASSERT_TRUE(session_->CreateFloats(11, {1, 2}, "cpu:0").ok());
  ASSERT_TRUE(session_->CreateFloats(12, {1, 2}, "cpu:1").ok());
  ExpectError(session_->Add(11, 12, 13), Code::kInvalidArgument,
              {"add", "11", "12", "float32[2]", "cpu:0", "cpu:1", "CopyToDevice"});
  ExpectError(session_->Get(13), Code::kNotFound);
}

TEST_F(ServiceTest, OutOfMemoryLeavesEverythingElseUsable) {
  ASSERT_TRUE(session_->CreateFloats(1, {1, 2}, "cpu:1").ok());
  ExpectError(session_->Ones(2, {17 << 20}, "cpu:1"), Code::kResourceExhausted,
              {"cpu:1", "71303168", "67108864"});
  EXPECT_EQ(Used(1), 8);
  ExpectError(session_->Get(2), Code::kNotFound);
  ASSERT_TRUE(session_->Ones(2, {1 << 20}, "cpu:1").ok());
  EXPECT_THAT(*session_->ReadFloats(1), ElementsAre(1, 2));
  ASSERT_TRUE(session_->Ones(3, {17 << 20}, "cpu:0").ok()) << "the other device has room";
}

TEST_F(ServiceTest, ListsTensorsAPageAtATime) {
  for (uint64_t handle : {5, 3, 9, 7}) ASSERT_TRUE(session_->CreateFloats(handle, {1}).ok());
  std::vector<uint64_t> seen;
  std::string token;
  int pages = 0;
  do {
    const auto page = session_->List(3, token);
    ASSERT_TRUE(page.ok()) << page.status();
    for (const v1::Tensor& tensor : page->tensors()) seen.push_back(tensor.handle());
    token = page->next_page_token();
  } while (!token.empty() && ++pages < 10);
  EXPECT_THAT(seen, ElementsAre(3, 5, 7, 9));

  RpcSession other(*client_);
  ASSERT_TRUE(other.CreateFloats(1, {1}).ok());
  v1::ListTensorsRequest all;
  all.set_session("-");
  const auto listed = client_->Call<v1::ListTensorsResponse>("ListTensors", all);
  ASSERT_TRUE(listed.ok());
  ASSERT_EQ(listed->tensors_size(), 5);
  EXPECT_NE(listed->tensors(0).session_number(), listed->tensors(4).session_number());
  ExpectError(session_->List(-1), Code::kInvalidArgument, {"page_size"});
  ExpectError(session_->List(0, "what?"), Code::kInvalidArgument, {"page_token"});
}

TEST_F(ServiceTest, DeletesAllOrNone) {
  ASSERT_TRUE(session_->CreateFloats(1, {1, 2}).ok());
  ASSERT_TRUE(session_->CreateFloats(2, {1, 2}).ok());
  ExpectError(session_->Delete({1, 44, 2}), Code::kNotFound, {"44"});
  EXPECT_EQ(Used(0), 16);
  EXPECT_TRUE(session_->Delete({1, 2}).ok());
  ExpectEventuallyUsed(0, 0);
}

TEST_F(ServiceTest, ReshapedTensorsShareTheirMemory) {
  ASSERT_TRUE(session_->CreateFloats(1, {1, 2, 3, 4}).ok());
  ASSERT_TRUE(session_->Run("reshape", {1}, 2, {{"shape", Ints{2, 2}}}).ok());
  EXPECT_EQ(Used(0), 16);
  ASSERT_TRUE(session_->Delete({1}).ok());
  EXPECT_EQ(Used(0), 16);
  EXPECT_THAT(*session_->ReadFloats(2), ElementsAre(1, 2, 3, 4));
}

TEST_F(ServiceTest, SessionsAreIsolated) {
  ASSERT_TRUE(session_->CreateFloats(1, {1}).ok());
  RpcSession other(*client_);
  const absl::Status theirs = other.Get(1).status();
  ASSERT_TRUE(session_->Delete({1}).ok());
  EXPECT_EQ(other.Get(1).status(), theirs) << "the error doesn't depend on the other session";
  EXPECT_EQ(theirs.code(), Code::kNotFound);
  ASSERT_TRUE(other.CreateFloats(1, {2}).ok());
  ASSERT_TRUE(session_->CreateFloats(1, {3}).ok());
  EXPECT_THAT(*other.ReadFloats(1), ElementsAre(2));
  EXPECT_EQ(*other.Close(), 1);
  ExpectError(other.Get(1), Code::kNotFound, {"session"});
  ExpectError(other.Close(), Code::kNotFound, {"session"});
  EXPECT_THAT(*session_->ReadFloats(1), ElementsAre(3));
  ExpectEventuallyUsed(0, 4);
}

TEST_F(ServiceTest, ASessionEndsWithItsLease) {
  RpcSession expiring(*client_, kShortLeaseSeconds);
  ASSERT_TRUE(expiring.CreateFloats(1, {1, 2}).ok());
  EXPECT_TRUE(Eventually([this] { return Used(0) == 0; }));
  ExpectError(expiring.Get(1), Code::kNotFound, {"session"});
}

TEST_F(ServiceTest, ReportsTheHealthOfEachDevice) {
  for (const char* service : {"", "tensord.v1.TensorService", "cpu:0", "cpu:1"}) {
    const auto health = client_->Health(service);
    ASSERT_TRUE(health.ok()) << service << ": " << health.status();
    EXPECT_EQ(*health, "SERVING") << service;
  }
  ExpectError(client_->Health("cuda:9"), Code::kNotFound);
}

TEST_F(ServiceTest, ReflectionIsOffByDefault) {
  EXPECT_FALSE(client_->HasReflection());
  auto daemon = DaemonProcess::Start({"--devices=cpu", "--reflection"});
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  EXPECT_TRUE(RpcClient((*daemon)->address()).HasReflection());
  (*daemon)->ExpectTerminatesCleanly();
}

class SmallMessageTest : public DaemonFixture {
 protected:
  SmallMessageTest() : DaemonFixture({"--max-message-bytes=65536"}) {}
};

TEST_F(SmallMessageTest, RejectsTensorsThatDoNotFitAMessage) {
  ASSERT_TRUE(session_->Ones(1, {100000}).ok());
  ExpectError(session_->Read(1), Code::kOutOfRange, {"400000", "65536", "Read"});
  ExpectError(session_->Create(2, {DType::kUInt8, {1 << 20}}, std::string(1 << 20, 'x')),
              Code::kResourceExhausted);
  ExpectError(session_->Get(2), Code::kNotFound);
  ASSERT_TRUE(session_->Create(2, {DType::kUInt8, {60000}}, std::string(60000, 'x')).ok());
}

}  // namespace
}  // namespace tensord::integration
