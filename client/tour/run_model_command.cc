// tensorctl run-model: runs a network from a file on the rows of another file.
#include <algorithm>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tensord/client/cli/command.h"
#include "tensord/client/cli/progress.h"
#include "tensord/client/cli/text.h"
#include "tensord/client/ops.h"
#include "tensord/client/tour/commands.h"
#include "tensord/client/tour/mlp.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::tour {
namespace {

// The limit of classes. The confusion table is square: larger ones fit neither a terminal nor
// memory.
constexpr int64_t kMaxClasses = 1024;
// The time limit for measuring the throughput.
constexpr absl::Duration kMeasureFor = absl::Milliseconds(500);
constexpr int kMaxRepetitions = 1000;

struct Scale {
  double factor = 1;
  std::string origin;
};

absl::StatusOr<Scale> ChosenScale(const cli::CommandContext& context, const Mlp& model) {
  TENSORD_ASSIGN_OR_RETURN(const double given, context.flags.GetNumber("scale", 1, -1e30, 1e30));
  if (context.flags.Has("scale")) return Scale{given, "from --scale"};
  if (const auto factor = ScaleFromMetadata(model.metadata())) {
    return Scale{*factor, "from the model's file"};
  }
  return Scale{1, "the default"};
}

// Repeats the forward pass, and waits for each. Returns the number of passes and their total time.
absl::StatusOr<std::pair<int, absl::Duration>> Measure(const Mlp& model, const Tensor& input) {
  int passes = 0;
  const absl::Time start = absl::Now();
  while (passes < kMaxRepetitions && absl::Now() - start < kMeasureFor) {
    const Tensor row = Slice(model.Forward(input), {0}, {1});
    TENSORD_RETURN_IF_ERROR(row.Wait());
    ++passes;
  }
  return std::make_pair(passes, absl::Now() - start);
}

absl::StatusOr<Mlp> LoadModel(cli::CommandContext& context, const std::string& path,
                              const Device& device) {
  cli::Progress progress(path, context.err, context.err_terminal);
  TENSORD_ASSIGN_OR_RETURN(Mlp model, Mlp::Load(path, device, progress.options()));
  if (model.out_features() > kMaxClasses || model.out_features() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": the model gives ", model.out_features(),
                                                   " numbers a row; run-model takes classifiers of "
                                                   "1 to ",
                                                   kMaxClasses, " classes"));
  }
  return model;
}

void Line(std::ostream& out, const cli::Terminal& terminal, absl::string_view name,
          absl::string_view value) {
  out << terminal.Paint(cli::Style::kDim, cli::PadRight(name, 12)) << value << "\n";
}

absl::StatusOr<int> RunModel(cli::CommandContext& context) {
  const std::string model_path = context.flags.Get("model", "");
  const std::string data_path = context.flags.Get("data", "");
  if (model_path.empty() || data_path.empty()) {
    return cli::UsageError("run-model needs --model FILE and --data FILE");
  }
  TENSORD_ASSIGN_OR_RETURN(const Client client, cli::Connect(context, "run-model"));
  TENSORD_ASSIGN_OR_RETURN(const Device device, cli::ChosenDevice(context, client));
  TENSORD_ASSIGN_OR_RETURN(const Mlp model, LoadModel(context, model_path, device));
  TENSORD_ASSIGN_OR_RETURN(const Scale scale, ChosenScale(context, model));
  TENSORD_ASSIGN_OR_RETURN(const Dataset data,
                           Dataset::Open(data_path, model,
                                         {.images = context.flags.Get("images", "images"),
                                          .labels = context.flags.Get("labels", "labels"),
                                          .rows = context.flags.Get("rows", ":")}));

  const absl::Time start = absl::Now();
  cli::Progress progress(data_path, context.err, context.err_terminal);
  const Tensor images = data.Upload(device, progress.options());
  progress.Clear();
  const Tensor input = Cast(images, DType::kFloat32) * scale.factor;
  const Tensor classes = Argmax(model.Forward(input), {.axes = {1}});
  TENSORD_ASSIGN_OR_RETURN(const std::vector<int64_t> predictions, classes.Read<int64_t>());
  const absl::Duration whole = absl::Now() - start;
  TENSORD_ASSIGN_OR_RETURN(const auto measured, Measure(model, input));
  TENSORD_ASSIGN_OR_RETURN(const Confusion confusion,
                           Compare(data.labels(), predictions, model.out_features()));

  std::ostream& out = context.out;
  const cli::Terminal& terminal = context.out_terminal;
  const RowRange rows = data.rows();
  Line(out, terminal, "model", absl::StrCat(model_path, ": ", DescribeLayers(model.layers())));
  Line(out, terminal, "data",
       absl::StrCat(data_path, ": rows ", rows.first, " to ", rows.last - 1));
  Line(out, terminal, "scale", absl::StrCat("inputs times ", scale.factor, ", ", scale.origin));
  Line(
      out, terminal, "device",
      absl::StrCat(device.name(), ", ", cli::Printable(device.model()), ", at ", client.address()));
  out << "\n" << confusion.Render(terminal, 0) << "\n";
  Line(out, terminal, "accuracy",
       absl::StrFormat("%d of %d right, %.2f %%", confusion.correct(), confusion.total(),
                       100.0 * confusion.correct() / confusion.total()));
  Line(out, terminal, "first pass",
       absl::StrCat(cli::FormatElapsed(whole),
                    ", including the upload of the rows and the read of the classes"));
  const auto& [passes, duration] = measured;
  Line(out, terminal, "throughput",
       absl::StrCat(cli::FormatThreeDigits(rows.size() * passes / absl::ToDoubleSeconds(duration)),
                    " rows/s over ", passes, passes == 1 ? " more pass" : " more passes"));
  return 0;
}

}  // namespace

cli::CommandSpec RunModelCommand() {
  return {
      .name = "run-model",
      .summary = "runs a network from a safetensors file and prints its accuracy",
      .description =
          "Sends a multilayer perceptron and the rows to classify to a device, computes there, and "
          "prints the accuracy, the confusion table and the throughput. The model's tensors are "
          "named as in PyTorch's nn.Sequential (0.weight, 0.bias, 2.weight, …), with ReLU between "
          "the layers. The data has rows of numbers and a label for each row.",
      .flags = {{"model", "FILE", "safetensors file with the network"},
                {"data", "FILE", "safetensors file with inputs and labels"},
                {"device", "NAME",
                 "the device to compute on; by default the first GPU, or else cpu:0"},
                {"rows", "FIRST:END", "only these rows, with Python's rules; all by default"},
                {"scale", "FACTOR",
                 "multiply the inputs by this; by default the factor in the model's metadata "
                 "(\"input\": \"pixel/16\"), or else 1"},
                {"images", "NAME", "the tensor of inputs in the data; images by default"},
                {"labels", "NAME", "the tensor of labels in the data; labels by default"}},
      .examples =
          {{"tensorctl run-model --model tests/data/digits_mlp.safetensors "
            "--data tests/data/digits.safetensors --rows 1200:",
            "Handwritten digits that the network wasn't trained on: 556 of 597 are right."}},
      .run = RunModel,
  };
}

}  // namespace tensord::tour
