// The files that gpu_bench writes.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tensord/tests/gpu/measure.h"

namespace tensord::gpu {

// The files' names; empty: the file isn't written.
struct ReportFiles {
  std::string json;    // the measurements
  std::string table;   // the same as a table of text
  std::string repeat;  // the rows to repeat, one name a line
};

// Writes each row at once, so that a run that is killed leaves the rows that it has finished. Each
// change replaces the JSON file and the list as a whole.
class Report {
 public:
  // `names`: the rows that will be added, in their order. `torch` describes PyTorch; empty: the rows
  // aren't compared with PyTorch. Such rows don't fall short if their ratio is below 1.
  Report(const ReportFiles& files, const GpuInfo& info, const std::string& torch,
         std::vector<std::string> names);

  // Adds the next row. `details` is a JSON object that is added to the row's, and `notes` are lines
  // that the table has below the row.
  void Add(const Row& row, const absl::StatusOr<Figures>& figures, const nlohmann::json& details,
           const std::vector<std::string>& notes);
  // Adds a value to a row that was added.
  void AddDetail(const std::string& name, const char* key, const nlohmann::json& value);
  void AddLine(const std::string& line) { table_ << line << "\n" << std::flush; }

 private:
  void Write();

  std::ofstream table_;
  const ReportFiles files_;
  const bool compared_;
  nlohmann::json json_;
  std::vector<std::string> again_;    // rows that fell short
  std::vector<std::string> waiting_;  // rows that haven't been added, the next one last
};

}  // namespace tensord::gpu
