#include "tensord/server/session/session_log.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace tensord::server {
namespace {

constexpr size_t kMaxShownName = 160;
constexpr size_t kMaxShownMessage = 600;  // most messages of the server are shorter

std::string EscapeForLog(absl::string_view text, size_t max_bytes = kMaxShownName) {
  return absl::StrCat(absl::CHexEscape(text.substr(0, max_bytes)),
                      text.size() > max_bytes ? "…" : "");
}

// Leaves quotes unescaped, because the server's own messages quote names. Use it only at the end of
// a line.
std::string EscapeMessageForLog(absl::string_view text) {
  return absl::StrReplaceAll(EscapeForLog(text, kMaxShownMessage),
                             {{"\\\\", "\\\\"}, {"\\\"", "\""}, {"\\'", "'"}});
}

absl::string_view KindWord(Principal::Kind kind) {
  switch (kind) {
    case Principal::Kind::kToken:
      return " by a token";
    case Principal::Kind::kCertificate:
      return " by a certificate";
    case Principal::Kind::kAnonymous:
      break;
  }
  return "";
}

std::string SessionAndOwner(const Session& session) {
  const Principal& principal = *session.principal();
  return absl::StrCat("session ", session.number(), " of ", EscapeForLog(principal.unique_name()),
                      KindWord(principal.kind()));
}

}  // namespace

SessionLog::SessionLog(std::function<void(absl::string_view)> write, LeaseClock clock)
    : write_(std::move(write)), clock_(clock), counted_at_(clock()) {}

void SessionLog::Opened(const Session& session) {
  Write(absl::StrCat(SessionAndOwner(session), " opened by \"", EscapeForLog(session.client_name()),
                     "\", lease ", session.lease().count(), " s"));
}

void SessionLog::Ended(const Session& session, absl::string_view how, int64_t tensors_freed) {
  Write(absl::StrCat(SessionAndOwner(session), " ", how, ", ", tensors_freed,
                     tensors_freed == 1 ? " tensor" : " tensors", " freed"));
}

void SessionLog::Refused(absl::string_view caller, const absl::Status& why) {
  Write(absl::StrCat("refused ", EscapeForLog(caller), ": ", EscapeMessageForLog(why.message())));
}

void SessionLog::Write(const std::string& text) {
  MutexLock lock(&mu_);
  const auto now = clock_();
  const double seconds = std::chrono::duration<double>(now - counted_at_).count();
  allowed_ = std::min<double>(allowed_ + seconds * kLinesPerSecond, kMaxAtOnce);
  counted_at_ = now;
  if (allowed_ < 1) {
    ++left_out_;
    return;
  }
  allowed_ -= 1;
  const int64_t left_out = std::exchange(left_out_, 0);
  if (left_out > 0) write_(absl::StrCat(left_out, " lines about sessions left out"));
  write_(text);
}

}  // namespace tensord::server
