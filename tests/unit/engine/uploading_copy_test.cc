// Copies from host memory to a device whose memory the host can't access.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "tensord/server/engine/engine.h"
#include "tensord/server/session/session_table.h"
#include "tensord/tests/unit/engine/fake_device.h"
#include "tensord/tests/unit/engine/read_tensor.h"
#include "tensord/tests/unit/session/test_principal.h"

namespace tensord::server {
namespace {

constexpr int64_t kLimitBytes = int64_t{64} << 20;

// A device whose first write waits for the test.
class WritingDevice final : public FakeDevice {
 public:
  WritingDevice() : FakeDevice(0, {.limit_bytes = kLimitBytes, .host_accessible = false}) {}

  absl::Status Write(Buffer& dst, int64_t offset, const void* src, int64_t bytes) override {
    if (offset == 0) {
      writing.Set();
      if (!may_continue.Wait()) {
        return absl::DeadlineExceededError("the test didn't release the write");
      }
    }
    return FakeDevice::Write(dst, offset, src, bytes);
  }

  Event writing, may_continue;
};

TEST(UploadingCopyTest, LetsOtherWorkOfItsDeviceRunBetweenParts) {
  auto owned = std::make_unique<WritingDevice>();
  WritingDevice& device = *owned;
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(std::move(owned));
  devices.push_back(
      std::make_unique<FakeDevice>(1, FakeDevice::Options{.limit_bytes = kLimitBytes}));
  Engine engine(std::move(devices));
  SessionTable sessions({}, engine.slots());
  const SessionRef session = *sessions.Open(TestPrincipal(), kTestLeaseSeconds, "copies");
  const SessionRef other = *sessions.Open(TestPrincipal(), kTestLeaseSeconds, "computes");
  const auto full = [&](const SessionRef& of, Handle output, int64_t n, absl::string_view on) {
    const Attributes attrs = {{"shape", std::vector<int64_t>{n}}, {"value", int64_t{7}}};
    return *engine.Run(
        of, {.op = "full", .inputs = {}, .output = output, .attrs = attrs, .device = on});
  };

  constexpr int64_t kElements = (int64_t{24} << 20) / 8;
  full(session, 1, kElements, "cpu:1");
  const TensorRef copy = *engine.Copy(session, 1, 2, "cpu:0", /*share=*/false);
  Event copied;
  copy->WhenDone([copied] { copied.Set(); });
  ASSERT_TRUE(device.writing.Wait());

  // The copy has begun. An op of another session and an op of the copy's session both end before
  // it.
  std::atomic<int> ended_before_copy = 0;
  std::vector<Event> computed(2);
  const TensorRef small[] = {full(other, 1, 3, "cpu:0"), full(session, 3, 3, "cpu:0")};
  for (int i = 0; i < 2; ++i) {
    small[i]->WhenDone([&, i] {
      if (!copied.happened()) ++ended_before_copy;
      computed[i].Set();
    });
  }
  device.may_continue.Set();
  for (const Event& event : computed) ASSERT_TRUE(event.Wait());
  ASSERT_TRUE(copied.Wait());
  EXPECT_EQ(ended_before_copy, 2);
  ASSERT_TRUE(copy->status().ok()) << copy->status();

  EXPECT_EQ(*ReadTensor<int64_t>(engine, copy), std::vector<int64_t>(kElements, 7));
}

}  // namespace
}  // namespace tensord::server
