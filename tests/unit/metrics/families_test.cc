#include "tensord/server/metrics/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tensord::server::metrics {
namespace {

const char* Word(Type type) {
  switch (type) {
    case Type::kCounter:
      return "counter";
    case Type::kGauge:
      return "gauge";
    case Type::kHistogram:
      return "histogram";
  }
  return "";
}

// Returns a row of the table in README.md.
std::string Row(const Family& family) {
  std::vector<std::string> labels;
  for (const absl::string_view label : family.labels) {
    if (!label.empty()) labels.push_back(absl::StrCat("`", label, "`"));
  }
  return absl::StrCat("| `", family.name, "` | ", Word(family.type), " | ",
                      absl::StrJoin(labels, " "), labels.empty() ? "| " : " | ", family.help, " |");
}

TEST(FamiliesTest, ReadmeHasTheSameTable) {
  std::ifstream file(TENSORD_METRICS_README);
  std::vector<std::string> documented;
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "| `tensord_") || absl::StartsWith(line, "| `process_")) {
      documented.push_back(line);
    }
  }
  std::vector<std::string> expected;
  for (const Family* family : kFamilies) expected.push_back(Row(*family));
  EXPECT_EQ(documented, expected) << "the table must be:\n" << absl::StrJoin(expected, "\n");
}

// https://prometheus.io/docs/practices/naming
TEST(FamiliesTest, NamesFollowPrometheusConventions) {
  for (const Family* family : kFamilies) {
    EXPECT_EQ(absl::EndsWith(family->name, "_total"), family->type == Type::kCounter)
        << family->name;
    EXPECT_THAT(std::string(family->name), testing::MatchesRegex("[a-z][a-z0-9_]*"));
    EXPECT_TRUE(absl::EndsWith(family->help, ".")) << family->name;
  }
}

}  // namespace
}  // namespace tensord::server::metrics
