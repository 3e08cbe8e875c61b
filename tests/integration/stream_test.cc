// The session stream: commands, answers, errors that stick, and misuse.
#include <cstring>

#include "tensord/tests/integration/daemon_fixture.h"

namespace tensord::integration {
namespace {

using Code = absl::StatusCode;
using testing::ElementsAre;
using testing::HasSubstr;

class StreamTest : public DaemonFixture {
 protected:
  // The answers of a stream so far.
  struct Answers {
    uint64_t commands_received = 0;
    std::vector<v1::HandleError> errors;
    std::vector<v1::Elements> elements;
    std::vector<uint64_t> barriers;
  };

  v1::SessionStreamRequest AttachMessage() {
    v1::SessionStreamRequest message = session_->Attach();
    return message;
  }

  static void AddOp(v1::SessionStreamRequest& message, const std::string& name,
                    const std::vector<uint64_t>& inputs, uint64_t output) {
    v1::Op& op = *message.add_commands()->mutable_op();
    op.set_name(name);
    for (uint64_t input : inputs) op.add_inputs(input);
    op.set_output(output);
  }

  // Adds an op that makes `n` float32 ones.
  static void AddOnes(v1::SessionStreamRequest& message, uint64_t output, int64_t n,
                      const std::string& device = "cpu:0") {
    AddOp(message, "ones", {}, output);
    v1::Op& op = *message.mutable_commands(message.commands_size() - 1)->mutable_op();
    (*op.mutable_attrs())["shape"].mutable_ints()->add_values(n);
    op.set_device(device);
  }

  static void AddGetElements(v1::SessionStreamRequest& message, uint64_t handle, uint64_t id) {
    v1::GetElements& get = *message.add_commands()->mutable_get_elements();
    get.set_handle(handle);
    get.set_request_id(id);
  }

  static void AddBarrier(v1::SessionStreamRequest& message, uint64_t id) {
    message.add_commands()->mutable_barrier()->set_barrier_id(id);
  }

  static void AddPromise(v1::SessionStreamRequest& message, uint64_t handle,
                         const TensorSpec& spec) {
    v1::Promise& promise = *message.add_commands()->mutable_promise();
    promise.set_handle(handle);
    *promise.mutable_spec() = ToProto(spec);
    promise.set_device("cpu:0");
  }

  static void Take(const v1::SessionStreamResponse& message, Answers& answers) {
    EXPECT_GE(message.commands_received(), answers.commands_received);
    answers.commands_received = message.commands_received();
    answers.errors.insert(answers.errors.end(), message.errors().begin(), message.errors().end());
    answers.elements.insert(answers.elements.end(), message.elements().begin(),
                            message.elements().end());
    for (const v1::BarrierDone& barrier : message.barriers()) {
      answers.barriers.push_back(barrier.barrier_id());
    }
  }

  // Reads answers until `condition` is true or the stream has ended.
  static void ReadUntil(StreamCall& stream, Answers& answers,
                        const std::function<bool()>& condition) {
    while (!condition()) {
      const auto message = stream.Next();
      if (!message.has_value()) return;
      Take(*message, answers);
    }
  }

  // Sends the messages on a new stream. Returns all answers and sets last_status_.
  Answers Run(const std::vector<v1::SessionStreamRequest>& messages) {
    Answers answers;
    last_status_ =
        RunStream(*client_, messages, [&answers](const auto& message) { Take(message, answers); });
    return answers;
  }

  static std::vector<float> Floats(const v1::Elements& elements) {
    std::vector<float> values(elements.data().size() / 4);
    std::memcpy(values.data(), elements.data().data(), elements.data().size());
    return values;
  }

  absl::Status last_status_;
};

// A response with the texts of all errors would take 8 MiB.
TEST_F(StreamTest, ErrorTextsOfGetElementsAreSplitIntoResponses) {
  constexpr int kCommands = 2000;
  v1::SessionStreamRequest message = AttachMessage();
  AddPromise(message, 1, {DType::kFloat32, {2}});
  v1::FailPromise& fail = *message.add_commands()->mutable_fail();
  fail.set_handle(1);
  fail.set_code(static_cast<int>(Code::kAborted));
  fail.set_message(std::string(4096, 'x'));
  for (int i = 0; i < kCommands; ++i) AddGetElements(message, 1, i);
  Answers answers;
  const absl::Status ended = RunStream(*client_, {message}, [&answers](const auto& response) {
    EXPECT_LT(response.ByteSizeLong(), 2 << 20);
    Take(response, answers);
  });
  EXPECT_TRUE(ended.ok()) << ended;
  ASSERT_EQ(answers.elements.size(), kCommands);
  for (const v1::Elements& elements : answers.elements) {
    ASSERT_EQ(elements.code(), static_cast<int>(Code::kAborted));
  }
}

TEST_F(StreamTest, RunsAllCommandsOfOneMessage) {
  v1::SessionStreamRequest message = AttachMessage();
  AddOnes(message, 1, 3);
  AddOp(message, "add", {1, 1}, 2);
  AddOp(message, "mul", {2, 2}, 3);
  v1::Copy& copy = *message.add_commands()->mutable_copy();
  copy.set_input(3);
  copy.set_output(4);
  copy.set_device("cpu:1");
  message.add_commands()->mutable_drop()->add_handles(2);
  message.mutable_commands(4)->mutable_drop()->add_handles(12345);
  AddGetElements(message, 4, 77);
  AddBarrier(message, 88);
  const Answers answers = Run({message});
  EXPECT_TRUE(last_status_.ok()) << last_status_;
  EXPECT_EQ(answers.commands_received, 7u);
  EXPECT_EQ(answers.errors.size(), 0u);
  ASSERT_EQ(answers.elements.size(), 1u);
  EXPECT_EQ(answers.elements[0].request_id(), 77u);
  EXPECT_THAT(Floats(answers.elements[0]), ElementsAre(4, 4, 4));
  EXPECT_THAT(answers.barriers, ElementsAre(88));
  ExpectError(session_->Get(2), Code::kNotFound);
  EXPECT_TRUE(session_->Get(3).ok()) << "the session outlives its stream";
}

TEST_F(StreamTest, CommandsAreCountedOverTheSession) {
  v1::SessionStreamRequest first = AttachMessage();
  AddOnes(first, 1, 3);
  EXPECT_EQ(Run({first}).commands_received, 1u);
  v1::SessionStreamRequest second = AttachMessage();
  AddOp(second, "neg", {1}, 2);
  AddOp(second, "neg", {2}, 3);
  EXPECT_EQ(Run({second}).commands_received, 3u);
  EXPECT_EQ(Run({AttachMessage()}).commands_received, 3u) << "sent at each attachment";
}

TEST_F(StreamTest, ErrorsStickAndNameTheirCommand) {
  v1::SessionStreamRequest message = AttachMessage();
  AddOnes(message, 1, 3);
  AddOp(message, "no_such_op", {1}, 2);
  AddOp(message, "neg", {2}, 3);
  AddOp(message, "add", {1, 3}, 4);
  AddGetElements(message, 4, 5);
  AddOp(message, "neg", {1}, 6);
  AddGetElements(message, 6, 6);
  const Answers answers = Run({message});
  EXPECT_TRUE(last_status_.ok()) << "an op that fails doesn't end the stream: " << last_status_;
  ASSERT_GE(answers.errors.size(), 1u);
  EXPECT_EQ(answers.errors[0].handle(), 2u);
  EXPECT_EQ(answers.errors[0].command(), 2u);
  EXPECT_EQ(answers.errors[0].code(), static_cast<int>(Code::kNotFound));
  EXPECT_THAT(answers.errors[0].message(), HasSubstr("no_such_op"));
  ASSERT_EQ(answers.elements.size(), 2u);
  for (const v1::Elements& elements : answers.elements) {
    if (elements.request_id() == 5) {
      EXPECT_EQ(elements.message(), answers.errors[0].message());
    } else {
      EXPECT_THAT(Floats(elements), ElementsAre(-1, -1, -1));
    }
  }
  ExpectError(session_->Get(3), Code::kNotFound, {"no_such_op"});
  ExpectError(session_->Read(4), Code::kNotFound, {"no_such_op"});
  EXPECT_TRUE(session_->List().ok()) << "failed handles can be listed";
  EXPECT_TRUE(session_->Delete({2, 3, 4}).ok()) << "failed handles can be deleted";
}

TEST_F(StreamTest, OutOfMemorySticks) {
  v1::SessionStreamRequest message = AttachMessage();
  AddOnes(message, 1, 30 << 20, "cpu:1");
  AddOp(message, "neg", {1}, 2);
  AddOnes(message, 3, 4, "cpu:1");
  AddGetElements(message, 3, 3);
  AddBarrier(message, 1);
  const Answers answers = Run({message});
  ASSERT_EQ(answers.elements.size(), 1u);
  EXPECT_EQ(answers.elements[0].code(), 0);
  ExpectError(session_->Get(1), Code::kResourceExhausted,
              {"ones: the result float32[31457280]", "cpu:1"});
  ExpectError(session_->Get(2), Code::kResourceExhausted, {"ones: the result"});
  ExpectEventuallyUsed(1, 16);
}

TEST_F(StreamTest, CopiesToTheSameDeviceShare) {
  v1::SessionStreamRequest message = AttachMessage();
  AddOnes(message, 1, 4);
  v1::Copy& copy = *message.add_commands()->mutable_copy();
  copy.set_input(1);
  copy.set_output(2);
  copy.set_device("cpu:0");
  AddGetElements(message, 2, 1);
  const Answers answers = Run({message});
  ASSERT_EQ(answers.elements.size(), 1u);
  EXPECT_THAT(Floats(answers.elements[0]), ElementsAre(1, 1, 1, 1));
  EXPECT_EQ(Used(0), 16);
}

TEST_F(StreamTest, WriteFulfillsAPromise) {
  const TensorSpec spec{DType::kFloat32, {2}};
  auto stream = client_->SessionStream();
  v1::SessionStreamRequest message = AttachMessage();
  AddPromise(message, 1, spec);
  AddOp(message, "neg", {1}, 2);
  AddGetElements(message, 2, 1);
  AddOnes(message, 3, 2);
  AddGetElements(message, 3, 2);
  ASSERT_TRUE(stream->Send(message));
  Answers answers;
  ReadUntil(*stream, answers, [&] { return answers.elements.size() == 1; });
  ASSERT_EQ(answers.elements.size(), 1u);
  EXPECT_EQ(answers.elements[0].request_id(), 2u) << "this read doesn't need the upload";
  v1::WriteRequest write = session_->FirstWrite(1, spec);
  write.mutable_spec()->set_after_command(1);
  const float values[] = {5, -6};
  write.set_data(std::string(reinterpret_cast<const char*>(values), 8));
  auto call = client_->Write();
  call->Send(write);
  const auto written = call->Finish();
  ASSERT_TRUE(written.ok()) << written.status();
  ReadUntil(*stream, answers, [&] { return answers.elements.size() == 2; });
  ASSERT_EQ(answers.elements.size(), 2u);
  EXPECT_THAT(Floats(answers.elements[1]), ElementsAre(-5, 6));
  stream->HalfClose();
  while (const auto rest = stream->Next()) {  // commands_received may be repeated
    EXPECT_EQ(rest->elements_size(), 0);
  }
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(StreamTest, CallsWaitForTheCommandsThatTheyName) {
  auto stream = client_->SessionStream();
  ASSERT_TRUE(stream->Send(AttachMessage()));
  std::thread sender([&] {
    v1::SessionStreamRequest message;
    AddOnes(message, 1, 2);
    AddOp(message, "neg", {1}, 2);
    stream->Send(message);
  });
  const auto read = session_->Read(2, /*after_command=*/2);
  sender.join();
  ASSERT_TRUE(read.ok()) << read.status();
  stream->HalfClose();
  while (stream->Next().has_value()) {
  }
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(StreamTest, GetElementsRefusesLargeTensors) {
  v1::SessionStreamRequest message = AttachMessage();
  AddOnes(message, 1, (1 << 18) + 1);
  AddGetElements(message, 1, 1);
  AddOnes(message, 2, 1 << 18);
  AddGetElements(message, 2, 2);
  const Answers answers = Run({message});
  ASSERT_EQ(answers.elements.size(), 2u);
  for (const v1::Elements& elements : answers.elements) {
    if (elements.request_id() == 1) {
      EXPECT_EQ(elements.code(), static_cast<int>(Code::kOutOfRange));
      EXPECT_THAT(elements.message(), HasSubstr("Read"));
    } else {
      EXPECT_EQ(elements.data().size(), 1u << 20);
    }
  }
}

TEST_F(StreamTest, ManyCommandsInManyMessages) {
  std::vector<v1::SessionStreamRequest> messages(101);
  messages[0] = AttachMessage();
  AddOnes(messages[0], 1, 8);
  uint64_t last = 1;
  for (int m = 1; m <= 100; ++m) {
    for (int i = 0; i < 200; ++i) {
      AddOp(messages[m], "neg", {last}, last + 1);
      messages[m].add_commands()->mutable_drop()->add_handles(last++);
    }
  }
  AddGetElements(messages[100], last, 1);
  const Answers answers = Run(messages);
  EXPECT_TRUE(last_status_.ok()) << last_status_;
  EXPECT_EQ(answers.commands_received, 40002u);
  EXPECT_EQ(answers.errors.size(), 0u);
  ASSERT_EQ(answers.elements.size(), 1u);
  EXPECT_EQ(Floats(answers.elements[0])[0], 1);
  ExpectEventuallyUsed(0, 32);
}

TEST_F(StreamTest, MisuseEndsOnlyTheStream) {
  v1::SessionStreamRequest nothing;
  Run({nothing});
  ExpectError(last_status_, Code::kInvalidArgument, {"attach"});
  v1::SessionStreamRequest unattached;
  AddOnes(unattached, 1, 1);
  Run({unattached});
  ExpectError(last_status_, Code::kInvalidArgument, {"attach"});
  Run({AttachMessage(), AttachMessage()});
  ExpectError(last_status_, Code::kInvalidArgument, {"attach"});
  v1::SessionStreamRequest nowhere;
  nowhere.mutable_attach()->set_session(std::string(32, 'c'));
  Run({nowhere});
  ExpectError(last_status_, Code::kNotFound, {"OpenSession"});
  Run({});
  ExpectError(last_status_, Code::kInvalidArgument, {"attach"});
  ExpectError(session_->Get(1), Code::kNotFound);
}

TEST_F(StreamTest, AllowsOneStreamPerSession) {
  auto first = client_->SessionStream();
  ASSERT_TRUE(first->Send(AttachMessage()));
  ASSERT_TRUE(first->Next().has_value());
  Run({AttachMessage()});
  ExpectError(last_status_, Code::kFailedPrecondition, {"stream"});
  first->HalfClose();
  EXPECT_FALSE(first->Next().has_value());
  EXPECT_TRUE(first->Finish().ok());
  EXPECT_TRUE(Eventually([this] {
    Run({AttachMessage()});
    return last_status_.ok();
  }));
}

TEST_F(StreamTest, InvalidCommandsFailAlone) {
  v1::SessionStreamRequest message = AttachMessage();
  message.add_commands();
  AddOnes(message, 0, 1);
  AddOnes(message, 1, 1);
  AddOnes(message, 1, 1);
  AddGetElements(message, 99, 1);
  AddPromise(message, 2, {DType::kUnspecified, {1}});
  AddPromise(message, 3, {DType::kFloat32, {-1}});
  AddBarrier(message, 4);
  const Answers answers = Run({message});
  EXPECT_TRUE(last_status_.ok()) << last_status_;
  EXPECT_EQ(answers.commands_received, 8u);
  ASSERT_EQ(answers.errors.size(), 5u);
  EXPECT_EQ(answers.errors[0].command(), 1u);
  EXPECT_EQ(answers.errors[1].command(), 2u);
  EXPECT_EQ(answers.errors[1].handle(), 0u);
  EXPECT_EQ(answers.errors[2].code(), static_cast<int>(Code::kAlreadyExists));
  ASSERT_EQ(answers.elements.size(), 1u);
  EXPECT_EQ(answers.elements[0].code(), static_cast<int>(Code::kNotFound));
  EXPECT_THAT(answers.barriers, ElementsAre(4));
  EXPECT_THAT(*session_->ReadFloats(1), ElementsAre(1)) << "the first tensor of this handle stays";
}

TEST_F(StreamTest, ADroppedPromiseIsAnErrorOnlyForOpsThatUseIt) {
  v1::SessionStreamRequest message = AttachMessage();
  AddPromise(message, 1, {DType::kFloat32, {2}});
  AddPromise(message, 2, {DType::kFloat32, {2}});
  AddOp(message, "add", {2, 2}, 3);
  v1::Drop* drop = message.add_commands()->mutable_drop();
  for (const uint64_t handle : {1, 2}) drop->add_handles(handle);
  AddBarrier(message, 4);
  const Answers answers = Run({message});
  EXPECT_THAT(answers.barriers, ElementsAre(4));
  ASSERT_EQ(answers.errors.size(), 1u);
  EXPECT_EQ(answers.errors[0].handle(), 3u);
  EXPECT_THAT(answers.errors[0].message(), testing::HasSubstr("tensor 2 was promised"));
}

TEST_F(StreamTest, CancelledStreamKeepsItsSession) {
  {
    auto stream = client_->SessionStream();
    v1::SessionStreamRequest message = AttachMessage();
    AddOnes(message, 1, 2);
    AddPromise(message, 2, {DType::kFloat32, {2}});
    AddGetElements(message, 2, 1);
    ASSERT_TRUE(stream->Send(message));
    ASSERT_TRUE(stream->Next().has_value());
    stream->Cancel();
    stream->Finish().IgnoreError();
  }
  EXPECT_TRUE(Eventually([this] {
    Run({AttachMessage()});
    return last_status_.ok();
  }));
  EXPECT_THAT(*session_->ReadFloats(1), ElementsAre(1, 1));
}

class ResumableStreamTest : public StreamTest {
 protected:
  v1::SessionStreamRequest AttachMessage(uint64_t answers_received = 0) {
    v1::SessionStreamRequest message = StreamTest::AttachMessage();
    message.mutable_attach()->set_resumable(true);
    message.set_answers_received(answers_received);
    return message;
  }
};

// Commands that are sent again over another stream are applied once. Twice would be an error.
TEST_F(ResumableStreamTest, IgnoresRepeatedCommands) {
  v1::SessionStreamRequest first = AttachMessage();
  first.set_first_command(1);
  AddOnes(first, 1, 2);
  v1::SessionStreamRequest second;
  second.set_first_command(2);
  AddOp(second, "add", {1, 1}, 2);
  AddGetElements(second, 2, 7);
  EXPECT_EQ(Run({first, second}).commands_received, 3u);

  const Answers again = Run({first, second});
  EXPECT_TRUE(last_status_.ok()) << last_status_;
  EXPECT_EQ(again.commands_received, 3u);
  EXPECT_TRUE(again.errors.empty());
  ASSERT_EQ(again.elements.size(), 1u) << "the answer that was never acknowledged";
  EXPECT_THAT(Floats(again.elements[0]), ElementsAre(2, 2));

  const Answers acknowledged = Run({AttachMessage(/*answers_received=*/1)});
  EXPECT_TRUE(acknowledged.elements.empty());
}

TEST_F(ResumableStreamTest, AGapEndsTheStream) {
  v1::SessionStreamRequest message = AttachMessage();
  message.set_first_command(2);
  AddOnes(message, 1, 2);
  Run({message});
  ExpectError(last_status_, Code::kInvalidArgument, {"first_command 2", "command 1"});
}

TEST_F(ResumableStreamTest, NewStreamReplacesTheFormerOne) {
  auto former = client_->SessionStream();
  ASSERT_TRUE(former->Send(AttachMessage()));
  ASSERT_TRUE(former->Next().has_value());
  Run({AttachMessage()});
  EXPECT_TRUE(last_status_.ok()) << last_status_;
  ExpectError(former->Finish(), Code::kAborted, {"another stream"});
}

// Messages of a broken connection may arrive after those of the next connection.
TEST_F(ResumableStreamTest, LateStreamDoesNotReplaceANewerOne) {
  v1::SessionStreamRequest late = AttachMessage();
  late.mutable_attach()->set_attempt(1);
  late.set_first_command(1);
  AddOnes(late, 1, 2);
  v1::SessionStreamRequest next = AttachMessage();
  next.mutable_attach()->set_attempt(2);
  auto stream = client_->SessionStream();
  ASSERT_TRUE(stream->Send(next));
  ASSERT_TRUE(stream->Next().has_value());
  Run({late});
  ExpectError(last_status_, Code::kAborted, {"later stream"});

  v1::SessionStreamRequest message;
  message.set_first_command(1);
  AddBarrier(message, 5);
  ASSERT_TRUE(stream->Send(message));
  auto answer = stream->Next();
  while (answer.has_value() && answer->commands_received() == 0) answer = stream->Next();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->commands_received(), 1u) << "the late stream's command wasn't applied";
}

// A call that waits for ever doesn't keep its session in use after the client has cancelled it.
TEST_F(StreamTest, CancelledCallsLetTheLeaseExpire) {
  RpcSession expiring(*client_, kShortLeaseSeconds);
  ASSERT_TRUE(expiring.CreateFloats(1, {1, 2}).ok());
  {
    RpcClient impatient(daemon_->address());
    impatient.set_deadline_seconds(0.2);
    v1::GetTensorRequest get;
    get.set_session(expiring.id());
    get.set_handle(5);
    get.set_after_command(1000);
    ExpectError(impatient.Call<v1::Tensor>("GetTensor", get), Code::kDeadlineExceeded);
    ExpectError(impatient.Call<v1::ReadTensorResponse>("ReadTensor", get), Code::kDeadlineExceeded);
    v1::ReadRequest read = expiring.ReadRequest(5);
    read.set_after_command(1000);
    auto reading = impatient.Read(read);
    EXPECT_FALSE(reading->Next().has_value());
    ExpectError(reading->Finish(), Code::kDeadlineExceeded);
    v1::WriteRequest write = expiring.FirstWrite(6, {DType::kFloat32, {2}});
    write.mutable_spec()->set_after_command(1000);
    auto writing = impatient.Write();
    writing->Send(write);
    ExpectError(writing->Finish(), Code::kDeadlineExceeded);
  }
  EXPECT_TRUE(Eventually([this] { return Used(0) == 0; })) << "the session is still there";
}

}  // namespace
}  // namespace tensord::integration
