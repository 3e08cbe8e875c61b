// Whole models beside PyTorch 2.
#include <memory>
#include <utility>
#include <vector>

#include "tensord/client/examples/gpt2.h"
#include "tensord/client/examples/resnet18.h"
#include "tensord/tests/bench/array_case.h"

namespace tensord::bench {
namespace {

using examples::Gpt2;

constexpr char kModels[] =
    "import sys | sys.path.append(sys.path[0] + '/../../python')"
    " | from torch_models import Decoder, Gpt2, ResNet18";
constexpr int64_t kPrompt = 256;
constexpr int64_t kLimit = 320;  // of positions, before the decoder begins again after the prompt

// Returns a function that runs `model` as a program.
std::function<Tensor()> RunAsProgram(const nn::Module& model, const Tensor& x) {
  const Program program =
      Check(Program::Record(x.device(), {x.spec()}, [&](absl::Span<const Tensor> in) {
        return std::vector<Tensor>{model.Forward(in[0])};
      }));
  return [program, x] { return program.Run({x})[0]; };
}

ArrayCase ResNetCase() {
  return {
      "ResNet-18 of an image of 224x224, as a program",
      2,
      [](const Device& device) {
        examples::ResNet18 model;
        Check(model.To(device));
        model.Eval();
        return RunAsProgram(model, Normal(device, {1, 3, 224, 224}, /*seed=*/1));
      },
      absl::StrCat(kModels, " | model = ResNet18(1000).eval() | x = torch.randn(1, 3, 224, 224)"),
      "model(x)",
      1.0};
}

// The logits after the last token.
class Prefill : public nn::Module {
 public:
  explicit Prefill(const Gpt2& model) : model_(model) {}
  Tensor Forward(const Tensor& tokens) const override { return model_.Logits(tokens); }

 private:
  const Gpt2& model_;
};

std::shared_ptr<Gpt2> MakeGpt2(const Device& device) {
  auto model = std::make_shared<Gpt2>(examples::Gpt2Config());
  Check(model->To(device));
  model->Eval();
  return model;
}

Tensor Prompt(const Device& device) { return RandInt(device, {1, kPrompt}, 0, 50257, /*seed=*/1); }

ArrayCase PrefillGpt2Case() {
  return {
      "GPT-2 small: 256 tokens, as a program",
      1,
      [](const Device& device) { return RunAsProgram(Prefill(*MakeGpt2(device)), Prompt(device)); },
      absl::StrCat(kModels,
                   " | model = Gpt2().eval() | x = torch.randint(50257, (1, 256))"
                   " | cache = model.make_cache()"),
      "model.append(x, 0, cache)",
      1.1};
}

ArrayCase DecodeGpt2Case() {
  return {"GPT-2 small: a token after 256, with a cache",
          8,
          [](const Device& device) {
            const std::shared_ptr<Gpt2> model = MakeGpt2(device);
            auto cache = std::make_shared<Gpt2::Cache>(model->MakeCache(device, 1));
            const auto next = [model, cache](const Tensor& tokens) {
              return Reshape(Argmax(model->Append(tokens, cache.get()), {.axes = {1}}), {1, 1});
            };
            auto token = std::make_shared<Tensor>(next(Prompt(device)));
            return [=] {
              if (cache->length == kLimit) cache->length = kPrompt;
              return *token = next(*token);
            };
          },
          absl::StrCat(kModels,
                       " | decoder = Decoder(Gpt2().eval(), torch.randint(50257, (1, 256)), 320)"),
          "decoder.step()",
          1.1};
}

}  // namespace

void ModelCases(Bench& bench) {
  for (const ArrayCase& array_case : {ResNetCase(), PrefillGpt2Case(), DecodeGpt2Case()}) {
    RunArrayCase(bench, array_case);
  }
}

}  // namespace tensord::bench
