// What servers have said about themselves and about each other, and what is wrong with that. Pure
// functions.
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

// A server, as it answered us.
struct CheckedServer {
  std::string name;     // "gpu-a"
  std::string address;  // "gpu-a:50051"
  absl::Status status;  // why it couldn't be used
  ServerInfo info;      // where it could
  size_t devices = 0;
};

// The way of a tensor from one server to another, which fetches it; both by their place among the
// servers.
struct CheckedPair {
  size_t from = 0;
  size_t to = 0;
  absl::Status asked;   // whether `to` has answered at all what it finds at `from`
  PeerCheck check;      // where it has
  absl::Status copied;  // where that was well: of a tensor that was copied, why not directly
  std::optional<CopyReport> measured;  // and of a large one, where that was asked for
};

// Two servers that were to make a group of a device of each.
struct CheckedMeeting {
  size_t one = 0;
  size_t other = 0;
  absl::Status status;
};

// What became of groups over the servers, a device of each.
struct CheckedGroup {
  // Those that take part in groups; where there are fewer than two no group is made.
  std::vector<size_t> members;
  absl::Status together;                 // of a group of all of them, and a barrier
  std::vector<CheckedMeeting> meetings;  // by twos, where that failed
  // Why the servers that take no part don't, by their place; OK of the others.
  std::vector<absl::Status> refusals;
};

struct ClusterCheck {
  std::string asked_for;  // as it was given, "gpu-a:50051,gpu-b:50051"
  size_t expected = 0;    // how many servers there should be; 0: any number
  std::vector<CheckedServer> servers;
  std::vector<CheckedPair> pairs;  // of those that could be used, each with each other one
  CheckedGroup group;
};

bool HasFeature(const ServerInfo& info, absl::string_view feature);

// Whether a tensor gets directly from a server to another, or why not, in the order in which it is
// told.
enum class PairState {
  kFine,
  kTooOld,       // `to` doesn't know the question
  kNoPeers,      // `to` fetches from nobody
  kNotListed,    // `to` doesn't fetch from `from`
  kNotAPeer,     // `from` doesn't take `to` for a server
  kNotKnown,     // `from` doesn't know who `to` is
  kElsewhere,    // another server answers at the address of `from`
  kUnreachable,  // nobody does
  kNoAddress,    // `from` doesn't say where it is found
  kNoAnswer,     // `to` itself didn't answer
  kTwoNames,     // the two know us by different names
  kNotCopied,    // all that was well, and yet a tensor didn't get there
  kOther,
};
PairState StateOf(const ClusterCheck& check, const CheckedPair& pair);
// What it went wrong with; OK where it is fine.
const absl::Status& FailureOf(const CheckedPair& pair);

// Something that is wrong, and where to mend it.
struct Problem {
  std::string server;    // where; empty where it is none in particular
  std::string flag;      // of tensord there, such as "--peers"; empty where it isn't one
  std::string sentence;  // for people; names both
  bool missing = false;  // the server couldn't be used at all
};

// In the order of the servers; what has one cause is one problem. Empty where all is well. A
// cluster without any server that takes part in groups needs none.
std::vector<Problem> FindProblems(const ClusterCheck& check);
// Those of groups alone.
std::vector<Problem> FindGroupProblems(const ClusterCheck& check);

// The pairs of members to try where a group of all can't be made: each with each, or of many each
// with some of those behind it.
std::vector<CheckedMeeting> MeetingsOf(absl::Span<const size_t> members);

// "gpu-a, gpu-b".
std::string NamesOf(const ClusterCheck& check, absl::Span<const size_t> servers);
// What a connection failed for, as part of a sentence.
std::string ReasonOf(const absl::Status& status);

// 0 where all is well, 1 where something is wrong with servers that are there, 2 where one is
// missing.
int CheckExitCode(absl::Span<const Problem> problems);

// A table of the servers, who reaches whom, and the problems.
std::string CheckText(const ClusterCheck& check, absl::Span<const Problem> problems,
                      const Terminal& terminal);
std::string CheckJson(const ClusterCheck& check, absl::Span<const Problem> problems);

}  // namespace tensord::cli
