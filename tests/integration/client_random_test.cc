// The functions of client/random.h, nn::Dropout, and recorded programs that draw numbers.
#include <cmath>
#include <cstdint>
#include <set>
#include <thread>
#include <vector>

#include "tensord/tests/integration/client_fixture.h"

namespace tensord::integration {
namespace {

using Code = absl::StatusCode;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class ClientRandomTest : public ClientFixture {
 protected:
  std::vector<float> Read(const Tensor& x) {
    auto values = x.Read<float>();
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? *std::move(values) : std::vector<float>{};
  }
  // The numbers of a stream of seed 7.
  std::vector<float> Stream(int64_t stream, const Shape& shape = {16}) {
    return Read(Uniform(first_, shape, RandomStream{7, stream}));
  }
};

TEST_F(ClientRandomTest, GeneratorGivesEachCallTheNextStream) {
  Generator generator(7);
  EXPECT_EQ(Read(Uniform(first_, {16}, generator)), Stream(0));
  EXPECT_EQ(Read(Uniform(first_, {16}, generator)), Stream(1));
  EXPECT_EQ(Read(Uniform(second_, {16}, generator)), Stream(2)) << "on another device";
  EXPECT_EQ(generator.seed(), 7);
  EXPECT_EQ(generator.next_stream(), 3);
  Generator continued(generator.seed(), generator.next_stream());
  EXPECT_EQ(Read(Uniform(first_, {16}, continued)), Stream(3));
}

TEST_F(ClientRandomTest, StreamZeroHasTheNumbersOfTheSeed) {
  EXPECT_EQ(Read(Uniform(first_, {16}, 7)), Stream(0));
  EXPECT_EQ(Read(Normal(first_, {16}, 7)), Read(Normal(first_, {16}, RandomStream{7, 0})));
  EXPECT_NE(Stream(0), Stream(1));
}

TEST_F(ClientRandomTest, GeneratorsWithoutASeedDiffer) {
  Generator one, other;
  EXPECT_NE(one.seed(), other.seed());
}

TEST_F(ClientRandomTest, ThreadsGetDifferentStreams) {
  constexpr int kThreads = 4, kDraws = 1000;
  Generator generator(1);
  std::vector<std::vector<int64_t>> streams(kThreads);
  std::vector<std::thread> threads;
  for (std::vector<int64_t>& own : streams) {
    threads.emplace_back([&] {
      for (int i = 0; i < kDraws; ++i) own.push_back(generator.Next().stream);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<int64_t> all;
  for (const std::vector<int64_t>& own : streams) all.insert(own.begin(), own.end());
  EXPECT_EQ(all.size(), size_t{kThreads} * kDraws);
  EXPECT_EQ(generator.next_stream(), kThreads * kDraws);
}

TEST_F(ClientRandomTest, RandIntStaysInItsRange) {
  const auto drawn = *RandInt(first_, {1000}, -2, 3, 1).Read<int64_t>();
  EXPECT_THAT(std::set<int64_t>(drawn.begin(), drawn.end()), ElementsAre(-2, -1, 0, 1, 2));
  const Tensor bytes = RandInt(first_, {10}, 0, 256, 1, {.dtype = DType::kUInt8});
  EXPECT_EQ(bytes.dtype(), DType::kUInt8);
  EXPECT_TRUE(bytes.Wait().ok());
  EXPECT_THAT(std::string(RandInt(first_, {1}, 3, 3, 1).status().message()), HasSubstr("below"));
}

TEST_F(ClientRandomTest, NumbersComeFromAState) {
  const Tensor state = FromVector<int64_t>(first_, {7, 5});
  EXPECT_EQ(Read(Uniform(first_, {16}, state)), Stream(5));
  EXPECT_EQ(Read(Uniform(first_, {16}, AdvanceState(state, 2))), Stream(7));
  Generator generator(7, 9);
  EXPECT_EQ(Read(Uniform(first_, {16}, generator.NextState(first_))), Stream(9));
  EXPECT_EQ(generator.next_stream(), 10);
  const absl::Status elsewhere = Uniform(second_, {16}, state).status();
  EXPECT_EQ(elsewhere.code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(elsewhere.message()), HasSubstr("the state is on"));
}

TEST_F(ClientRandomTest, DropoutKeepsWhatTheMaskSays) {
  const Tensor x = Normal(first_, {1000}, 1);
  const auto [y, mask] = DropoutWithMask(x, 0.25, RandomStream{3, 4});
  const std::vector<float> before = Read(x), after = Read(y);
  const auto kept = *mask.Read<bool>();
  int count = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(after[i], kept[i] ? before[i] / 0.75f : 0);
    count += kept[i] ? 1 : 0;
  }
  EXPECT_NEAR(count, 750, 60);
  EXPECT_EQ(Read(Dropout(x, 0.25, RandomStream{3, 4})), after);
  EXPECT_NE(Read(Dropout(x, 0.25, RandomStream{3, 5})), after);
  const Tensor state = FromVector<int64_t>(first_, {3, 4});
  EXPECT_EQ(Read(Dropout(x, 0.25, state)), after);
}

TEST_F(ClientRandomTest, DropoutOfNothingAndOfEverything) {
  const Tensor x = Normal(first_, {100}, 1);
  EXPECT_EQ(Read(Dropout(x, 0, 1)), Read(x));
  EXPECT_THAT(*DropoutWithMask(x, 0, 1).mask.Read<bool>(), Each(true));
  EXPECT_THAT(Read(Dropout(x, 1, 1)), Each(0));
  for (double p : {-0.5, 1.5, std::nan("")}) {
    for (const Tensor& failed : {Dropout(x, p, 1), DropoutWithMask(x, p, 1).output}) {
      EXPECT_EQ(failed.status().code(), Code::kInvalidArgument);
      EXPECT_THAT(std::string(failed.status().message()), HasSubstr("probability"));
    }
  }
}

TEST_F(ClientRandomTest, AProgramDrawsFromItsState) {
  const TensorSpec state{DType::kInt64, {2}}, x{DType::kFloat32, {100}};
  const auto program = Program::Record(first_, {state, x}, [&](absl::Span<const Tensor> in) {
    return std::vector<Tensor>{Uniform(first_, {16}, in[0]),
                               Dropout(in[1], 0.5, AdvanceState(in[0], 1))};
  });
  ASSERT_TRUE(program.ok()) << program.status();
  const Tensor ones = Ones(first_, {100});
  Generator generator(7);
  for (int64_t run : {0, 1}) {
    const std::vector<Tensor> out = program->Run({generator.NextState(first_), ones});
    EXPECT_EQ(Read(out[0]), Stream(run));
    EXPECT_EQ(Read(out[1]), Read(Dropout(ones, 0.5, RandomStream{7, run + 1})));
  }
}

TEST_F(ClientRandomTest, DropoutLayerDropsInTrainingOnly) {
  nn::Sequential model(nn::Dropout(0.5, /*seed=*/7));
  const Tensor x = Ones(first_, {1000});
  const std::vector<float> one = Read(model(x)), two = Read(model(x));
  EXPECT_NE(one, two) << "each call draws other elements";
  EXPECT_EQ(one, Read(Dropout(x, 0.5, RandomStream{7, 0})));
  EXPECT_EQ(two, Read(Dropout(x, 0.5, RandomStream{7, 1})));
  model.Eval();
  EXPECT_THAT(Read(model(x)), Each(1));
  model.Train();
  EXPECT_THAT(Read(model(x)), Not(Each(1)));
}

TEST_F(ClientRandomTest, DropoutLayerInAProgramIsAnError) {
  nn::Dropout layer(0.5);
  const auto record = [&] {
    return Program::Record(first_, {{DType::kFloat32, {4}}}, [&](absl::Span<const Tensor> in) {
      return std::vector<Tensor>{layer(in[0]) * 2};
    });
  };
  EXPECT_EQ(record().status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(std::string(record().status().message()), HasSubstr("Eval()"));
  layer.Eval();
  EXPECT_TRUE(record().ok());
}

}  // namespace
}  // namespace tensord::integration
