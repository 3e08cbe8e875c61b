// A GPU used through the server, compared with direct calls of the same libraries in this process.
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "tensord/tests/bench/bench.h"

namespace tensord::bench {
namespace {

constexpr int64_t kSize = 8192;
constexpr int kProducts = 4;  // in a row
constexpr size_t kWorkspaceBytes = size_t{32} << 20;
constexpr char kDirect[] = "cuBLASLt in process";

void CheckCuda(cudaError_t status) {
  if (status != cudaSuccess) Check(absl::InternalError(cudaGetErrorString(status)));
}
void CheckBlas(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    Check(absl::InternalError(absl::StrCat("cuBLASLt: status ", static_cast<int>(status))));
  }
}

// Memory of the GPU, or pinned host memory, which the GPU copies at full speed.
class CudaMemory {
 public:
  enum class Where { kDevice, kPinnedHost };
  CudaMemory(size_t bytes, Where where) : where_(where) {
    CheckCuda(where == Where::kDevice ? cudaMalloc(&data_, bytes) : cudaMallocHost(&data_, bytes));
  }
  ~CudaMemory() { where_ == Where::kDevice ? cudaFree(data_) : cudaFreeHost(data_); }
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  void* get() const { return data_; }

 private:
  const Where where_;
  void* data_ = nullptr;
};

// (n,n)·(n,n), created once, run many times. Multiplies copies of two tensors of the server,
// because a GPU's power consumption, and so its clock, depends on the numbers that it multiplies.
class DirectMatmul {
 public:
  DirectMatmul(const Tensor& a, const Tensor& b, cudaDataType_t type, cublasComputeType_t compute)
      : a_(a.spec().size_bytes(), CudaMemory::Where::kDevice),
        b_(b.spec().size_bytes(), CudaMemory::Where::kDevice),
        c_(a.spec().size_bytes(), CudaMemory::Where::kDevice),
        workspace_(kWorkspaceBytes, CudaMemory::Where::kDevice) {
    CopyElements(a, a_);
    CopyElements(b, b_);
    CheckBlas(cublasLtCreate(&handle_));
    CheckBlas(cublasLtMatmulDescCreate(&matmul_, compute, CUDA_R_32F));
    CheckBlas(cublasLtMatrixLayoutCreate(&layout_, type, kSize, kSize, kSize));
    cublasLtMatmulPreference_t preference = nullptr;
    CheckBlas(cublasLtMatmulPreferenceCreate(&preference));
    CheckBlas(cublasLtMatmulPreferenceSetAttribute(preference,
                                                   CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                   &kWorkspaceBytes, sizeof(kWorkspaceBytes)));
    cublasLtMatmulHeuristicResult_t best = {};
    int found = 0;
    CheckBlas(cublasLtMatmulAlgoGetHeuristic(handle_, matmul_, layout_, layout_, layout_, layout_,
                                             preference, 1, &best, &found));
    if (found == 0) Check(absl::InternalError("cuBLASLt knows no algorithm"));
    algorithm_ = best.algo;
    cublasLtMatmulPreferenceDestroy(preference);
  }
  ~DirectMatmul() {
    cublasLtMatrixLayoutDestroy(layout_);
    cublasLtMatmulDescDestroy(matmul_);
    cublasLtDestroy(handle_);
  }

  void Run(int count) {
    const float one = 1, zero = 0;
    for (int i = 0; i < count; ++i) {
      // cuBLASLt's matrices are column-major, the transposes of ours, so the operands are swapped.
      CheckBlas(cublasLtMatmul(handle_, matmul_, &one, b_.get(), layout_, a_.get(), layout_, &zero,
                               c_.get(), layout_, c_.get(), layout_, &algorithm_, workspace_.get(),
                               kWorkspaceBytes, nullptr));
    }
    CheckCuda(cudaDeviceSynchronize());
  }

 private:
  static void CopyElements(const Tensor& from, const CudaMemory& to) {
    const std::vector<uint8_t> bytes = Check(from.ReadBytes());
    CheckCuda(cudaMemcpy(to.get(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
  }

  CudaMemory a_, b_, c_, workspace_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t matmul_ = nullptr;
  cublasLtMatrixLayout_t layout_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_ = {};
};

void Product(Bench& bench, const Client& client, const Device& gpu, const std::string& name,
             DType dtype, bool tf32) {
  const std::string measure = absl::StrCat("GPU matmul 8192^3 ", name, ", resident");
  if (!bench.Wants(measure)) return;
  const Tensor a = Uniform(gpu, {kSize, kSize}, /*seed=*/1, {.dtype = dtype});
  const Tensor b = Uniform(gpu, {kSize, kSize}, /*seed=*/2, {.dtype = dtype});
  DirectMatmul direct(a, b, dtype == DType::kBFloat16 ? CUDA_R_16BF : CUDA_R_32F,
                      tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F);
  const double tera_flop = 2e-12 * kSize * kSize * kSize * kProducts;
  Comparison comparison(bench);
  comparison.AddSingle(kOurs, [&] {
    return tera_flop / SecondsOf([&] {
             for (int i = 0; i < kProducts; ++i) {
               Check(Matmul(a, b, {.allow_tf32 = tf32}).status());
             }
             Check(client.Synchronize());
           });
  });
  comparison.AddSingle(kDirect,
                       [&] { return tera_flop / SecondsOf([&] { direct.Run(kProducts); }); });
  comparison.Run(9);
  comparison.AddRow({measure, "TFLOP/s", kDirect, Better::kHigher, 0.5, 0.97});
}

// Records a program of a thousand small ops in which each op uses the last result, and reruns it.
// The daemon runs the program as a CUDA graph, unless it has --no-graphs. Compares with single
// calls of the same ops.
void Replay(Bench& bench, const Client& client, const std::string& measure, const Tensor& first,
            const std::function<Tensor(const Tensor&)>& op) {
  if (!bench.Wants(measure)) return;
  constexpr int kOps = 1000, kRuns = 50;
  const auto repeat = [&op](Tensor y, int count) {
    for (int i = 0; i < count; ++i) y = op(y);
    return y;
  };
  const auto body = [&](absl::Span<const Tensor> inputs) {
    return std::vector<Tensor>{repeat(inputs[0], kOps)};
  };
  const Program program = Check(Program::Record(first.device(), {first.spec()}, body));
  Comparison comparison(bench);
  const auto rate = [&client](const std::function<void()>& work) {
    return kOps * kRuns / SecondsOf([&] {
             work();
             Check(client.Synchronize());
           });
  };
  comparison.AddSingle(kOurs, [&] {
    return rate([&] {
      Tensor y = first;
      for (int i = 0; i < kRuns; ++i) y = program.Run({y})[0];
    });
  });
  comparison.AddSingle("call by call", [&] { return rate([&] { repeat(first, kOps * kRuns); }); });
  comparison.Run(9);
  comparison.AddRow({measure, "op/s", "call by call"});
}

// The daemon fuses adds into a few kernels, but runs each product as a kernel.
void Replays(Bench& bench, const Client& client, const Device& gpu) {
  const Tensor one = Ones(gpu, {kSmall});
  Replay(bench, client, "GPU graph replay, program of 1,000 64-element adds", one,
         [&](const Tensor& y) { return Add(y, one); });
  const Tensor matrix = Full(gpu, {32, 32}, 1.0 / 32);  // matrix · matrix = matrix
  Replay(bench, client, "GPU graph replay, program of 1,000 32x32 products", matrix,
         [&](const Tensor& y) { return Matmul(y, matrix); });
}

void HostTransfers(Bench& bench, const Device& gpu) {
  const std::string up = "GPU upload, 256 MiB", down = "GPU download, 256 MiB";
  if (!bench.WantsAny({up, down})) return;
  constexpr int64_t kBytes = 256 * kMiB;
  std::vector<uint8_t> here(kBytes, 1);
  const Tensor there = FromSpan<uint8_t>(gpu, {kBytes}, absl::MakeConstSpan(here));
  const CudaMemory pinned(kBytes, CudaMemory::Where::kPinnedHost);
  const CudaMemory device(kBytes, CudaMemory::Where::kDevice);
  const auto rate = [](const std::function<void()>& work) {
    return kBytes / kGiB / SecondsOf(work);
  };
  const auto copy = [&](void* to, const void* from, cudaMemcpyKind kind) {
    return rate([&] { CheckCuda(cudaMemcpy(to, from, kBytes, kind)); });
  };
  const std::string reference = "cudaMemcpy, pinned";
  Comparison uploads(bench);
  uploads.AddSingle(kOurs, [&] {
    return rate([&] { Check(FromSpan<uint8_t>(gpu, {kBytes}, absl::MakeConstSpan(here)).Wait()); });
  });
  uploads.AddSingle(reference,
                    [&] { return copy(device.get(), pinned.get(), cudaMemcpyHostToDevice); });
  uploads.Run(9);
  uploads.AddRow({up, "GiB/s", reference});
  Comparison downloads(bench);
  downloads.AddSingle(kOurs,
                      [&] { return rate([&] { Check(there.ReadInto(absl::MakeSpan(here))); }); });
  downloads.AddSingle(reference,
                      [&] { return copy(pinned.get(), device.get(), cudaMemcpyDeviceToHost); });
  downloads.Run(9);
  downloads.AddRow({down, "GiB/s", reference});
}

}  // namespace

void CudaCases(Bench& bench) {
  const Client client = bench.Connect();
  const Device gpu = client.TryDevice();
  if (gpu.kind() != DeviceKind::kCuda) {
    const auto& unavailable = client.info().unavailable_devices;
    const auto cuda = unavailable.find("cuda");
    return bench.Skip("GPU rows", "no GPU: " + (cuda != unavailable.end() ? cuda->second : ""));
  }
  Product(bench, client, gpu, "bfloat16", DType::kBFloat16, /*tf32=*/false);
  Product(bench, client, gpu, "TF32", DType::kFloat32, /*tf32=*/true);
  Product(bench, client, gpu, "float32", DType::kFloat32, /*tf32=*/false);
  Replays(bench, client, gpu);
  HostTransfers(bench, gpu);
}

}  // namespace tensord::bench
