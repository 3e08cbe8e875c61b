// What groups of devices of several servers do together: the right elements, of every kind and
// dtype, and what becomes of a group when its members differ, come late, leave, or die.
#include <signal.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "tensord/common/float16.h"
#include "tensord/tests/integration/group_fixture.h"

namespace tensord::integration {
namespace {

using Code = absl::StatusCode;

constexpr v1::CollectiveKind kBroadcast = v1::COLLECTIVE_KIND_BROADCAST;
constexpr v1::CollectiveKind kAllGather = v1::COLLECTIVE_KIND_ALL_GATHER;
constexpr v1::CollectiveKind kReduceScatter = v1::COLLECTIVE_KIND_REDUCE_SCATTER;
constexpr v1::CollectiveKind kAllReduce = v1::COLLECTIVE_KIND_ALL_REDUCE;

template <typename T>
std::string EncodeAs(const std::vector<double>& values) {
  std::string bytes;
  for (double value : values) {
    const T element = static_cast<T>(static_cast<float>(value));
    bytes.append(reinterpret_cast<const char*>(&element), sizeof(element));
  }
  return bytes;
}

std::string Encode(DType dtype, const std::vector<double>& values) {
  switch (dtype) {
    case DType::kFloat16:
      return EncodeAs<Half>(values);
    case DType::kBFloat16:
      return EncodeAs<BFloat16>(values);
    case DType::kFloat32:
      return EncodeAs<float>(values);
    case DType::kFloat64:
      return EncodeAs<double>(values);
    case DType::kInt32:
      return EncodeAs<int32_t>(values);
    default:
      return EncodeAs<int64_t>(values);
  }
}

// Small whole numbers: exact in every dtype, as are their sums, and their means over four.
std::vector<double> ValuesOf(int rank, int64_t count) {
  std::vector<double> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<double>((rank * 7 + i * 3) % 11) - 5;
  return values;
}

double Reduce(v1::Reduction reduction, int64_t i, int ranks) {
  double result = ValuesOf(0, i + 1)[i];
  for (int rank = 1; rank < ranks; ++rank) {
    const double value = static_cast<double>((rank * 7 + i * 3) % 11) - 5;
    result = reduction == v1::REDUCTION_MAX ? std::max(result, value) : result + value;
  }
  return reduction == v1::REDUCTION_MEAN ? result / ranks : result;
}

std::vector<double> ReduceAll(v1::Reduction reduction, int64_t count, int ranks) {
  std::vector<double> values(count);
  for (int64_t i = 0; i < count; ++i) {
    values[i] = i < 11 ? Reduce(reduction, i, ranks) : values[i - 11];
  }
  return values;
}

class CollectiveTest : public GroupFixture {
 protected:
  // Runs `op` of tensor 1 everywhere, into 2, and compares: `expected` by rank.
  void Check(const v1::Collective& op, const TensorSpec& result,
             const std::vector<std::vector<double>>& expected) {
    const int ranks = static_cast<int>(expected.size());
    const auto made = RunAll(op, ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      ASSERT_TRUE(made[rank].ok()) << op.ShortDebugString() << made[rank].status();
      EXPECT_EQ(FromProto(made[rank]->spec()), result) << op.ShortDebugString();
      ReadAndCompare(rank, 2, Encode(result.dtype, expected[rank]));
      ASSERT_TRUE(session(rank).Delete({2}).ok());
    }
  }

  void ReadAndCompare(int rank, uint64_t handle, const std::string& expected) {
    auto read = client(rank).Read(session(rank).ReadRequest(handle));
    std::string bytes;
    while (const auto message = read->Next()) bytes += message->data();
    ASSERT_TRUE(read->Finish().ok());
    EXPECT_TRUE(bytes == expected) << "rank " << rank << ", " << bytes.size() << " bytes";
  }

  void CreateInputs(const TensorSpec& spec, int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string bytes = Encode(spec.dtype, ValuesOf(rank, spec.num_elements()));
      const auto made = session(rank).Create(1, spec, bytes);
      ASSERT_TRUE(made.ok()) << made.status();
    }
  }

  // Every kind over tensors of this dtype, (8, 3).
  void CheckKinds(DType dtype, int ranks) {
    const int64_t rows = 2 * ranks;
    const TensorSpec spec{dtype, Shape({rows, 3})};
    const int64_t count = spec.num_elements();
    CreateInputs(spec, ranks);
    std::vector<v1::Reduction> reductions = {v1::REDUCTION_SUM, v1::REDUCTION_MAX};
    if (IsFloating(dtype)) reductions.push_back(v1::REDUCTION_MEAN);
    for (v1::Reduction reduction : reductions) {
      const std::vector<double> all = ReduceAll(reduction, count, ranks);
      Check(Op(kAllReduce, spec, 1, 2, reduction), spec, {static_cast<size_t>(ranks), all});
      std::vector<std::vector<double>> parts;
      for (int rank = 0; rank < ranks; ++rank) {
        parts.emplace_back(all.begin() + rank * 6, all.begin() + (rank + 1) * 6);
      }
      Check(Op(kReduceScatter, spec, 1, 2, reduction), {dtype, Shape({2, 3})}, parts);
    }
    std::vector<double> gathered;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::vector<double> own = ValuesOf(rank, count);
      gathered.insert(gathered.end(), own.begin(), own.end());
    }
    Check(Op(kAllGather, spec, 1, 2), {dtype, Shape({rows * ranks, 3})},
          {static_cast<size_t>(ranks), gathered});
    for (int rank = 0; rank < ranks; ++rank) ASSERT_TRUE(session(rank).Delete({1}).ok());
  }

  // Runs at every rank what `ops` has for it, at once.
  std::vector<absl::StatusOr<v1::Tensor>> RunEach(const std::vector<v1::Collective>& ops) {
    return AtOnce(static_cast<int>(ops.size()), [&](int rank) { return Run(rank, ops[rank]); });
  }

  void ExpectGroupWorks(uint64_t output) {
    const TensorSpec spec{DType::kFloat32, Shape({2})};
    for (int rank = 0; rank < kServers; ++rank) {
      session(rank).Delete({output + 1}).IgnoreError();
      ASSERT_TRUE(session(rank).CreateFloats(output + 1, {1, static_cast<float>(rank)}).ok());
    }
    const auto made = RunAll(Op(kAllReduce, spec, output + 1, output));
    for (int rank = 0; rank < kServers; ++rank) {
      ASSERT_TRUE(made[rank].ok()) << made[rank].status();
      EXPECT_EQ(*session(rank).ReadFloats(output), (std::vector<float>{4, 6}));
    }
  }
};

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
    // The mean over three isn't exact: whole numbers have none.
    CheckKinds(DType::kInt64, size);
    for (int rank = 0; rank < size; ++rank) ASSERT_TRUE(Leave(rank).ok());
  }
}

TEST_F(CollectiveTest, TensorsOfMoreThanASegment) {
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
      message.clear_spec();  // the first alone has one
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

TEST_F(CollectiveTest, ATensorWithoutElementsIsReducedToOne) {
  MakeGroup();
  const TensorSpec spec{DType::kFloat32, Shape({0, 4})};
  CreateInputs(spec, kServers);
  Check(Op(kAllReduce, spec, 1, 2), spec, std::vector<std::vector<double>>(kServers));
  Check(Op(kAllGather, spec, 1, 2), spec, std::vector<std::vector<double>>(kServers));
}

const TensorSpec kPair{DType::kFloat32, Shape({2})};

TEST_F(CollectiveTest, MembersThatDisagreeAreAllToldAndGoOn) {
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

TEST_F(CollectiveTest, ADifferentRootIsFoundOut) {
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

TEST_F(CollectiveTest, OneWhoCantTakePartTellsTheOthersWhyAndTheGroupGoesOn) {
  MakeGroup();
  CreateAll(1, {1, 2});
  std::vector<v1::Collective> ops(kServers, Op(kAllReduce, kPair, 1, 2));
  ops[1].set_input(77);
  auto made = RunEach(ops);
  ExpectError(made[1], Code::kNotFound, {"no tensor 77"});
  for (int rank : {0, 2, 3}) ExpectError(made[rank], Code::kNotFound, {"rank 1", "no tensor 77"});
  // More memory than there is.
  const int64_t rows = 33 << 18;
  std::vector<v1::Collective> large(kServers,
                                    Op(kAllGather, {DType::kFloat32, Shape({rows})}, 5, 2));
  for (int rank = 0; rank < kServers; ++rank) ASSERT_TRUE(session(rank).Ones(5, {rows}).ok());
  for (const auto& result : RunEach(large)) {
    ExpectError(result, Code::kResourceExhausted, {"cpu:0", "out of memory"});
  }
  ExpectGroupWorks(50);
}

TEST_F(CollectiveTest, RequestsThatMakeNoSense) {
  MakeGroup();
  CreateAll(1, {1, 2});
  for (int rank = 0; rank < kServers; ++rank) {
    ASSERT_TRUE(session(rank).Create(8, {DType::kInt32, Shape({2})}, std::string(8, 1)).ok());
    ASSERT_TRUE(session(rank).Create(9, {DType::kInt8, Shape({2})}, std::string(2, 1)).ok());
  }
  const TensorSpec ints{DType::kInt32, Shape({2})};
  const auto all = [this](const v1::Collective& op, const std::vector<std::string>& words) {
    for (const auto& made : RunAll(op)) ExpectError(made, Code::kInvalidArgument, words);
  };
  all(Op(kAllReduce, ints, 8, 2, v1::REDUCTION_MEAN), {"mean", "floating"});
  all(Op(kAllReduce, {DType::kInt8, Shape({2})}, 9, 2), {"int8", "float16"});
  all(Op(kReduceScatter, kPair, 1, 2), {"first dimension", "4"});
  all(Op(kAllReduce, ints, 1, 2), {"tensor 1", "float32[2]"});
  all(Op(static_cast<v1::CollectiveKind>(77), kPair, 1, 2), {"kind"});
  all(Op(kAllReduce, kPair, 1, 2, static_cast<v1::Reduction>(9)), {"reduction"});
  v1::Collective rootless = Op(kBroadcast, kPair, 0, 2);
  rootless.set_root(4);
  all(rootless, {"ranks 0 to 3"});
  for (const auto& made : RunAll(Op(kAllReduce, kPair, 1, 1))) {
    ExpectError(made, Code::kAlreadyExists, {"tensor 1"});
  }
  ExpectGroupWorks(50);
}

// A stream of a session, by which a tensor is promised.
std::unique_ptr<StreamCall> Promise(RpcSession& session, uint64_t handle, const TensorSpec& spec) {
  auto stream = session.client().SessionStream();
  v1::SessionStreamRequest message;
  message.mutable_attach()->set_session(session.id());
  v1::Promise* promise = message.add_commands()->mutable_promise();
  promise->set_handle(handle);
  *promise->mutable_spec() = ToProto(spec);
  promise->set_device("cpu:0");
  EXPECT_TRUE(stream->Send(message));
  EXPECT_TRUE(stream->Next().has_value());  // it has been received
  return stream;
}

void Write(RpcSession& session, uint64_t handle, const TensorSpec& spec, const std::string& bytes) {
  auto write = session.client().Write();
  v1::WriteRequest message = session.FirstWrite(handle, spec);
  message.set_data(bytes);
  ASSERT_TRUE(write->Send(message));
  ASSERT_TRUE(write->Finish().ok());
}

TEST_F(CollectiveTest, AnOperationWaitsForItsInputWhileTheDeviceGoesOn) {
  MakeGroup();
  CreateAll(1, {1, 2});
  const auto stream = Promise(session(2), 20, kPair);
  std::vector<v1::Collective> ops(kServers, Op(kAllReduce, kPair, 1, 2));
  ops[2].set_input(20);
  auto waiting = std::async(std::launch::async, [&] { return RunEach(ops); });
  // Ops on the member's device, and a chain of them, run meanwhile.
  ASSERT_TRUE(session(2).Add(1, 1, 30).ok());
  EXPECT_EQ(*session(2).ReadFloats(30), (std::vector<float>{6, 8}));
  Write(session(2), 20, kPair, Encode(DType::kFloat32, {100, 200}));
  const auto made = waiting.get();
  for (int rank = 0; rank < kServers; ++rank) {
    ASSERT_TRUE(made[rank].ok()) << made[rank].status();
    EXPECT_EQ(*session(rank).ReadFloats(2), (std::vector<float>{100 + 1 + 2 + 4, 200 + 2 + 3 + 5}));
  }
}

TEST_F(CollectiveTest, CommandsOfAStreamArePromisedAndChained) {
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

TEST_F(CollectiveTest, OneWhoComesTooLateEndsTheGroupForAll) {
  MakeGroup({.timeout_ms = 1000});
  CreateAll(1, {1, 2});
  const auto stream = Promise(session(2), 20, kPair);
  std::vector<v1::Collective> ops(kServers, Op(kAllReduce, kPair, 1, 2));
  ops[2].set_input(20);
  for (const auto& made : RunEach(ops)) {
    ExpectError(made, Code::kDeadlineExceeded, {"1000 ms", "rank 2", "another group"});
  }
  // Later ones fail at once: nobody waits for anybody.
  for (int rank = 0; rank < kServers; ++rank) {
    ExpectError(Run(rank, Barrier(3)), Code::kDeadlineExceeded, {"rank 2"});
  }
  const GroupOptions again{.member = 2, .id = "another group id"};
  MakeGroup(again);
  v1::Collective barrier = Barrier(4);
  barrier.set_member(2);
  for (const auto& made : RunAll(barrier)) EXPECT_TRUE(made.ok()) << made.status();
}

TEST_F(CollectiveTest, AMemberThatIsKilledEndsTheGroupAndAnotherCanBeMade) {
  MakeGroup();
  CreateAll(1, {1, 2});
  const auto stream = Promise(session(3), 20, kPair);
  std::vector<v1::Collective> ops(kServers, Op(kAllReduce, kPair, 1, 2));
  ops[3].set_input(20);
  auto waiting = std::async(std::launch::async, [&] { return RunEach(ops); });
  servers_[3].daemon->Signal(SIGKILL);
  const auto made = waiting.get();
  for (int rank = 0; rank < 3; ++rank) {
    ExpectError(made[rank], Code::kAborted, {"rank 3", "another group"});
    ExpectError(Run(rank, Barrier(3)), Code::kAborted, {"rank 3"});
    ASSERT_TRUE(Leave(rank).ok());
  }
  Restart(3);
  MakeGroup({.id = "another group id"});
  ExpectGroupWorks(50);
}

TEST_F(CollectiveTest, AMemberThatIsKilledWhileElementsMove) {
  const int64_t count = 8 << 20;
  const TensorSpec spec{DType::kFloat32, Shape({count})};
  MakeGroup();
  for (int rank = 0; rank < kServers; ++rank) ASSERT_TRUE(session(rank).Ones(1, {count}).ok());
  // Without an end: the kill comes at any moment of one of them.
  auto waiting = std::async(std::launch::async, [&] {
    return AtOnce(kServers, [&](int rank) {
      absl::Status status;
      for (uint64_t output = 2; status.ok(); ++output) {
        status = Run(rank, Op(kAllReduce, spec, 1, output)).status();
        if (status.ok()) status = session(rank).Delete({output});
      }
      return status;
    });
  });
  ASSERT_TRUE(Eventually([&] { return servers_[1].daemon->MemoryBytes("VmHWM") > 80 << 20; }));
  servers_[1].daemon->Signal(SIGKILL);
  const std::vector<absl::Status> ends = waiting.get();
  for (int rank : {0, 2, 3}) EXPECT_EQ(ends[rank].code(), Code::kAborted) << ends[rank];
  for (int rank : {0, 2, 3}) {
    EXPECT_TRUE(Eventually([&] { return UsedBytes(client(rank), "cpu:0") == 4 * count; }))
        << "what the operations took has been given back";
  }
}

TEST_F(CollectiveTest, AMemberThatStandsStillWhileElementsMove) {
  const int64_t count = 8 << 20;
  const TensorSpec spec{DType::kFloat32, Shape({count})};
  MakeGroup({.timeout_ms = 1500});
  for (int rank = 0; rank < kServers; ++rank) ASSERT_TRUE(session(rank).Ones(1, {count}).ok());
  client(1).set_deadline_seconds(5);
  auto waiting = std::async(std::launch::async, [&] {
    return AtOnce(kServers, [&](int rank) {
      absl::Status status;
      for (uint64_t output = 2; status.ok(); ++output) {
        status = Run(rank, Op(kAllReduce, spec, 1, output)).status();
        if (status.ok()) status = session(rank).Delete({output});
      }
      return status;
    });
  });
  ASSERT_TRUE(Eventually([&] { return servers_[1].daemon->MemoryBytes("VmHWM") > 80 << 20; }));
  servers_[1].daemon->Signal(SIGSTOP);
  const std::vector<absl::Status> ends = waiting.get();
  servers_[1].daemon->Signal(SIGCONT);
  // Who waits for one that has given up sees it hang up.
  for (int rank : {0, 2, 3}) {
    EXPECT_THAT(ends[rank].code(), testing::AnyOf(Code::kDeadlineExceeded, Code::kAborted))
        << ends[rank];
  }
}

TEST_F(CollectiveTest, LeavingEndsWhatTheOthersWaitFor) {
  MakeGroup();
  auto waiting = std::async(std::launch::async, [&] {
    return AtOnce(3, [&](int rank) { return Run(rank, Barrier(2)); });
  });
  ASSERT_TRUE(Leave(3).ok());
  for (const auto& made : waiting.get()) ExpectError(made, Code::kAborted, {"rank 3", "left"});
  ExpectError(Leave(3), Code::kNotFound, {"member 1"});
  ExpectError(Run(3, Barrier(2)), Code::kNotFound, {"member 1", "JoinGroup"});
}

TEST_F(CollectiveTest, LeavingEndsOnesOwnOperationsToo) {
  MakeGroup();
  auto waiting = std::async(std::launch::async, [&] { return Run(0, Barrier(2)); });
  ASSERT_TRUE(Eventually([&] {
    const auto list = session(0).List();
    return list.ok() && list->tensors_size() == 1;
  }));
  ASSERT_TRUE(Leave(0).ok());
  ExpectError(waiting.get(), Code::kCancelled, {"left its group"});
}

TEST_F(CollectiveTest, TheEndOfASessionEndsItsMembers) {
  MakeGroup();
  auto waiting = std::async(std::launch::async, [&] {
    return AtOnce(3, [&](int rank) { return Run(rank, Barrier(2)); });
  });
  ASSERT_TRUE(session(3).Close().ok());
  for (const auto& made : waiting.get()) ExpectError(made, Code::kAborted, {"rank 3", "left"});
}

// How many descriptors a daemon has.
int64_t Descriptors(const DaemonProcess& daemon) {
  int64_t count = 0;
  const std::string folder = absl::StrCat("/proc/", daemon.pid(), "/fd");
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

// How many of its threads are members'.
int64_t MemberThreads(const DaemonProcess& daemon) {
  int64_t count = 0;
  const std::string folder = absl::StrCat("/proc/", daemon.pid(), "/task");
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path() / "comm");
    std::string name;
    if (file >> name && name == "group-member") ++count;
  }
  return count;
}

TEST_F(CollectiveTest, WhatMembersTakeIsGivenBack) {
  CreateAll(1, {1, 2});
  const DaemonProcess& daemon = *servers_[0].daemon;
  const int64_t descriptors = Descriptors(daemon);
  for (int round = 0; round < 3; ++round) {
    MakeGroup();
    EXPECT_TRUE(Eventually([&] { return MemberThreads(daemon) == 1; }));
    EXPECT_GE(Descriptors(daemon), descriptors + 3);
    ExpectGroupWorks(50);
    for (int rank = 0; rank < kServers; ++rank) {
      ASSERT_TRUE(session(rank).Delete({50, 51}).ok());
      ASSERT_TRUE(Leave(rank).ok());
    }
  }
  MakeGroup();
  const auto stream = Promise(session(0), 20, kPair);
  auto waiting =
      std::async(std::launch::async, [&] { return Run(0, Op(kAllReduce, kPair, 20, 2)); });
  stream->Cancel();
  ASSERT_TRUE(session(0).Close().ok());
  EXPECT_FALSE(waiting.get().ok());
  EXPECT_TRUE(Eventually([&] { return MemberThreads(daemon) == 0; }));
  EXPECT_TRUE(Eventually([&] { return Descriptors(daemon) <= descriptors; }));
}

TEST_F(CollectiveTest, AServerThatDrainsEndsItsMembers) {
  flags_.push_back("--grace-seconds=1");
  Restart(0);
  MakeGroup();
  auto waiting = std::async(std::launch::async, [&] {
    return AtOnce(3, [&](int rank) { return Run(rank, Barrier(2)); });
  });
  ASSERT_TRUE(Eventually([&] {
    const auto list = session(0).List();
    return list.ok() && list->tensors_size() == 1;
  }));
  const auto exit_code = servers_[0].daemon->Terminate();
  ASSERT_TRUE(exit_code.ok()) << exit_code.status();
  EXPECT_EQ(*exit_code, 0) << servers_[0].daemon->Output();
  const auto made = waiting.get();
  EXPECT_FALSE(made[0].ok());
  for (int rank : {1, 2}) ExpectError(made[rank], Code::kAborted, {"rank 0"});
}

TEST_F(CollectiveTest, AGroupThatDoesntMeetInTimeIsToldSo) {
  const std::vector<std::string> addresses = JoinAll({.timeout_ms = 500});
  const auto connected = AtOnce(3, [&](int rank) { return Connect(rank, addresses); });
  for (const absl::Status& status : connected) {
    EXPECT_THAT(status.code(), testing::AnyOf(Code::kDeadlineExceeded, Code::kAborted)) << status;
  }
}

TEST_F(CollectiveTest, AddressesOfAnotherGroupAreRefused) {
  std::vector<std::string> addresses = JoinAll();
  std::vector<std::string> others = JoinAll({.member = 2, .id = "another group id"});
  std::vector<std::string> mixed = addresses;
  mixed[2] = others[2];
  ExpectError(Connect(0, mixed), Code::kInvalidArgument, {"rank 2", "group_id"});
  std::vector<std::string> swapped = addresses;
  std::swap(swapped[1], swapped[2]);
  ExpectError(Connect(0, swapped), Code::kInvalidArgument, {"rank 1", "rank 2 of 4"});
  ExpectError(Connect(0, {addresses[0]}), Code::kInvalidArgument, {"4 members", "1 addresses"});
  std::vector<std::string> altered = addresses;
  altered[3][20] ^= 1;
  ExpectError(Connect(0, altered), Code::kInvalidArgument, {"rank 3"});
  ExpectError(Connect(0, {"", "", "", ""}), Code::kInvalidArgument, {"rank 0", "JoinGroup"});
  ExpectError(Run(0, Barrier(2)), Code::kFailedPrecondition, {"ConnectGroup"});
  // None of that has cost the group anything.
  for (const absl::Status& connected :
       AtOnce(kServers, [&](int rank) { return Connect(rank, addresses); })) {
    ASSERT_TRUE(connected.ok()) << connected;
  }
  EXPECT_TRUE(Connect(0, addresses).ok()) << "asked again, for the answer was lost";
  ExpectGroupWorks(50);
}

TEST_F(CollectiveTest, WhatAMemberCantBe) {
  v1::JoinGroupRequest right;
  right.set_session(session(0).id());
  right.set_member(1);
  right.set_device("cpu:0");
  right.set_size(2);
  right.set_group_id(std::string(16, 'x'));
  const auto refused = [&](const std::function<void(v1::JoinGroupRequest&)>& change, Code code,
                           const std::vector<std::string>& words) {
    v1::JoinGroupRequest request = right;
    change(request);
    ExpectError(client(0).Call<v1::JoinGroupResponse>("JoinGroup", request), code, words);
  };
  using Request = v1::JoinGroupRequest;
  refused([](Request& r) { r.set_member(0); }, Code::kInvalidArgument, {"number"});
  refused([](Request& r) { r.set_size(0); }, Code::kInvalidArgument, {"1024"});
  refused([](Request& r) { r.set_size(1025); }, Code::kInvalidArgument, {"1025", "1024"});
  refused([](Request& r) { r.set_rank(2); }, Code::kInvalidArgument, {"rank 2"});
  refused([](Request& r) { r.set_group_id("short"); }, Code::kInvalidArgument, {"16"});
  refused([](Request& r) { r.set_timeout_milliseconds(-1); }, Code::kInvalidArgument, {"-1"});
  refused([](Request& r) { r.set_timeout_milliseconds(3600001); }, Code::kInvalidArgument, {});
  refused([](Request& r) { r.set_device("cpu:7"); }, Code::kNotFound, {"cpu:7"});
  refused([](Request& r) { r.set_session("nobody's"); }, Code::kNotFound, {});
  ASSERT_TRUE(client(0).Call<v1::JoinGroupResponse>("JoinGroup", right).ok());
  refused([](Request&) {}, Code::kAlreadyExists, {"member 1"});
}

class CollectiveLimitTest : public GroupFixture {
 protected:
  CollectiveLimitTest()
      : GroupFixture({"--max-group-members-per-session=2", "--max-bytes-per-session=1MiB"}) {}
};

TEST_F(CollectiveLimitTest, ASessionHasSoManyMembers) {
  ASSERT_TRUE(Join(0, {.member = 1}).ok());
  ASSERT_TRUE(Join(0, {.member = 2}).ok());
  const auto refused = Join(0, {.member = 3});
  ExpectError(refused, Code::kResourceExhausted, {"--max-group-members-per-session=2"});
  ASSERT_TRUE(Leave(0, 2).ok());
  EXPECT_TRUE(Join(0, {.member = 3}).ok());
}

TEST_F(CollectiveLimitTest, ResultsAreChargedToTheSession) {
  MakeGroup();
  const int64_t count = 1 << 17;
  for (int rank = 0; rank < kServers; ++rank) ASSERT_TRUE(session(rank).Ones(1, {count}).ok());
  for (const auto& made :
       RunAll(Op(v1::COLLECTIVE_KIND_ALL_GATHER, {DType::kFloat32, Shape({count})}, 1, 2))) {
    ExpectError(made, Code::kResourceExhausted, {"--max-bytes-per-session=1048576"});
  }
  const auto made =
      RunAll(Op(v1::COLLECTIVE_KIND_ALL_REDUCE, {DType::kFloat32, Shape({count})}, 1, 2));
  for (const auto& result : made) EXPECT_TRUE(result.ok()) << result.status();
}

class CollectiveOffTest : public DaemonFixture {
 protected:
  CollectiveOffTest() : DaemonFixture({"--collectives=off"}) {}
};

TEST_F(CollectiveOffTest, AServerThatTakesNoPartNamesTheFlag) {
  v1::JoinGroupRequest request;
  request.set_session(session_->id());
  ExpectError(client_->Call<v1::JoinGroupResponse>("JoinGroup", request), Code::kFailedPrecondition,
              {"--collectives"});
  const auto info = client_->Call<v1::ServerInfo>("GetServerInfo", v1::GetServerInfoRequest());
  EXPECT_THAT(info->features(), testing::Not(testing::Contains("collectives")));
}

TEST(CollectiveFlagTest, AnAddressThatIsntThisMachinesIsRefusedAtTheStart) {
  for (const std::string wanted : {"192.0.2.1", "nosuch0", "127.0.0.1/40", "0.0.0.0"}) {
    std::string output;
    const auto exit_code = RunDaemon({"--devices=cpu", "--collectives=" + wanted}, &output);
    ASSERT_TRUE(exit_code.ok()) << exit_code.status();
    EXPECT_EQ(*exit_code, 1);
    EXPECT_THAT(output, testing::HasSubstr("--collectives=" + wanted));
  }
}

}  // namespace
}  // namespace tensord::integration
