// Budgets, and what sessions charge to the limits of host memory.
#include "tensord/server/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/common/status_details.h"
#include "tensord/server/memory_reserve.h"
#include "tensord/server/session/in_flight.h"
#include "tensord/server/session/session_table.h"
#include "tensord/tests/expect_error.h"
#include "tensord/tests/sanitized.h"
#include "tensord/tests/unit/session/test_principal.h"

namespace tensord::server {
namespace {

using Code = absl::StatusCode;
using testing::ElementsAre;

TEST(BudgetTest, ChargesAllLevelsOrNone) {
  const auto all = std::make_shared<Budget>(100);
  Budget one(70, all), other(Budget::kUnlimited, all);
  EXPECT_EQ(one.TryCharge(60), nullptr);
  EXPECT_EQ(one.TryCharge(11), &one);
  EXPECT_EQ(one.TryCharge(11, /*past_limit=*/1), nullptr);
  EXPECT_EQ(other.TryCharge(30), all.get());
  EXPECT_EQ(all->used(), 71) << "a refused charge changes nothing";
  EXPECT_EQ(other.used(), 0);
  EXPECT_EQ(one.room(), -1);
  EXPECT_EQ(other.room(), 29);
  EXPECT_EQ(one.TryCharge(0), nullptr) << "an amount of 0 always fits";
  other.ChargePastLimit(40);
  EXPECT_EQ(all->used(), 111);
  EXPECT_EQ(one.Return(71), 0);
  EXPECT_EQ(all->used(), 40);
  one.SetLimit(5);
  EXPECT_EQ(one.TryCharge(6), &one);
}

TEST(BudgetTest, ThreadsTogetherGetExactlyTheLimit) {
  const auto all = std::make_shared<Budget>(1000);
  std::vector<std::thread> threads;
  std::atomic<int64_t> charged = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      Budget own(600, all);
      while (own.TryCharge(3) == nullptr) charged += 3;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(charged.load(), 999);
  EXPECT_EQ(all->used(), 999);
}

TEST(ChargeTest, ChargesWholeBlocksAndReturnsUnusedOnes) {
  constexpr int64_t kBlock = Charge::kBlockBytes;
  const PrincipalRef caller = TestPrincipalWith({.max_host_bytes = 4 * kBlock});
  const BudgetRef budget = BudgetOf(caller, PrincipalLimit::kHostBytes);
  {
    Charge charge(budget, kBlock);
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(charge.Add(10).ok());
    EXPECT_EQ(budget->used(), kBlock);
    ASSERT_TRUE(charge.Add(3 * kBlock).ok());
    EXPECT_EQ(budget->used(), 4 * kBlock);
    ExpectError(charge.Add(kBlock), Code::kResourceExhausted);
    EXPECT_EQ(budget->used(), 4 * kBlock);
    charge.Return(3 * kBlock);
    EXPECT_LE(budget->used(), 2 * kBlock);
    EXPECT_TRUE(charge.Add(kBlock).ok());
  }
  EXPECT_EQ(budget->used(), 0);
}

TEST(ChargeTest, MemoryInUseIsChargedPastTheLimit) {
  const PrincipalRef caller = TestPrincipalWith({.max_host_bytes = 1000});
  const BudgetRef budget = BudgetOf(caller, PrincipalLimit::kHostBytes);
  {
    Charge charge(budget);
    charge.AddPastLimit(1500);
    EXPECT_EQ(budget->used(), 1500);
    ExpectError(charge.Add(1), Code::kResourceExhausted);
    charge.Return(600);
    EXPECT_EQ(budget->used(), 900);
  }
  EXPECT_EQ(budget->used(), 0);
}

TEST(ChargeQueueTest, BudgetsTakeTurnsAndEachKeepsItsOrder) {
  const auto all = std::make_shared<Budget>(10);
  const auto one = std::make_shared<Budget>(8, all), other = std::make_shared<Budget>(8, all);
  ChargeQueue queue;
  std::vector<std::string> granted;
  const auto ask = [&](const BudgetRef& budget, int64_t amount, const std::string& name) {
    queue.WhenFits(budget, amount, [&granted, name] { granted.push_back(name); });
  };
  ask(one, 8, "a");
  ask(one, 4, "b");
  ask(one, 2, "c");
  ask(other, 4, "d");
  EXPECT_THAT(granted, ElementsAre("a")) << "c would fit, but b is before it";
  queue.Return(one, 8);
  EXPECT_THAT(granted, ElementsAre("a", "b", "d", "c"));
  queue.Return(one, 6);
  queue.Return(other, 4);
  EXPECT_EQ(all->used(), 0);
  // No charge waits forever.
  ask(one, 9, "large");
  EXPECT_EQ(granted.back(), "large");
  queue.Return(one, 9);
  EXPECT_EQ(all->used(), 0);
}

TEST(PrincipalBudgetTest, ErrorNamesTheFlagAndWhatTheCallerAndOthersHold) {
  PrincipalTable principals({.max_host_bytes = 1000, .max_host_bytes_per_principal = 600});
  const auto host_bytes = [&](absl::string_view name) {
    return BudgetOf(principals.Get(Principal::Kind::kToken, name), PrincipalLimit::kHostBytes);
  };
  const BudgetRef alice = host_bytes("alice"), bob = host_bytes("bob");
  ASSERT_TRUE(alice->Charge(500).ok());
  const absl::Status own = alice->Charge(101);
  ExpectError(own, Code::kResourceExhausted, {"--max-host-bytes-per-principal=600", "500 bytes"});
  EXPECT_EQ(ErrorReason(own), "PRINCIPAL_HOST_BYTES_EXCEEDED");
  EXPECT_EQ(ErrorMetadataValue(own, "limit"), "max-host-bytes-per-principal");
  ASSERT_TRUE(bob->Charge(450).ok());
  const absl::Status all = bob->Charge(60);
  ExpectError(all, Code::kResourceExhausted,
              {"--max-host-bytes=1000", "holds 450 bytes", "all other callers 500 bytes"});
  EXPECT_EQ(ErrorReason(all), "SERVER_HOST_BYTES_EXCEEDED");
  EXPECT_EQ(principals.host_budget()->used(), 950);
}

// Simulates `operator new`, which calls the handler when it finds no memory.
TEST(MemoryReserveTest, RefusesNewWorkUntilThereIsMemoryAgain) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer has an allocator of its own";
  PrincipalTable principals({.max_host_bytes = 1000});
  const PrincipalRef caller = principals.Get(Principal::Kind::kToken, "alice");
  Charge held(BudgetOf(caller, PrincipalLimit::kHostBytes));
  ASSERT_TRUE(held.Add(100).ok());
  {
    MemoryReserve reserve(principals.host_budget());
    std::get_new_handler()();
    ExpectError(held.Add(1), Code::kResourceExhausted, {"has run out of memory", "delete tensors"});
    EXPECT_THROW(std::get_new_handler()(), std::bad_alloc) << "the reserve is used up";
    held.Return(50);
    reserve.Refill();
    EXPECT_TRUE(held.Add(900).ok());
    EXPECT_NO_THROW(std::get_new_handler()()) << "there is a reserve again";
  }
  EXPECT_EQ(std::get_new_handler(), nullptr);
}

TEST(InFlightTest, WorkIsChargedUntilItEnds) {
  const PrincipalRef caller = TestPrincipalWith({.max_host_bytes = 1 << 20});
  const BudgetRef budget = BudgetOf(caller, PrincipalLimit::kHostBytes);
  {
    InFlight work(budget, /*max_count=*/100, /*prepaid_bytes=*/1000);
    ASSERT_TRUE(work.Begin(1000).ok());
    EXPECT_EQ(budget->used(), 0) << "these bytes were charged before";
    ASSERT_TRUE(work.Begin(500000).ok());
    EXPECT_GE(budget->used(), 500000);
    ExpectError(work.Begin(600000), Code::kResourceExhausted, {"--max-host-bytes"});
    ASSERT_TRUE(work.Begin(400000).ok());
    work.End(500000);
    work.End(400000);
    EXPECT_LT(budget->used(), 300000);
    for (int i = 0; i < 99; ++i) ASSERT_TRUE(work.Begin(1).ok());
    ExpectError(work.Begin(1), Code::kResourceExhausted, {"100 ops"});
    for (int i = 0; i < 99; ++i) work.End(1);
    work.End(1000);
  }
  EXPECT_EQ(budget->used(), 0);
}

// Opens sessions of two principals in a table with limits of host memory.
class HostLimitsTest : public testing::Test {
 protected:
  HostLimitsTest()
      : principals_({.max_host_bytes = 1 << 20, .max_host_bytes_per_principal = 512 << 10}),
        table_({}, {}),
        session_(*table_.Open(Named("greedy"), 0, "")) {}

  PrincipalRef Named(absl::string_view name) {
    return principals_.Get(Principal::Kind::kToken, name);
  }

  static TensorRef Make(Handle handle, std::vector<int64_t> shape = {2}) {
    return Tensor::Make(handle, TensorSpec{DType::kInt64, Shape(shape)}, nullptr);
  }

  // Adds tensors until one is refused. Returns the error.
  absl::Status Fill(Session& session, const std::vector<int64_t>& shape = {2}) {
    while (true) {
      const absl::Status added = session.Insert(Make(++last_handle_, shape));
      if (!added.ok()) return added;
    }
  }

  int64_t used_bytes() const { return principals_.host_budget()->used(); }

  PrincipalTable principals_;
  SessionTable table_;
  const SessionRef session_;
  Handle last_handle_ = 0;
};

TEST_F(HostLimitsTest, HandlesOfOneCallerLeaveRoomForOthers) {
  const absl::Status full = Fill(*session_);
  ExpectError(full, Code::kResourceExhausted, {"--max-host-bytes-per-principal=524288"});
  EXPECT_EQ(ErrorReason(full), "PRINCIPAL_HOST_BYTES_EXCEEDED");
  EXPECT_GE((last_handle_ - 1) * Tensor::kHostBytes, 400u << 10);
  EXPECT_LE((last_handle_ - 1) * Tensor::kHostBytes, 512u << 10);

  const SessionRef other = *table_.Open(Named("honest"), 0, "");
  EXPECT_TRUE(other->Insert(Make(1)).ok());

  for (Handle handle = 1; handle < last_handle_; handle += 2) session_->Drop({handle});
  EXPECT_TRUE(session_->Insert(Make(1)).ok());
}

TEST_F(HostLimitsTest, ClosedSessionReturnsEverything) {
  ExpectError(Fill(*session_), Code::kResourceExhausted);
  const int64_t full = used_bytes();
  ASSERT_TRUE(table_.Close(Named("greedy"), session_->id()).ok());
  EXPECT_LT(used_bytes(), full - (400 << 10));
  const SessionRef next = *table_.Open(Named("greedy"), 0, "");
  EXPECT_TRUE(next->Insert(Make(1)).ok());
}

TEST_F(HostLimitsTest, ShapesOfHighRankCostMore) {
  ExpectError(Fill(*session_), Code::kResourceExhausted);
  const Handle flat = std::exchange(last_handle_, 0);
  ASSERT_TRUE(table_.Close(Named("greedy"), session_->id()).ok());
  const SessionRef next = *table_.Open(Named("greedy"), 0, "");
  ExpectError(Fill(*next, std::vector<int64_t>(32, 1)), Code::kResourceExhausted);
  EXPECT_LT(last_handle_, flat * 3 / 4);
}

TEST_F(HostLimitsTest, SessionsAreCharged) {
  std::vector<SessionRef> sessions;
  absl::StatusOr<SessionRef> opened = session_;
  while ((opened = table_.Open(Named("greedy"), 0, "")).ok()) sessions.push_back(*opened);
  ExpectError(opened, Code::kResourceExhausted, {"--max-host-bytes-per-principal"});
  EXPECT_LT(sessions.size(), 64u);
  EXPECT_TRUE(table_.Open(Named("honest"), 0, "").ok());
  ASSERT_TRUE(table_.Close(Named("greedy"), sessions[0]->id()).ok());
  sessions.clear();
  EXPECT_TRUE(table_.Open(Named("greedy"), 0, "").ok());
}

TEST_F(HostLimitsTest, TicketsAndNamesAreCharged) {
  const TensorRef tensor = Tensor::Failed(1, absl::InternalError("test"));
  int tickets = 0;
  absl::Status refused;
  while (refused.ok()) {
    refused = table_.tickets().Issue(session_, tensor, "epoch").status();
    ++tickets;
  }
  ExpectError(refused, Code::kResourceExhausted, {"--max-host-bytes-per-principal"});
  EXPECT_LT(tickets, 1024);
  const SessionRef other = *table_.Open(Named("honest"), 0, "");
  const std::vector<std::string> readers(Publications::kMaxReaders,
                                         std::string(Publications::kMaxReaderBytes, 'r'));
  int names = 0;
  refused = absl::OkStatus();
  while (refused.ok()) {
    refused = table_.publications().Publish(other, absl::StrCat("n", ++names), tensor, readers);
  }
  ExpectError(refused, Code::kResourceExhausted, {"--max-host-bytes"});
  EXPECT_LT(names, 8);
  ASSERT_TRUE(table_.Close(Named("honest"), other->id()).ok());
  ASSERT_TRUE(table_.Close(Named("greedy"), session_->id()).ok());
  EXPECT_TRUE(table_.Open(Named("honest"), 0, "").ok());
}

TEST_F(HostLimitsTest, TextsOfErrorsAreCharged) {
  const std::string text(4000, 'x');
  std::vector<TensorRef> tensors;
  for (Handle handle = 1; handle <= 100; ++handle) {
    tensors.push_back(Make(handle));
    ASSERT_TRUE(session_->Insert(tensors.back()).ok());
  }
  const int64_t before = used_bytes();
  for (int i = 0; i < 50; ++i) {
    tensors[i]->Finish(session_->ChargeError(tensors[i], absl::DataLossError(text)));
    EXPECT_EQ(tensors[i]->status().message(), text);
  }
  EXPECT_GE(used_bytes(), before + 50 * 4000);
  last_handle_ = 100;
  ExpectError(Fill(*session_), Code::kResourceExhausted);
  for (int i = 50; i < 100; ++i) {
    tensors[i]->Finish(session_->ChargeError(tensors[i], absl::DataLossError(text)));
  }
  // The limit is too small for all these texts. If a text was dropped, the tensor's error says so.
  ExpectError(tensors.back()->status(), Code::kResourceExhausted, {"host memory"});
  for (Handle handle = 1; handle < last_handle_; ++handle) session_->Drop({handle});
  EXPECT_LT(used_bytes(), before);
}

}  // namespace
}  // namespace tensord::server
