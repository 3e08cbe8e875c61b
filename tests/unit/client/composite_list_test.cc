// Compares the list of compositions with the headers and the page of client/composite.
#include "tensord/common/ops/composite_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tensord/client/tensord.h"

namespace tensord {
namespace {

constexpr char kFolder[] = TENSORD_SOURCE_DIR "/client/composite";

#define TENSORD_NAME(Function) #Function,
constexpr const char* kNames[] = {TENSORD_COMPOSITE_FUNCTIONS(TENSORD_NAME)};
#undef TENSORD_NAME

std::string Content(const std::filesystem::path& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Returns the names of the functions that the headers of client/composite declare.
std::set<std::string> DeclaredFunctions() {
  const std::regex declaration(R"(\n[A-Za-z][\w:<>]* (\w+)\()");
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() != ".h") continue;
    const std::string header = Content(entry.path());
    for (std::sregex_iterator match(header.begin(), header.end(), declaration), end; match != end;
         ++match) {
      names.insert((*match)[1]);
    }
  }
  return names;
}

TEST(CompositeList, NamesTheFunctionsOfTheHeaders) {
#define TENSORD_CHECK(Function) \
  { using tensord::Function; }
  TENSORD_COMPOSITE_FUNCTIONS(TENSORD_CHECK)
#undef TENSORD_CHECK
  EXPECT_EQ(std::set<std::string>(std::begin(kNames), std::end(kNames)), DeclaredFunctions());
}

TEST(CompositeList, ThePageDefinesEveryFunction) {
  const std::string page = Content(absl::StrCat(kFolder, "/README.md"));
  for (const char* name : kNames)
    EXPECT_THAT(page, testing::HasSubstr(absl::StrCat("`", name, "(")));
}

}  // namespace
}  // namespace tensord
