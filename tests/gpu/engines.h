// The engines of cuDNN that the device layer tried for the convolutions of a row.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tensord::gpu {

// Collects the engines from its construction on. Only one may exist. Not thread-safe: use it on the
// thread that launches the convolutions.
class EngineLog {
 public:
  EngineLog();
  ~EngineLog();
  EngineLog(const EngineLog&) = delete;
  EngineLog& operator=(const EngineLog&) = delete;

  // Returns the convolutions for which engines were tried since the last call. Each has "problem",
  // "chosen" (an engine, or null) and "rejected" (engines with their reasons). An engine has
  // "engine", "notes" and "workspace_bytes".
  nlohmann::json Take();

 private:
  nlohmann::json problems_ = nlohmann::json::array();
};

// Returns what Take() returned as lines of text.
std::vector<std::string> EngineLines(const nlohmann::json& problems);

}  // namespace tensord::gpu
