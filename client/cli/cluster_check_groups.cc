// The problems of groups over several servers.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/client/cli/cluster_check.h"
#include "tensord/client/cli/text.h"

namespace tensord::cli {
namespace {

// The limit of pairs that are tested.
constexpr size_t kMaxGroupsOfTwo = 256;

constexpr char kFlag[] = "--collectives";

// Returns the server's own reason for the refusal, without the text before it.
std::string RefusalReason(const absl::Status& refusal) {
  const std::string reason = ReasonOf(refusal);
  constexpr absl::string_view kBefore = "takes no part in groups: ";
  const size_t at = reason.find(kBefore.data(), 0, kBefore.size());
  return at == std::string::npos ? reason : reason.substr(at + kBefore.size());
}

// Returns the problem of a server that takes no part in groups while other servers do.
Problem NoPartProblem(const ClusterCheck& check, size_t server) {
  const std::string name = Printable(check.servers[server].name);
  const absl::Status& why = check.group.refusals[server];
  return {
      .server = check.servers[server].name,
      .flag = kFlag,
      .sentence = absl::StrCat(name, " takes no part in groups (all_reduce and the like), as ",
                               NamesOf(check, check.group.members),
                               check.group.members.size() == 1 ? " does" : " do", " (",
                               RefusalReason(why), "): start it with ", kFlag,
                               "=ADDRESS, an address or interface of the network between them.")};
}

// Returns the problems of members that can't form pairs. Attributes the failures to as few members
// as possible: each time to the one with the most failures left.
std::vector<Problem> PairProblems(const ClusterCheck& check) {
  std::vector<CheckedGroupOfTwo> failed;
  for (const CheckedGroupOfTwo& group : check.group.groups_of_two) {
    if (!group.status.ok()) failed.push_back(group);
  }
  std::vector<Problem> problems;
  while (!failed.empty()) {
    const auto failures = [&](size_t server) {
      return std::count_if(failed.begin(), failed.end(), [&](const CheckedGroupOfTwo& group) {
        return group.one == server || group.other == server;
      });
    };
    const size_t worst =
        *std::max_element(check.group.members.begin(), check.group.members.end(),
                          [&](size_t a, size_t b) { return failures(a) < failures(b); });
    std::vector<size_t> others;
    absl::Status why;
    std::erase_if(failed, [&](const CheckedGroupOfTwo& group) {
      if (group.one != worst && group.other != worst) return false;
      others.push_back(group.one == worst ? group.other : group.one);
      if (why.ok()) why = group.status;
      return true;
    });
    std::sort(others.begin(), others.end());
    const std::string name = Printable(check.servers[worst].name);
    problems.push_back(
        {.server = check.servers[worst].name,
         .flag = kFlag,
         .sentence = absl::StrCat(
             name, " can't make a group with ", NamesOf(check, others), " (", ReasonOf(why),
             "): check that its ", kFlag,
             " is an address or interface of the network between them, and that the network allows "
             "TCP connections between them on all ports (firewall, network policy).")});
  }
  return problems;
}

}  // namespace

std::vector<CheckedGroupOfTwo> GroupsOfTwo(absl::Span<const size_t> members) {
  std::vector<CheckedGroupOfTwo> groups_of_two;
  for (size_t distance = 1; distance < members.size(); ++distance) {
    if (distance > 1 && groups_of_two.size() + members.size() > kMaxGroupsOfTwo) break;
    for (size_t i = 0; i + distance < members.size(); ++i) {
      groups_of_two.push_back({.one = members[i], .other = members[i + distance]});
    }
  }
  return groups_of_two;
}

std::vector<Problem> FindGroupProblems(const ClusterCheck& check) {
  const CheckedGroup& group = check.group;
  std::vector<Problem> problems;
  if (group.members.empty()) return problems;
  for (size_t i = 0; i < group.refusals.size(); ++i) {
    // A server that doesn't implement groups is too old. FindProblems reports that already.
    const absl::Status& refusal = group.refusals[i];
    if (!refusal.ok() && !absl::IsUnimplemented(refusal)) {
      problems.push_back(NoPartProblem(check, i));
    }
  }
  if (group.together.ok()) return problems;
  std::vector<Problem> pair_problems = PairProblems(check);
  for (Problem& problem : pair_problems) problems.push_back(std::move(problem));
  if (pair_problems.empty()) {
    problems.push_back(
        {.flag = kFlag,
         .sentence = absl::StrCat("No group can be made of ", NamesOf(check, group.members), ": ",
                                  ReasonOf(group.together), ".")});
  }
  return problems;
}

}  // namespace tensord::cli
