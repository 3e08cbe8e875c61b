// Calls ops of PyTorch in C++, and measures the processor time of the calling thread.
// torch_device.py --host compiles this file, and alternates between devices.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <time.h>
#include <torch/library.h>

#include <string>
#include <tuple>
#include <vector>

namespace {

using at::Tensor;

// The operands of the ops. They have a few elements, so that PyTorch's CPU, too, spends nearly all
// its time on the calls.
struct Operands {
  explicit Operands(const at::Device& device) : options(at::TensorOptions(device)) {
    std::tie(normal, mean, rstd) = at::native_layer_norm(a, {4}, row, row, 1e-5);
    std::tie(batch_normal, batch_mean, batch_rstd) =
        at::native_batch_norm(image, channel, channel, channel_mean, channel_var, true, 0.1, 1e-5);
    std::tie(loss, weight_sum) = at::nll_loss_forward(a, index, {}, at::Reduction::Mean, -100);
    for (int i = 0; i < kListSize; ++i) {
      for (auto* list : {&parameters, &gradients, &moments, &squares}) {
        list->push_back(at::ones({4, 4}, options));
      }
      steps.push_back(at::ones({}, options));
    }
  }

  static constexpr int kListSize = 8;
  const at::TensorOptions options;
  const at::TensorOptions integers = options.dtype(at::kLong);
  Tensor a = at::ones({4, 4}, options), b = at::ones({4, 4}, options);
  Tensor c = at::ones({4, 4}, options), d = at::ones({4, 4}, options);
  Tensor row = at::ones({4}, options);
  Tensor stack = at::ones({2, 4, 4}, options);
  Tensor turned = at::ones({4, 4}, options).t();
  Tensor index = at::zeros({4}, integers), place = at::zeros({4, 4}, integers);
  Tensor mask = at::ones({4, 4}, options.dtype(at::kBool));
  Tensor image = at::ones({1, 2, 4, 4}, options), kernel = at::ones({2, 2, 3, 3}, options);
  Tensor channel = at::ones({2}, options), channel_mean = at::zeros({2}, options);
  Tensor channel_var = at::ones({2}, options);
  Tensor query = at::ones({1, 2, 4, 8}, options);
  Tensor normal, mean, rstd, batch_normal, batch_mean, batch_rstd, loss, weight_sum;
  std::vector<Tensor> parameters, gradients, moments, squares, steps;
};

struct Case {
  const char* name;
  double goal_us;  // 0: no goal
  void (*call)(Operands& x);
  int num_ops = 1;  // the time is divided by this number
};

// Goals, in microseconds.
constexpr double kHot = 0.5, kAny = 1, kNone = 0;

const std::vector<Case>& Cases() {
  static const auto* const cases = new std::vector<Case>{
      // The ops with fast paths (client/torch/hot.cc).
      {"add", kHot, [](Operands& x) { at::add(x.a, x.b); }},
      {"add_", kHot, [](Operands& x) { x.c.add_(x.b); }},
      {"sub", kHot, [](Operands& x) { at::sub(x.a, x.b); }},
      {"mul", kHot, [](Operands& x) { at::mul(x.a, x.b); }},
      {"mul_", kHot, [](Operands& x) { x.c.mul_(x.b); }},
      {"div", kHot, [](Operands& x) { at::div(x.a, x.b); }},
      {"mul by a number", kHot, [](Operands& x) { at::mul(x.a, 2.0); }},
      {"exp", kHot, [](Operands& x) { at::exp(x.a); }},
      {"tanh", kHot, [](Operands& x) { at::tanh(x.a); }},
      {"sigmoid", kHot, [](Operands& x) { at::sigmoid(x.a); }},
      {"relu", kHot, [](Operands& x) { at::relu(x.a); }},
      {"silu", kHot, [](Operands& x) { at::silu(x.a); }},
      {"gelu", kHot, [](Operands& x) { at::gelu(x.a, "tanh"); }},
      {"mm", kHot, [](Operands& x) { at::mm(x.a, x.b); }},
      {"mm, transposed", kHot, [](Operands& x) { at::mm(x.a, x.turned); }},
      {"bmm", kHot, [](Operands& x) { at::bmm(x.stack, x.stack); }},
      {"addmm, transposed", kHot, [](Operands& x) { at::addmm(x.row, x.a, x.turned); }},
      {"sum", kHot, [](Operands& x) { at::sum(x.a); }},
      {"sum of an axis", kHot, [](Operands& x) { at::sum(x.a, 1); }},
      {"mean of an axis", kHot, [](Operands& x) { at::mean(x.a, 1); }},
      {"_softmax", kHot, [](Operands& x) { at::_softmax(x.a, 1, false); }},
      {"_log_softmax", kHot, [](Operands& x) { at::_log_softmax(x.a, 1, false); }},
      // Elementwise ops.
      {"add, a row", kAny, [](Operands& x) { at::add(x.a, x.row); }},
      {"add, transposed", kAny, [](Operands& x) { at::add(x.a, x.turned); }},
      {"add with alpha", kAny, [](Operands& x) { at::add(x.a, x.b, 0.5); }},
      {"add of int64 and a number", kAny, [](Operands& x) { at::add(x.place, 2); }},
      {"neg", kAny, [](Operands& x) { at::neg(x.a); }},
      {"abs", kAny, [](Operands& x) { at::abs(x.a); }},
      {"sqrt", kAny, [](Operands& x) { at::sqrt(x.a); }},
      {"sqrt_", kAny, [](Operands& x) { x.c.sqrt_(); }},
      {"rsqrt", kAny, [](Operands& x) { at::rsqrt(x.a); }},
      {"cos", kAny, [](Operands& x) { at::cos(x.a); }},
      {"reciprocal", kAny, [](Operands& x) { at::reciprocal(x.a); }},
      {"pow(x, 2)", kAny, [](Operands& x) { at::pow(x.a, 2); }},
      {"maximum", kAny, [](Operands& x) { at::maximum(x.a, x.b); }},
      {"eq", kAny, [](Operands& x) { at::eq(x.a, x.b); }},
      {"lt a number", kAny, [](Operands& x) { at::lt(x.a, 0.5); }},
      {"logical_not", kAny, [](Operands& x) { at::logical_not(x.mask); }},
      {"bitwise_and", kAny, [](Operands& x) { at::bitwise_and(x.mask, x.mask); }},
      {"where", kAny, [](Operands& x) { at::where(x.mask, x.a, x.b); }},
      {"masked_fill", kAny, [](Operands& x) { at::masked_fill(x.a, x.mask, 0.5); }},
      {"clamp", kAny, [](Operands& x) { at::clamp(x.a, 0.0, 1.0); }},
      {"lerp_", kAny, [](Operands& x) { x.c.lerp_(x.b, 0.5); }},
      {"addcmul_", kAny, [](Operands& x) { x.c.addcmul_(x.a, x.b, 0.5); }},
      {"addcdiv_", kAny, [](Operands& x) { x.c.addcdiv_(x.a, x.b, 0.5); }},
      // Reductions and scans.
      {"amax", kAny, [](Operands& x) { at::amax(x.a, 1); }},
      {"max of an axis", kAny, [](Operands& x) { at::max(x.a, 1); }},
      {"argmax", kAny, [](Operands& x) { at::argmax(x.a, 1); }},
      {"any", kAny, [](Operands& x) { at::any(x.mask); }},
      {"var", kAny, [](Operands& x) { at::var(x.a, {1}); }},
      {"norm", kAny, [](Operands& x) { at::linalg_vector_norm(x.a, 2); }},
      {"cumsum", kAny, [](Operands& x) { at::cumsum(x.a, 1); }},
      {"sort", kAny, [](Operands& x) { at::sort(x.a, 1); }},
      {"topk", kAny, [](Operands& x) { at::topk(x.a, 2); }},
      // Products, parts and indices.
      {"addmm", kAny, [](Operands& x) { at::addmm(x.row, x.a, x.b); }},
      {"baddbmm", kAny, [](Operands& x) { at::baddbmm(x.stack, x.stack, x.stack); }},
      {"cat", kAny, [](Operands& x) { at::cat({x.a, x.b}, 0); }},
      {"tril", kAny, [](Operands& x) { at::tril(x.a); }},
      {"gather", kAny, [](Operands& x) { at::gather(x.a, 0, x.place); }},
      {"index_select", kAny, [](Operands& x) { at::index_select(x.a, 0, x.index); }},
      {"index", kAny, [](Operands& x) { at::index(x.a, {x.index}); }},
      {"embedding", kAny, [](Operands& x) { at::embedding(x.a, x.index); }},
      {"scatter", kAny, [](Operands& x) { at::scatter(x.a, 0, x.place, x.b); }},
      {"scatter_add_", kAny, [](Operands& x) { x.c.scatter_add_(0, x.place, x.b); }},
      {"index_add_", kAny, [](Operands& x) { x.c.index_add_(0, x.index, x.b); }},
      {"index_put_", kAny, [](Operands& x) { x.c.index_put_({x.index}, x.b); }},
      // Views, copies and new tensors.
      {"select", kAny, [](Operands& x) { x.a.select(0, 1); }},
      {"slice", kAny, [](Operands& x) { x.a.slice(0, 1, 3); }},
      {"transpose", kAny, [](Operands& x) { x.a.transpose(0, 1); }},
      {"view", kAny, [](Operands& x) { x.a.view({2, 8}); }},
      {"expand", kAny, [](Operands& x) { x.row.expand({4, 4}); }},
      {"select, neg", kAny, [](Operands& x) { x.a.select(0, 1).neg(); }},
      {"copy_", kAny, [](Operands& x) { x.c.copy_(x.b); }},
      {"copy_ to a part", kAny, [](Operands& x) { x.c.select(0, 1).copy_(x.row); }},
      {"clone", kAny, [](Operands& x) { x.a.clone(); }},
      {"contiguous of a transpose", kAny, [](Operands& x) { x.turned.contiguous(); }},
      {"to float64", kAny, [](Operands& x) { x.a.to(at::kDouble); }},
      {"empty", kAny, [](Operands& x) { at::empty({4, 4}, x.options); }},
      {"zeros", kAny, [](Operands& x) { at::zeros({4, 4}, x.options); }},
      {"fill_", kAny, [](Operands& x) { x.c.fill_(1.0); }},
      {"arange", kAny, [](Operands& x) { at::arange(4, x.integers); }},
      // Training.
      {"native_layer_norm", kAny,
       [](Operands& x) { at::native_layer_norm(x.a, {4}, x.row, x.row, 1e-5); }},
      {"native_layer_norm_backward", kAny,
       [](Operands& x) {
         at::native_layer_norm_backward(x.a, x.b, {4}, x.mean, x.rstd, x.row, x.row,
                                        {true, true, true});
       }},
      {"native_batch_norm", kAny,
       [](Operands& x) {
         at::native_batch_norm(x.image, x.channel, x.channel, x.channel_mean, x.channel_var, true,
                               0.1, 1e-5);
       }},
      {"native_batch_norm_backward", kAny,
       [](Operands& x) {
         at::native_batch_norm_backward(x.image, x.image, x.channel, x.channel_mean, x.channel_var,
                                        x.batch_mean, x.batch_rstd, true, 1e-5, {true, true, true});
       }},
      {"conv2d", kAny, [](Operands& x) { at::conv2d(x.image, x.kernel, x.channel, 1, 1); }},
      {"convolution_backward", kAny,
       [](Operands& x) {
         at::convolution_backward(x.image, x.image, x.kernel, at::IntArrayRef({2}), {1, 1}, {1, 1},
                                  {1, 1}, false, {0, 0}, 1, {true, true, true});
       }},
      {"max_pool2d", kAny, [](Operands& x) { at::max_pool2d(x.image, 2); }},
      {"scaled_dot_product_attention", kAny,
       [](Operands& x) { at::scaled_dot_product_attention(x.query, x.query, x.query); }},
      {"cross_entropy", kNone, [](Operands& x) { at::cross_entropy_loss(x.a, x.index); }},
      {"nll_loss", kAny, [](Operands& x) { at::nll_loss(x.a, x.index); }},
      {"nll_loss_backward", kAny,
       [](Operands& x) {
         at::nll_loss_backward(x.loss, x.a, x.index, {}, at::Reduction::Mean, -100, x.weight_sum);
       }},
      {"_log_softmax_backward_data", kAny,
       [](Operands& x) { at::_log_softmax_backward_data(x.a, x.b, 1, at::kFloat); }},
      {"threshold_backward", kAny, [](Operands& x) { at::threshold_backward(x.a, x.b, 0); }},
      {"gelu_backward", kAny, [](Operands& x) { at::gelu_backward(x.a, x.b); }},
      {"embedding_dense_backward", kAny,
       [](Operands& x) { at::embedding_dense_backward(x.a, x.index, 4, -1, false); }},
      {"_foreach_add_, a tensor", kAny,
       [](Operands& x) { at::_foreach_add_(x.parameters, x.gradients, -0.1); },
       Operands::kListSize},
      {"_fused_adam_, a tensor", kAny,
       [](Operands& x) {
         at::_fused_adam_(x.parameters, x.gradients, x.moments, x.squares, {}, x.steps, 1e-3, 0.9,
                          0.999, 0, 1e-8, false, false);
       },
       Operands::kListSize},
  };
  return *cases;
}

double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const Case& each : Cases()) names.emplace_back(each.name);
  return names;
}
std::vector<double> Goals() {
  std::vector<double> goals;
  for (const Case& each : Cases()) goals.push_back(each.goal_us);
  return goals;
}

void Synchronize(const at::Device& device) {
  if (device.is_cpu()) return;  // ops on the CPU are synchronous
  c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

// Calls the op with this number in Cases() `calls` times. Returns the processor time of the calling
// thread for one call, in microseconds. The wait for the device isn't included.
double Measure(const at::Device& device, int64_t number, int64_t calls) {
  const c10::InferenceMode inference;
  const Case& measured = Cases().at(static_cast<size_t>(number));
  Operands operands(device);
  Synchronize(device);
  const double start = ThreadSeconds();
  for (int64_t i = 0; i < calls; ++i) measured.call(operands);
  const double seconds = ThreadSeconds() - start;
  Synchronize(device);
  return 1e6 * seconds / static_cast<double>(calls * measured.num_ops);
}

}  // namespace

TORCH_LIBRARY(tensord_bench, m) {
  m.def("names() -> str[]", Names);
  m.def("goals() -> float[]", Goals);
  m.def("measure(Device device, int number, int calls) -> float", Measure);
}
