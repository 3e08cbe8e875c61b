#include "tensord/tests/fault/random_work.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::fault {
namespace {

using proxy::Direction;

std::vector<float> SmallNumbers(int64_t count, std::minstd_rand& random) {
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random() % 100);
  return values;
}

absl::Status ExpectValues(const Tensor& tensor, const std::vector<float>& expected,
                          absl::string_view what) {
  TENSORD_ASSIGN_OR_RETURN(const std::vector<float> values, tensor.Read<float>());
  if (values == expected) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, " of ", expected.size(), " elements is wrong"));
}

// One step of a chain: x + number, or the minimum of x and number.
struct Step {
  bool adds;
  float number;
};

std::vector<Step> RandomSteps(int max_steps, std::minstd_rand& random) {
  std::vector<Step> steps(random() % max_steps + 1);
  for (Step& step : steps) {
    step.adds = random() % 2 == 0;
    step.number = static_cast<float>(step.adds ? random() % 5 : 90 + random() % 5);
  }
  return steps;
}

Tensor Apply(const Step& step, const Tensor& x) {
  return step.adds ? x + step.number : Minimum(x, step.number);
}

void Apply(const Step& step, std::vector<float>* model) {
  for (float& value : *model) {
    value = step.adds ? value + step.number : std::min(value, step.number);
  }
}

absl::Status Chain(const Device& device, std::minstd_rand& random) {
  std::vector<float> model = SmallNumbers(1 << (random() % 17), random);
  Tensor x = FromSpan<float>(device, {static_cast<int64_t>(model.size())}, model);
  for (const Step& step : RandomSteps(60, random)) {
    x = Apply(step, x);
    Apply(step, &model);
  }
  return ExpectValues(x, model, "a chain");
}

absl::Status Transfer(const Device& device, std::minstd_rand& random) {
  const std::vector<float> data = SmallNumbers(1 << (random() % 22), random);
  const Tensor x = FromSpan<float>(device, {static_cast<int64_t>(data.size())}, data);
  return random() % 2 == 0 ? ExpectValues(x, data, "a transfer") : x.Wait();
}

absl::Status Product(const Device& device, std::minstd_rand& random) {
  const int64_t n = random() % 48 + 1;
  const std::vector<float> a = SmallNumbers(n * n, random);
  const std::vector<float> b = SmallNumbers(n * n, random);
  std::vector<float> model(n * n, 0);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t k = 0; k < n; ++k) {
      for (int64_t j = 0; j < n; ++j) model[i * n + j] += a[i * n + k] * b[k * n + j];
    }
  }
  const Tensor product =
      Matmul(FromSpan<float>(device, {n, n}, a), FromSpan<float>(device, {n, n}, b));
  return ExpectValues(product, model, "a product");
}

absl::Status Rerun(const Device& device, std::minstd_rand& random) {
  const int64_t size = 1 << (random() % 12);
  const std::vector<Step> steps = RandomSteps(20, random);
  TENSORD_ASSIGN_OR_RETURN(
      const Program program,
      Program::Record(device, {{DType::kFloat32, {size}}}, [&](absl::Span<const Tensor> inputs) {
        Tensor x = inputs[0] * 1;
        for (const Step& step : steps) x = Apply(step, x);
        return std::vector<Tensor>{x};
      }));
  std::vector<float> model = SmallNumbers(size, random);
  Tensor x = FromSpan<float>(device, {size}, model);
  for (int runs = static_cast<int>(random() % 30); runs >= 0; --runs) {
    x = program.Run({x})[0];
    for (const Step& step : steps) Apply(step, &model);
  }
  return ExpectValues(x, model, "a program");
}

// Adds tensors whose shapes don't match. The error must stay with the result.
absl::Status RunInvalidOp(const Device& device, std::minstd_rand& random) {
  const auto size = static_cast<int64_t>(random() % 100 + 2);
  const Tensor wrong = Ones(device, {size}) + Ones(device, {size + 1});
  const auto values = (wrong * 2).Read<float>();
  if (values.ok()) return absl::InternalError("shapes that don't fit were added");
  if (absl::IsInvalidArgument(values.status())) return absl::OkStatus();
  return values.status();
}

}  // namespace

absl::Status RunRandomWork(const Device& device, std::minstd_rand& random) {
  switch (random() % 8) {
    case 0:
      return Transfer(device, random);
    case 1:
      return Product(device, random);
    case 2:
      return Rerun(device, random);
    case 3:
      return RunInvalidOp(device, random);
    default:
      return Chain(device, random);
  }
}

RandomFaults::RandomFaults(proxy::DelayProxy* proxy, int seed)
    : proxy_(proxy), thread_([this, seed] { Run(seed); }) {}

RandomFaults::~RandomFaults() {
  done_ = true;
  thread_.join();
}

void RandomFaults::Run(int seed) {
  std::minstd_rand random(seed);
  proxy::CutLimiter limiter(proxy_);
  while (!done_) {
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 40));
    InjectFault(random, &limiter);
  }
  for (const Direction way : {Direction::kToClient, Direction::kToServer}) {
    proxy_->SetHeld(way, false);
  }
  proxy_->SetDelay(std::chrono::microseconds(0));
  proxy_->SetBandwidth(0);
}

void RandomFaults::InjectFault(std::minstd_rand& random, proxy::CutLimiter* limiter) {
  const auto way = random() % 2 == 0 ? Direction::kToClient : Direction::kToServer;
  switch (random() % 8) {
    case 0:
      if (limiter->CutAll()) ++cuts_;
      break;
    case 1:
      proxy_->SetDelay(way, std::chrono::microseconds(random() % 3000));
      break;
    case 2:
      proxy_->SetBandwidth(static_cast<int64_t>(1 + random() % 64) << 20);
      break;
    case 3:
      proxy_->SetHeld(way, true);
      break;
    default:
      for (const Direction each : {Direction::kToClient, Direction::kToServer}) {
        proxy_->SetHeld(each, false);
      }
  }
}

}  // namespace tensord::fault
