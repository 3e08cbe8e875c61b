#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tensord/client/cli/cluster_check.h"
#include "tensord/client/cli/table.h"
#include "tensord/client/cli/text.h"

namespace tensord::cli {
namespace {

// The limit of pairs in a list. A longer list isn't printed.
constexpr size_t kMaxListedPairs = 90;

using Json = nlohmann::ordered_json;

std::string Word(PairState state) {
  switch (state) {
    case PairState::kOk:
      return "ok";
    case PairState::kTooOld:
      return "too old";
    case PairState::kNoPeers:
      return "no --peers";
    case PairState::kNotListed:
      return "not listed";
    case PairState::kNotAPeer:
      return "not a peer";
    case PairState::kNotKnown:
      return "not known";
    case PairState::kWrongServer:
      return "elsewhere";
    case PairState::kUnreachable:
      return "unreachable";
    case PairState::kNoAddress:
      return "no address";
    case PairState::kNoAnswer:
      return "no answer";
    case PairState::kDifferentIdentities:
      return "two names";
    case PairState::kNotCopied:
      return "not copied";
    case PairState::kOther:
      break;
  }
  return "error";
}

Table ServerTable(const ClusterCheck& check, const Terminal& terminal) {
  Table table({{"server"},
               {"version"},
               {"devices", Align::kRight},
               {"peer address", Align::kLeft, 20},
               {"fetches"},
               {"collectives"}},
              Frame::kNone);
  const auto yes_or_no = [](bool yes) { return yes ? "yes" : "no"; };
  for (const CheckedServer& server : check.servers) {
    const std::string name = terminal.Paint(Style::kBold, Printable(server.name));
    if (!server.status.ok()) {
      table.AddRow({name, terminal.Paint(Style::kRed, "missing")});
      continue;
    }
    table.AddRow({name, Printable(server.info.version), absl::StrCat(server.devices),
                  Printable(server.info.peer_address),
                  yes_or_no(HasFeature(server.info, "peer-copy")),
                  yes_or_no(HasFeature(server.info, "collectives"))});
  }
  return table;
}

// Returns ", 2.4 GiB/s by network", or "" if the pair wasn't measured.
std::string RateOf(const CheckedPair& pair) {
  if (!pair.measured.has_value()) return "";
  const auto rate = static_cast<int64_t>(pair.measured->bytes_per_second());
  return absl::StrCat(", ", FormatBytes(rate), "/s by ", CopyPathName(pair.measured->path));
}

std::string PairCell(const ClusterCheck& check, const CheckedPair& pair, const Terminal& terminal) {
  const PairState state = StateOf(check, pair);
  return state == PairState::kOk ? absl::StrCat(FormatElapsed(pair.check.round_trip), RateOf(pair))
                                 : terminal.Paint(Style::kRed, Word(state));
}

Json MeasuredJson(const CopyReport& report) {
  return {{"path", CopyPathName(report.path)},
          {"bytes", report.bytes},
          {"connections", report.connections},
          {"transfer_seconds", absl::ToDoubleSeconds(report.transfer_time)},
          {"total_seconds", absl::ToDoubleSeconds(report.total_time)},
          {"bytes_per_second", report.bytes_per_second()}};
}

// Returns the pairs as a matrix: a row per source server, a column per destination server.
Table PairTable(const ClusterCheck& check, const Terminal& terminal) {
  std::vector<Column> columns = {{"from \\ to"}};
  std::vector<std::vector<std::string>> rows;
  for (const CheckedServer& server : check.servers) {
    columns.push_back({Printable(server.name), Align::kRight});
    rows.push_back({terminal.Paint(Style::kBold, Printable(server.name))});
    rows.back().resize(check.servers.size() + 1);
  }
  for (size_t i = 0; i < rows.size(); ++i) rows[i][i + 1] = "·";
  for (const CheckedPair& pair : check.pairs) {
    rows[pair.from][pair.to + 1] = PairCell(check, pair, terminal);
  }
  Table table(std::move(columns), Frame::kNone);
  for (std::vector<std::string>& row : rows) table.AddRow(std::move(row));
  return table;
}

// Returns the pairs as a list: a row per pair.
Table PairList(const ClusterCheck& check, const Terminal& terminal) {
  Table table({{"from"}, {"to"}, {""}}, Frame::kNone);
  for (const CheckedPair& pair : check.pairs) {
    table.AddRow({Printable(check.servers[pair.from].name), Printable(check.servers[pair.to].name),
                  PairCell(check, pair, terminal)});
  }
  return table;
}

std::string Summary(const ClusterCheck& check) {
  const size_t fine = std::count_if(
      check.pairs.begin(), check.pairs.end(),
      [&](const CheckedPair& pair) { return StateOf(check, pair) == PairState::kOk; });
  const size_t servers = check.servers.size();
  const size_t usable =
      std::count_if(check.servers.begin(), check.servers.end(),
                    [](const CheckedServer& server) { return server.status.ok(); });
  return absl::StrCat(usable, " of ", servers, servers == 1 ? " server" : " servers",
                      " can be used; ", fine, " of ", servers * (servers - 1),
                      " routes between them work.\n");
}

// Returns a sentence about groups. It isn't a problem if no server takes part in groups.
std::string GroupNote(const ClusterCheck& check) {
  const size_t members = check.group.members.size();
  const bool any_usable =
      std::any_of(check.servers.begin(), check.servers.end(),
                  [](const CheckedServer& server) { return server.status.ok(); });
  if (!any_usable) return "";
  if (members == 0) {
    return "No server takes part in groups (all_reduce and the like): none has --collectives.";
  }
  if (members < 2 || !check.group.together.ok()) return "";
  return absl::StrCat("A group of ", members,
                      " devices, one on each server, was created and passed a barrier.");
}

Json GroupJson(const ClusterCheck& check) {
  Json members = Json::array();
  for (size_t member : check.group.members) members.push_back(check.servers[member].name);
  const bool made = members.size() > 1;
  return {{"members", members},
          {"state", !made                       ? "not tried"
                    : check.group.together.ok() ? "ok"
                                                : "failed"},
          {"message", std::string(check.group.together.message())}};
}

}  // namespace

std::string CheckText(const ClusterCheck& check, absl::Span<const Problem> problems,
                      const Terminal& terminal) {
  std::string text = ServerTable(check, terminal).Render(terminal);
  const Table pairs = PairTable(check, terminal);
  if (!check.pairs.empty()) {
    const bool fits = pairs.NaturalWidth() <= terminal.width;
    if (fits || check.pairs.size() <= kMaxListedPairs) {
      absl::StrAppend(&text, "\n", (fits ? pairs : PairList(check, terminal)).Render(terminal));
    } else {
      absl::StrAppend(&text, "\nThe table of routes is too wide for this terminal; use --json.\n");
    }
  }
  absl::StrAppend(&text, "\n", Summary(check));
  if (const std::string note = GroupNote(check); !note.empty()) {
    absl::StrAppend(&text, absl::StrJoin(Wrap(note, terminal.width), "\n"), "\n");
  }
  for (const Problem& problem : problems) {
    for (const std::string& line : Wrap(problem.sentence, terminal.width)) {
      absl::StrAppend(&text, terminal.Paint(Style::kRed, line), "\n");
    }
  }
  return text;
}

std::string CheckJson(const ClusterCheck& check, absl::Span<const Problem> problems) {
  Json servers = Json::array();
  for (const CheckedServer& server : check.servers) {
    servers.push_back({{"name", server.name},
                       {"server", server.address},
                       {"missing", !server.status.ok()},
                       {"missing_reason", std::string(server.status.message())},
                       {"version", server.info.version},
                       {"peer_address", server.info.peer_address},
                       {"caller", server.info.caller},
                       {"features", server.info.features},
                       {"devices", server.devices}});
  }
  Json pairs = Json::array();
  for (const CheckedPair& pair : check.pairs) {
    const PairState state = StateOf(check, pair);
    pairs.push_back({{"from", check.servers[pair.from].name},
                     {"to", check.servers[pair.to].name},
                     {"state", Word(state)},
                     {"message", std::string(FailureOf(pair).message())},
                     {"round_trip_seconds", absl::ToDoubleSeconds(pair.check.round_trip)}});
    if (pair.measured.has_value()) pairs.back()["measured"] = MeasuredJson(*pair.measured);
  }
  Json wrong = Json::array();
  for (const Problem& problem : problems) {
    wrong.push_back(
        {{"server", problem.server}, {"flag", problem.flag}, {"message", problem.sentence}});
  }
  const Json json = {{"good", problems.empty()},
                     {"servers", servers},
                     {"pairs", pairs},
                     {"group", GroupJson(check)},
                     {"problems", wrong}};
  // Replaces invalid UTF-8, for which the library would throw.
  return absl::StrCat(json.dump(2, ' ', false, Json::error_handler_t::replace), "\n");
}

}  // namespace tensord::cli
