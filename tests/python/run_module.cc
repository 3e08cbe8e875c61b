// Runs a module of client/nn for compare_modules_with_torch.py.
//   run_module SERVER MODULE INPUT.safetensors OUTPUT.safetensors
//
// The input file has the module's state as "state.NAME", and tensors that MODULE names, such as
// "x". The output file has "text", the module's ToString as bytes, and the results.
#include <functional>
#include <iostream>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tensord/client/examples/gpt2.h"
#include "tensord/client/examples/resnet18.h"
#include "tensord/client/tensord.h"
#include "tensord/common/util/status_macros.h"

namespace tensord {
namespace {

using Tensors = std::map<std::string, Tensor>;

// A module, and its results for the tensors of the input file.
struct Case {
  std::shared_ptr<nn::Module> module;
  std::function<Tensors(const Tensors& inputs)> run = nullptr;  // default: Forward of "x"
};

template <typename M, typename Run>
Case CaseOf(M module, Run run) {
  auto shared = std::make_shared<M>(std::move(module));
  return {shared, [shared, run](const Tensors& in) { return run(*shared, in); }};
}
template <typename M>
Case CaseOf(M module) {
  return CaseOf(std::move(module), [](const M& own, const Tensors& in) {
    return Tensors{{"y", own.Forward(in.at("x"))}};
  });
}

std::optional<Tensor> Find(const Tensors& tensors, const std::string& name) {
  const auto it = tensors.find(name);
  return it == tensors.end() ? std::nullopt : std::optional<Tensor>(it->second);
}

nn::AttentionMasks MasksOf(const Tensors& in) {
  return {.attention = Find(in, "attn_mask"),
          .key_padding = Find(in, "key_padding_mask"),
          .is_causal = in.count("is_causal") > 0};
}

Tensors RunAttention(const nn::MultiheadAttention& module, const Tensors& in) {
  const Tensor query = in.at("x");
  return {{"y", module.Attend(query, Find(in, "key").value_or(query),
                              Find(in, "value").value_or(query), MasksOf(in))}};
}

Tensors RunEncoder(const nn::TransformerEncoderLayer& module, const Tensors& in) {
  return {{"y", module.Encode(in.at("x"), MasksOf(in))}};
}

Tensors RunLstm(const nn::LSTM& module, const Tensors& in) {
  std::optional<nn::LSTMState> state;
  if (in.count("h") > 0) state = {in.at("h"), in.at("c")};
  const nn::LSTMResult result = module.Run(in.at("x"), state);
  return {{"y", result.output}, {"h", result.state.h}, {"c", result.state.c}};
}

Tensors RunGru(const nn::GRU& module, const Tensors& in) {
  const nn::GRUResult result = module.Run(in.at("x"), Find(in, "h"));
  return {{"y", result.output}, {"h", result.h}};
}

// Runs the model over all tokens, and token by token with a cache.
Tensors RunGpt2(const examples::Gpt2& model, const Tensors& in) {
  const Tensor& tokens = in.at("x");
  const int64_t batch = tokens.shape().dim(0), length = tokens.shape().dim(1);
  examples::Gpt2::Cache cache = model.MakeCache(tokens.device(), batch);
  std::vector<Tensor> steps;
  for (int64_t begin = 0; begin < length;) {
    const int64_t end = begin == 0 ? 3 : begin + 1;  // a prompt of three tokens
    steps.push_back(model.Append(Slice(tokens, {begin}, {end}, {.axes = {1}}), &cache));
    begin = end;
  }
  return {{"y", model.Forward(tokens)}, {"steps", Concat(steps, 0)}};
}

std::map<std::string, std::function<Case()>> Cases() {
  const nn::RecurrentOptions recurrent = {
      .num_layers = 2, .batch_first = true, .bidirectional = true};
  nn::TransformerEncoderLayerOptions encoder = {.dim_feedforward = 24, .batch_first = true};
  nn::TransformerEncoderLayerOptions norm_first = {
      .dim_feedforward = 24, .activation = Activation::kGelu, .norm_first = true, .bias = false};
  return {
      {"conv1d",
       [] { return CaseOf(nn::Conv1d(4, 6, {3}, {.stride = {2}, .padding = {1}, .groups = 2})); }},
      {"conv2d",
       [] {
         return CaseOf(
             nn::Conv2d(4, 8, {3, 2}, {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}}));
       }},
      {"conv2d_without_bias", [] { return CaseOf(nn::Conv2d(3, 5, {1}, {.bias = false})); }},
      {"pools",
       [] {
         return CaseOf(nn::Sequential(nn::MaxPool2d({.kernel = {3}, .stride = {2}, .padding = {1}}),
                                      nn::AvgPool2d({.kernel = {2}, .stride = {1}}),
                                      nn::AdaptiveAvgPool2d({2, 1}), nn::Flatten(),
                                      nn::Identity()));
       }},
      {"batch_norm1d", [] { return CaseOf(nn::BatchNorm1d(4)); }},
      {"batch_norm2d", [] { return CaseOf(nn::BatchNorm2d(4, {.eps = 1e-3})); }},
      {"layer_norm",
       [] {
         return CaseOf(nn::LayerNorm({3, 5}));
       }},
      {"layer_norm_without_affine",
       [] { return CaseOf(nn::LayerNorm({5}, {.elementwise_affine = false})); }},
      {"rms_norm", [] { return CaseOf(nn::RMSNorm({5})); }},
      {"embedding", [] { return CaseOf(nn::Embedding(7, 5)); }},
      {"attention", [] { return CaseOf(nn::MultiheadAttention(12, 3), RunAttention); }},
      {"attention_batch_first",
       [] {
         return CaseOf(nn::MultiheadAttention(12, 3, {.bias = false, .batch_first = true}),
                       RunAttention);
       }},
      {"encoder", [=] { return CaseOf(nn::TransformerEncoderLayer(12, 3, encoder), RunEncoder); }},
      {"encoder_norm_first",
       [=] { return CaseOf(nn::TransformerEncoderLayer(12, 3, norm_first), RunEncoder); }},
      {"lstm", [=] { return CaseOf(nn::LSTM(5, 4, recurrent), RunLstm); }},
      {"gru", [=] { return CaseOf(nn::GRU(5, 4, recurrent), RunGru); }},
      {"lstm_small", [] { return CaseOf(nn::LSTM(5, 4, {.bias = false}), RunLstm); }},
      {"gru_small", [] { return CaseOf(nn::GRU(5, 4), RunGru); }},
      {"resnet18", [] { return CaseOf(examples::ResNet18(10)); }},
      {"gpt2",
       [] {
         return CaseOf(
             examples::Gpt2(
                 {.vocabulary = 50, .positions = 16, .width = 64, .layers = 2, .heads = 4}),
             RunGpt2);
       }},
  };
}

absl::Status Run(const std::string& server, const std::string& name, const std::string& input,
                 const std::string& output) {
  TENSORD_ASSIGN_OR_RETURN(Client client, Client::Connect(server));
  const Device device = client.TryDevice();
  const auto cases = Cases();
  const auto found = cases.find(name);
  if (found == cases.end()) {
    return absl::NotFoundError(absl::StrCat("there is no module ", name));
  }
  const Case own = found->second();

  TENSORD_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(input));
  TENSORD_ASSIGN_OR_RETURN(const Tensors tensors, file.LoadAll(device));
  nn::StateDict state;
  Tensors inputs;
  for (const auto& [key, value] : tensors) {
    if (absl::StartsWith(key, "state.")) {
      state[key.substr(6)] = value;
    } else {
      inputs[key] = value;
    }
  }
  TENSORD_RETURN_IF_ERROR(own.module->LoadStateDict(state));
  own.module->Eval();
  Tensors results = own.run(inputs);
  const std::string text = own.module->ToString();
  results["text"] = FromVector<uint8_t>(device, {static_cast<int64_t>(text.size())},
                                        std::vector<uint8_t>(text.begin(), text.end()));
  return SaveSafetensors(output, results);
}

}  // namespace
}  // namespace tensord

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: run_module SERVER MODULE INPUT OUTPUT\n";
    return 2;
  }
  const absl::Status status = tensord::Run(argv[1], argv[2], argv[3], argv[4]);
  if (!status.ok()) std::cerr << status.message() << "\n";
  return status.ok() ? 0 : 1;
}
