// The limits of host memory: of the process, of a principal, and what sessions charge to them.
#include "tensord/server/session/host_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/common/status_details.h"
#include "tensord/server/session/in_flight.h"
#include "tensord/server/session/session_table.h"
#include "tensord/tests/expect_error.h"
#include "tensord/tests/unit/session/test_principal.h"

namespace tensord::server {
namespace {

using Code = absl::StatusCode;

TEST(HostBudgetTest, ErrorNamesTheFlagAndWhatTheCallerAndOthersHold) {
  const auto budget = std::make_shared<HostBudget>(1000, 600);
  HostAccount alice(budget, TestPrincipal("alice"));
  HostAccount bob(budget, TestPrincipal("bob"));
  ASSERT_TRUE(alice.Charge(500).ok());
  const absl::Status own = alice.Charge(101);
  ExpectError(own, Code::kResourceExhausted, {"--max-host-bytes-per-principal=600", "500 bytes"});
  EXPECT_EQ(ErrorReason(own), "PRINCIPAL_HOST_BYTES_EXCEEDED");
  EXPECT_EQ(ErrorMetadataValue(own, "limit"), "max-host-bytes-per-principal");
  ASSERT_TRUE(bob.Charge(450).ok());
  const absl::Status all = bob.Charge(60);
  ExpectError(all, Code::kResourceExhausted,
              {"--max-host-bytes=1000", "holds 450 bytes", "all other callers 500 bytes"});
  EXPECT_EQ(ErrorReason(all), "SERVER_HOST_BYTES_EXCEEDED");
  EXPECT_EQ(budget->used_bytes(), 950) << "a refused charge changes nothing";
  alice.Return(500);
  EXPECT_TRUE(bob.Charge(60).ok());
  bob.Return(510);
  EXPECT_EQ(budget->used_bytes(), 0);
}

TEST(HostBudgetTest, MemoryInUseIsChargedPastTheLimit) {
  const auto budget = std::make_shared<HostBudget>(1000, 0);
  const auto account = std::make_shared<HostAccount>(budget, TestPrincipal());
  {
    HostCharge charge(account);
    charge.AddPastLimit(1500);
    EXPECT_EQ(budget->used_bytes(), 1500);
    ExpectError(charge.Add(1), Code::kResourceExhausted);
  }
  EXPECT_EQ(budget->used_bytes(), 0);
}

TEST(HostBudgetTest, ChargesWholeBlocksAndReturnsUnusedOnes) {
  constexpr int64_t kBlock = BatchedHostCharge::kBlockBytes;
  const auto budget = std::make_shared<HostBudget>(4 * kBlock, 0);
  const auto account = std::make_shared<HostAccount>(budget, TestPrincipal());
  {
    BatchedHostCharge credit(account);
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(credit.Charge(10).ok());
    EXPECT_EQ(budget->used_bytes(), kBlock);
    ASSERT_TRUE(credit.Charge(3 * kBlock).ok());
    EXPECT_EQ(budget->used_bytes(), 4 * kBlock);
    ExpectError(credit.Charge(kBlock), Code::kResourceExhausted);
    EXPECT_EQ(budget->used_bytes(), 4 * kBlock);
    credit.Return(3 * kBlock);
    EXPECT_LE(budget->used_bytes(), 2 * kBlock);
    EXPECT_TRUE(credit.Charge(kBlock).ok());
  }
  EXPECT_EQ(budget->used_bytes(), 0);
}

TEST(HostBudgetTest, WorkInFlightIsChargedUntilItEnds) {
  const auto budget = std::make_shared<HostBudget>(1 << 20, 0);
  const auto account = std::make_shared<HostAccount>(budget, TestPrincipal());
  {
    InFlight work(account, /*max_count=*/100, /*prepaid_bytes=*/1000);
    ASSERT_TRUE(work.Begin(1000).ok());
    EXPECT_EQ(budget->used_bytes(), 0) << "these bytes were charged before";
    ASSERT_TRUE(work.Begin(500000).ok());
    EXPECT_GE(budget->used_bytes(), 500000);
    ExpectError(work.Begin(600000), Code::kResourceExhausted, {"--max-host-bytes"});
    ASSERT_TRUE(work.Begin(400000).ok());
    work.End(500000);
    work.End(400000);
    EXPECT_LT(budget->used_bytes(), 300000);
    for (int i = 0; i < 99; ++i) ASSERT_TRUE(work.Begin(1).ok());
    ExpectError(work.Begin(1), Code::kResourceExhausted, {"100 ops"});
    for (int i = 0; i < 99; ++i) work.End(1);
    work.End(1000);
  }
  EXPECT_EQ(budget->used_bytes(), 0);
}

// Opens sessions of two principals in a table with limits of host memory.
class HostLimitsTest : public testing::Test {
 protected:
  HostLimitsTest()
      : table_({.max_host_bytes = 1 << 20, .max_host_bytes_per_principal = 512 << 10}, {}),
        session_(*table_.Open(TestPrincipal("greedy"), 0, "")) {}

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

  int64_t used_bytes() const { return table_.host_budget()->used_bytes(); }

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

  const SessionRef other = *table_.Open(TestPrincipal("honest"), 0, "");
  EXPECT_TRUE(other->Insert(Make(1)).ok());

  for (Handle handle = 1; handle < last_handle_; handle += 2) session_->Drop({handle});
  EXPECT_TRUE(session_->Insert(Make(1)).ok());
}

TEST_F(HostLimitsTest, ClosedSessionReturnsEverything) {
  ExpectError(Fill(*session_), Code::kResourceExhausted);
  const int64_t full = used_bytes();
  ASSERT_TRUE(table_.Close(TestPrincipal("greedy"), session_->id()).ok());
  EXPECT_LT(used_bytes(), full - (400 << 10));
  const SessionRef next = *table_.Open(TestPrincipal("greedy"), 0, "");
  EXPECT_TRUE(next->Insert(Make(1)).ok());
}

TEST_F(HostLimitsTest, ShapesOfHighRankCostMore) {
  ExpectError(Fill(*session_), Code::kResourceExhausted);
  const Handle flat = std::exchange(last_handle_, 0);
  ASSERT_TRUE(table_.Close(TestPrincipal("greedy"), session_->id()).ok());
  const SessionRef next = *table_.Open(TestPrincipal("greedy"), 0, "");
  ExpectError(Fill(*next, std::vector<int64_t>(32, 1)), Code::kResourceExhausted);
  EXPECT_LT(last_handle_, flat * 3 / 4);
}

TEST_F(HostLimitsTest, SessionsAreCharged) {
  std::vector<SessionRef> sessions;
  absl::StatusOr<SessionRef> opened = session_;
  while ((opened = table_.Open(TestPrincipal("greedy"), 0, "")).ok()) sessions.push_back(*opened);
  ExpectError(opened, Code::kResourceExhausted, {"--max-host-bytes-per-principal"});
  EXPECT_LT(sessions.size(), 64u);
  EXPECT_TRUE(table_.Open(TestPrincipal("honest"), 0, "").ok());
  ASSERT_TRUE(table_.Close(TestPrincipal("greedy"), sessions[0]->id()).ok());
  sessions.clear();
  EXPECT_TRUE(table_.Open(TestPrincipal("greedy"), 0, "").ok());
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
  const SessionRef other = *table_.Open(TestPrincipal("honest"), 0, "");
  const std::vector<std::string> readers(Publications::kMaxReaders,
                                         std::string(Publications::kMaxReaderBytes, 'r'));
  int names = 0;
  refused = absl::OkStatus();
  while (refused.ok()) {
    refused = table_.publications().Publish(other, absl::StrCat("n", ++names), tensor, readers);
  }
  ExpectError(refused, Code::kResourceExhausted, {"--max-host-bytes"});
  EXPECT_LT(names, 8);
  ASSERT_TRUE(table_.Close(TestPrincipal("honest"), other->id()).ok());
  ASSERT_TRUE(table_.Close(TestPrincipal("greedy"), session_->id()).ok());
  EXPECT_TRUE(table_.Open(TestPrincipal("honest"), 0, "").ok());
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
