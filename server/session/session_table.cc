#include "tensord/server/session/session_table.h"

#include <sys/random.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tensord/common/status_details.h"
#include "tensord/common/util/status_macros.h"
#include "tensord/server/session/session_log.h"

namespace tensord::server {
namespace {

constexpr auto kReapInterval = std::chrono::milliseconds(500);
constexpr size_t kMaxClientNameBytes = 128;

// A session's id: the first digits of the epoch, this separator, and 128 random bits.
constexpr size_t kEpochDigits = 8;
constexpr char kEpochEnd = '-';

bool HasLowerNumber(const SessionRef& a, const SessionRef& b) { return a->number() < b->number(); }

}  // namespace

std::string RandomId() {
  unsigned char bytes[16];
  size_t filled = 0;
  while (filled < sizeof(bytes)) {
    const ssize_t n = getrandom(bytes + filled, sizeof(bytes) - filled, 0);
    if (n > 0) filled += n;
  }
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(bytes), sizeof(bytes)));
}

SessionTable::SessionTable(const Limits& limits, std::vector<DeviceSlot*> slots, LeaseClock clock)
    : limits_(limits),
      slots_(std::move(slots)),
      clock_(clock == nullptr ? &std::chrono::steady_clock::now : clock),
      tickets_(clock_) {
  if (clock == nullptr) reaper_ = std::thread([this] { RunReaper(); });
}

SessionTable::~SessionTable() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
  }
  wake_.SignalAll();
  if (reaper_.joinable()) reaper_.join();
  for (const SessionRef& session : All()) {
    session->principal()->budget(PrincipalLimit::kSessions).Return(1);
    End(*session, "ended with the server");
  }
}

absl::Status SessionTable::NoSuchSession(absl::string_view id) const {
  const absl::string_view epoch = id.substr(0, kEpochDigits);
  const bool is_session = id.size() == kEpochDigits + 1 + epoch_.size() &&
                          id[kEpochDigits] == kEpochEnd &&
                          id.find_first_not_of("0123456789abcdef-") == id.npos;
  if (is_session && epoch != epoch_.substr(0, kEpochDigits)) {
    return WithErrorInfo(
        absl::DataLossError(absl::StrCat(
            "the server has been started anew (epoch ", epoch_.substr(0, kEpochDigits),
            "), and the session of epoch ", epoch, " is lost with its tensors: call OpenSession")),
        "SERVER_RESTARTED", {{"epoch", epoch_}});
  }
  return WithErrorInfo(
      absl::NotFoundError("no such session; it was closed, or was idle for too long, or its lease "
                          "ran out (OpenSession makes a new one)"),
      "SESSION_NOT_FOUND");
}

absl::StatusOr<SessionRef> SessionTable::Open(const PrincipalRef& principal, int64_t lease_seconds,
                                              absl::string_view client_name) {
  absl::StatusOr<SessionRef> opened = Add(principal, lease_seconds, client_name);
  if (log_ == nullptr) return opened;
  if (opened.ok()) log_->Opened(**opened);
  if (!opened.ok() && principal != nullptr)
    log_->Refused(principal->unique_name(), opened.status());
  return opened;
}

absl::StatusOr<SessionRef> SessionTable::Add(const PrincipalRef& principal, int64_t lease_seconds,
                                             absl::string_view client_name) {
  if (principal == nullptr) {
    return absl::UnauthenticatedError("the call has no principal, so it can't open a session");
  }
  if (lease_seconds < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("lease_seconds is ", lease_seconds, "; 0 asks for the default"));
  }
  if (client_name.size() > kMaxClientNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("client_name has ", client_name.size(),
                                                   " bytes; at most ", kMaxClientNameBytes));
  }
  if (lease_seconds == 0) lease_seconds = limits_.default_lease_seconds;
  const std::chrono::seconds lease(std::min(lease_seconds, limits_.max_lease_seconds));
  MutexLock lock(&mu_);
  if (static_cast<int64_t>(sessions_.size()) >= limits_.max_sessions) {
    return principal->Refuse({.reason = "SERVER_SESSIONS_EXCEEDED",
                              .subject = "server",
                              .limit = "max-sessions",
                              .value = limits_.max_sessions,
                              .message = absl::StrCat("the server has ", sessions_.size(),
                                                      " sessions, its limit; try again later")});
  }
  Charge host(BudgetOf(principal, PrincipalLimit::kHostBytes));
  TENSORD_RETURN_IF_ERROR(host.Add(Session::HostBytesFor(slots_.size())));
  TENSORD_RETURN_IF_ERROR(principal->budget(PrincipalLimit::kSessions).Charge(1));
  auto session = std::make_shared<Session>(
      principal, std::move(host),
      absl::StrCat(epoch_.substr(0, kEpochDigits), std::string(1, kEpochEnd), RandomId()),
      ++counts_.opened, std::string(client_name), lease, limits_, slots_, clock_);
  sessions_.emplace(session->id(), session);
  return session;
}

absl::StatusOr<SessionUse> SessionTable::Use(const PrincipalRef& principal, absl::string_view id) {
  if (id.empty()) {
    return absl::InvalidArgumentError(
        "the request names no session; call OpenSession and use the id that it returns");
  }
  MutexLock lock(&mu_);
  const auto it = FindLocked(principal, id);
  if (it == sessions_.end()) return NoSuchSession(id);
  return SessionUse(it->second);
}

absl::StatusOr<int64_t> SessionTable::Close(const PrincipalRef& principal, absl::string_view id) {
  SessionRef session;
  {
    MutexLock lock(&mu_);
    const auto it = FindLocked(principal, id);
    if (it == sessions_.end()) return NoSuchSession(id);
    session = TakeOutLocked(it);
  }
  return End(*session, "closed");
}

absl::StatusOr<int64_t> SessionTable::Close(const PrincipalRef& principal, uint64_t number,
                                            bool is_admin) {
  SessionRef session;
  {
    MutexLock lock(&mu_);
    const auto it = std::find_if(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
      return entry.second->number() == number &&
             (is_admin || entry.second->principal() == principal);
    });
    if (it == sessions_.end()) {
      return WithErrorInfo(
          absl::NotFoundError(absl::StrCat("no session ", number,
                                           "; it has ended, never existed, or belongs to another "
                                           "caller: 'tensorctl sessions' (ListSessions) lists "
                                           "the sessions that you may close")),
          "SESSION_NOT_FOUND");
    }
    session = TakeOutLocked(it);
  }
  const bool is_own = session->principal() == principal;
  return End(*session, is_own ? "closed" : "closed by an administrator");
}

int64_t SessionTable::End(Session& session, absl::string_view how) {
  const int64_t freed = session.Close(WithErrorInfo(
      absl::NotFoundError(absl::StrCat("the session was ", how)), "SESSION_NOT_FOUND"));
  publications_.EndOf(session);
  tickets_.EndOf(session);
  if (log_ != nullptr) log_->Ended(session, how, freed);
  return freed;
}

void SessionTable::RemoveLocked(Sessions::iterator session) {
  session->second->principal()->budget(PrincipalLimit::kSessions).Return(1);
  sessions_.erase(session);
}

SessionRef SessionTable::TakeOutLocked(Sessions::iterator session) {
  const SessionRef taken = session->second;
  RemoveLocked(session);
  ++counts_.closed;
  return taken;
}

SessionTable::Sessions::iterator SessionTable::FindLocked(const PrincipalRef& principal,
                                                          absl::string_view id) {
  const auto it = sessions_.find(id);
  return it != sessions_.end() && it->second->principal() == principal ? it : sessions_.end();
}

std::vector<SessionRef> SessionTable::Of(const PrincipalRef& principal) const {
  std::vector<SessionRef> own = All();
  const auto foreign = [&](const SessionRef& session) { return session->principal() != principal; };
  own.erase(std::remove_if(own.begin(), own.end(), foreign), own.end());
  return own;
}

std::vector<SessionRef> SessionTable::All() const {
  std::vector<SessionRef> all;
  {
    MutexLock lock(&mu_);
    for (const auto& [id, session] : sessions_) all.push_back(session);
  }
  std::sort(all.begin(), all.end(), HasLowerNumber);
  return all;
}

SessionTable::Counts SessionTable::counts() const {
  MutexLock lock(&mu_);
  return counts_;
}

void SessionTable::RunReaper() {
  while (true) {
    {
      MutexLock lock(&mu_);
      if (!stopping_) wake_.WaitFor(&mu_, kReapInterval);
      if (stopping_) return;
    }
    EndExpired();
  }
}

void SessionTable::EndExpired() {
  const std::chrono::seconds max_idle(limits_.max_idle_seconds);
  std::vector<std::pair<SessionRef, bool>> ended;  // and whether the session was idle
  {
    MutexLock lock(&mu_);
    const auto now = clock_();
    for (const auto& [id, session] : sessions_) {
      const bool idle = max_idle.count() != 0 && session->TimeSinceActivity(now) > max_idle;
      if (idle || session->Expired(now)) ended.emplace_back(session, idle);
    }
    std::sort(ended.begin(), ended.end(),
              [](const auto& a, const auto& b) { return HasLowerNumber(a.first, b.first); });
    for (const auto& [session, idle] : ended) RemoveLocked(sessions_.find(session->id()));
    counts_.expired += static_cast<int64_t>(ended.size());
  }
  for (const auto& [session, idle] : ended) {
    End(*session, idle ? "closed because it was idle for too long" : "expired");
  }
  tickets_.EndExpired();
}

}  // namespace tensord::server
