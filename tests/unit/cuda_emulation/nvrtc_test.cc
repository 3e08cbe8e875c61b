#include <gmock/gmock.h>
#include <nvrtc.h>

#include <string>

#include "tensord/tests/unit/cuda_emulation/emulation_fixture.h"

namespace tensord::cuda_emulation {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr char kSource[] = R"(#include "scale.h"
extern "C" __global__ void scale(int* data, int size) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < size) data[i] *= kFactor;
}
)";

class NvrtcEmulationTest : public EmulationTest {
 protected:
  // Compiles kSource with `header` as the text of its header. Stores the log in log_.
  nvrtcResult Compile(const char* header) {
    const char* name = "scale.h";
    EXPECT_EQ(nvrtcCreateProgram(&program_, kSource, "scale.cu", 1, &header, &name), NVRTC_SUCCESS);
    const nvrtcResult result = nvrtcCompileProgram(program_, 0, nullptr);
    size_t size = 0;
    EXPECT_EQ(nvrtcGetProgramLogSize(program_, &size), NVRTC_SUCCESS);
    log_.resize(size);
    EXPECT_EQ(nvrtcGetProgramLog(program_, log_.data()), NVRTC_SUCCESS);
    log_.pop_back();  // the zero at its end
    return result;
  }
  std::string Code() {
    size_t size = 0;
    EXPECT_EQ(nvrtcGetCUBINSize(program_, &size), NVRTC_SUCCESS);
    std::string code(size, '\0');
    EXPECT_EQ(nvrtcGetCUBIN(program_, code.data()), NVRTC_SUCCESS);
    return code;
  }
  // Compiles kSource with the factor 3 and loads its kernel.
  void LoadScale() {
    ASSERT_EQ(Compile("#pragma once\nconstexpr int kFactor = 3;"), NVRTC_SUCCESS) << log_;
    ASSERT_EQ(
        cudaLibraryLoadData(&library_, Code().data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
        cudaSuccess);
    ASSERT_EQ(cudaLibraryGetKernel(&kernel_, library_, "scale"), cudaSuccess);
  }
  void LaunchScale(int* data, int size) {
    void* arguments[] = {&data, &size};  // the launch copies them
    ASSERT_EQ(cudaLaunchKernel(reinterpret_cast<const void*>(kernel_), dim3(2), dim3(64), arguments,
                               0, first_),
              cudaSuccess);
  }
  void TearDown() override {
    nvrtcDestroyProgram(&program_);
    EmulationTest::TearDown();
  }

  nvrtcProgram program_ = nullptr;
  cudaLibrary_t library_ = nullptr;
  cudaKernel_t kernel_ = nullptr;
  std::string log_;
};

TEST_F(NvrtcEmulationTest, ACompiledKernelRuns) {
  LoadScale();
  cudaKernel_t another = nullptr;
  EXPECT_EQ(cudaLibraryGetKernel(&another, library_, "another"), cudaErrorSymbolNotFound);
  int* data = MakeInts(100, 5);
  {
    const StreamBlocker blocker(first_);
    LaunchScale(data, 100);
  }
  EXPECT_THAT(Download(data, 100, first_), Each(15));
  EXPECT_EQ(cudaFree(data), cudaSuccess);
  EXPECT_EQ(cudaLibraryUnload(library_), cudaSuccess);
}

TEST_F(NvrtcEmulationTest, MisalignedAccessOfACompiledKernelIsAFault) {
  LoadScale();
  int* data = MakeInts(100, 5);
  LaunchScale(reinterpret_cast<int*>(reinterpret_cast<char*>(data) + 2), 10);
  EXPECT_EQ(cudaStreamSynchronize(first_), cudaErrorMisalignedAddress);
  EXPECT_TRUE(HasNewReports());
  ResetDevice();
}

TEST_F(NvrtcEmulationTest, AnErrorIsInTheLog) {
  EXPECT_EQ(Compile("#pragma once\nconstexpr int kAnother = 3;"), NVRTC_ERROR_COMPILATION);
  EXPECT_THAT(log_, HasSubstr("scale.cu(4)"));
  EXPECT_THAT(log_, HasSubstr("kFactor"));
}

}  // namespace
}  // namespace tensord::cuda_emulation
