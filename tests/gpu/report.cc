#include "tensord/tests/gpu/report.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace tensord::gpu {
namespace {

std::string FigureText(double figure) {
  return absl::StrFormat("%.*f", figure >= 1000 ? 0 : figure >= 10 ? 1 : 3, figure);
}

double ShareOfPeak(const Row& row, const Figures& figures) {
  return row.peak > 0 ? row.work / figures.ours_seconds / row.peak : 0;
}

std::string TableLine(const Row& row, const Figures& figures) {
  const bool has_reference = !figures.reference.empty();
  const double of_peak = ShareOfPeak(row, figures);
  return absl::StrFormat("%-50s %9s  %-7s %9s  %5s  %5s  %s", row.name,
                         FigureText(FigureOf(row, figures.ours_seconds)), UnitName(row.unit),
                         has_reference ? FigureText(FigureOf(row, figures.reference_seconds)) : "-",
                         has_reference ? absl::StrFormat("%.2f", figures.ratio) : "-",
                         of_peak > 0 ? absl::StrFormat("%.0f %%", 100 * of_peak) : "-",
                         figures.reference);
}

nlohmann::json JsonOf(const Row& row, const Figures& figures) {
  nlohmann::json one = {{"name", row.name},
                        {"unit", UnitName(row.unit)},
                        {"ours", FigureOf(row, figures.ours_seconds)},
                        {"reference", nullptr},
                        {"reference_value", nullptr},
                        {"ratio", nullptr},
                        {"share_of_peak", nullptr}};
  if (!figures.reference.empty()) {
    one["reference"] = figures.reference;
    one["reference_value"] = FigureOf(row, figures.reference_seconds);
    one["ratio"] = figures.ratio;
  }
  if (const double of_peak = ShareOfPeak(row, figures); of_peak > 0) one["share_of_peak"] = of_peak;
  return one;
}

void ReplaceFile(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  const std::string part = path + ".part";
  std::ofstream(part) << text;
  std::error_code error;
  std::filesystem::rename(part, path, error);
}

}  // namespace

Report::Report(const ReportFiles& files, const GpuInfo& info, const std::string& torch,
               std::vector<std::string> names)
    : table_(files.table),
      files_(files),
      compared_(!torch.empty()),
      waiting_(names.rbegin(), names.rend()) {
  json_ = {{"gpu", info.model},
           {"compute_capability", info.compute_capability},
           {"driver_version", info.driver_version},
           {"peak_bytes_per_second", info.bytes_per_second},
           {"peak_clock_hz", info.clock_hz},
           {"cudnn", info.cudnn},
           {"pytorch", torch},
           {"rows", nlohmann::json::array()}};
  if (compared_) AddLine("PyTorch: " + torch);
  AddLine(absl::StrFormat("%-50s %9s  %-7s %9s  %5s  %5s  %s", "row", "ours", "unit", "reference",
                          "ratio", "peak", "what the reference is"));
  Write();
}

void Report::Add(const Row& row, const absl::StatusOr<Figures>& figures,
                 const nlohmann::json& details, const std::vector<std::string>& notes) {
  nlohmann::json one;
  if (figures.ok()) {
    AddLine(TableLine(row, *figures));
    one = JsonOf(row, *figures);
  } else {
    one = {{"name", row.name}, {"failure", figures.status().ToString()}};
  }
  one.update(details);
  for (const std::string& note : notes) AddLine("    " + note);
  json_["rows"].push_back(std::move(one));
  if (!figures.ok() || (compared_ && figures->ratio < 1)) again_.push_back(row.name);
  waiting_.pop_back();
  Write();
}

void Report::AddDetail(const std::string& name, const char* key, const nlohmann::json& value) {
  for (nlohmann::json& row : json_["rows"]) {
    if (row["name"] == name) row[key] = value;
  }
  Write();
}

void Report::Write() {
  ReplaceFile(files_.json, json_.dump(1) + "\n");
  std::vector<std::string> again = again_;
  again.insert(again.end(), waiting_.rbegin(), waiting_.rend());
  ReplaceFile(files_.repeat, absl::StrJoin(again, "\n") + (again.empty() ? "" : "\n"));
}

}  // namespace tensord::gpu
