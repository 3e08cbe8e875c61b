// The steps of the tour. Each tells its part, does it, and returns an error where it didn't come
// out as told.
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

// What the steps share. X and Y are made by the second and used by the two after it.
struct Tour {
  Client client;
  std::vector<DeviceInfo> infos;  // of all devices
  Device a;                       // the first
  Device b;                       // the second; not valid where there is none
  std::string data_dir;
  Narrator& narrator;
  std::ostream& err;  // for progress bars
  cli::Terminal err_terminal;
  Tensor x;
  Tensor y;
};

// FAILED_PRECONDITION with the message unless `condition`.
absl::Status Expect(bool condition, absl::string_view message);

// Waits until the tensor's value has really been computed, on devices that run ahead too.
absl::Status Finish(const Tensor& tensor);

// How long `work` takes, which returns a Status.
absl::StatusOr<absl::Duration> Time(const std::function<absl::Status()>& work);
// The shorter time of two: what else the machine does, and first times, count less.
absl::StatusOr<absl::Duration> BestTime(const std::function<absl::Status()>& work);

// How long a product of square float32 matrices takes on the device once it is warm.
absl::StatusOr<absl::Duration> TimeProduct(const Device& device, int64_t side);

// "202 GFLOP/s".
std::string FlopRate(double flops, absl::Duration duration);
// "3.21 times".
std::string Ratio(absl::Duration longer, absl::Duration shorter);

absl::Status MeetDevices(Tour& tour);
absl::Status CreateTensors(Tour& tour);
absl::Status MixDevices(Tour& tour);
absl::Status CopyAndAdd(Tour& tour);
absl::Status CopyInPlace(Tour& tour);
absl::Status MultiplyAndTransfer(Tour& tour);
absl::Status ReadOnce(Tour& tour);
absl::Status WorkAtOnce(Tour& tour);
absl::Status ReadDigits(Tour& tour);

}  // namespace tensord::tour
