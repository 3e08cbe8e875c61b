// Tests that uploads run concurrently with kernels: they end while the compute stream is occupied.
#include <gmock/gmock.h>

#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda_fixture.h"
#include "tensord/server/device/cuda/cuda_device.h"
#include "tensord/server/engine/engine.h"
#include "tensord/server/session/session_table.h"
#include "tensord/tests/unit/cuda/occupied_stream.h"
#include "tensord/tests/unit/engine/fake_device.h"
#include "tensord/tests/unit/session/test_principal.h"

namespace tensord::server {
namespace {

class CudaOverlapTest : public CudaTest {
 protected:
  // Runs `transfer` while the compute stream is occupied. Returns true if it ends before the stream
  // is free again.
  template <typename Transfer>
  bool EndsWhileKernelsRun(Device& device, const Transfer& transfer) {
    const BufferRef any = *device.Allocate(1);
    Event ended;
    std::future<void> ending;  // its destructor waits for the transfer, after the stream is free
    const OccupiedStream occupied(ComputeStreamOf(*any));
    ending = std::async(std::launch::async, [&] {
      transfer();
      ended.Set();
    });
    return ended.Wait();
  }
};

TEST_F(CudaOverlapTest, UploadsDoNotWaitForKernels) {
  // A small upload, and one that is larger than the ring of pinned memory.
  for (const int64_t elements : {10, 5'000'000}) {
    const HostTensor sent = MakeValues(DType::kFloat32, {elements}, 1);
    const int64_t bytes = sent.spec.size_bytes();
    BufferRef buffer;
    HostTensor received;
    EXPECT_TRUE(EndsWhileKernelsRun(*cuda_, [&] {
      buffer = *cuda_->AllocateForTransfer(bytes);
      ASSERT_TRUE(cuda_->Write(*buffer, 0, sent.bytes.data(), bytes).ok());
      received = Download(sent.spec, buffer);
    }));
    EXPECT_TRUE(received.bytes == sent.bytes);
  }
}

// Uploads as for CreateTensor and Write, and by a copy from a CPU device.
TEST_F(CudaOverlapTest, UploadsTensorsWhileKernelsRun) {
  Device* const gpu = cuda_.get();
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(std::move(cuda_));
  devices.push_back(std::move(cpu_));
  Engine engine(std::move(devices));
  SessionTable sessions({}, engine.slots());
  const SessionRef session = *sessions.Open(TestPrincipal(), kTestLeaseSeconds, "test");
  const HostTensor sent = MakeValues(DType::kFloat32, {3'000'000}, 2);

  const auto upload = [&](Handle handle, absl::string_view device) {
    absl::StatusOr<Engine::Upload> upload = engine.BeginUpload(*session, handle, sent.spec, device);
    ASSERT_TRUE(upload.ok()) << upload.status();
    const int64_t bytes = sent.spec.size_bytes();
    const absl::Status written =
        upload->tensor->device().Write(*upload->buffer, 0, sent.bytes.data(), bytes);
    ASSERT_TRUE(engine.FinishUpload(*session, *std::move(upload), written).ok());
  };
  const auto expect_uploaded = [&](Handle handle) {
    const TensorRef tensor = *session->Find(handle);
    Event done;
    tensor->WhenDone([done] { done.Set(); });
    ASSERT_TRUE(done.Wait());
    ASSERT_TRUE(tensor->status().ok()) << tensor->status();
    EXPECT_TRUE(Download(sent.spec, tensor->buffer()).bytes == sent.bytes);
  };
  EXPECT_TRUE(EndsWhileKernelsRun(*gpu, [&] {
    upload(1, "cuda:0");
    expect_uploaded(1);
    upload(2, "cpu:0");
    ASSERT_TRUE(engine.Copy(session, 2, 3, "cuda:0", /*share=*/false).ok());
    expect_uploaded(3);
  }));
}

TEST_F(CudaOverlapTest, FreesMemoryOfAnUploadThatNeverStarts) {
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(cuda_->AllocateForTransfer(100'000).ok());
  Wait(*cuda_);
  EXPECT_EQ(cuda_->memory().used_bytes, 0);
}

}  // namespace
}  // namespace tensord::server
