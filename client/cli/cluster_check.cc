#include "tensord/client/cli/cluster_check.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tensord/client/cli/text.h"

namespace tensord::cli {

bool HasFeature(const ServerInfo& info, absl::string_view feature) {
  return std::find(info.features.begin(), info.features.end(), feature) != info.features.end();
}

namespace {

std::string NameOf(const CheckedServer& server) { return Printable(server.name); }

bool IsUnreachable(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsNotFound(status);
}

}  // namespace

std::string ReasonOf(const absl::Status& status) {
  std::string text = ConnectionFailure(status.message());
  while (!text.empty() && text.back() == '.') text.pop_back();
  return text;
}

std::string NamesOf(const ClusterCheck& check, absl::Span<const size_t> servers) {
  return absl::StrJoin(servers, ", ",
                       [&](std::string* out, size_t i) { out->append(NameOf(check.servers[i])); });
}

PairState StateOf(const ClusterCheck& check, const CheckedPair& pair) {
  const ServerInfo& from = check.servers[pair.from].info;
  const ServerInfo& to = check.servers[pair.to].info;
  if (absl::IsUnimplemented(pair.request_status)) return PairState::kTooOld;
  if (!pair.request_status.ok()) return PairState::kNoAnswer;
  if (!HasFeature(to, "peer-copy")) return PairState::kNoPeers;
  if (from.peer_address.empty()) return PairState::kNoAddress;
  const absl::Status& status = pair.check.status;
  const std::string& found = pair.check.server.epoch;
  if (!found.empty() && !from.epoch.empty() && found != from.epoch) return PairState::kWrongServer;
  if (status.ok() && !pair.copied.ok()) {
    return from.caller != to.caller ? PairState::kDifferentIdentities : PairState::kNotCopied;
  }
  if (status.ok()) return PairState::kOk;
  if (absl::IsUnauthenticated(status)) return PairState::kNotKnown;
  if (absl::IsPermissionDenied(status)) {
    // A server contacts only servers that it lists. So if `to` reached `from`, then `from` refused.
    const bool reached = !pair.check.server.version.empty() ||
                         absl::StrContains(status.message(), "--peer-principals");
    return reached ? PairState::kNotAPeer : PairState::kNotListed;
  }
  return IsUnreachable(status) ? PairState::kUnreachable : PairState::kOther;
}

const absl::Status& FailureOf(const CheckedPair& pair) {
  if (!pair.request_status.ok()) return pair.request_status;
  return pair.check.status.ok() ? pair.copied : pair.check.status;
}

namespace {

// The pairs with the same problem. The user solves it at one server.
struct PairGroup {
  PairState state;
  size_t where;              // the server to change
  std::vector<size_t> from;  // the sources of the pairs, each once
  std::vector<size_t> to;
  absl::Status status;               // of the first pair
  std::vector<std::string> callers;  // the identities of `to` at the server to change
};

template <typename Value>
void AddOnce(std::vector<Value>& list, const Value& value) {
  if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
}

std::vector<PairGroup> GroupPairs(const ClusterCheck& check) {
  std::map<std::pair<size_t, PairState>, PairGroup> groups;
  for (const CheckedPair& pair : check.pairs) {
    const PairState state = StateOf(check, pair);
    if (state == PairState::kOk || state == PairState::kNoAddress) continue;
    const bool at_source = state == PairState::kNotAPeer || state == PairState::kWrongServer ||
                           state == PairState::kUnreachable;
    const size_t where = at_source ? pair.from : pair.to;
    PairGroup& group =
        groups.try_emplace({where, state}, PairGroup{state, where, {}, {}, {}, {}}).first->second;
    AddOnce(group.from, pair.from);
    AddOnce(group.to, pair.to);
    const std::string& caller = pair.check.server.caller;
    if (!caller.empty()) AddOnce(group.callers, Printable(caller));
    if (group.status.ok()) group.status = FailureOf(pair);
  }
  std::vector<PairGroup> list;
  for (auto& [key, group] : groups) list.push_back(std::move(group));
  return list;
}

std::string Addresses(const ClusterCheck& check, const std::vector<size_t>& list) {
  return absl::StrJoin(list, ",", [&](std::string* out, size_t i) {
    const CheckedServer& server = check.servers[i];
    out->append(
        Printable(server.info.peer_address.empty() ? server.address : server.info.peer_address));
  });
}

// Returns whether the server requires a certificate, so that a token doesn't help.
bool WantsCertificate(const PairGroup& group) {
  return absl::StrContains(group.status.message(), "--tls-client-auth=require");
}

// Returns the flag of tensord to change, or "".
std::string FlagFor(const PairGroup& group) {
  switch (group.state) {
    case PairState::kNoPeers:
    case PairState::kNotListed:
      return "--peers";
    case PairState::kNotAPeer:
      return "--peer-principals";
    case PairState::kNotKnown:
      return WantsCertificate(group) ? "--peer-tls-cert" : "--peer-token-file";
    case PairState::kDifferentIdentities:
      return "--token-file";
    case PairState::kWrongServer:
    case PairState::kUnreachable:
      return "--advertise";
    default:
      return "";
  }
}

std::string AsName(const std::string& name) {
  return name.empty() ? "without a name" : absl::StrCat("as \"", Printable(name), "\"");
}

// Returns the sentence for a server that doesn't accept other servers as peers. `callers` are their
// identities at that server; empty if unknown.
std::string NotAPeerSentence(const std::string& name, const std::string& others,
                             const std::vector<std::string>& callers) {
  if (callers.empty()) {
    return absl::StrCat(name, " doesn't accept fetches from ", others,
                        ": add the name of its token, or of its certificate (such as dns:NAME), "
                        "to the --peer-principals of ",
                        name, ".");
  }
  return absl::StrCat(name, " doesn't accept fetches from ", others, ": add ",
                      absl::StrJoin(callers, ","), " to the --peer-principals of ", name, ".");
}

std::string SentenceFor(const ClusterCheck& check, const PairGroup& group) {
  const CheckedServer& server = check.servers[group.where];
  const std::string name = NameOf(server);
  const std::string at = Printable(server.info.peer_address);
  const std::string from = NamesOf(check, group.from);
  const std::string to = NamesOf(check, group.to);
  const std::string reason = ReasonOf(group.status);
  switch (group.state) {
    case PairState::kTooOld:
      return absl::StrCat(name, " is too old (tensord ", Printable(server.info.version),
                          "): it doesn't support other servers. Update tensord there.");
    case PairState::kNoPeers:
      return absl::StrCat(name, " fetches from no server: start it with --peers=",
                          Addresses(check, group.from), ".");
    case PairState::kNotListed:
      return absl::StrCat(name, " may not fetch from ", from, ": add ",
                          Addresses(check, group.from), " to its --peers.");
    case PairState::kNotAPeer:
      return NotAPeerSentence(name, to, group.callers);
    case PairState::kNotKnown:
      return absl::StrCat(
          name, " fails authentication at ", from, " (", reason, "): give ", name,
          WantsCertificate(group)
              ? absl::StrCat(" a certificate by --peer-tls-cert and --peer-tls-key that an "
                             "authority in the --tls-client-ca of ",
                             from, " has signed.")
              : " a token by --peer-token-file, or a certificate by --peer-tls-cert and "
                "--peer-tls-key.");
    case PairState::kWrongServer:
      return absl::StrCat(to, " finds another server at ", at, ", the address that ", name,
                          " advertises: start ", name,
                          " with --advertise=HOST:PORT, an address that the other servers reach.");
    case PairState::kUnreachable:
      return absl::StrCat(to, " can't reach ", name, " at ", at, " (", reason,
                          "): check that this is the right address (--advertise of ", name,
                          "), that the network allows the connection (firewall, network policy), "
                          "and that the authority in --peer-tls-ca of ",
                          to, " has signed the certificate of ", name, ".");
    case PairState::kDifferentIdentities:
      return absl::StrCat(name, " knows this client ", AsName(server.info.caller), ", and ", from,
                          " ", AsName(check.servers[group.from[0]].info.caller),
                          ", so tensors aren't copied directly. Give this client's token the "
                          "same name in the --token-file of both.");
    case PairState::kNotCopied:
      return absl::StrCat(name, " can't fetch a tensor from ", from, ": ", reason, ".");
    default:
      return absl::StrCat(name, " can't check whether it reaches ", from, ": ", reason, ".");
  }
}

Problem MissingProblem(const CheckedServer& server) {
  Problem problem = {.server = server.name, .missing = true};
  const std::string name = NameOf(server);
  const std::string reason = ReasonOf(server.status);
  if (absl::IsUnauthenticated(server.status) || absl::IsPermissionDenied(server.status)) {
    problem.flag = "--token-file";
    problem.sentence =
        absl::StrCat(name, " rejects this client's credentials (", reason,
                     "): give a token that is in the server's --token-file by "
                     "tensorctl --token-file, or a certificate by --tls-cert and --tls-key.");
  } else if (absl::StrContains(reason, "certificate verify failed")) {
    problem.flag = "--tls-cert";
    problem.sentence =
        absl::StrCat(name, " presents a certificate that tensorctl doesn't trust (", reason,
                     "): check that an authority in the --tls-ca of tensorctl has signed the "
                     "--tls-cert of the server.");
  } else if (absl::IsUnavailable(server.status)) {
    problem.flag = "--listen";
    problem.sentence =
        absl::StrCat(name, " can't be reached (", reason,
                     "): check that tensord runs there, that its --listen accepts connections "
                     "from this machine, and that either both ends use TLS or neither.");
  } else {
    problem.sentence = absl::StrCat(name, " can't be used: ", reason, ".");
  }
  return problem;
}

Problem SameServerProblem(const CheckedServer& server, const CheckedServer& first) {
  return {.server = server.name,
          .sentence = absl::StrCat(NameOf(server), " and ", NameOf(first),
                                   " are the same server: give it only once.")};
}

Problem NoAddressProblem(const CheckedServer& server) {
  return {.server = server.name,
          .flag = "--advertise",
          .sentence = absl::StrCat(NameOf(server),
                                   " has no address for other servers: start it with "
                                   "--advertise=HOST:PORT, or with a TCP address in --listen.")};
}

Problem WrongCountProblem(const ClusterCheck& check) {
  const size_t found = check.servers.size();
  const bool fewer = found < check.expected;
  return {.flag = "",
          .sentence = absl::StrCat(
              Printable(check.requested_addresses), " names ", found,
              found == 1 ? " server" : " servers", ", and ", check.expected, " are expected: ",
              fewer ? "check that each server runs and is ready (a name resolves only to servers "
                      "that are ready), and that the list is complete."
                    : "check whether one of them belongs to another cluster."),
          .missing = fewer};
}

}  // namespace

std::vector<Problem> FindProblems(const ClusterCheck& check) {
  const std::vector<PairGroup> groups = GroupPairs(check);
  std::vector<Problem> problems;
  if (check.expected > 0 && check.expected != check.servers.size()) {
    problems.push_back(WrongCountProblem(check));
  }
  for (size_t i = 0; i < check.servers.size(); ++i) {
    const CheckedServer& server = check.servers[i];
    if (!server.status.ok()) {
      problems.push_back(MissingProblem(server));
      continue;
    }
    const auto same = [&](const CheckedServer& other) {
      return other.status.ok() && !server.info.epoch.empty() &&
             other.info.epoch == server.info.epoch;
    };
    const auto first = std::find_if(check.servers.begin(), check.servers.begin() + i, same);
    if (first != check.servers.begin() + i) problems.push_back(SameServerProblem(server, *first));
    const auto is_too_old = [i](const PairGroup& group) {
      return group.where == i && group.state == PairState::kTooOld;
    };
    const bool too_old = std::any_of(groups.begin(), groups.end(), is_too_old);
    if (check.servers.size() > 1 && server.info.peer_address.empty() && !too_old) {
      problems.push_back(NoAddressProblem(server));
    }
    for (const PairGroup& group : groups) {
      if (group.where != i) continue;
      problems.push_back(
          {.server = server.name, .flag = FlagFor(group), .sentence = SentenceFor(check, group)});
    }
  }
  for (Problem& problem : FindGroupProblems(check)) problems.push_back(std::move(problem));
  return problems;
}

int CheckExitCode(absl::Span<const Problem> problems) {
  const auto missing = [](const Problem& problem) { return problem.missing; };
  if (std::any_of(problems.begin(), problems.end(), missing)) return 2;
  return problems.empty() ? 0 : 1;
}

}  // namespace tensord::cli
