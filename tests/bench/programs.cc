// Programs that several case files measure.
#include <utility>

#include "tensord/tests/bench/bench.h"

namespace tensord::bench {

std::vector<double> OpAndRead(const Tensor& x, int n) {
  std::vector<float> result(kSmall);
  std::vector<double> microseconds;
  for (int i = 0; i < n; ++i) {
    const auto start = Clock::now();
    Check(Add(x, x).ReadInto(absl::MakeSpan(result)));
    microseconds.push_back(MicrosecondsSince(start));
  }
  return microseconds;
}

double Chain(const Client& client, const Tensor& x, int n) {
  const double seconds = SecondsOf([&] {
    Tensor y = x;
    for (int i = 0; i < n; ++i) y = Add(y, x);
    Check(client.Synchronize());
  });
  return n / seconds;
}

Transfer::Transfer(Client client, int64_t size)
    : client_(std::move(client)),
      device_(Check(client_.device("cpu:0"))),
      local_(size, 1),
      remote_(FromSpan<uint8_t>(device_, {size}, local_)) {
  Check(remote_.status());
}

double Transfer::Upload() {
  const double seconds = SecondsOf([&] {
    const Tensor tensor = FromSpan<uint8_t>(device_, remote_.shape(), local_);
    Check(tensor.status());
    // A small upload goes with the commands, and FromSpan returns before the server has it.
    if (local_.size() <= kMaxInlineBytes) Check(tensor.Wait());
  });
  return static_cast<double>(local_.size()) / kGiB / seconds;
}

double Transfer::Download() {
  const double seconds = SecondsOf([&] { Check(remote_.ReadInto(absl::MakeSpan(local_))); });
  return static_cast<double>(local_.size()) / kGiB / seconds;
}

}  // namespace tensord::bench
