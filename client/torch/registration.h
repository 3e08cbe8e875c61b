// Registers the kernels with two checks: of the operands' dtypes, and of the outputs that the
// caller gives.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace torch_tensord {

// If PyTorch can't cast results of `dtype` to the dtype of `out`, throws its error.
void CheckResultCast(at::ScalarType dtype, const at::Tensor& out);

// If PyTorch's kernel on the CPU refuses an integer dtype, or operands of several dtypes, refuses
// them, too.
class DTypeCheck {
 public:
  explicit DTypeCheck(const char* name);
  bool accepts_all() const { return refused_ == 0 && !needs_one_; }
  // Checks the dtype of the first tensor. If the op needs one dtype, compares the others with it.
  template <typename... Args>
  void operator()(const Args&... args) const {
    if (C10_LIKELY(accepts_all())) return;
    std::array<const at::Tensor*, sizeof...(Args)> tensors{};
    size_t count = 0;
    const auto find = [&](const auto& each) {
      using Type = std::decay_t<decltype(each)>;
      if constexpr (std::is_same_v<Type, at::Tensor>) tensors[count++] = &each;
      if constexpr (std::is_same_v<Type, std::optional<at::Tensor>>) {
        if (each.has_value() && each->defined()) tensors[count++] = &*each;
      }
    };
    (find(args), ...);
    if (count > 0) Check({tensors.data(), count});
  }

 private:
  void Check(c10::ArrayRef<const at::Tensor*> tensors) const;

  const std::string name_;
  const int refused_;
  const bool needs_one_;
};

// Checks the devices, dtypes, sizes and overlaps of the outputs that a caller gives to an op, and
// resizes the outputs, as PyTorch does on the CPU.
class OutputCheck {
 public:
  explicit OutputCheck(const char* name) : name_(name) {}
  // `stack` has the arguments, of which the last `count` are the outputs.
  void operator()(torch::jit::Stack stack, size_t count) const;

 private:
  const std::string name_;
};

template <typename Return>
constexpr size_t kOutputs = 0;
template <>
inline constexpr size_t kOutputs<at::Tensor&> = 1;
template <typename... Tensors>
constexpr size_t kOutputs<std::tuple<Tensors&...>> = sizeof...(Tensors);

class Kernels {
 public:
  explicit Kernels(torch::Library& library) : library_(library) {}

  template <typename Return, typename... Args>
  void impl(const char* name, Return (*kernel)(Args...)) {
    constexpr size_t count = kOutputs<Return>;
    const DTypeCheck dtypes(name);
    if constexpr (count > 0 && count < sizeof...(Args)) {
      using Last = std::tuple_element_t<sizeof...(Args) - 1, std::tuple<Args...>>;
      if constexpr (std::is_same_v<Last, at::Tensor&>) {
        library_.impl(name, [kernel, dtypes, check = OutputCheck(name)](Args... args) -> Return {
          // An output that PyTorch has made has the right geometry, and only one reference.
          const auto all = std::tie(args...);
          if (C10_UNLIKELY(std::get<sizeof...(Args) - 1>(all).use_count() > 1)) {
            torch::jit::Stack stack;
            torch::jit::push(stack, args...);
            check(std::move(stack), count);
          }
          dtypes(args...);
          return kernel(std::forward<Args>(args)...);
        });
        return;
      }
    }
    if (dtypes.accepts_all()) {
      library_.impl(name, kernel);
      return;
    }
    library_.impl(name, [kernel, dtypes](Args... args) -> Return {
      dtypes(args...);
      return kernel(std::forward<Args>(args)...);
    });
  }
  // Registers a lambda or a boxed kernel without these checks.
  template <typename Function>
  void impl(const char* name, Function function) {
    library_.impl(name, std::move(function));
  }

 private:
  torch::Library& library_;
};

// Begins a block that registers kernels: TENSORD_KERNELS(m) { m.impl("exp.out", …); … }
#define TENSORD_KERNELS(m)                         \
  static void RegisterKernels(Kernels& m);         \
  TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) { \
    Kernels kernels(library);                      \
    RegisterKernels(kernels);                      \
  }                                                \
  static void RegisterKernels(Kernels& m)

}  // namespace torch_tensord
