// The daemon's log: lines on standard error.
//
// A reader that has stopped reading (a full pipe, a suspended terminal) must block neither callers
// nor the end of the daemon. So a thread of its own writes the lines.
#pragma once

#include <chrono>
#include <cstddef>

#include "absl/strings/string_view.h"

namespace tensord::server {

// The memory for lines that wait to be written.
inline constexpr size_t kMaxLogBytes = 256 << 10;

// Adds the line "tensord: `text`" to the log. Never blocks for the reader once StartLogThread()
// was called. If the lines that wait take kMaxLogBytes, drops the line. The next line that fits comes
// after a line that says how many were dropped. Thread-safe.
void LogLine(absl::string_view text);

// Makes a thread write the lines from now on. Until then LogLine() writes them itself. The thread
// ends with the process. Call it at most once.
void StartLogThread();

// Waits until the lines that were added before are written, for at most `timeout`. Returns whether
// they are. Thread-safe.
bool FlushLog(std::chrono::milliseconds timeout);

}  // namespace tensord::server
