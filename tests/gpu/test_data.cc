#include "tensord/tests/gpu/test_data.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <thread>

#include "tensord/common/float16.h"

namespace tensord::gpu {
namespace {

template <typename T>
void Fill(absl::Span<uint8_t> bytes, uint32_t seed) {
  T* const elements = reinterpret_cast<T*>(bytes.data());
  ParallelFor(static_cast<int64_t>(bytes.size() / sizeof(T)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) elements[i] = T(ValueAt(i, seed));
  });
}

template <typename T>
Checksum Sum(absl::Span<const uint8_t> bytes) {
  const T* const elements = reinterpret_cast<const T*>(bytes.data());
  std::mutex mu;
  Checksum sum;
  ParallelFor(static_cast<int64_t>(bytes.size() / sizeof(T)), [&](int64_t begin, int64_t end) {
    double weighted = 0, squares = 0;
    for (int64_t i = begin; i < end; ++i) {
      const auto y = static_cast<double>(static_cast<float>(elements[i]));
      weighted += y * ValueAt(i, Checksum::kWeightSeed);
      squares += y * y;
    }
    const std::lock_guard lock(mu);
    sum.weighted += weighted;
    sum.norm += squares;
  });
  sum.norm = std::sqrt(sum.norm);
  return sum;
}

}  // namespace

void ParallelFor(int64_t count, const std::function<void(int64_t, int64_t)>& body) {
  constexpr int64_t kMinPart = 1 << 16;
  const int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  const int64_t parts = std::clamp<int64_t>(count / kMinPart, 1, cores);
  std::vector<std::thread> threads;
  for (int64_t part = 1; part < parts; ++part) {
    threads.emplace_back([&, part] { body(count * part / parts, count * (part + 1) / parts); });
  }
  body(0, count / parts);
  for (std::thread& thread : threads) thread.join();
}

std::vector<uint8_t> MakeData(DType dtype, int64_t elements, uint32_t seed) {
  std::vector<uint8_t> bytes(static_cast<size_t>(elements * SizeOf(dtype)));
  switch (dtype) {
    case DType::kFloat16:
      Fill<Half>(absl::MakeSpan(bytes), seed);
      break;
    case DType::kBFloat16:
      Fill<BFloat16>(absl::MakeSpan(bytes), seed);
      break;
    case DType::kFloat32:
      Fill<float>(absl::MakeSpan(bytes), seed);
      break;
    default:
      for (int64_t i = 0; i < elements; ++i) bytes[i] = HashAt(i, seed) >> 8 & 1;
  }
  return bytes;
}

Checksum ChecksumOf(DType dtype, absl::Span<const uint8_t> bytes) {
  switch (dtype) {
    case DType::kFloat16:
      return Sum<Half>(bytes);
    case DType::kBFloat16:
      return Sum<BFloat16>(bytes);
    case DType::kFloat32:
      return Sum<float>(bytes);
    default:
      return Sum<uint8_t>(bytes);
  }
}

bool Agree(const Checksum& a, const Checksum& b, double tolerance) {
  const double allowed = 4 * tolerance * std::max(a.norm, b.norm);
  return std::isfinite(allowed) && std::abs(a.weighted - b.weighted) <= allowed &&
         std::abs(a.norm - b.norm) <= allowed;
}

}  // namespace tensord::gpu
