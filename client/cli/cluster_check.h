// The findings of "cluster check", and the problems that follow from them. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/client/cli/terminal.h"
#include "tensord/client/client.h"
#include "tensord/client/copy_report.h"

namespace tensord::cli {

// A server and its answer to tensorctl.
struct CheckedServer {
  std::string name;     // "gpu-a"
  std::string address;  // "gpu-a:50051"
  absl::Status status;  // why it can't be used
  ServerInfo info;      // set if status is OK
  size_t devices = 0;
};

// The route of a tensor from one server to another, which fetches it. Both are indices into
// ClusterCheck::servers.
struct CheckedPair {
  size_t from = 0;
  size_t to = 0;
  absl::Status request_status;         // the status of the call that makes `to` check `from`
  PeerCheck check;                     // the result, if `request_status` is OK
  absl::Status copied;                 // if `check` is OK: why a tensor wasn't copied directly
  std::optional<CopyReport> measured;  // of a large tensor, if --measure is given
};

// A test group of two servers, with one device each. Both are indices into ClusterCheck::servers.
struct CheckedGroupOfTwo {
  size_t one = 0;
  size_t other = 0;
  absl::Status status;
};

// The test groups over the servers, with one device each.
struct CheckedGroup {
  // The servers that take part in groups. If there are fewer than two, no group is made.
  std::vector<size_t> members;
  absl::Status together;                         // the status of the group of all members
  std::vector<CheckedGroupOfTwo> groups_of_two;  // of pairs, if `together` failed
  // Entry i says why server i takes no part. It is OK if the server takes part.
  std::vector<absl::Status> refusals;
};

struct ClusterCheck {
  std::string requested_addresses;  // the addresses as given, "gpu-a:50051,gpu-b:50051"
  size_t expected = 0;              // how many servers there should be; 0 accepts any number
  std::vector<CheckedServer> servers;
  std::vector<CheckedPair> pairs;  // all ordered pairs of servers that could be used
  CheckedGroup group;
};

bool HasFeature(const ServerInfo& info, absl::string_view feature);

// States whether server `to` can fetch a tensor directly from server `from`, or why not. The text
// reports problems in this order.
enum class PairState {
  kOk,
  kTooOld,               // `to` has no CheckPeer call
  kNoPeers,              // `to` fetches from no server
  kNotListed,            // `to` doesn't fetch from `from`
  kNotAPeer,             // `from` doesn't accept `to` as a server
  kNotKnown,             // `from` can't authenticate `to`
  kWrongServer,          // another server answers at the address of `from`
  kUnreachable,          // no server answers at the address of `from`
  kNoAddress,            // `from` has no address for other servers
  kNoAnswer,             // `to` itself didn't answer tensorctl
  kDifferentIdentities,  // the client has different identities at the two servers
  kNotCopied,            // the check was fine, but a tensor wasn't copied directly
  kOther,
};
PairState StateOf(const ClusterCheck& check, const CheckedPair& pair);
// The error of a pair; OK for kOk.
const absl::Status& FailureOf(const CheckedPair& pair);

// A problem, and where to solve it.
struct Problem {
  std::string server;    // the server to change; empty if it is no particular one
  std::string flag;      // the flag of tensord to change, such as "--peers"; empty if there is none
  std::string sentence;  // the text for the user; names the server and the flag
  bool missing = false;  // the server can't be used at all
};

// Returns the problems in the order of the servers, one for each cause. It isn't a problem if no
// server takes part in groups.
std::vector<Problem> FindProblems(const ClusterCheck& check);
// Returns the problems of groups alone.
std::vector<Problem> FindGroupProblems(const ClusterCheck& check);

// Returns the pairs of members to test if a group of all can't be made. If there are too many
// pairs, returns a part of them that contains every member.
std::vector<CheckedGroupOfTwo> GroupsOfTwo(absl::Span<const size_t> members);

// "gpu-a, gpu-b".
std::string NamesOf(const ClusterCheck& check, absl::Span<const size_t> servers);
// Returns why a connection failed, without a full stop at the end.
std::string ReasonOf(const absl::Status& status);

// Returns 0 if there is no problem, 2 if a server is missing, otherwise 1.
int CheckExitCode(absl::Span<const Problem> problems);

// Returns tables of the servers and of the pairs, and the problems.
std::string CheckText(const ClusterCheck& check, absl::Span<const Problem> problems,
                      const Terminal& terminal);
std::string CheckJson(const ClusterCheck& check, absl::Span<const Problem> problems);

}  // namespace tensord::cli
