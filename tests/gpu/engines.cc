#include "tensord/tests/gpu/engines.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tensord/server/device/cuda/conv_plan.h"

namespace tensord::gpu {
namespace {

namespace cuda = server::cuda;
using nlohmann::json;

const char* KindName(server::ConvKind kind) {
  switch (kind) {
    case server::ConvKind::kForward:
      return "forward";
    case server::ConvKind::kBackwardInput:
      return "gradient of the input";
    case server::ConvKind::kBackwardWeight:
      return "gradient of the weight";
  }
  return "";
}

std::string ProblemText(const cuda::ConvProblem& problem) {
  return absl::StrCat(KindName(problem.kind), " in ", DTypeName(problem.dtype),
                      problem.allow_tf32 ? ", tf32 allowed" : "", problem.bias ? ", bias" : "",
                      problem.relu ? ", ReLU" : "");
}

json EngineJson(const cuda::ConvEngine& engine) {
  json notes = json::array();
  for (const auto note : engine.notes) notes.push_back(cuda::NumericalNoteName(note));
  json described = {{"engine", engine.index}, {"notes", std::move(notes)}};
  if (engine.workspace_bytes >= 0) described["workspace_bytes"] = engine.workspace_bytes;
  if (!engine.rejection.empty()) described["reason"] = engine.rejection;
  return described;
}

std::string EngineText(const json& engine) {
  std::vector<std::string> parts;
  for (const json& note : engine["notes"]) parts.push_back(note.get<std::string>());
  if (parts.empty()) parts.push_back("no numerical notes");
  if (engine.contains("workspace_bytes")) {
    parts.push_back(absl::StrFormat("%.1f MiB of workspace",
                                    engine["workspace_bytes"].get<double>() / (1 << 20)));
  }
  return absl::StrCat("engine ", engine["engine"].get<int64_t>(), " (", absl::StrJoin(parts, ", "),
                      ")");
}

}  // namespace

EngineLog::EngineLog() {
  cuda::ObserveConvPlans(
      [this](const cuda::ConvProblem& problem, const std::vector<cuda::ConvEngine>& engines) {
        json one = {
            {"problem", ProblemText(problem)}, {"chosen", nullptr}, {"rejected", json::array()}};
        for (const cuda::ConvEngine& engine : engines) {
          if (engine.rejection.empty()) {
            one["chosen"] = EngineJson(engine);
          } else {
            one["rejected"].push_back(EngineJson(engine));
          }
        }
        problems_.push_back(std::move(one));
      });
}

EngineLog::~EngineLog() { cuda::ObserveConvPlans(nullptr); }

json EngineLog::Take() { return std::exchange(problems_, json::array()); }

std::vector<std::string> EngineLines(const json& problems) {
  std::vector<std::string> lines;
  for (const json& problem : problems) {
    const json& chosen = problem["chosen"];
    lines.push_back(absl::StrCat("ours: ", problem["problem"].get<std::string>(), ": ",
                                 chosen.is_null() ? "no engine" : EngineText(chosen)));
    for (const json& engine : problem["rejected"]) {
      lines.push_back(absl::StrCat("  rejected: ", EngineText(engine), ": ",
                                   engine["reason"].get<std::string>()));
    }
  }
  return lines;
}

}  // namespace tensord::gpu
