// Errors of copies between servers, and of groups.
#include "absl/strings/str_cat.h"
#include "tensord/tests/integration/errors_page.h"
#include "tensord/tests/integration/peer_fixture.h"

namespace tensord::integration {
namespace {

const TensorSpec kSpec{DType::kFloat32, {1000}};

}  // namespace

void AddCopyErrors(ErrorsPage* page) {
  Node a({Node::kAnyPeer}), b({Node::kAnyPeer, "--peer-timeout-seconds=2"});
  Node strict({"--peers=gpu-x:50051"});
  ASSERT_TRUE(a.daemon != nullptr && b.daemon != nullptr && strict.daemon != nullptr);
  page->Replace(a.address(), "gpu-a:50051");
  page->Replace(b.address(), "gpu-b:50051");
  a.Random(1, 1000);
  page->BeginSection(
      "Copies between servers",
      "The client finds the first two errors. The other errors are those of the call "
      "`PullTensor`, by which gpu-b fetches a tensor from gpu-a. If gpu-b can't "
      "fetch it, the client library sends the bytes itself, and "
      "`CopyReport::relay_reason` has the error.");
  const auto cluster = Cluster::Connect({a.address(), b.address()});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  page->Replace(a.address() + "/", "gpu-a/");
  page->Replace(b.address() + "/", "gpu-b/");
  const Tensor x = Ones(*cluster->device(0), {2, 3});
  const Tensor y = Ones(*cluster->device(2), {2, 3});
  page->Add("`x + y`, on two servers", x + y);
  page->Add("`cluster.device(\"gpu-a/cuda:0\")`",
            cluster->device(absl::StrCat(a.address(), "/cuda:0")));
  page->Add("gpu-a isn't in gpu-b's `--peers`",
            strict.Pull(2, kSpec, a, a.Ticket(1, strict)->ticket()));
  page->Add("the ticket is for another server", b.Pull(2, kSpec, a, a.Ticket(1, strict)->ticket()));
  page->Add("the ticket is for another shape",
            b.Pull(3, {DType::kFloat32, {10}}, a, a.Ticket(1, b)->ticket()));
  const std::string ticket = a.Ticket(1, b)->ticket();
  a.TerminateIfRunning();
  page->Add("gpu-a was stopped", b.Pull(4, kSpec, a, ticket));
}

void AddGroupErrors(ErrorsPage* page) {
  const auto first = StartDaemon(page, "gpu-a");
  const auto second = StartDaemon(page, "gpu-b", {"--collectives=off"});
  ASSERT_TRUE(first != nullptr && second != nullptr);
  const auto cluster = Cluster::Connect({first->address(), second->address()});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const Device a = *cluster->device(0), b = *cluster->device(1), c = *cluster->device(2);
  const auto created = Group::Create({a, b});
  ASSERT_TRUE(created.ok()) << created.status();
  const Group& group = *created;
  const Tensor x = Ones(a, {3}), y = Ones(b, {3});
  page->BeginSection("Groups",
                     "`group` has the members `a` and `b`, the devices of gpu-a. `x` is float32[3] "
                     "on `a` and `y` on `b`. `c` is on gpu-b, which has `--collectives=off`.");
  TENSORD_ERROR_ROW(page, Group::Create({}));
  TENSORD_ERROR_ROW(page, Group::Create({a, a}));
  TENSORD_ERROR_ROW(page, Group::Create({a, c}));
  TENSORD_ERROR_ROW(page, Group::Create({a, Device()}));
  TENSORD_ERROR_ROW(page, Group().AllReduce({x}));
  TENSORD_ERROR_ROW(page, group.AllReduce({x}));
  TENSORD_ERROR_ROW(page, group.AllReduce({y, x}));
  TENSORD_ERROR_ROW(page, group.AllReduce({x, Ones(b, {4})}));
  TENSORD_ERROR_ROW(page, group.AllReduce({Gt(x, 0), Gt(y, 0)}));
  TENSORD_ERROR_ROW(page, group.AllReduce({Arange(a, 3), Arange(b, 3)}, Reduction::kMean));
  TENSORD_ERROR_ROW(page, group.ReduceScatter({x, y}));
  TENSORD_ERROR_ROW(page, group.AllGather({Sum(x), Sum(y)}));
  TENSORD_ERROR_ROW(page, group.Broadcast(Ones(c, {3})));
}

}  // namespace tensord::integration
