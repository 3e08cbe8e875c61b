// Runs single ops on a CPU device, for tests: host values in, host values out.
#pragma once

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tensord/common/attributes.h"
#include "tensord/common/tensor_spec.h"
#include "tensord/server/device/device.h"

namespace tensord::server {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A tensor on the host. At() and ToDoubles() read any dtype. They round integers above 2^53, and
// return the real parts of complex elements.
struct HostTensor {
  TensorSpec spec;
  std::string bytes;

  double At(int64_t i) const;
  std::vector<double> ToDoubles() const;
};

// Makes a tensor of these values, rounded to the dtype. Integers wrap around. Imaginary parts are
// 0.
HostTensor MakeTensor(DType dtype, const Shape& shape, const std::vector<double>& values);

// Returns a deterministic spread of values in [low, high], the same for every dtype that can hold
// them.
HostTensor Spread(DType dtype, const Shape& shape, double low, double high, int seed = 1);

// Returns a relative error that allows for a few units in the last place, and for an intermediate
// float32. For float64, returns `float64`.
double RoundingTolerance(DType dtype, double float64);

class OpRunner {
 public:
  explicit OpRunner(int threads = 2);

  Device& device() { return *device_; }

  // Plans the op, casts inputs as planned, and launches it. If the result is an alias, copies it.
  // Returns the op's outputs.
  absl::StatusOr<std::vector<HostTensor>> RunAll(absl::string_view op,
                                                 const std::vector<HostTensor>& inputs,
                                                 const Attributes& attrs = {});
  // Returns the first output.
  absl::StatusOr<HostTensor> Run(absl::string_view op, const std::vector<HostTensor>& inputs,
                                 const Attributes& attrs = {});

  absl::StatusOr<BufferRef> Upload(const HostTensor& tensor);
  HostTensor Download(const Buffer& buffer, const TensorSpec& spec);

 private:
  std::unique_ptr<Device> device_;
};

}  // namespace tensord::server
