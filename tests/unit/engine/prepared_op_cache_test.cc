// The cache of prepared ops: its limit in bytes, and what is charged to callers.
#include "tensord/server/engine/prepared_op_cache.h"

#include <malloc.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/tests/sanitized.h"
#include "tensord/tests/unit/engine/engine_fixture.h"
#include "tensord/tests/unit/session/test_principal.h"

namespace tensord::server {
namespace {

using Code = absl::StatusCode;

class PreparedOpCacheTest : public EngineFixture {
 protected:
  // The device holds the results of FindLarge() and FindConstant().
  PreparedOpCacheTest() : EngineFixture({.limit_bytes = 64 << 20}) {}

  // Finds a concat of many inputs of high rank, whose first dimension is `size`.
  absl::StatusOr<PreparedOpRef> FindLarge(int64_t size, const BudgetRef& caller) {
    std::vector<int64_t> shape(32, 1);
    shape[0] = size;
    const std::vector<TensorSpec> inputs(1024, TensorSpec{DType::kFloat32, Shape(shape)});
    return cache_.Find("concat", inputs, {{"axis", int64_t{0}}}, engine_->slots()[0], caller);
  }
  absl::StatusOr<PreparedOpRef> FindConstant(int64_t bytes, const BudgetRef& caller) {
    const Attributes attrs{{"dtype", DType::kUInt8},
                           {"shape", std::vector<int64_t>{bytes}},
                           {"data", Bytes{std::string(bytes, 'x')}}};
    return cache_.Find("constant", {}, attrs, engine_->slots()[0], caller);
  }

  static BudgetRef NewCaller() {
    return BudgetOf(TestPrincipalWith({.max_host_bytes_per_principal = 8 << 20}),
                    PrincipalLimit::kHostBytes);
  }

  const BudgetRef caller_ = NewCaller();
  PreparedOpCache cache_;
};

TEST_F(PreparedOpCacheTest, StaysWithinLimitAndChargesNoCaller) {
  for (int64_t size = 1; size <= 300; ++size) {
    ASSERT_TRUE(FindLarge(size, caller_).ok());
    ASSERT_LE(cache_.bytes(), PreparedOpCache::kMaxBytes);
  }
  EXPECT_GT(cache_.bytes(), PreparedOpCache::kMaxBytes / 2);
  EXPECT_EQ(caller_->used(), 0);
}

TEST_F(PreparedOpCacheTest, CachedOpsDoNotKeepTheirCallerAlive) {
  BudgetRef caller = NewCaller();
  const std::weak_ptr<const Budget> weak = caller;
  ASSERT_TRUE(FindLarge(1, caller).ok());
  caller.reset();
  EXPECT_TRUE(weak.expired());
}

TEST_F(PreparedOpCacheTest, KeepsTheMostRecentlyUsedOps) {
  const PreparedOpRef first = *FindLarge(1, caller_);
  const PreparedOpRef second = *FindLarge(2, caller_);
  for (int64_t size = 3; size <= 300; ++size) {
    ASSERT_TRUE(FindLarge(size, caller_).ok());
    ASSERT_EQ(*FindLarge(1, caller_), first);
  }
  EXPECT_NE(*FindLarge(2, caller_), second);
}

// If the cache evicts ops that a caller uses, they are charged to the caller. At its limit, the
// caller gets no further ops, but other callers do.
TEST_F(PreparedOpCacheTest, ChargesEvictedOpsThatAreInUse) {
  std::vector<PreparedOpRef> in_use;
  absl::Status refused;
  for (int64_t size = 1; size <= 1000 && refused.ok(); ++size) {
    const auto found = FindLarge(size, caller_);
    refused = found.status();
    if (found.ok()) in_use.push_back(*found);
  }
  ExpectError(refused, Code::kResourceExhausted, {"--max-host-bytes-per-principal"});
  int64_t bytes = 0;
  for (const PreparedOpRef& op : in_use) bytes += op->host_bytes();
  EXPECT_LE(bytes, PreparedOpCache::kMaxBytes + (10 << 20));
  EXPECT_TRUE(FindLarge(2000, NewCaller()).ok());
  in_use.clear();
  EXPECT_EQ(caller_->used(), 0);
  EXPECT_TRUE(FindLarge(2001, caller_).ok());
}

TEST_F(PreparedOpCacheTest, ChargesConstantsWhileTheyAreInUse) {
  const PreparedOpRef constant = *FindConstant(5 << 20, caller_);
  EXPECT_GE(caller_->used(), 5 << 20);
  EXPECT_EQ(cache_.bytes(), 0);
  ExpectError(FindConstant(5 << 20, caller_), Code::kResourceExhausted);
}

// Compares the estimates with the allocator's count.
TEST_F(PreparedOpCacheTest, EstimatesCoverTheAllocatedMemory) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer replaces the allocator";
  struct Case {
    std::string op;
    std::vector<TensorSpec> inputs;
    Attributes attrs;
  };
  const TensorSpec high{DType::kFloat32, Shape(std::vector<int64_t>(32, 1))};
  const std::vector<Case> cases = {
      {"add", {{DType::kFloat32, {64}}, {DType::kFloat32, {64}}}, {}},
      {"add", {{DType::kFloat32, {4, 8, 1}}, {DType::kFloat64, {8, 5}}}, {}},
      {"sum", {{DType::kFloat32, {4, 8}}}, {{"axes", std::vector<int64_t>{1}}}},
      {"permute", {high}, {{"axes", std::vector<int64_t>{31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21,
                                                         20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10,
                                                         9,  8,  7,  6,  5,  4,  3,  2,  1,  0}}}},
      {"concat", std::vector<TensorSpec>(1024, high), {{"axis", int64_t{0}}}},
      {"concat", std::vector<TensorSpec>(64, {DType::kFloat32, {2, 2}}), {{"axis", int64_t{0}}}},
  };
  for (const Case& c : cases) {
    constexpr int kOps = 64;
    std::vector<PreparedOpRef> ops;
    ops.reserve(kOps);
    const auto allocated = [] {
      const auto info = mallinfo2();
      return info.uordblks + info.hblkhd;
    };
    // The first op also fills tables that all ops share.
    const auto first = PreparedOp::Make(c.op, c.inputs, c.attrs, engine_->slots()[0], caller_,
                                        /*prepared_ops=*/nullptr, /*chains=*/nullptr);
    ASSERT_TRUE(first.ok()) << first.status();
    const size_t before = allocated();
    for (int i = 0; i < kOps; ++i) {
      auto op = PreparedOp::Make(c.op, c.inputs, c.attrs, engine_->slots()[0], caller_,
                                 /*prepared_ops=*/nullptr, /*chains=*/nullptr);
      ASSERT_TRUE(op.ok()) << op.status();
      ops.push_back(*std::move(op));
    }
    const auto each = static_cast<int64_t>(allocated() - before) / kOps;
    SCOPED_TRACE(absl::StrCat(c.op, " of ", c.inputs.size(), " inputs allocates ", each));
    EXPECT_GE(ops[0]->host_bytes(), each);
    EXPECT_LE(ops[0]->host_bytes(), 3 * each + 1024);
  }
}

}  // namespace
}  // namespace tensord::server
