// Invalid requests: each gets a clear Status, changes nothing and leaves the server alive.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>

#include "tensord/tests/integration/daemon_fixture.h"

namespace tensord::integration {
namespace {

using Code = absl::StatusCode;
using Ints = std::vector<int64_t>;
using testing::ElementsAre;

constexpr DType kF32 = DType::kFloat32;

class BadInputTest : public DaemonFixture {
 protected:
  void SetUp() override {
    DaemonFixture::SetUp();
    ASSERT_TRUE(session_->CreateFloats(1, {1, 2, 3}).ok());
    ASSERT_TRUE(session_->CreateFloats(2, {4, 5, 6}).ok());
    ASSERT_TRUE(session_->CreateFloats(3, {7, 8}, "cpu:1").ok());
  }

  // Expects exactly the tensors that SetUp() made.
  void TearDown() override {
    ExpectEventuallyUsed(0, 24);
    ExpectEventuallyUsed(1, 8);
    const auto listed = session_->List();
    ASSERT_TRUE(listed.ok()) << listed.status();
    EXPECT_EQ(listed->tensors_size(), 3);
    EXPECT_THAT(*session_->ReadFloats(2), ElementsAre(4, 5, 6));
    DaemonFixture::TearDown();
  }
};

TEST_F(BadInputTest, RejectsInvalidSpecs) {
  const std::string bytes(12, 'x');
  const auto create = [&](const TensorSpec& spec) { return session_->Create(9, spec, bytes); };
  ExpectError(create({DType::kUnspecified, {3}}), Code::kInvalidArgument, {"dtype"});
  ExpectError(create({static_cast<DType>(77), {3}}), Code::kInvalidArgument, {"dtype", "77"});
  ExpectError(create({kF32, {-3}}), Code::kInvalidArgument, {"-3"});
  ExpectError(create({kF32, {3, INT64_MIN}}), Code::kInvalidArgument, {"negative"});
  ExpectError(create({kF32, {int64_t{1} << 32, int64_t{1} << 32}}), Code::kInvalidArgument,
              {"elements"});
  ExpectError(create({kF32, {INT64_MAX, INT64_MAX, INT64_MAX}}), Code::kInvalidArgument,
              {"elements"});
  ExpectError(create({kF32, {0, INT64_MAX, INT64_MAX}}), Code::kInvalidArgument, {"elements"});
  ExpectError(create({kF32, Shape(Ints(33, 1))}), Code::kInvalidArgument, {"33", "32"});
  ExpectError(create({kF32, Shape(Ints(100000, 1))}), Code::kInvalidArgument, {"100000", "32"});
}

TEST_F(BadInputTest, RejectsUnknownDtypes) {
  v1::CreateTensorRequest request;
  request.set_session(session_->id());
  request.set_handle(9);
  request.set_device("cpu:0");
  for (int number : {-1, 16, 255, 256, 264, 1 << 30, INT32_MIN}) {
    request.mutable_spec()->set_dtype(static_cast<v1::DType>(number));
    ExpectError(client_->Call<v1::Tensor>("CreateTensor", request), Code::kInvalidArgument,
                {"dtype", std::to_string(number)});
  }
}

TEST_F(BadInputTest, RejectsPayloadsThatDoNotMatchTheSpec) {
  for (size_t size : {0, 1, 11, 13, 24, 100000}) {
    ExpectError(session_->Create(9, {kF32, {3}}, std::string(size, 'x')), Code::kInvalidArgument,
                {"12", std::to_string(size)});
    ExpectError(session_->Run(
                    "constant", {}, 9,
                    {{"shape", Ints{3}}, {"dtype", kF32}, {"data", Bytes{std::string(size, 'x')}}},
                    "cpu:0"),
                Code::kInvalidArgument, {"constant", "12", std::to_string(size)});
  }
}

TEST_F(BadInputTest, RejectsSourcesThatDoNotFitTheirSpec) {
  v1::CreateTensorRequest request;
  request.set_session(session_->id());
  request.set_handle(9);
  request.set_device("cpu:0");
  const auto create = [&](const TensorSpec& spec) {
    *request.mutable_spec() = ToProto(spec);
    return client_->Call<v1::Tensor>("CreateTensor", request);
  };
  request.set_pattern(v1::PATTERN_EYE);
  ExpectError(create({kF32, {3}}), Code::kInvalidArgument, {"eye"});
  request.set_pattern(static_cast<v1::Pattern>(77));
  ExpectError(create({kF32, {3}}), Code::kInvalidArgument, {"unknown pattern 77"});
  request.mutable_arange();
  ExpectError(create({kF32, {2, 2}}), Code::kInvalidArgument, {"arange"});
  request.mutable_arange()->set_step(0);
  ExpectError(create({kF32, {5}}), Code::kInvalidArgument, {"step"});
  request.mutable_arange()->set_step(1e300);
  ExpectError(create({DType::kInt32, {5}}), Code::kInvalidArgument);
  request.mutable_arange()->set_start(NAN);
  ExpectError(create({kF32, {5}}), Code::kInvalidArgument);
  request.mutable_full();
  ExpectError(create({kF32, {2}}), Code::kInvalidArgument, {"value"});
  request.mutable_full()->mutable_value()->set_i(1000);
  ExpectError(create({DType::kInt8, {2}}), Code::kInvalidArgument, {"1000", "int8"});
  request.mutable_full()->mutable_value()->set_s("one");
  ExpectError(create({kF32, {2}}), Code::kInvalidArgument, {"value"});
  request.mutable_uniform()->set_seed(1);
  ExpectError(create({DType::kInt32, {2}}), Code::kInvalidArgument, {"float"});
  request.mutable_uniform()->set_low(2);
  ExpectError(create({kF32, {2}}), Code::kInvalidArgument, {"low"});
  request.mutable_normal()->set_stddev(-1);
  ExpectError(create({kF32, {2}}), Code::kInvalidArgument, {"stddev"});
}

TEST_F(BadInputTest, RejectsUnknownAndDuplicateHandles) {
  ExpectError(session_->CreateFloats(0, {1}), Code::kInvalidArgument, {"0"});
  ExpectError(session_->CreateFloats(1, {1}), Code::kAlreadyExists, {"1"});
  ExpectError(session_->Add(1, 99, 9), Code::kNotFound, {"99"});
  ExpectError(session_->Add(0, 1, 9), Code::kInvalidArgument);
  ExpectError(session_->Add(1, 2, 0), Code::kInvalidArgument, {"0"});
  ExpectError(session_->Add(1, 2, 2), Code::kAlreadyExists, {"2"});
  ExpectError(session_->Get(99), Code::kNotFound, {"99"});
  ExpectError(session_->Get(0), Code::kInvalidArgument);
  ExpectError(session_->Read(99), Code::kNotFound, {"99"});
  ExpectError(session_->Copy(99, 9, "cpu:1"), Code::kNotFound, {"99"});
  ExpectError(session_->Copy(1, 0, "cpu:1"), Code::kInvalidArgument, {"0"});
  ExpectError(session_->Copy(1, 2, "cpu:1"), Code::kAlreadyExists, {"2"});
  ExpectError(session_->Delete({99}), Code::kNotFound, {"99"});
  ExpectError(session_->Delete({0}), Code::kInvalidArgument);
}

TEST_F(BadInputTest, RejectsUnknownDevices) {
  for (const char* device : {"cpu:2", "cuda:99", "gpu"}) {
    ExpectError(session_->CreateFloats(9, {1}, device), Code::kNotFound,
                {device, "cpu:0", "cpu:1"});
    ExpectError(session_->Copy(1, 9, device), Code::kNotFound, {device});
    ExpectError(session_->Ones(9, {1}, device), Code::kNotFound, {device});
  }
  for (const char* device : {"", "cpu:", "g-pu", "cpu:-1", "cpu:x", "cpu:2147483647",
                             "cpu:99999999999999999999", "cpu:0 ", "CPU:0", "cpu::0"}) {
    ExpectError(session_->CreateFloats(9, {1}, device), Code::kInvalidArgument, {"device"});
    ExpectError(session_->Ones(9, {1}, device), Code::kInvalidArgument);
  }
}

TEST_F(BadInputTest, RejectsInvalidOpsAndAttributes) {
  ExpectError(session_->Run("sine", {1}, 9), Code::kNotFound, {"sine"});
  ExpectError(session_->Run("", {1}, 9), Code::kNotFound);
  ExpectError(session_->Run(std::string(100000, 'a'), {1}, 9), Code::kNotFound);
  ExpectError(session_->Run("add", {1}, 9), Code::kInvalidArgument, {"add", "2"});
  ExpectError(session_->Run("add", {1, 2, 1}, 9), Code::kInvalidArgument, {"add", "3"});
  ExpectError(session_->Run("neg", std::vector<uint64_t>(5000, 1), 9), Code::kInvalidArgument);
  ExpectError(session_->Run("concat", std::vector<uint64_t>(5000, 1), 9), Code::kInvalidArgument,
              {"concat", "5000", "1024"});
  ExpectError(session_->Run("reshape", {1}, 9), Code::kInvalidArgument,
              {"reshape", "shape", "missing"});
  ExpectError(session_->Run("reshape", {1}, 9, {{"shape", int64_t{3}}}), Code::kInvalidArgument,
              {"reshape", "shape", "ints"});
  ExpectError(session_->Run("sum", {1}, 9, {{"axes", std::string("all")}}), Code::kInvalidArgument,
              {"sum", "axes", "ints"});
  ExpectError(session_->Run("sum", {1}, 9, {{"axis", int64_t{0}}}), Code::kInvalidArgument,
              {"sum", "axis"});
  ExpectError(session_->Run("sum", {1}, 9, {{"axes", Ints(100000, 0)}}), Code::kInvalidArgument,
              {"sum"});
  ExpectError(session_->Run("cast", {1}, 9, {{"dtype", int64_t{3}}}), Code::kInvalidArgument,
              {"cast", "dtype"});
  ExpectError(session_->Run("cast", {1}, 9, {{"dtype", static_cast<DType>(99)}}),
              Code::kInvalidArgument, {"dtype", "99"});
  ExpectError(session_->Run("softmax", {1}, 9, {{"axis", 1.0}}), Code::kInvalidArgument,
              {"softmax", "axis"});
  ExpectError(session_->Run("ones", {}, 9, {{"shape", Ints{1}}}), Code::kInvalidArgument);
  ExpectError(session_->Run("neg", {1}, 9, {}, "cpu:1"), Code::kInvalidArgument, {"cpu:1"});
  ExpectError(session_->Run("add", {1, 3}, 9), Code::kInvalidArgument, {"cpu:0", "cpu:1"});
  ExpectError(session_->Run("matmul", {1, 1}, 9, {{"transpose_a", true}}), Code::kInvalidArgument,
              {"matmul", "transpose_a"});
}

TEST_F(BadInputTest, RejectsEmptyAndTooManyAttributes) {
  v1::RunOpRequest request;
  request.set_session(session_->id());
  request.mutable_op()->set_name("neg");
  request.mutable_op()->add_inputs(1);
  request.mutable_op()->set_output(9);
  (*request.mutable_op()->mutable_attrs())["axes"];
  ExpectError(client_->Call<v1::Tensor>("RunOp", request), Code::kInvalidArgument, {"axes"});
  for (int i = 0; i < 10000; ++i) {
    (*request.mutable_op()->mutable_attrs())["a" + std::to_string(i)].set_i(i);
  }
  ExpectError(client_->Call<v1::Tensor>("RunOp", request), Code::kInvalidArgument);
  request.clear_op();
  ExpectError(client_->Call<v1::Tensor>("RunOp", request), Code::kNotFound);
}

TEST_F(BadInputTest, RejectsResultsLargerThanAnyTensor) {
  ASSERT_TRUE(session_->Run("zeros", {}, 9, {{"shape", Ints{0, 1 << 20}}}, "cpu:0").ok());
  ASSERT_TRUE(session_->Run("zeros", {}, 10, {{"shape", Ints{1 << 20, 0, 1}}}, "cpu:0").ok());
  ExpectError(session_->Run("broadcast_to", {1}, 11, {{"shape", Ints{int64_t{1} << 47, 3}}}),
              Code::kInvalidArgument, {"broadcast_to"});
  ExpectError(session_->Run("broadcast_to", {1}, 11, {{"shape", Ints{int64_t{1} << 40, 3}}}),
              Code::kResourceExhausted, {"cpu:0"});
  ASSERT_TRUE(session_->Delete({9, 10}).ok());
}

TEST_F(BadInputTest, RejectsUnknownSessions) {
  v1::GetTensorRequest request;
  request.set_handle(1);
  ExpectError(client_->Call<v1::Tensor>("GetTensor", request), Code::kInvalidArgument, {"session"});
  for (const std::string& id : {std::string("0"), std::string(32, 'a'), std::string(100000, 'b')}) {
    request.set_session(id);
    ExpectError(client_->Call<v1::Tensor>("GetTensor", request), Code::kNotFound, {"OpenSession"});
  }
  v1::OpenSessionRequest open;
  open.set_lease_seconds(-5);
  ExpectError(client_->Call<v1::Session>("OpenSession", open), Code::kInvalidArgument, {"lease"});
  open.set_lease_seconds(0);
  open.set_client_name(std::string(1000, 'n'));
  ExpectError(client_->Call<v1::Session>("OpenSession", open), Code::kInvalidArgument,
              {"client_name"});
}

TEST_F(BadInputTest, RejectsBytesThatAreNoMessage) {
  for (const std::string& bytes :
       {std::string("\xff\xff\xff\xff"), std::string("\x0a\x7f"), std::string(1000, '\x0a'),
        std::string("\x2a\xff\xff\xff\xff\x7f"), std::string(100, '\x00')}) {
    for (const char* method : {"CreateTensor", "RunOp", "Add", "ReadTensor", "OpenSession", "Write",
                               "Read", "SessionStream"}) {
      EXPECT_FALSE(client_->CallRaw(method, bytes).ok()) << method;
    }
  }
  ExpectError(client_->CallRaw("NoSuchMethod", ""), Code::kUnimplemented);
}

// Sends bytes to the port without gRPC: no HTTP/2 at all, and an HTTP/2 preface with garbage.
TEST_F(BadInputTest, SurvivesBytesThatAreNoRpc) {
  const int port = std::stoi(daemon_->address().substr(daemon_->address().rfind(':') + 1));
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(65536, '\xff'), std::string(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + std::string(1000, '\x7f')}) {
    const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(connect(connection, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    close(connection);
  }
  EXPECT_TRUE(session_->Get(1).ok());
}

// A client that uses one connection for everything, as a generated stub does.
TEST_F(BadInputTest, RejectsTooLargeMessagesAndServesTheConnectionAfterwards) {
  const TensorSpec largest = {DType::kUInt8, {16 << 20}};
  for (const int64_t bytes : {18 << 20, (16 << 20) + (128 << 10), 40 << 20, 80 << 20, 200 << 20}) {
    SCOPED_TRACE(bytes);
    const std::string data(static_cast<size_t>(bytes), 'x');
    for (const TensorSpec& spec : {TensorSpec{DType::kUInt8, {bytes}}, TensorSpec{kF32, {3}}}) {
      ExpectError(session_->Create(9, spec, data), Code::kResourceExhausted,
                  {"16777216", "--max-message-bytes", "Write"});
      const auto made = session_->Create(9, largest, std::string(16 << 20, 'x'));
      EXPECT_TRUE(made.ok()) << made.status();
      EXPECT_TRUE(session_->Delete({9}).ok());
    }
  }
}

// The open stream waits for a message, too, but it isn't the call that is refused.
TEST_F(BadInputTest, RefusesTooLargeMessageBesideAnOpenStream) {
  const auto stream = client_->SessionStream();
  v1::SessionStreamRequest attach;
  attach.mutable_attach()->set_session(session_->id());
  ASSERT_TRUE(stream->Send(attach));
  ExpectError(session_->Create(9, {DType::kUInt8, {40 << 20}}, std::string(40 << 20, 'x')),
              Code::kResourceExhausted, {"16777216", "--max-message-bytes", "Write"});
  stream->HalfClose();
  while (stream->Next().has_value()) {
  }
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(BadInputTest, RejectsTooLargeMessagesOfAWrite) {
  for (const int64_t bytes : {17 << 20, 40 << 20}) {
    const auto write = client_->Write();
    v1::WriteRequest message = session_->FirstWrite(9, {DType::kUInt8, {64 << 20}});
    message.set_data(std::string(static_cast<size_t>(bytes), 'x'));
    write->Send(message);
    ExpectError(write->Finish().status(), Code::kResourceExhausted,
                {"16777216", "--max-message-bytes"});
  }
  EXPECT_TRUE(session_->Get(1).ok());
}

TEST_F(BadInputTest, RejectsUnknownActivations) {
  ASSERT_TRUE(session_->Create(4, {kF32, {2, 2}}, std::string(16, '\0')).ok());
  v1::LinearForwardRequest request;
  request.set_session(session_->id());
  request.set_input(4);
  request.set_weight(4);
  request.set_output(9);
  request.set_activation("reul");
  ExpectError(client_->Call<v1::Tensor>("LinearForward", request), Code::kInvalidArgument,
              {"activation", "reul", "relu"});
  request.set_activation("");
  EXPECT_TRUE(client_->Call<v1::Tensor>("LinearForward", request).ok());
  EXPECT_TRUE(session_->Delete({4, 9}).ok());
}

}  // namespace
}  // namespace tensord::integration
