// The daemon's log: lines on standard error.
//
// A reader that has stopped reading (a full pipe, a suspended terminal) must block neither callers
// nor the end of the daemon. So a separate thread writes the lines.
#pragma once

#include <chrono>
#include <cstddef>

#include "absl/strings/string_view.h"

namespace tensord::server {

// The memory for lines that wait to be written.
inline constexpr size_t kMaxLogBytes = 256 << 10;

// Adds the line "tensord: `text`" to the log. After StartLogThread(), never waits for the reader.
// If the waiting lines would take more than kMaxLogBytes, drops the line. Before the next line that
// fits, adds a line that says how many were dropped. Thread-safe.
void LogLine(absl::string_view text);

// Starts the thread that writes the lines. Before that, LogLine() writes them itself. The thread
// ends with the process. Call it at most once.
void StartLogThread();

// Blocks until no line waits to be written, for at most `timeout`. Returns whether none waits.
// Thread-safe.
bool FlushLog(std::chrono::milliseconds timeout);

}  // namespace tensord::server
