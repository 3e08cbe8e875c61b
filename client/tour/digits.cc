// The last step: a trained network reads handwritten digits.
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tensord/client/cli/text.h"
#include "tensord/client/tour/digit_art.h"
#include "tensord/client/tour/mlp.h"
#include "tensord/client/tour/steps.h"
#include "tensord/common/util/status_macros.h"

namespace tensord::tour {
namespace {

// The number of rows that this network classifies right, of the rows that it wasn't trained on.
constexpr int64_t kRight = 556;
constexpr int64_t kRows = 597;
constexpr int kSide = 8;
constexpr float kWhite = 16;  // the largest pixel value

GreyImage ImageOfRow(const Dataset& data, int64_t row) {
  GreyImage image = {.side = kSide, .pixels = {}};
  for (uint8_t pixel : data.bytes().subspan(row * kSide * kSide, kSide * kSide)) {
    image.pixels.push_back(pixel / kWhite);
  }
  return image;
}

// Returns a row of pictures: for each digit, the first image that the network read right, or wrong.
std::string Gallery(const Dataset& data, const std::vector<int64_t>& predictions, bool right,
                    const cli::Terminal& terminal) {
  std::map<int64_t, int64_t> rows;  // by digit
  for (size_t row = 0; row < predictions.size(); ++row) {
    const int64_t label = data.labels()[row];
    if ((predictions[row] == label) == right) rows.emplace(label, row);
  }
  const size_t most = GalleryColumns(kSide, terminal, 0);
  std::vector<GreyImage> images;
  std::vector<std::string> captions;
  for (const auto& [label, row] : rows) {
    if (images.size() == most) break;
    images.push_back(ImageOfRow(data, row));
    captions.push_back(
        terminal.Paint(right ? cli::Style::kGreen : cli::Style::kRed,
                       absl::StrCat(label, " read as ", predictions[row], right ? " ✓" : " ✗")));
  }
  return DrawGallery(images, captions, terminal, 0);
}

}  // namespace

absl::Status ReadDigits(Tour& tour) {
  Narrator& narrator = tour.narrator;
  narrator.Heading("A network reads handwritten digits");
  TENSORD_ASSIGN_OR_RETURN(
      const Mlp model, Mlp::Load(absl::StrCat(tour.data_dir, "/digits_mlp.safetensors"), tour.a));
  TENSORD_ASSIGN_OR_RETURN(
      const Dataset data,
      Dataset::Open(absl::StrCat(tour.data_dir, "/digits.safetensors"), model, {.rows = "1200:"}));
  TENSORD_RETURN_IF_ERROR(Expect(
      data.spec() == TensorSpec{DType::kUInt8, Shape({kRows, kSide * kSide})},
      absl::StrCat("the test digits should be uint8[597, 64] and are ", data.spec().ToString())));
  narrator.Print(absl::StrCat(
      "A trained network, ", DescribeLayers(model.layers()), ", goes to ", tour.a.name(), " with ",
      kRows,
      " digits of 8×8 pixels that it wasn't trained on. Three linear ops and an argmax run on the "
      "server; 597 numbers come back."));
  narrator.Code(
      "auto file = SafetensorsFile::Open(\"digits_mlp.safetensors\").value();\n"
      "auto w = file.LoadAll(a).value();\n"
      "Tensor x = Cast(pixels, DType::kFloat32) / 16.0;            // (597, 64)\n"
      "Tensor h = Linear(x, w[\"0.weight\"], w[\"0.bias\"], {Activation::kRelu});\n"
      "h = Linear(h, w[\"2.weight\"], w[\"2.bias\"], {Activation::kRelu});\n"
      "Tensor digit = Argmax(Linear(h, w[\"4.weight\"], w[\"4.bias\"]), {.axes = {1}});");
  std::vector<int64_t> predictions;
  TENSORD_ASSIGN_OR_RETURN(const absl::Duration duration, Time([&]() -> absl::Status {
                             const Tensor x = Cast(data.Upload(tour.a), DType::kFloat32) / 16.0;
                             const Tensor digit = Argmax(model.Forward(x), {.axes = {1}});
                             TENSORD_ASSIGN_OR_RETURN(predictions, digit.Read<int64_t>());
                             return absl::OkStatus();
                           }));
  TENSORD_ASSIGN_OR_RETURN(const Confusion confusion,
                           Compare(data.labels(), predictions, model.out_features()));
  narrator.Show(absl::StrFormat(
      "%d of %d right (%.1f %%), in %s with the transfers", confusion.correct(), confusion.total(),
      100.0 * confusion.correct() / confusion.total(), cli::FormatElapsed(duration)));
  const cli::Terminal terminal = narrator.result_terminal();
  narrator.Show(confusion.Render(terminal, 0));
  narrator.Show(Gallery(data, predictions, /*right=*/true, terminal));
  narrator.Show(Gallery(data, predictions, /*right=*/false, terminal));
  return Expect(confusion.correct() == kRight,
                absl::StrCat("exactly ", kRight, " of ", kRows, " should be right, not ",
                             confusion.correct()));
}

}  // namespace tensord::tour
