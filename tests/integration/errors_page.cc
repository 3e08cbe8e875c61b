#include "tensord/tests/integration/errors_page.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tensord/client/cli/text.h"
#include "tensord/common/util/utf8.h"

namespace tensord::integration {
namespace {

struct Pattern {
  const char* pattern;
  const char* replacement;
};

// Parts that depend on the machine, on gRPC's version or on earlier rows.
constexpr Pattern kPatterns[] = {
    {R"(handle=\d+)", "handle=N"},
    {R"(\btensor \d+ \()", "tensor N ("},
    {R"(\(tensor \d+\))", "(tensor N)"},
    {R"(\btensor \d+ was donated)", "tensor N was donated"},
    {R"(\(tensor \d+, )", "(tensor N, "},
    {R"(\bepoch [0-9a-f]+)", "epoch ID"},
    {R"(127\.0\.0\.1:\d+)", "127.0.0.1:PORT"},
    {R"(can't be resolved \([^)]*\))", "can't be resolved (…)"},
    {R"(lost the connection to the tensord server at ([^ ]+): (?!the server)[^;]*)",
     "lost the connection to the tensord server at $1: …"},
    {R"(failed to connect to all addresses.*)", "…"},
    {R"(\(error:[^)]*\))", "(error:…)"},
    {R"(needs \d+ bytes; the caller holds \d+ bytes)", "needs N bytes; the caller holds N bytes"}};

constexpr int kMaxColumns = 120;

bool IsOneLine(absl::string_view text) {
  return ToUtf8(text, text.size()) == text &&
         std::none_of(text.begin(), text.end(),
                      [](unsigned char c) { return absl::ascii_iscntrl(c); });
}

// Returns text as code in a cell of a table.
std::string CodeCell(absl::string_view text) {
  return absl::StrCat("`", absl::StrReplaceAll(text, {{"|", "\\|"}}), "`");
}

}  // namespace

std::string CodeText(absl::string_view expression) {
  std::string text = std::regex_replace(std::string(expression), std::regex(R"(([({]) )"), "$1");
  return CodeCell(text);
}

void ErrorsPage::Replace(const std::string& text, const std::string& placeholder) {
  replacements_.insert(replacements_.begin(), {text, placeholder});
}

std::string ErrorsPage::WithPlaceholders(std::string message) const {
  for (const auto& [text, placeholder] : replacements_) {
    message = absl::StrReplaceAll(message, {{text, placeholder}});
  }
  for (const auto& [pattern, replacement] : kPatterns) {
    message = std::regex_replace(message, std::regex(pattern), replacement);
  }
  return message;
}

void ErrorsPage::BeginSection(absl::string_view title, absl::string_view introduction,
                              absl::string_view columns) {
  absl::StrAppend(&text_, "\n## ", title, "\n\n",
                  absl::StrJoin(cli::Wrap(introduction, kMaxColumns), "\n"), "\n\n", columns,
                  "\n|---|---|---|\n");
}

void ErrorsPage::AddRow(absl::string_view cause, absl::string_view code, std::string message) {
  EXPECT_NE(code, "OK") << cause << " gives no error";
  EXPECT_FALSE(message.empty()) << cause;
  EXPECT_TRUE(IsOneLine(message)) << cause << ": " << message;
  absl::StrAppend(&text_, "| ", WithPlaceholders(std::string(cause)), " | ", code, " | ",
                  CodeCell(WithPlaceholders(std::move(message))), " |\n");
}

std::unique_ptr<DaemonProcess> StartDaemon(ErrorsPage* page, const std::string& name,
                                           std::vector<std::string> flags) {
  flags.push_back("--devices=cpu=1GiB,cpu=64MiB");
  auto daemon = DaemonProcess::Start(flags);
  EXPECT_TRUE(daemon.ok()) << daemon.status();
  if (!daemon.ok()) return nullptr;
  page->Replace((*daemon)->address(), name + ":50051");
  page->Replace((*daemon)->address() + "/", name + "/");  // the name of a cluster's server
  return *std::move(daemon);
}

}  // namespace tensord::integration
