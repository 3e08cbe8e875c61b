// Checks what the client's public headers include and name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace tensord {
namespace {

namespace fs = std::filesystem;

std::string ReadFile(const fs::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Returns the names of all headers that `text` includes.
std::vector<std::string> Includes(const std::string& text) {
  static const std::regex kInclude("#[ \t]*include[ \t]*[<\"]([^>\"]+)[>\"]");
  std::vector<std::string> names;
  for (std::sregex_iterator it(text.begin(), text.end(), kInclude), end; it != end; ++it) {
    names.push_back((*it)[1]);
  }
  return names;
}

// Returns the names of the public headers and of the project's headers that they include.
std::set<std::string> PublicHeaders() {
  const fs::path root = TENSORD_SOURCE_DIR;
  std::vector<std::string> pending;
  for (const fs::directory_entry& entry : fs::directory_iterator(root / "client")) {
    if (entry.path().extension() == ".h") {
      pending.push_back("tensord/client/" + entry.path().filename().string());
    }
  }
  std::set<std::string> seen;
  while (!pending.empty()) {
    const std::string name = pending.back();
    pending.pop_back();
    if (!seen.insert(name).second) continue;
    for (const std::string& include : Includes(ReadFile(root / name.substr(8)))) {
      if (include.rfind("tensord/", 0) == 0) pending.push_back(include);
    }
  }
  return seen;
}

TEST(HeaderHygieneTest, TheUmbrellaIncludesEveryPublicHeader) {
  const fs::path client = fs::path(TENSORD_SOURCE_DIR) / "client";
  std::vector<std::string> included = Includes(ReadFile(client / "tensord.h"));
  // nn.h includes the headers of nn/.
  for (const std::string& name : Includes(ReadFile(client / "nn.h"))) included.push_back(name);
  for (const std::string& name : PublicHeaders()) {
    if (name.rfind("tensord/client/", 0) != 0 || name == "tensord/client/tensord.h") continue;
    EXPECT_THAT(included, testing::Contains(name));
  }
}

TEST(HeaderHygieneTest, NoPublicHeaderIncludesGrpcOrGeneratedCode) {
  const std::set<std::string> headers = PublicHeaders();
  ASSERT_THAT(headers, testing::Contains("tensord/client/tensor.h"));
  const std::regex forbidden("grpc|google/protobuf|\\.pb\\.h|/internal/|nlohmann|tensord/server");
  for (const std::string& name : headers) {
    for (const std::string& include :
         Includes(ReadFile(fs::path(TENSORD_SOURCE_DIR) / name.substr(8)))) {
      EXPECT_FALSE(std::regex_search(include, forbidden)) << name << " includes " << include;
    }
  }
}

TEST(HeaderHygieneTest, NoPublicHeaderNamesAForeignType) {
  const std::regex foreign("grpc::|google::|\\bv1::|nlohmann::");
  for (const std::string& name : PublicHeaders()) {
    const std::string text = ReadFile(fs::path(TENSORD_SOURCE_DIR) / name.substr(8));
    EXPECT_FALSE(std::regex_search(text, foreign)) << name;
  }
}

}  // namespace
}  // namespace tensord
