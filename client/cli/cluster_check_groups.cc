// What is wrong with groups over several servers.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensord/client/cli/cluster_check.h"
#include "tensord/client/cli/text.h"

namespace tensord::cli {
namespace {

// Groups of two that are tried, at most.
constexpr size_t kMaxMeetings = 256;

constexpr char kFlag[] = "--collectives";

// What a server says of itself in such an error, without what stands before it.
std::string WhyNoPart(const absl::Status& refusal) {
  const std::string reason = ReasonOf(refusal);
  constexpr absl::string_view kBefore = "takes no part in groups: ";
  const size_t at = reason.find(kBefore.data(), 0, kBefore.size());
  return at == std::string::npos ? reason : reason.substr(at + kBefore.size());
}

// Where others take part, that is.
Problem TakesNoPart(const ClusterCheck& check, size_t server) {
  const std::string name = Printable(check.servers[server].name);
  const absl::Status& why = check.group.refusals[server];
  return {
      .server = check.servers[server].name,
      .flag = kFlag,
      .sentence = absl::StrCat(name, " takes no part in groups (all_reduce and the like), as ",
                               NamesOf(check, check.group.members),
                               check.group.members.size() == 1 ? " does" : " do", " (",
                               WhyNoPart(why), "): start it with ", kFlag,
                               "=ADDRESS, an address or interface of the network between them.")};
}

// The members that don't meet, by the one that fails most: what is wrong with it is told once.
std::vector<Problem> Apart(const ClusterCheck& check) {
  std::vector<CheckedMeeting> failed;
  for (const CheckedMeeting& meeting : check.group.meetings) {
    if (!meeting.status.ok()) failed.push_back(meeting);
  }
  std::vector<Problem> problems;
  while (!failed.empty()) {
    const auto failures = [&](size_t server) {
      return std::count_if(failed.begin(), failed.end(), [&](const CheckedMeeting& meeting) {
        return meeting.one == server || meeting.other == server;
      });
    };
    const size_t worst =
        *std::max_element(check.group.members.begin(), check.group.members.end(),
                          [&](size_t a, size_t b) { return failures(a) < failures(b); });
    std::vector<size_t> others;
    absl::Status why;
    std::erase_if(failed, [&](const CheckedMeeting& meeting) {
      if (meeting.one != worst && meeting.other != worst) return false;
      others.push_back(meeting.one == worst ? meeting.other : meeting.one);
      if (why.ok()) why = meeting.status;
      return true;
    });
    std::sort(others.begin(), others.end());
    const std::string name = Printable(check.servers[worst].name);
    problems.push_back(
        {.server = check.servers[worst].name,
         .flag = kFlag,
         .sentence = absl::StrCat(
             name, " can't make a group with ", NamesOf(check, others), " (", ReasonOf(why),
             "): is its ", kFlag,
             " an address or interface of the network that they are on, and "
             "is the way between them open (firewall, network policy) for any TCP port?")});
  }
  return problems;
}

}  // namespace

std::vector<CheckedMeeting> MeetingsOf(absl::Span<const size_t> members) {
  std::vector<CheckedMeeting> meetings;
  for (size_t distance = 1; distance < members.size(); ++distance) {
    if (distance > 1 && meetings.size() + members.size() > kMaxMeetings) break;
    for (size_t i = 0; i + distance < members.size(); ++i) {
      meetings.push_back({.one = members[i], .other = members[i + distance]});
    }
  }
  return meetings;
}

std::vector<Problem> FindGroupProblems(const ClusterCheck& check) {
  const CheckedGroup& group = check.group;
  std::vector<Problem> problems;
  if (group.members.empty()) return problems;
  for (size_t i = 0; i < group.refusals.size(); ++i) {
    // Who doesn't know what a group is, is too old for other things as well.
    const absl::Status& refusal = group.refusals[i];
    if (!refusal.ok() && !absl::IsUnimplemented(refusal)) {
      problems.push_back(TakesNoPart(check, i));
    }
  }
  if (group.together.ok()) return problems;
  std::vector<Problem> apart = Apart(check);
  for (Problem& problem : apart) problems.push_back(std::move(problem));
  if (apart.empty()) {
    problems.push_back(
        {.flag = kFlag,
         .sentence = absl::StrCat("No group can be made of ", NamesOf(check, group.members), ": ",
                                  ReasonOf(group.together), ".")});
  }
  return problems;
}

}  // namespace tensord::cli
