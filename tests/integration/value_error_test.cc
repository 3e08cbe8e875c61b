// Errors that only the elements of a tensor show: an index out of range. The tests use the client,
// on the devices of TestDevicesFlag().
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tensord/tests/integration/client_fixture.h"
#include "tensord/tests/integration/rpc_helpers.h"

namespace tensord::integration {
namespace {

using Code = absl::StatusCode;
using Elements = std::vector<int64_t>;
using testing::ElementsAre;

// Returns the position of the first index outside [-size, size); the number of indices if there is
// none.
size_t FindBad(const Elements& indices, int64_t size) {
  size_t at = 0;
  while (at < indices.size() && indices[at] >= -size && indices[at] < size) ++at;
  return at;
}

std::string BadIndexText(int64_t index, size_t at, int64_t size) {
  return absl::StrCat("index ", index, " at [", at,
                      "] of input 1 is out of range for axis 0 of size ", size);
}

Elements Select(const Elements& x, const Elements& indices) {
  Elements result;
  const auto size = static_cast<int64_t>(x.size());
  for (int64_t index : indices) result.push_back(x[index < 0 ? index + size : index]);
  return result;
}

class ValueErrorTest : public ClientFixture {
 protected:
  Tensor Ints(const Elements& elements) { return FromVector(first_, elements); }
};

TEST_F(ValueErrorTest, ErrorShowsAtTheReadOfTheResultAndOfItsDependents) {
  const Tensor x = FromVector(first_, {3, 2}, Elements{1, 2, 3, 4, 5, 6});
  const Tensor bad = FromVector(first_, {2, 2}, std::vector<int32_t>{0, 2, -4, 7});
  const Tensor rows = RunOp("index", {x, bad});
  const Tensor sum = Sum(rows + 1);
  const Tensor good = Sum(RunOp("index", {x, Ints({-1, 0})}));
  ASSERT_TRUE(rows.ok()) << rows.status();
  const std::string text =
      absl::StrCat("index (tensor ", rows.handle(),
                   "): index -4 at [1, 0] of input 1 is out of range for axis 0 of size 3");
  EXPECT_EQ(sum.Item<int64_t>().status(), absl::InvalidArgumentError(text));
  EXPECT_EQ(rows.Wait(), absl::InvalidArgumentError(text));
  EXPECT_EQ(*good.Item<int64_t>(), 14);
  EXPECT_EQ(*Sum(x).Item<int64_t>(), 21);
  EXPECT_EQ(Sum(rows).Item<int64_t>().status(), absl::InvalidArgumentError(text));
}

TEST_F(ValueErrorTest, CopiesHaveTheError) {
  const Tensor rows = RunOp("index", {Ints({1, 2}), Ints({5})});
  const Tensor copy = rows.To(second_) * 2;
  ExpectError(copy.Read<int64_t>(), Code::kInvalidArgument,
              {absl::StrCat("index (tensor ", rows.handle(), ")"), "index 5"});
  EXPECT_THAT(*Ints({1, 2}).To(second_).Read<int64_t>(), ElementsAre(1, 2));
}

TEST_F(ValueErrorTest, SynchronizeReturnsAnErrorThatNothingHasRead) {
  const Tensor rows = RunOp("index", {Ints({1, 2}), Ints({5})});
  ExpectError(client_.Synchronize(), Code::kInvalidArgument,
              {absl::StrCat("index (tensor ", rows.handle(), ")"), "index 5"});
  EXPECT_TRUE(client_.Synchronize().ok());
}

TEST_F(ValueErrorTest, UnaryCallReturnsTheErrorAndMakesNoTensor) {
  RpcClient client(daemon_->address());
  RpcSession session(client);
  ASSERT_TRUE(session.Ones(1, {3}, TestDevice(0)).ok());
  const Attributes range{{"start", int64_t{2}}, {"stop", int64_t{5}}};
  ASSERT_TRUE(session.Run("arange", {}, 2, range, TestDevice(0)).ok());
  const std::string text = absl::StrCat("index (tensor 3): ", BadIndexText(3, 1, 3));
  ExpectError(session.Run("index", {1, 2}, 3), Code::kInvalidArgument, {text});
  v1::RunOpsRequest several;
  several.set_session(session.id());
  v1::Op& op = *several.add_ops();
  op.set_name("index");
  op.add_inputs(1);
  op.add_inputs(2);
  op.set_output(3);
  ExpectError(client.Call<v1::RunOpsResponse>("RunOps", several), Code::kInvalidArgument, {text});
  ASSERT_TRUE(session.Ones(3, {3}, TestDevice(0)).ok()) << "the handle is free";
  EXPECT_TRUE(session.Close().ok());
}

// A tensor of a random program, and what its read must return.
struct Node {
  Tensor tensor;
  Elements elements;
  std::set<std::string> errors;  // the root errors, any of which may be returned; empty: none
};

// Makes random programs over vectors of integers. A quarter of the index ops have a bad index.
class RandomPrograms {
 public:
  // `program` computes y = index(-x, i) for x of kLength and i of kIndices elements, permutes y
  // many times, and then computes z = index(y, j) for j of kIndices elements. It returns y, as
  // permuted, and z.
  RandomPrograms(const Device& device, const Program& program, uint64_t seed)
      : device_(device), program_(program), random_(seed) {}

  static constexpr int kLength = 5;
  static constexpr int kIndices = 3;
  static constexpr int kPermutations = 18;

  void Run() {
    for (int i = 0; i < 3; ++i) Add(RandomElements(1 + Below(6)));
    for (int i = 0; i < 10; ++i) Step();
  }
  void Check() const {
    for (const Node& node : nodes_) {
      const auto read = node.tensor.Read<int64_t>();
      if (node.errors.empty()) {
        ASSERT_TRUE(read.ok()) << node.tensor.handle() << ": " << read.status();
        ASSERT_EQ(*read, node.elements) << node.tensor.handle();
        continue;
      }
      ASSERT_EQ(read.status().code(), Code::kInvalidArgument) << node.tensor.handle();
      ASSERT_TRUE(node.errors.contains(std::string(read.status().message())))
          << node.tensor.handle() << ": " << read.status() << "\nis none of\n"
          << absl::StrJoin(node.errors, "\n");
    }
  }
  int64_t failed() const {
    return std::count_if(nodes_.begin(), nodes_.end(),
                         [](const Node& node) { return !node.errors.empty(); });
  }

 private:
  int64_t Below(int64_t bound) { return static_cast<int64_t>(random_() % bound); }
  Elements RandomElements(int64_t count) {
    Elements elements(count);
    for (int64_t& element : elements) element = Below(2000) - 1000;
    return elements;
  }
  // Returns indices into `size` elements, of which one in four lists has bad ones.
  Elements RandomIndices(int64_t count, int64_t size) {
    Elements indices(count);
    const bool bad = Below(4) == 0;
    for (int64_t& index : indices) {
      index = Below(2 * size) - size;
      if (bad && Below(2) == 0) index += index < 0 ? -size : size;
    }
    return indices;
  }
  void Add(const Elements& elements) {
    nodes_.push_back({FromVector(device_, elements), elements, {}});
  }
  Node& Any() { return nodes_[Below(static_cast<int64_t>(nodes_.size()))]; }
  static void AddErrors(const Node& from, Node* to) {
    to->errors.insert(from.errors.begin(), from.errors.end());
  }

  void Step() {
    switch (Below(6)) {
      case 0:
        return Negate();
      case 1:
        return AddTwo();
      case 2:
        return RunProgram();
      default:
        return Index();
    }
  }

  // Sometimes donates its input.
  void Negate() {
    Node& from = Any();
    Node node;
    const bool donates = Below(3) == 0;
    node.tensor =
        donates ? (*RunOpWithOutputs("neg", {from.tensor}, {}, {.donate = {0}}))[0] : -from.tensor;
    node.elements = from.elements;
    for (int64_t& element : node.elements) element = -element;
    AddErrors(from, &node);
    if (donates) {
      from = std::move(node);
    } else {
      nodes_.push_back(std::move(node));
    }
  }

  void AddTwo() {
    const Node& a = Any();
    const Node& b = Any();
    if (a.elements.size() != b.elements.size()) return;
    Node node{a.tensor + b.tensor, a.elements, {}};
    for (size_t i = 0; i < b.elements.size(); ++i) node.elements[i] += b.elements[i];
    AddErrors(a, &node);
    AddErrors(b, &node);
    nodes_.push_back(std::move(node));
  }

  void Index() {
    const Node x = Any();
    const auto size = static_cast<int64_t>(x.elements.size());
    const Elements indices = RandomIndices(1 + Below(4), size);
    const Tensor wide = FromVector(device_, indices);
    Node node;
    node.tensor = RunOp("index", {x.tensor, Below(2) == 0 ? wide : Cast(wide, DType::kInt32)});
    AddErrors(x, &node);
    const size_t bad = FindBad(indices, size);
    if (bad == indices.size()) {
      node.elements = node.errors.empty() ? Select(x.elements, indices) : Elements(indices.size());
    } else {
      node.elements.resize(indices.size());
      if (node.errors.empty()) {
        node.errors.insert(absl::StrCat("index (tensor ", node.tensor.handle(),
                                        "): ", BadIndexText(indices[bad], bad, size)));
      }
    }
    nodes_.push_back(std::move(node));
  }

  void RunProgram() {
    const Elements x = RandomElements(kLength);
    const Elements i = RandomIndices(kIndices, kLength), j = RandomIndices(kIndices, kIndices);
    const std::vector<Tensor> out =
        program_.Run({FromVector(device_, x), FromVector(device_, i), FromVector(device_, j)});
    Node y{out[0], Elements(kIndices), {}}, z{out[1], Elements(kIndices), {}};
    const size_t bad_i = FindBad(i, kLength), bad_j = FindBad(j, kIndices);
    if (bad_i < i.size() || bad_j < j.size()) {
      y.errors = {absl::StrCat("program (tensor ", out[0].handle(), "): index: ",
                               bad_i < i.size() ? BadIndexText(i[bad_i], bad_i, kLength)
                                                : BadIndexText(j[bad_j], bad_j, kIndices))};
      z.errors = y.errors;
    } else {
      y.elements = Select(x, i);
      for (int64_t& element : y.elements) element = -element;
      for (int n = 0; n < kPermutations; ++n) y.elements = Select(y.elements, {2, 0, 1});
      z.elements = Select(y.elements, j);
    }
    nodes_.push_back(std::move(y));
    nodes_.push_back(std::move(z));
  }

  const Device device_;
  const Program program_;
  std::mt19937_64 random_;
  std::vector<Node> nodes_;
};

// Runs until there were 10,000 programs or a minute is over; with TENSORD_TEST_LONG=1 in any case
// 10,000.
TEST_F(ValueErrorTest, RandomProgramsReportBadIndicesAtTheRightTensors) {
  constexpr uint64_t kPrograms = 10'000;
  using Inputs = absl::Span<const Tensor>;
  const Tensor permutation = Ints({2, 0, 1});
  const TensorSpec x{DType::kInt64, {RandomPrograms::kLength}};
  const TensorSpec indices{DType::kInt64, {RandomPrograms::kIndices}};
  const auto program = Program::Record(first_, {x, indices, indices}, [&](Inputs in) {
    Tensor y = RunOp("index", {-in[0], in[1]});
    for (int i = 0; i < RandomPrograms::kPermutations; ++i) y = RunOp("index", {y, permutation});
    return std::vector<Tensor>{y, RunOp("index", {y, in[2]})};
  });
  ASSERT_TRUE(program.ok()) << program.status();
  const char* const long_form = std::getenv("TENSORD_TEST_LONG");
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  uint64_t programs = 0;
  int64_t failed = 0;
  while (programs < kPrograms &&
         (long_form != nullptr || std::chrono::steady_clock::now() < deadline)) {
    RandomPrograms random(first_, *program, programs++);
    random.Run();
    ASSERT_NO_FATAL_FAILURE(random.Check()) << "seed " << programs - 1;
    failed += random.failed();
  }
  std::cout << programs << " programs, " << failed << " tensors with an error\n";
  EXPECT_GT(failed, 0);
  EXPECT_THAT(*(Ints({1, 2}) + Ints({3, 4})).Read<int64_t>(), ElementsAre(4, 6));
}

}  // namespace
}  // namespace tensord::integration
