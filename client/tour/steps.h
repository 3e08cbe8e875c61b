// The steps of the tour. Each explains its subject, runs its code, and returns an error if the
// result isn't the expected one.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tensord/client/tensord.h"
#include "tensord/client/tour/narrator.h"

namespace tensord::tour {

// The state that the steps share. The second step makes x and y, and the next two steps use them.
struct Tour {
  Client client;
  std::vector<DeviceInfo> infos;  // of all devices
  Device a;                       // the first
  Device b;                       // the second; not valid() if there is none
  std::string data_dir;
  Narrator& narrator;
  std::ostream& err;  // for progress bars
  cli::Terminal err_terminal;
  Tensor x;
  Tensor y;
};

// Unless `condition` is true, returns FAILED_PRECONDITION with the message.
absl::Status Expect(bool condition, absl::string_view message);

// Blocks until the tensor's value has been computed on its device.
absl::Status Finish(const Tensor& tensor);

// Returns how long `work` takes, or its error.
absl::StatusOr<absl::Duration> Time(const std::function<absl::Status()>& work);
// Runs `work` twice and returns the shorter time, which is less disturbed by other work.
absl::StatusOr<absl::Duration> MinTime(const std::function<absl::Status()>& work);

// Returns how long a product of square float32 matrices takes on the warmed-up device.
absl::StatusOr<absl::Duration> TimeProduct(const Device& device, int64_t side);

// "202 GFLOP/s".
std::string FlopRate(double flops, absl::Duration duration);
// "3.21 times".
std::string Ratio(absl::Duration longer, absl::Duration shorter);

absl::Status ShowDevices(Tour& tour);
absl::Status CreateTensors(Tour& tour);
absl::Status MixDevices(Tour& tour);
absl::Status CopyAndAdd(Tour& tour);
absl::Status CopyInPlace(Tour& tour);
absl::Status MultiplyAndTransfer(Tour& tour);
absl::Status ReadOnce(Tour& tour);
absl::Status OverlapWork(Tour& tour);
absl::Status ReadDigits(Tour& tour);

}  // namespace tensord::tour
