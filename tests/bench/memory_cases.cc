// The peak memory of models beside PyTorch 2.
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "tensord/client/examples/gpt2.h"
#include "tensord/client/examples/resnet18.h"
#include "tensord/tests/bench/bench.h"

namespace tensord::bench {
namespace {

constexpr char kPeer[] = "PyTorch 2, memory";
constexpr double kGoal = 0.95;  // at most 1.05 times the memory of PyTorch

struct MemoryCase {
  std::string measure;
  std::string model, mode;  // as in a question to the peer
  // Computes the same on the device of a server. If this is empty, PyTorch does it, by the package
  // torch_tensord.
  std::function<void(const Device&)> run = nullptr;
};

void RunOnce(const Device& device, const nn::Module& model, const Tensor& x) {
  const Program program =
      Check(Program::Record(device, {x.spec()}, [&](absl::Span<const Tensor> in) {
        return std::vector<Tensor>{model.Forward(in[0])};
      }));
  Check(program.Run({x})[0].Wait());
}

void RunResNet(const Device& device) {
  examples::ResNet18 model;
  Check(model.To(device));
  model.Eval();
  RunOnce(device, model, Normal(device, {1, 3, 224, 224}, /*seed=*/1));
}

// The logits after the last token.
class LastLogits : public nn::Module {
 public:
  explicit LastLogits(const examples::Gpt2& model) : model_(model) {}
  Tensor Forward(const Tensor& tokens) const override { return model_.Logits(tokens); }

 private:
  const examples::Gpt2& model_;
};

void RunGpt2(const Device& device) {
  examples::Gpt2 model{examples::Gpt2Config()};
  Check(model.To(device));
  model.Eval();
  RunOnce(device, LastLogits(model), RandInt(device, {1, 256}, 0, 50257, /*seed=*/1));
}

// Returns the peak of the first device of a daemon that has run nothing else.
absl::StatusOr<double> PeakOnServer(Peer& peer, const MemoryCase& memory_case) {
  const auto daemon = Check(integration::DaemonProcess::Start({}));
  if (!memory_case.run) {
    auto answer =
        peer.Ask(absl::StrCat(memory_case.model, " ", memory_case.mode, " ", daemon->address()));
    if (!answer.ok()) return answer.status();
    return answer->at(0);
  }
  const Client client = Check(Client::Connect(daemon->address()));
  const Device device = Check(client.device("cpu:0"));
  memory_case.run(device);
  return static_cast<double>(Check(client.memory(device)).peak_bytes);
}

// Returns false if the peer has failed.
bool RunMemoryCase(Bench& bench, const MemoryCase& memory_case) {
  if (!bench.Wants(memory_case.measure)) return true;
  Peer* const peer = bench.FindPeer(kPeer);
  if (peer == nullptr) return false;
  const auto ours = PeakOnServer(*peer, memory_case);
  const auto theirs = peer->Ask(absl::StrCat(memory_case.model, " ", memory_case.mode));
  for (const absl::Status& status : {ours.status(), theirs.status()}) {
    if (status.ok()) continue;
    bench.Skip(memory_case.measure, std::string(status.message()));
    return !absl::IsUnavailable(status);  // after a timeout, answers are late
  }
  bench.Add({memory_case.measure, "MB", *ours * 1e-6, "PyTorch 2", theirs->at(0) * 1e-6,
             theirs->at(0) / *ours, kGoal});
  return true;
}

}  // namespace

void MemoryCases(Bench& bench) {
  const auto trained = [](const char* name, const char* model) {
    return MemoryCase{absl::StrCat("peak memory of ", name, ", forward and backward"), model,
                      "train"};
  };
  const MemoryCase cases[] = {
      trained("an MLP, 512 rows", "mlp"),
      trained("LeNet, 256 images", "lenet"),
      trained("ResNet-18, an image of 224x224", "resnet18"),
      trained("a transformer encoder layer, 8x256x512", "encoder"),
      trained("an LSTM of two layers, 16x64x256", "lstm"),
      trained("GPT-2 small, 256 tokens", "gpt2"),
      {"peak memory of GPT-2 small, a step with Adam", "gpt2", "adam"},
      {"peak memory of ResNet-18, as a program", "resnet18", "infer", RunResNet},
      {"peak memory of GPT-2 small, 256 tokens, as a program", "gpt2", "infer", RunGpt2},
  };
  for (const MemoryCase& memory_case : cases) {
    if (!RunMemoryCase(bench, memory_case)) return;
  }
}

}  // namespace tensord::bench
