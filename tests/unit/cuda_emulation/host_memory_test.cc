#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <future>

#include "tensord/tests/unit/cuda_emulation/emulation_fixture.h"

namespace tensord::cuda_emulation {
namespace {

class HostMemoryEmulationTest : public EmulationTest {
 protected:
  static constexpr size_t kBytes = 1 << 16;

  void SetUp() override {
    EmulationTest::SetUp();
    void* data = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(data, MAP_FAILED);
    data_ = static_cast<char*>(data);
  }
  void TearDown() override {
    munmap(data_, kBytes);
    EmulationTest::TearDown();
  }

  cudaError_t Register() { return cudaHostRegister(data_, kBytes, cudaHostRegisterPortable); }

  char* data_ = nullptr;
};

TEST_F(HostMemoryEmulationTest, CopiesFromRegisteredMemory) {
  int* const ints = MakeInts(4, 0);
  const int sent[4] = {1, 2, 3, 4};
  std::memcpy(data_ + 64, sent, sizeof(sent));
  const auto copy = [&] {
    return cudaMemcpyAsync(ints, data_ + 64, sizeof(sent), cudaMemcpyHostToDevice, first_);
  };
  EXPECT_EQ(copy(), cudaErrorInvalidValue);
  EXPECT_TRUE(HasNewReports());
  ASSERT_EQ(Register(), cudaSuccess);
  EXPECT_EQ(copy(), cudaSuccess);
  EXPECT_EQ(Download(ints, 4, first_), std::vector<int>({1, 2, 3, 4}));
  EXPECT_EQ(cudaHostUnregister(data_), cudaSuccess);
  EXPECT_FALSE(HasNewReports());
  EXPECT_EQ(copy(), cudaErrorInvalidValue);
  EXPECT_TRUE(HasNewReports());
  cudaFree(ints);
}

TEST_F(HostMemoryEmulationTest, RejectsASecondRegistrationOfAPage) {
  ASSERT_EQ(Register(), cudaSuccess);
  EXPECT_EQ(cudaHostRegister(data_ + 100, 1, cudaHostRegisterPortable),
            cudaErrorHostMemoryAlreadyRegistered);
  EXPECT_FALSE(HasNewReports());
  EXPECT_EQ(cudaHostUnregister(data_), cudaSuccess);
}

TEST_F(HostMemoryEmulationTest, RejectsUnregisteringAPart) {
  ASSERT_EQ(Register(), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(data_ + 4096), cudaErrorInvalidValue);
  EXPECT_TRUE(HasNewReports());
  EXPECT_EQ(cudaHostUnregister(data_), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(data_), cudaErrorHostMemoryNotRegistered);
}

TEST_F(HostMemoryEmulationTest, UnregisteringWaitsForTheDevice) {
  ASSERT_EQ(Register(), cudaSuccess);
  StreamBlocker blocker(first_);
  std::future<cudaError_t> unregistered =
      std::async(std::launch::async, [&] { return cudaHostUnregister(data_); });
  EXPECT_EQ(unregistered.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  blocker.Release();
  EXPECT_EQ(unregistered.get(), cudaSuccess);
}

TEST_F(HostMemoryEmulationTest, AResetUndoesRegistrations) {
  ASSERT_EQ(Register(), cudaSuccess);
  ResetDevice();
  EXPECT_EQ(cudaHostUnregister(data_), cudaErrorHostMemoryNotRegistered);
  EXPECT_EQ(Register(), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(data_), cudaSuccess);
}

}  // namespace
}  // namespace tensord::cuda_emulation
