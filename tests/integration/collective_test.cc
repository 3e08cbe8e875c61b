// Collective operations over devices of several servers: results of every kind and dtype, and
// operations whose members disagree.
#include "tensord/tests/integration/collective_fixture.h"

namespace tensord::integration {
namespace {

using CollectiveTest = CollectiveFixture;

TEST_F(CollectiveTest, EveryKindReductionAndDType) {
  MakeGroup();
  for (DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64,
                      DType::kInt32, DType::kInt64}) {
    SCOPED_TRACE(DTypeName(dtype).data());
    CheckKinds(dtype, kServers);
  }
}

TEST_F(CollectiveTest, GroupsOfOneTwoAndThree) {
  for (int size = 1; size < kServers; ++size) {
    SCOPED_TRACE(size);
    MakeGroup({.size = size});
    // CheckKinds() skips the mean for int64. The mean over three members isn't exact.
    CheckKinds(DType::kInt64, size);
    for (int rank = 0; rank < size; ++rank) ASSERT_TRUE(Leave(rank).ok());
  }
}

TEST_F(CollectiveTest, ReducesTensorsOfMoreThanASegment) {
  MakeGroup();
  const int64_t count = 4 * ((1 << 19) + 3);
  const TensorSpec spec{DType::kFloat32, Shape({count})};
  for (int rank = 0; rank < kServers; ++rank) {
    auto write = client(rank).Write();
    const std::string bytes = Encode(spec.dtype, ValuesOf(rank, count));
    v1::WriteRequest message = session(rank).FirstWrite(1, spec);
    for (size_t offset = 0; offset < bytes.size(); offset += 1 << 20) {
      message.set_offset(static_cast<int64_t>(offset));
      message.set_data(bytes.substr(offset, 1 << 20));
      ASSERT_TRUE(write->Send(message));
      message.clear_spec();  // only the first message has a spec
    }
    ASSERT_TRUE(write->Finish().ok());
  }
  const std::vector<double> all = ReduceAll(v1::REDUCTION_SUM, count, kServers);
  Check(Op(kAllReduce, spec, 1, 2), spec, {kServers, all});
  std::vector<std::vector<double>> parts;
  for (int rank = 0; rank < kServers; ++rank) {
    parts.emplace_back(all.begin() + rank * (count / 4), all.begin() + (rank + 1) * (count / 4));
  }
  Check(Op(kReduceScatter, spec, 1, 2), {DType::kFloat32, Shape({count / 4})}, parts);
}

TEST_F(CollectiveTest, EveryMemberGetsTheRootsTensor) {
  MakeGroup();
  const TensorSpec spec{DType::kInt32, Shape({5})};
  for (int root = 0; root < kServers; ++root) {
    ASSERT_TRUE(session(root).Create(1, spec, Encode(spec.dtype, ValuesOf(root, 5))).ok());
    std::vector<v1::Collective> ops(kServers, Op(kBroadcast, spec, 0, 2));
    for (v1::Collective& op : ops) op.set_root(root);
    ops[root].set_input(1);
    const auto made = RunEach(ops);
    for (int rank = 0; rank < kServers; ++rank) {
      ASSERT_TRUE(made[rank].ok()) << made[rank].status();
      EXPECT_EQ(session(rank).Read(2)->data(), Encode(spec.dtype, ValuesOf(root, 5)));
      ASSERT_TRUE(session(rank).Delete({2}).ok());
    }
    ASSERT_TRUE(session(root).Delete({1}).ok());
  }
}

TEST_F(CollectiveTest, ABarrierMakesAnEmptyTensor) {
  MakeGroup();
  for (const auto& made : RunAll(Barrier(7))) {
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_EQ(FromProto(made->spec()), (TensorSpec{DType::kUInt8, Shape({0})}));
  }
}

TEST_F(CollectiveTest, ReducesEmptyTensors) {
  MakeGroup();
  const TensorSpec spec{DType::kFloat32, Shape({0, 4})};
  CreateInputs(spec, kServers);
  Check(Op(kAllReduce, spec, 1, 2), spec, std::vector<std::vector<double>>(kServers));
  Check(Op(kAllGather, spec, 1, 2), spec, std::vector<std::vector<double>>(kServers));
}

TEST_F(CollectiveTest, ReportsDisagreementToAllMembers) {
  MakeGroup();
  CreateAll(1, {1, 2});
  std::vector<v1::Collective> ops(kServers, Op(kAllReduce, kPair, 1, 2));
  struct Difference {
    std::function<void(v1::Collective&)> make;
    std::string word;
  };
  const std::vector<Difference> differences = {
      {[](v1::Collective& op) { op.set_kind(kAllGather); }, "all_gather of float32[2]"},
      {[](v1::Collective& op) { op.set_reduction(v1::REDUCTION_MAX); }, "all_reduce(max)"},
      {[this](v1::Collective& op) {
         ASSERT_TRUE(session(2).CreateFloats(9, {1, 2, 3}).ok());
         op.set_input(9);
         *op.mutable_spec() = ToProto({DType::kFloat32, Shape({3})});
       },
       "float32[3]"},
      {[this](v1::Collective& op) {
         ASSERT_TRUE(session(2).Create(10, {DType::kInt32, Shape({2})}, std::string(8, 1)).ok());
         op.set_input(10);
         *op.mutable_spec() = ToProto({DType::kInt32, Shape({2})});
       },
       "int32[2]"}};
  for (const Difference& difference : differences) {
    std::vector<v1::Collective> mixed = ops;
    difference.make(mixed[2]);
    for (const auto& made : RunEach(mixed)) {
      ExpectError(made, Code::kInvalidArgument,
                  {"rank 0 runs all_reduce(sum) of float32[2]", "rank 2", difference.word});
    }
  }
  ExpectGroupWorks(50);
}

TEST_F(CollectiveTest, ReportsDifferentRoots) {
  MakeGroup();
  CreateAll(1, {1, 2});
  std::vector<v1::Collective> ops(kServers, Op(kBroadcast, kPair, 0, 2));
  ops[0].set_input(1);
  ops[3].set_input(1);
  ops[3].set_root(3);
  for (const auto& made : RunEach(ops)) {
    ExpectError(made, Code::kInvalidArgument, {"from rank 0", "from rank 3"});
  }
  ExpectGroupWorks(50);
}

TEST_F(CollectiveTest, ReportsAMembersErrorToAllMembers) {
  MakeGroup();
  CreateAll(1, {1, 2});
  std::vector<v1::Collective> ops(kServers, Op(kAllReduce, kPair, 1, 2));
  ops[1].set_input(77);
  auto made = RunEach(ops);
  ExpectError(made[1], Code::kNotFound, {"no tensor 77"});
  for (int rank : {0, 2, 3}) ExpectError(made[rank], Code::kNotFound, {"rank 1", "no tensor 77"});
  // The outputs need more memory than the devices have.
  const int64_t rows = 33 << 18;
  std::vector<v1::Collective> large(kServers,
                                    Op(kAllGather, {DType::kFloat32, Shape({rows})}, 5, 2));
  for (int rank = 0; rank < kServers; ++rank) ASSERT_TRUE(session(rank).Ones(5, {rows}).ok());
  for (const auto& result : RunEach(large)) {
    ExpectError(result, Code::kResourceExhausted, {"cpu:0", "out of memory"});
  }
  ExpectGroupWorks(50);
}

TEST_F(CollectiveTest, RejectsInvalidRequests) {
  MakeGroup();
  CreateAll(1, {1, 2});
  for (int rank = 0; rank < kServers; ++rank) {
    ASSERT_TRUE(session(rank).Create(8, {DType::kInt32, Shape({2})}, std::string(8, 1)).ok());
    ASSERT_TRUE(session(rank).Create(9, {DType::kInt16, Shape({2})}, std::string(4, 1)).ok());
  }
  const TensorSpec ints{DType::kInt32, Shape({2})};
  const auto all = [this](const v1::Collective& op, const std::vector<std::string>& words) {
    for (const auto& made : RunAll(op)) ExpectError(made, Code::kInvalidArgument, words);
  };
  all(Op(kAllReduce, ints, 8, 2, v1::REDUCTION_MEAN), {"mean", "floating"});
  all(Op(kAllReduce, {DType::kInt16, Shape({2})}, 9, 2), {"int16", "cast", "int32"});
  all(Op(kReduceScatter, kPair, 1, 2), {"first dimension", "4"});
  all(Op(kAllReduce, ints, 1, 2), {"tensor 1", "float32[2]"});
  all(Op(static_cast<v1::CollectiveKind>(77), kPair, 1, 2), {"kind"});
  all(Op(kAllReduce, kPair, 1, 2, static_cast<v1::Reduction>(9)), {"unknown reduction 9"});
  all(Op(kAllReduce, kPair, 1, 2, v1::REDUCTION_UNSPECIFIED), {"reduction", "REDUCTION_SUM"});
  v1::Collective rootless = Op(kBroadcast, kPair, 0, 2);
  rootless.set_root(4);
  all(rootless, {"ranks 0 to 3"});
  for (const auto& made : RunAll(Op(kAllReduce, kPair, 1, 1))) {
    ExpectError(made, Code::kAlreadyExists, {"tensor 1"});
  }
  ExpectGroupWorks(50);
}

TEST_F(CollectiveTest, WaitingOperationDoesNotBlockTheDevice) {
  MakeGroup();
  CreateAll(1, {1, 2});
  const auto stream = Promise(session(2), 20, kPair);
  std::vector<v1::Collective> ops(kServers, Op(kAllReduce, kPair, 1, 2));
  ops[2].set_input(20);
  auto waiting = std::async(std::launch::async, [&] { return RunEach(ops); });
  // Meanwhile, the member's device runs other ops.
  ASSERT_TRUE(session(2).Add(1, 1, 30).ok());
  EXPECT_EQ(*session(2).ReadFloats(30), (std::vector<float>{6, 8}));
  Write(session(2), 20, kPair, Encode(DType::kFloat32, {100, 200}));
  const auto made = waiting.get();
  for (int rank = 0; rank < kServers; ++rank) {
    ASSERT_TRUE(made[rank].ok()) << made[rank].status();
    EXPECT_EQ(*session(rank).ReadFloats(2), (std::vector<float>{100 + 1 + 2 + 4, 200 + 2 + 3 + 5}));
  }
}

TEST_F(CollectiveTest, StreamCommandsMayUsePendingResults) {
  MakeGroup();
  CreateAll(1, {1, 2});
  std::vector<std::unique_ptr<StreamCall>> streams;
  for (int rank = 0; rank < kServers; ++rank) {
    auto stream = client(rank).SessionStream();
    v1::SessionStreamRequest message;
    message.mutable_attach()->set_session(session(rank).id());
    // 2 = all_reduce(1); 3 = 2 + 2; 4 = all_reduce(3).
    *message.add_commands()->mutable_collective() = Op(kAllReduce, kPair, 1, 2);
    v1::Op* add = message.add_commands()->mutable_op();
    add->set_name("add");
    add->add_inputs(2);
    add->add_inputs(2);
    add->set_output(3);
    *message.add_commands()->mutable_collective() = Op(kAllReduce, kPair, 3, 4);
    *message.add_commands()->mutable_collective() = Op(kReduceScatter, kPair, 1, 5);
    message.add_commands()->mutable_barrier()->set_barrier_id(1);
    ASSERT_TRUE(stream->Send(message));
    streams.push_back(std::move(stream));
  }
  for (int rank = 0; rank < kServers; ++rank) {
    const auto read = session(rank).Read(4, /*after_command=*/4);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->data(), Encode(DType::kFloat32, {80, 112}));
    streams[rank]->HalfClose();
    std::vector<v1::HandleError> errors;
    while (const auto response = streams[rank]->Next()) {
      errors.insert(errors.end(), response->errors().begin(), response->errors().end());
    }
    EXPECT_TRUE(streams[rank]->Finish().ok());
    ASSERT_EQ(errors.size(), 1u);
    EXPECT_EQ(errors[0].handle(), 5u);
    EXPECT_THAT(errors[0].message(), testing::HasSubstr("first dimension"));
    ExpectError(session(rank).Get(5), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace tensord::integration
