// Lists and closes sessions of a server. Opens no session itself, so it also works if the server
// has reached its limit of sessions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tensord/client/client.h"

namespace tensord::internal {

// An open session.
struct SessionInfo {
  uint64_t number = 0;
  std::string principal;    // "(anonymous)" if the caller isn't authenticated
  std::string client_name;  // ConnectOptions::client_name
  absl::Duration age;
  bool in_use = false;  // a call or a stream uses it; its lease doesn't run
  absl::Duration idle;  // since its last use; zero if in_use
  absl::Duration lease;
  int64_t handles = 0;
  int64_t ops_in_flight = 0;                              // accepted ops that wait or run
  std::vector<std::pair<std::string, int64_t>> memory{};  // device and bytes, if not 0
};

// A connection to a server. Each call blocks for at most ConnectOptions::connect_timeout. List()
// may block as long for each page.
class SessionAdmin {
 public:
  // If a file of the credentials can't be used, returns the error. Doesn't contact the server.
  static absl::StatusOr<std::unique_ptr<SessionAdmin>> Connect(const std::string& address,
                                                               const ConnectOptions& options);
  ~SessionAdmin();

  // Returns the sessions that the caller may see: its own, or all if its token is an
  // administrator's. If `principal` isn't empty, only those of this principal; if the caller may
  // not see them, returns PERMISSION_DENIED.
  absl::StatusOr<std::vector<SessionInfo>> List(const std::string& principal) const;

  // Closes a session. Returns the number of handles that the server has freed. If there is no such
  // session, or the caller may not close it, returns NOT_FOUND.
  absl::StatusOr<int64_t> Close(uint64_t number) const;

 private:
  struct Connection;
  explicit SessionAdmin(std::unique_ptr<Connection> connection);

  const std::unique_ptr<Connection> connection_;
};

}  // namespace tensord::internal
