// tensorctl token: makes a token for a server's token file.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tensord/client/cli/command.h"
#include "tensord/client/cli/commands/commands.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/common/util/token_file.h"

namespace tensord::cli {
namespace {

// Parses a time span from now ("30d", "12h"), or a time as in the token file.
absl::StatusOr<absl::Time> ParseEnd(const std::string& text) {
  if (text.empty()) return absl::InfiniteFuture();
  std::string span = text;
  int64_t factor = 1;
  if (span.back() == 'd') {
    span.back() = 'h';
    factor = 24;
  }
  absl::Duration duration;
  absl::Time end;
  if (absl::ParseDuration(span, &duration) && duration > absl::ZeroDuration()) {
    // The token file has whole seconds. The token is valid for at least `duration`.
    end = absl::FromUnixSeconds(absl::ToInt64Seconds(
        absl::Ceil(absl::Now() + factor * duration - absl::UnixEpoch(), absl::Seconds(1))));
  } else {
    const absl::StatusOr<absl::Time> parsed = ParseTokenEnd(text);
    if (!parsed.ok()) {
      return UsageError(
          "--expires takes a span such as 30d or 12h, a time such as 2027-01-31T00:00:00Z, or "
          "seconds since 1970");
    }
    end = *parsed;
  }
  if (end <= absl::Now()) return UsageError("--expires is in the past");
  return end;
}

// Appends the line in one write, after a newline if the file doesn't end with one. Creates the file
// if needed; only its owner may read it.
absl::Status AppendLine(const std::string& path, const std::string& line) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("can't write ", path));
  char last = '\n';
  const off_t size = lseek(fd, 0, SEEK_END);
  if (size > 0 && pread(fd, &last, 1, size - 1) != 1) last = '\n';
  const std::string text = absl::StrCat(last == '\n' ? "" : "\n", line, "\n");
  const bool written = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (close(fd) != 0 || !written) {
    return absl::DataLossError(absl::StrCat("can't write all of the line to ", path));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> RunToken(CommandContext& context) {
  TENSORD_ASSIGN_OR_RETURN(const absl::Time end, ParseEnd(context.flags.Get("expires", "")));
  const absl::StatusOr<int> weight = ParseWeight(context.flags.Get("weight", "1"));
  if (!weight.ok()) return UsageError(absl::StrCat("--weight: ", weight.status().message()));
  const std::string token = NewToken();
  const absl::StatusOr<std::string> line =
      TokenLine(context.flags.Get("NAME", ""), HashToken(token), end, *weight,
                context.flags.Has("admin"), context.flags.Get("limits", ""));
  if (!line.ok()) return UsageError(line.status().message());
  if (context.flags.Has("add")) {
    const std::string path = context.flags.Get("add", "");
    TENSORD_RETURN_IF_ERROR(AppendLine(path, *line));
    context.err << "added to " << path << ": " << *line << "\n";
    context.out << token << "\n";
  } else {
    context.out << "The token for the client. It is printed only once:\n\n"
                << token << "\n\nThe line for the server's --token-file:\n\n"
                << *line << "\n";
  }
  return 0;
}

}  // namespace

CommandSpec TokenCommand() {
  return {
      .name = "token",
      .summary = "makes a token, and its line for a server's token file",
      .description =
          "Makes a bearer token for NAME, prints it once, and prints the line for the server's "
          "token file, which contains only the token's hash. Several tokens may have the same "
          "name, so a new one can replace an old one without an interruption. A client with the "
          "token can access all sessions of NAME. A running server reads the file when it changes: "
          "to revoke a token, delete its line. This command contacts no server.",
      .flags =
          {{"expires", "WHEN",
            "when the token expires: in 30d or 12h, or at 2027-01-31T00:00:00Z; never by default"},
           {"weight", "N",
            "the share of a busy device that NAME gets, relative to the weights of other names: "
            "1, the default, to 1000; for all its tokens together"},
           {"limits", "LIMITS",
            "limits for NAME, separated by spaces, such as \"max-bytes=4GiB max-sessions=8\"; "
            "max-bytes replaces the server's flag --max-bytes-per-principal, and so on; a value "
            "of 0 means the same as in the flag; each limit applies to all tokens of NAME "
            "together"},
           {"admin", "",
            "a client with this token may list and close the sessions of all callers (tensorctl "
            "help sessions); other tokens of NAME may not"},
           {"add", "FILE", "append the line to this file, and print only the token"}},
      .operand = "NAME",
      .examples = {{"tensorctl token alice --expires 30d",
                    "Makes a token that expires in thirty days."},
                   {"tensorctl token alice --add tokens > alice.token",
                    "Writes the hash to tokens, for tensord --token-file, and the token to "
                    "alice.token, for "
                    "tensorctl --token-file."}},
      .run = RunToken,
  };
}

}  // namespace tensord::cli
