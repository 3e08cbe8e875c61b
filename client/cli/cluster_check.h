// What servers have said about themselves and about each other, and what is wrong with that. Pure
// functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensord/client/cli/terminal.h"
#include "tensord/client/client.h"

namespace tensord::cli {

// A server, as it answered us.
struct CheckedServer {
  std::string name;     // "gpu-a"
  std::string address;  // "gpu-a:50051"
  absl::Status status;  // why it couldn't be used
  ServerInfo info;      // where it could
  size_t devices = 0;
};

// What server `from` says of fetching from server `to`; both by their place among the servers.
struct CheckedPair {
  size_t from = 0;
  size_t to = 0;
  absl::Status asked;  // whether `from` has answered at all
  PeerCheck check;     // where it has
};

struct ClusterCheck {
  std::vector<CheckedServer> servers;
  std::vector<CheckedPair> pairs;  // of those that could be used, each with each other one
};

bool HasFeature(const ServerInfo& info, absl::string_view feature);

// Whether a server can fetch from another, or why not, in the order in which it is told.
enum class PairState {
  kFine,
  kTooOld,       // `from` doesn't know the question
  kNoPeers,      // `from` fetches from nobody
  kNotListed,    // `from` doesn't fetch from `to`
  kNotAPeer,     // `to` doesn't take `from` for a server
  kNotKnown,     // `to` doesn't know who `from` is
  kElsewhere,    // another server answers at the address of `to`
  kUnreachable,  // nobody does
  kNoAddress,    // `to` doesn't say where it is found
  kNoAnswer,     // `from` itself didn't answer
  kOther,
};
PairState StateOf(const ClusterCheck& check, const CheckedPair& pair);

// Something that is wrong, and where to mend it.
struct Problem {
  std::string server;    // where
  std::string flag;      // of tensord there, such as "--peers"; empty where it isn't one
  std::string sentence;  // for people; names both
  bool missing = false;  // the server couldn't be used at all
};

// In the order of the servers; what has one cause is one problem. Empty where all is well.
std::vector<Problem> FindProblems(const ClusterCheck& check);

// 0 where all is well, 1 where something is wrong between servers that are there, 2 where one is
// missing.
int CheckExitCode(absl::Span<const Problem> problems);

// A table of the servers, who reaches whom, and the problems.
std::string CheckText(const ClusterCheck& check, absl::Span<const Problem> problems,
                      const Terminal& terminal);
std::string CheckJson(const ClusterCheck& check, absl::Span<const Problem> problems);

}  // namespace tensord::cli
