// Runs a shell command and captures what it writes.
#pragma once

#include <sys/wait.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

namespace tensord {

struct CommandResult {
  int exit_code = -1;  // -1: the command didn't start, or a signal killed it
  std::string out;     // standard output
  std::string err;     // standard error, if it went to a file
};

// Runs `command` in a shell and blocks until it ends. If `error_file` isn't empty, the command's
// standard error goes to this file and is returned as `err`.
inline CommandResult RunCommand(const std::string& command, const std::string& error_file = "") {
  CommandResult result;
  const std::string redirect = error_file.empty() ? "" : " 2>" + error_file;
  FILE* const pipe = popen((command + redirect).c_str(), "re");
  if (pipe == nullptr) return result;
  char buffer[4096];
  while (const size_t size = fread(buffer, 1, sizeof(buffer), pipe)) {
    result.out.append(buffer, size);
  }
  const int status = pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (error_file.empty()) return result;
  std::ifstream errors(error_file);
  result.err.assign(std::istreambuf_iterator<char>(errors), {});
  return result;
}

}  // namespace tensord
