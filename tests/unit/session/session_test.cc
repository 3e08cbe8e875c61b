// One session: its handles, limits and commands.
#include "tensord/server/session/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tensord/tests/unit/engine/engine_fixture.h"
#include "tensord/tests/unit/session/test_principal.h"

namespace tensord::server {
namespace {

using Code = absl::StatusCode;
using testing::ElementsAre;

constexpr Limits kLimits{.max_handles_per_session = 4, .max_waiting_calls_per_session = 2};

Charge NewHostCharge() { return Charge(BudgetOf(TestPrincipal(), PrincipalLimit::kHostBytes)); }

class SessionTest : public testing::Test {
 protected:
  SessionTest()
      : session_(TestPrincipal(), NewHostCharge(), "id", 1, "test", std::chrono::seconds(60),
                 kLimits, {}) {}

  static TensorRef Make(Handle handle) {
    return Tensor::Make(handle, TensorSpec{DType::kInt64, {2}}, nullptr);
  }
  absl::Status Add(Handle handle) { return session_.Insert(Make(handle)); }
  std::vector<Handle> Listed(Handle after, size_t limit) {
    std::vector<Handle> handles;
    for (const TensorRef& tensor : session_.List(after, limit)) handles.push_back(tensor->handle());
    return handles;
  }

  Session session_;
};

TEST_F(SessionTest, HandlesAreUniqueAndNeverZero) {
  ASSERT_TRUE(Add(7).ok());
  EXPECT_EQ((*session_.Find(7))->handle(), 7u);
  ExpectError(Add(7), Code::kAlreadyExists, {"7"});
  ExpectError(Add(0), Code::kInvalidArgument, {"0"});
  ExpectError(session_.CheckFree(7), Code::kAlreadyExists);
  EXPECT_TRUE(session_.CheckFree(8).ok());
  EXPECT_TRUE(Add(~Handle{0}).ok()) << "every other number is valid";
  ExpectError(session_.Find(8), Code::kNotFound, {"8"});
}

TEST_F(SessionTest, LimitsHandles) {
  for (Handle handle : {1, 2, 3, 4}) ASSERT_TRUE(Add(handle).ok());
  ExpectError(Add(5), Code::kResourceExhausted, {"4"});
  session_.Drop({2});
  EXPECT_TRUE(Add(5).ok());
}

TEST_F(SessionTest, DeletesAllOrNone) {
  for (Handle handle : {1, 2, 3}) ASSERT_TRUE(Add(handle).ok());
  ExpectError(session_.Delete({1, 9, 2, 8}), Code::kNotFound, {"9"});
  EXPECT_THAT(Listed(0, 10), ElementsAre(1, 2, 3));
  EXPECT_TRUE(session_.Delete({1, 3, 1}).ok()) << "a handle may be named twice";
  EXPECT_THAT(Listed(0, 10), ElementsAre(2));
  EXPECT_TRUE(session_.Delete({}).ok());
}

TEST_F(SessionTest, DropIgnoresUnknownHandles) {
  for (Handle handle : {1, 2}) ASSERT_TRUE(Add(handle).ok());
  session_.Drop({5, 1, 0});
  EXPECT_THAT(Listed(0, 10), ElementsAre(2));
}

TEST_F(SessionTest, RemovesOnlyTheGivenTensor) {
  const TensorRef tensor = Make(1);
  ASSERT_TRUE(session_.Insert(tensor).ok());
  session_.Remove(Make(1));
  EXPECT_TRUE(session_.Find(1).ok());
  session_.Remove(tensor);
  EXPECT_FALSE(session_.Find(1).ok());
}

TEST_F(SessionTest, ListsInOrderAPageAtATime) {
  for (Handle handle : {30, 10, 40, 20}) ASSERT_TRUE(Add(handle).ok());
  EXPECT_THAT(Listed(0, 3), ElementsAre(10, 20, 30));
  EXPECT_THAT(Listed(30, 3), ElementsAre(40));
  EXPECT_THAT(Listed(40, 3), ElementsAre());
  EXPECT_THAT(Listed(0, 0), ElementsAre());
}

TEST_F(SessionTest, PendingListsTensorsThatAreNotDone) {
  const TensorRef done = Make(1);
  ASSERT_TRUE(session_.Insert(done).ok());
  ASSERT_TRUE(Add(2).ok());
  done->Finish(absl::InternalError("done all the same"));
  const auto pending = session_.Pending();
  ASSERT_EQ(pending.size(), 1u);
  EXPECT_EQ(pending[0]->handle(), 2u);
}

// Members whose operations have the results `unfinished`.
class FakeMembers final : public SessionMembers {
 public:
  explicit FakeMembers(std::vector<TensorRef> unfinished) : unfinished_(std::move(unfinished)) {}
  void AppendUnfinished(std::vector<TensorRef>* results) override {
    results->insert(results->end(), unfinished_.begin(), unfinished_.end());
  }
  void End() override {}

 private:
  const std::vector<TensorRef> unfinished_;
};

TEST_F(SessionTest, PendingListsDroppedResultsOfGroupOperations) {
  const TensorRef kept = Make(1), dropped = Make(2);
  ASSERT_TRUE(session_.Insert(kept).ok());
  ASSERT_TRUE(session_.Insert(dropped).ok());
  session_.Drop({2});
  const auto make = [&] {
    return std::make_shared<FakeMembers>(std::vector<TensorRef>{dropped, kept});
  };
  ASSERT_TRUE(session_.Members(make).ok());
  EXPECT_THAT(session_.Pending(), ElementsAre(kept, dropped)) << "each of them once";
}

// The state that a stream keeps in its session. Counts its instances.
class CountedState : public StreamState {
 public:
  explicit CountedState(int* alive) : alive_(alive) { ++*alive_; }
  ~CountedState() override { --*alive_; }
  void OnSessionClosed(const absl::Status& /*error*/) override {}

 private:
  int* const alive_;
};

TEST_F(SessionTest, StreamStateLivesUntilTheSessionEnds) {
  int alive = 0;
  const auto make = [&] { return std::make_shared<CountedState>(&alive); };
  const auto first = session_.Stream(make).value().get();
  EXPECT_EQ(session_.Stream(make).value().get(), first) << "the next stream finds the same";
  EXPECT_EQ(alive, 1);
  session_.Close();
  EXPECT_EQ(alive, 0);
  ExpectError(session_.Stream(make), Code::kFailedPrecondition, {"ended"});
}

TEST_F(SessionTest, DoesNotWaitForReceivedCommands) {
  session_.NotifyReceived(2);
  for (uint64_t number : {0, 1, 2}) {
    absl::Status reported = absl::UnknownError("not reported");
    EXPECT_TRUE(session_.WhenReceived(number, [&reported](absl::Status s) { reported = s; }).ok());
    EXPECT_TRUE(reported.ok()) << reported;
  }
}

TEST_F(SessionTest, WaitsForCommandsInAnyOrder) {
  std::vector<int> reported;
  ASSERT_TRUE(
      session_.WhenReceived(2, [&](const absl::Status& s) { reported.push_back(s.ok() ? 2 : -2); })
          .ok());
  ASSERT_TRUE(
      session_.WhenReceived(1, [&](const absl::Status& s) { reported.push_back(s.ok() ? 1 : -1); })
          .ok());
  ExpectError(session_.WhenReceived(3, [](const absl::Status&) { FAIL(); }),
              Code::kResourceExhausted, {"2"});
  session_.NotifyReceived(1);
  EXPECT_THAT(reported, ElementsAre(1));
  session_.NotifyReceived(2);
  EXPECT_THAT(reported, ElementsAre(1, 2));
}

// A Write that follows its promise on another connection mustn't overtake it.
TEST_F(SessionTest, WaitsUntilACommandHasTakenEffect) {
  bool reported = false;
  ASSERT_TRUE(session_.WhenReceived(1, [&reported](const absl::Status&) { reported = true; }).ok());
  EXPECT_FALSE(reported);
  session_.NotifyReceived(1);
  EXPECT_TRUE(reported);
}

TEST_F(SessionTest, ClosingEndsEverything) {
  const TensorRef promised = Make(1);
  ASSERT_TRUE(session_.Insert(promised).ok());
  ASSERT_TRUE(Add(2).ok());
  absl::Status reported;
  ASSERT_TRUE(session_.WhenReceived(5, [&reported](absl::Status s) { reported = s; }).ok());
  EXPECT_EQ(session_.Close(), 2);
  EXPECT_TRUE(session_.closed());
  ExpectError(reported, Code::kFailedPrecondition, {"session"});
  ASSERT_TRUE(promised->done());
  ExpectError(promised->status(), Code::kFailedPrecondition);
  ExpectError(session_.Find(1), Code::kNotFound);
  ExpectError(Add(3), Code::kFailedPrecondition);
  ExpectError(session_.WhenReceived(5, [](const absl::Status&) {}), Code::kFailedPrecondition);
  EXPECT_EQ(session_.Close(), 0);
}

// Callbacks post ops to devices, so the order must not be that of a hash map.
TEST(SessionOrderTest, ClosingFailsPromisesInOrderOfHandle) {
  Session session(TestPrincipal(), NewHostCharge(), "id", 1, "test", std::chrono::seconds(60),
                  Limits(), {});
  std::vector<Handle> handles(200);
  std::iota(handles.begin(), handles.end(), 1);
  std::vector<Handle> failed;
  for (auto handle = handles.rbegin(); handle != handles.rend(); ++handle) {
    const auto tensor = Tensor::Make(*handle, TensorSpec{DType::kInt64, {2}}, nullptr);
    tensor->WhenDone([&failed, raw = tensor.get()] { failed.push_back(raw->handle()); });
    ASSERT_TRUE(session.Insert(tensor).ok());
  }
  session.Close();
  EXPECT_EQ(failed, handles);
}

TEST_F(SessionTest, LeaseRunsOnlyWhileTheSessionIsUnused) {
  const auto later = std::chrono::steady_clock::now() + std::chrono::hours(1);
  EXPECT_FALSE(session_.Expired(std::chrono::steady_clock::now()));
  EXPECT_TRUE(session_.Expired(later));
  session_.BeginUse();
  session_.BeginUse();
  session_.EndUse();
  EXPECT_FALSE(session_.Expired(later));
  session_.EndUse();
  EXPECT_TRUE(session_.Expired(later));
}

TEST(TensorTest, IsDoneOnce) {
  Tensor tensor(1, {DType::kInt64, {2}}, nullptr);
  int reported = 0;
  tensor.WhenDone([&] { ++reported; });
  EXPECT_FALSE(tensor.done());
  EXPECT_EQ(reported, 0);
  tensor.Finish(absl::InternalError("first"));
  EXPECT_EQ(reported, 1);
  tensor.Finish(absl::InternalError("second"));
  EXPECT_EQ(reported, 1);
  EXPECT_EQ(tensor.status().message(), "first");
  tensor.WhenDone([&] { ++reported; });
  EXPECT_EQ(reported, 2) << "at once if the tensor is done already";
}

}  // namespace
}  // namespace tensord::server
