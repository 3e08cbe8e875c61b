// Programs, recorded by the C++ client and run by the real daemon.
#include <utility>

#include "tensord/tests/integration/client_fixture.h"

namespace tensord::integration {
namespace {

using Code = absl::StatusCode;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class ProgramTest : public ClientFixture {
 protected:
  Device& device_ = first_;
};

const TensorSpec kThree{DType::kFloat32, {3}};

TEST_F(ProgramTest, RunsWithOtherInputsEachTime) {
  const Tensor weight = FromVector(device_, std::vector<float>{1, 2, 3});
  const auto program = Program::Record(device_, {kThree, kThree}, [&](absl::Span<const Tensor> in) {
    const Tensor sum = in[0] + in[1];
    return std::vector<Tensor>{sum * weight, Relu(-sum)};
  });
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->num_ops(), 4);
  EXPECT_EQ(program->outputs(), (std::vector<TensorSpec>{kThree, kThree}));
  for (float scale : {1.0f, -2.0f}) {
    const Tensor a = FromVector(device_, std::vector<float>{scale, scale, scale});
    const std::vector<Tensor> out = program->Run({a, a});
    ASSERT_EQ(out.size(), 2u);
    EXPECT_THAT(*out[0].Read<float>(), ElementsAre(2 * scale, 4 * scale, 6 * scale));
    const float negative = scale < 0 ? -2 * scale : 0;
    EXPECT_THAT(*out[1].Read<float>(), ElementsAre(negative, negative, negative));
  }
}

// The program frees intermediate values, changes shapes and shares memory between tensors.
TEST_F(ProgramTest, GivesTheSameResultsAsSingleOps) {
  const auto body = [&](absl::Span<const Tensor> in) {
    Tensor x = in[0];
    for (int i = 0; i < 50; ++i) x = x * 0.5 + in[1];
    const Tensor rows = Reshape(x, {8, 8});
    const Tensor turned = Permute(rows, {1, 0});
    return std::vector<Tensor>{
        Matmul(rows, turned),        Softmax(turned),          x, rows, in[1],
        Argmax(rows, {.axes = {1}}), Concat({rows, turned}, 0)};
  };
  const Tensor a = Uniform(device_, {64}, 1);
  const Tensor b = Normal(device_, {64}, 2);
  const auto program = Program::Record(device_, {a.spec(), b.spec()}, body);
  ASSERT_TRUE(program.ok()) << program.status();
  const std::vector<Tensor> wanted = body({{a, b}});
  for (int run = 0; run < 3; ++run) {
    const std::vector<Tensor> out = program->Run({a, b});
    ASSERT_EQ(out.size(), wanted.size());
    for (size_t i = 0; i < out.size(); ++i) {
      EXPECT_EQ(*out[i].ReadBytes(), *wanted[i].ReadBytes()) << "output " << i;
    }
  }
}

TEST_F(ProgramTest, RunSendsOneCommandWithoutWaiting) {
  const auto program = Program::Record(device_, {kThree}, [](absl::Span<const Tensor> in) {
    Tensor x = in[0];
    for (int i = 0; i < 1000; ++i) x = x + in[0];
    return std::vector<Tensor>{x};
  });
  ASSERT_TRUE(program.ok()) << program.status();
  const Tensor x = FromVector(device_, std::vector<float>{1, 2, 3});
  ASSERT_TRUE(client_.Synchronize().ok());
  const ClientStats before = client_.stats();
  const Tensor y = program->Run({x})[0];
  EXPECT_THAT(*y.Read<float>(), ElementsAre(1001, 2002, 3003));
  const ClientStats after = client_.stats();
  EXPECT_EQ(after.commands_sent - before.commands_sent, 2) << "the run and the read";
  EXPECT_EQ(after.waits - before.waits, 1);
}

TEST_F(ProgramTest, RunKeepsMemoryOnlyForItsOutputs) {
  const TensorSpec big{DType::kFloat32, {1 << 20}};
  const auto program = Program::Record(device_, {big}, [](absl::Span<const Tensor> in) {
    return std::vector<Tensor>{Sqrt(Exp(in[0]) + in[0]) * in[0]};
  });
  ASSERT_TRUE(program.ok()) << program.status();
  const Tensor x = Ones(device_, {1 << 20});
  ASSERT_TRUE(client_.Synchronize().ok());
  const int64_t before = Used(device_);
  {
    const std::vector<Tensor> out = program->Run({x});
    ASSERT_TRUE(out[0].Wait().ok());
    ExpectEventuallyUsed([this] { return Used(device_); }, before + big.size_bytes());
  }
  ExpectEventuallyUsed([this] { return Used(device_); }, before);
}

TEST_F(ProgramTest, ServerReleasesDroppedPrograms) {
  const int64_t before = Used(device_);
  for (int i = 0; i < 5000; ++i) {  // more than the server keeps at once
    const auto program = Program::Record(device_, {kThree}, [](absl::Span<const Tensor> in) {
      return std::vector<Tensor>{Exp(in[0] + in[0])};
    });
    ASSERT_TRUE(program.ok()) << program.status();
  }
  EXPECT_EQ(Used(device_), before);
}

TEST_F(ProgramTest, RejectsReadsAndCopiesOfPlaceholders) {
  absl::Status read, copied;
  Tensor kept;
  const auto program = Program::Record(device_, {kThree}, [&](absl::Span<const Tensor> in) {
    read = in[0].Read<float>().status();
    copied = in[0].To(*client_.device("cpu:1")).status();
    kept = in[0];
    return std::vector<Tensor>{in[0] + in[0]};
  });
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(read.code(), Code::kFailedPrecondition);
  EXPECT_THAT(std::string(read.message()), HasSubstr("being recorded"));
  EXPECT_EQ(copied.code(), Code::kFailedPrecondition);
  EXPECT_EQ((kept + kept).status().code(), Code::kFailedPrecondition) << "the recording has ended";
}

TEST_F(ProgramTest, IgnoresOpsThatFailedDuringTheRecording) {
  Tensor of_another_program;
  ASSERT_TRUE(Program::Record(device_, {kThree}, [&](absl::Span<const Tensor> in) {
                of_another_program = in[0];
                return std::vector<Tensor>{in[0]};
              }).ok());
  absl::Status mixed;
  const auto program = Program::Record(device_, {kThree}, [&](absl::Span<const Tensor> in) {
    mixed = (in[0] + of_another_program).status();
    return std::vector<Tensor>{in[0] * 2.0};
  });
  EXPECT_EQ(mixed.code(), Code::kFailedPrecondition) << mixed;
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->num_ops(), 1);
  const Tensor x = FromVector(device_, std::vector<float>{1, 2, 3});
  EXPECT_THAT(*program->Run({x})[0].Read<float>(), ElementsAre(2, 4, 6));
}

TEST_F(ProgramTest, PrintingAPlaceholderRecordsNothing) {
  std::string printed;
  const auto program =
      Program::Record(device_, {{DType::kFloat32, {4000}}}, [&](absl::Span<const Tensor> in) {
        printed = in[0].ToString();
        return std::vector<Tensor>{in[0] + in[0]};
      });
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_THAT(printed, HasSubstr("being recorded"));
  EXPECT_EQ(program->num_ops(), 1);
}

TEST_F(ProgramTest, RejectsAnOutputOfAnotherConnection) {
  const auto other = Client::Connect(daemon_->address());
  ASSERT_TRUE(other.ok()) << other.status();
  const Tensor foreign = Ones(*other->device(device_.name()), {3});
  const auto program = Program::Record(
      device_, {kThree}, [&](absl::Span<const Tensor>) { return std::vector<Tensor>{foreign}; });
  EXPECT_EQ(program.status().code(), Code::kInvalidArgument) << program.status();
  EXPECT_THAT(std::string(program.status().message()), HasSubstr("another connection"));
}

TEST_F(ProgramTest, RejectsInvalidBodiesAndInputs) {
  const auto refused = Program::Record(device_, {kThree}, [&](absl::Span<const Tensor> in) {
    return std::vector<Tensor>{in[0] + Ones(device_, {2})};
  });
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("[3]"));

  const Tensor elsewhere = Ones(*client_.device("cpu:1"), {3});
  const auto apart = Program::Record(device_, {kThree}, [&](absl::Span<const Tensor> in) {
    return std::vector<Tensor>{in[0] + elsewhere};
  });
  EXPECT_EQ(apart.status().code(), Code::kInvalidArgument);
  // A tensor that is made while recording can't be copied, so the error suggests to copy the other.
  EXPECT_THAT(std::string(apart.status().message()),
              AllOf(HasSubstr(elsewhere.Describe() + " is on cpu:1; copy that to cpu:0"),
                    HasSubstr("before Program::Record"), Not(HasSubstr("tensor 0"))));

  const auto program = Program::Record(device_, {kThree}, [](absl::Span<const Tensor> in) {
    return std::vector<Tensor>{Exp(in[0])};
  });
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->Run({}).at(0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(program->Run({Ones(device_, {4})})[0].status().code(), Code::kInvalidArgument);
  EXPECT_EQ(program->Run({elsewhere})[0].status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Program().Run({}).at(0).status().code(), Code::kFailedPrecondition);
}

// An error of the server sticks to the outputs of its run. The next run succeeds.
TEST_F(ProgramTest, RunWithoutMemoryFailsAlone) {
  const Device small = *client_.device("cpu:1");      // 64 MiB
  const TensorSpec spec{DType::kFloat32, {4 << 20}};  // 16 MiB
  const auto program = Program::Record(small, {spec}, [](absl::Span<const Tensor> in) {
    return std::vector<Tensor>{in[0] + in[0], in[0] * in[0]};
  });
  ASSERT_TRUE(program.ok()) << program.status();
  const Tensor x = Ones(small, {4 << 20});
  {
    const Tensor ballast = Zeros(small, {8 << 20});
    ASSERT_TRUE(ballast.Wait().ok());
    const std::vector<Tensor> out = program->Run({x});
    for (const Tensor& tensor : out) {
      const absl::Status status = tensor.Wait();
      EXPECT_EQ(status.code(), Code::kResourceExhausted);
      EXPECT_THAT(std::string(status.message()), HasSubstr("cpu:1 is out of memory"));
    }
  }
  const std::vector<Tensor> out = program->Run({x});
  EXPECT_EQ(*Sum(out[0]).Item<float>(), 2.0f * (4 << 20));
}

TEST_F(ProgramTest, RecordsTheForwardOfAModel) {
  nn::Sequential model(nn::Linear(4, 8), nn::ReLU(), nn::Linear(8, 2));
  const Tensor w1 = Normal(device_, {8, 4}, 1), b1 = Normal(device_, {8}, 2);
  const Tensor w2 = Normal(device_, {2, 8}, 3), b2 = Normal(device_, {2}, 4);
  ASSERT_TRUE(
      model.LoadStateDict({{"0.weight", w1}, {"0.bias", b1}, {"2.weight", w2}, {"2.bias", b2}})
          .ok());
  const Tensor x = Normal(device_, {5, 4}, 5);
  const auto program = Program::Record(device_, {x.spec()}, [&](absl::Span<const Tensor> in) {
    return std::vector<Tensor>{model.Forward(in[0])};
  });
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(*program->Run({x})[0].ReadBytes(), *model.Forward(x).ReadBytes());
}

}  // namespace
}  // namespace tensord::integration
