// Groups of CPU devices over several daemons: makes inputs, runs operations and compares the
// results with the expected values.
#pragma once

#include <cstring>

#include "tensord/common/float16.h"
#include "tensord/tests/integration/group_fixture.h"

namespace tensord::integration {

using Code = absl::StatusCode;

inline constexpr v1::CollectiveKind kBroadcast = v1::COLLECTIVE_KIND_BROADCAST;
inline constexpr v1::CollectiveKind kAllGather = v1::COLLECTIVE_KIND_ALL_GATHER;
inline constexpr v1::CollectiveKind kReduceScatter = v1::COLLECTIVE_KIND_REDUCE_SCATTER;
inline constexpr v1::CollectiveKind kAllReduce = v1::COLLECTIVE_KIND_ALL_REDUCE;

inline const TensorSpec kPair{DType::kFloat32, Shape({2})};

template <typename T>
std::string EncodeAs(const std::vector<double>& values) {
  std::string bytes;
  for (double value : values) {
    const T element = static_cast<T>(static_cast<float>(value));
    bytes.append(reinterpret_cast<const char*>(&element), sizeof(element));
  }
  return bytes;
}

inline std::string Encode(DType dtype, const std::vector<double>& values) {
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

// Returns small whole numbers. Every dtype represents exactly these numbers, their sums and, for
// floating dtypes, their means over four ranks.
inline std::vector<double> ValuesOf(int rank, int64_t count) {
  std::vector<double> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<double>((rank * 7 + i * 3) % 11) - 5;
  return values;
}

inline double Reduce(v1::Reduction reduction, int64_t i, int ranks) {
  double result = ValuesOf(0, i + 1)[i];
  for (int rank = 1; rank < ranks; ++rank) {
    const double value = static_cast<double>((rank * 7 + i * 3) % 11) - 5;
    result = reduction == v1::REDUCTION_MAX ? std::max(result, value) : result + value;
  }
  return reduction == v1::REDUCTION_MEAN ? result / ranks : result;
}

inline std::vector<double> ReduceAll(v1::Reduction reduction, int64_t count, int ranks) {
  std::vector<double> values(count);
  for (int64_t i = 0; i < count; ++i) {
    values[i] = i < 11 ? Reduce(reduction, i, ranks) : values[i - 11];
  }
  return values;
}

// Opens a session stream and promises a tensor on it. Returns the stream.
inline std::unique_ptr<StreamCall> Promise(RpcSession& session, uint64_t handle,
                                           const TensorSpec& spec) {
  auto stream = session.client().SessionStream();
  v1::SessionStreamRequest message = session.Attach();
  v1::Promise* promise = message.add_commands()->mutable_promise();
  promise->set_handle(handle);
  *promise->mutable_spec() = ToProto(spec);
  promise->set_device("cpu:0");
  EXPECT_TRUE(stream->Send(message));
  EXPECT_TRUE(stream->Next().has_value());  // the server has received it
  return stream;
}

inline void Write(RpcSession& session, uint64_t handle, const TensorSpec& spec,
                  const std::string& bytes) {
  auto write = session.client().Write();
  v1::WriteRequest message = session.FirstWrite(handle, spec);
  message.set_data(bytes);
  ASSERT_TRUE(write->Send(message));
  ASSERT_TRUE(write->Finish().ok());
}

class CollectiveFixture : public GroupFixture {
 protected:
  // Runs `op`, whose input is tensor 1 and whose output is tensor 2, at every rank. Expects the
  // result `expected[rank]` at each rank.
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

  // Checks every kind but broadcast, over tensors of this dtype and of shape (2·ranks, 3).
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

  // Runs ops[rank] at each rank, all at once.
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

}  // namespace tensord::integration
