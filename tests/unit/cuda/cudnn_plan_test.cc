// Builds plans with NVIDIA's cuDNN itself, which makes them for a described GPU, without having one.
// The build has this test if it finds the library.
#include <gmock/gmock.h>

#include <string>

#include "tensord/server/device/cuda/conv_plan.h"
#include "tensord/server/device/cuda/cudnn_descriptor.h"
#include "tensord/server/device/cuda/cudnn_library.h"

namespace tensord::server::cuda {
namespace {

using cudnn::Attribute;
using cudnn::AttributeType;
using cudnn::DescriptorType;
using cudnn::Status;

// The part of cuDNN's interface that only this test uses.
constexpr auto kDeviceProperties = DescriptorType(38);
constexpr auto kChar = AttributeType(24);
constexpr auto kHeuristicsDeviceProperties = Attribute(204);
constexpr auto kPlanDeviceProperties = Attribute(407);
constexpr auto kDevicePropertiesJson = Attribute(2702);
constexpr size_t kMinVersion = 90800;

// An H100, as far as engines depend on it.
constexpr char kDevice[] = R"({"deviceName": "NVIDIA H100 80GB HBM3", "deviceVer": 900,
  "driverVersion": 13000, "driverVer": 13000, "multiProcessorCount": 132, "warpSize": 32,
  "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
  "regsPerBlock": 65536, "maxRegistersPerSM": 65536, "maxThreadsPerBlock": 1024,
  "maxThreadsPerSM": 2048, "maxCtasPerSM": 32, "maxSharedMemoryPerBlock": 49152,
  "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024,
  "l2CacheSize": 52428800, "totalGlobalMem": 85014937600, "smClockRateKHz": 1980000,
  "memClockRateKHz": 2619000, "pciDeviceId": 0, "cudaDeviceId": 0, "isTccDriver": 0,
  "supportCoopLaunch": 1})";

const CudnnLibrary* library = nullptr;
cudnn::Descriptor device = nullptr;

// Does the same as cuDNN's function, but names the described device instead of a handle.
Status SetAttribute(cudnn::Descriptor descriptor, Attribute attribute, AttributeType type,
                    int64_t count, const void* values) {
  const auto set_device = [&](Attribute to) {
    return library->SetAttribute(descriptor, to, AttributeType::kBackendDescriptor, 1, &device);
  };
  if (attribute == Attribute::kGraphHandle) return Status::kSuccess;
  if (attribute == Attribute::kPlanHandle) return set_device(kPlanDeviceProperties);
  if (attribute == Attribute::kHeuristicsMode) {
    const Status status = set_device(kHeuristicsDeviceProperties);
    if (status != Status::kSuccess) return status;
  }
  return library->SetAttribute(descriptor, attribute, type, count, values);
}

class CudnnPlanTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const auto loaded = LoadCudnn();
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    library = *loaded;
    if (library->GetVersion() < kMinVersion) return;
    ASSERT_EQ(library->CreateDescriptor(kDeviceProperties, &device), Status::kSuccess);
    ASSERT_EQ(
        library->SetAttribute(device, kDevicePropertiesJson, kChar, sizeof(kDevice) - 1, kDevice),
        Status::kSuccess);
    ASSERT_EQ(library->Finalize(device), Status::kSuccess);
  }
  static void TearDownTestSuite() {
    if (device != nullptr) library->DestroyDescriptor(device);
  }
  void SetUp() override {
    if (device == nullptr) GTEST_SKIP() << "this version of cuDNN needs a GPU to make plans";
  }

  static absl::StatusOr<ConvPlan> Make(const ConvProblem& problem, int64_t alignment = 16,
                                       int64_t max_workspace_bytes = int64_t{256} << 20) {
    static const CudnnLibrary* const deviceless = [] {
      auto* const functions = new CudnnLibrary(*library);  // plans use it until they are destroyed
      functions->SetAttribute = SetAttribute;
      return functions;
    }();
    return MakeConvPlan(*deviceless, nullptr, problem, alignment, max_workspace_bytes);
  }
};

// `size`, `kernel`, and the other numbers are those of each spatial axis.
ConvGeometry Geometry(int axes, int64_t batch, int64_t in, int64_t out, int64_t groups,
                      int64_t size, int64_t kernel, int64_t stride, int64_t low, int64_t high) {
  ConvGeometry g;
  g.batch = batch;
  g.in_channels = in;
  g.out_channels = out;
  g.groups = groups;
  g.axes = axes;
  for (int a = 0; a < ConvGeometry::kAxes; ++a) {
    const bool used = a >= ConvGeometry::kAxes - axes;
    g.in[a] = used ? size : 1;
    g.kernel[a] = used ? kernel : 1;
    g.stride[a] = used ? stride : 1;
    g.dilation[a] = 1;
    g.low[a] = used ? low : 0;
    g.high[a] = used ? high : 0;
    g.out[a] = (g.in[a] + g.low[a] + g.high[a] - g.kernel[a]) / g.stride[a] + 1;
  }
  return g;
}

TEST_F(CudnnPlanTest, HasAnEngineForEveryKindAndDType) {
  const struct {
    const char* name;
    ConvGeometry geometry;
  } cases[] = {{"3x3", Geometry(2, 8, 64, 64, 1, 56, 3, 1, 1, 1)},
               {"7x7 with a stride", Geometry(2, 8, 3, 64, 1, 224, 7, 2, 3, 3)},
               {"1x1", Geometry(2, 8, 256, 64, 1, 56, 1, 1, 0, 0)},
               {"depthwise", Geometry(2, 8, 32, 32, 32, 56, 3, 1, 1, 1)},
               {"groups", Geometry(2, 8, 64, 64, 4, 56, 3, 1, 1, 1)},
               {"padding at one end", Geometry(2, 8, 64, 64, 1, 56, 2, 1, 0, 1)},
               {"one axis", Geometry(1, 8, 16, 32, 1, 100, 5, 1, 2, 2)},
               {"three axes", Geometry(3, 2, 16, 32, 1, 16, 3, 1, 1, 1)},
               {"odd sizes", Geometry(2, 2, 3, 5, 1, 9, 3, 2, 1, 1)}};
  for (const auto& [name, geometry] : cases) {
    for (const DType dtype :
         {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
      SCOPED_TRACE(testing::Message() << name << " of " << DTypeName(dtype));
      ConvProblem problem;
      problem.dtype = dtype;
      problem.geometry = geometry;
      for (const ConvKind kind :
           {ConvKind::kForward, ConvKind::kBackwardInput, ConvKind::kBackwardWeight}) {
        problem.kind = kind;
        const auto plan = Make(problem);
        EXPECT_TRUE(plan.ok()) << static_cast<int>(kind) << ": " << plan.status();
      }
      problem.kind = ConvKind::kForward;
      problem.bias = true;
      for (const bool relu : {false, true}) {
        problem.relu = relu;
        const auto plan = Make(problem);
        EXPECT_TRUE(plan.ok()) << "with bias: " << plan.status();
      }
    }
  }
}

TEST_F(CudnnPlanTest, HasEnginesForEachAlignment) {
  for (const DType dtype : {DType::kFloat16, DType::kFloat32, DType::kFloat64}) {
    for (int64_t alignment = SizeOf(dtype); alignment <= 16; alignment *= 2) {
      ConvProblem problem;
      problem.dtype = dtype;
      problem.bias = problem.relu = true;
      problem.geometry = Geometry(2, 8, 64, 64, 1, 56, 3, 1, 1, 1);
      const auto plan = Make(problem, alignment);
      EXPECT_TRUE(plan.ok()) << DTypeName(dtype) << ", " << alignment << ": " << plan.status();
    }
  }
}

TEST_F(CudnnPlanTest, RespectsTheLimitOfTheWorkspace) {
  ConvProblem problem;
  problem.dtype = DType::kFloat16;
  problem.geometry = Geometry(2, 8, 64, 64, 1, 56, 3, 1, 1, 1);
  const auto plan = Make(problem);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_GT(plan->workspace_bytes, 0);
  const auto smaller = Make(problem, 16, plan->workspace_bytes - 1);
  if (smaller.ok()) {
    EXPECT_LT(smaller->workspace_bytes, plan->workspace_bytes);
  } else {
    EXPECT_EQ(smaller.status().code(), absl::StatusCode::kUnimplemented) << smaller.status();
  }
}

}  // namespace
}  // namespace tensord::server::cuda
