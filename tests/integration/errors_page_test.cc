// Provokes the errors of client/ERRORS.md at real servers, and compares them with the page.
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tensord/tests/integration/errors_page.h"

namespace tensord::integration {
namespace {

constexpr char kWrite[] = "TENSORD_WRITE_ERRORS_PAGE";

constexpr char kHead[] =
    R"(# Errors

This page is for users who look up an error, and for developers who review the wording of messages. Each row has a cause
and the error that it gives. `errors_page_test` provokes every error at real servers and compares it with this page. If
you change a message, run `TENSORD_WRITE_ERRORS_PAGE=1 build/dev/bin/errors_page_test`, which writes the page.

The servers are called `gpu-a:50051`, `gpu-b:50051` and `gpu-c:50051` here. N, ID, PORT and … replace what differs from
run to run. Each tensor's `status()`, and each `absl::Status`, has the message in `message()`; `tensord::ErrorText`
returns the code and the message. [LIMITS.md](../server/LIMITS.md) describes the details for programs, such as
`SESSION_BYTES_EXCEEDED`.
)";

// Replaces the reason why a server has no GPU. If this host has GPUs, the servers of the page don't
// serve them, and give no reason: the page has the error of a host without GPUs.
void ReplaceGpuReason(ErrorsPage* page, const Client& client) {
  const auto& reasons = client.info().unavailable_devices;
  const auto reason = reasons.find("cuda");
  const std::string text = ", and no cuda device: …";
  if (reason == reasons.end()) {
    page->Replace("it has cpu:0, cpu:1", "it has cpu:0, cpu:1" + text);
  } else {
    page->Replace(", and no cuda device: " + reason->second, text);
  }
}

std::string MakePage() {
  ErrorsPage page;
  const auto daemon = StartDaemon(&page, "gpu-a");
  if (daemon == nullptr) return "";
  const auto client = Client::Connect(daemon->address());
  EXPECT_TRUE(client.ok()) << client.status();
  if (!client.ok()) return "";
  ReplaceGpuReason(&page, *client);
  AddOpErrors(&page, *client);
  AddAttributeErrors(&page, *client);
  AddDeviceErrors(&page, *client);
  AddDonationErrors(&page, *client);
  AddReadErrors(&page, *client);
  AddProgramErrors(&page, *client);
  AddModelErrors(&page, *client);
  AddConnectErrors(&page);
  AddIdentityErrors(&page);
  AddLimitErrors(&page);
  AddStreamLimitErrors(&page, *daemon);
  AddSessionErrors(&page);
  AddLostSessionErrors(&page);
  AddCopyErrors(&page);
  AddGroupErrors(&page);
  AddTensorctlErrors(&page);
  return kHead + page.text();
}

// Returns the lines of `text` that `other` lacks, each after `mark`.
std::string MissingLines(const std::string& text, const std::string& other, const char* mark) {
  const std::set<std::string> others = absl::StrSplit(other, '\n');
  std::string missing;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    if (!others.contains(line)) absl::StrAppend(&missing, mark, line, "\n");
  }
  return missing;
}

TEST(ErrorsPageTest, PageListsTheErrorsOfServersAndClients) {
  const std::string wanted = MakePage();
  if (std::getenv(kWrite) != nullptr) {
    if (HasFailure()) return;  // an incomplete page isn't written
    std::ofstream(TENSORD_ERRORS_PAGE, std::ios::binary) << wanted;
    return;
  }
  std::ifstream file(TENSORD_ERRORS_PAGE, std::ios::binary);
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_TRUE(page.str() == wanted)
      << TENSORD_ERRORS_PAGE " differs. If the new lines (+) are right, set " << kWrite
      << "=1 and run this test again.\n"
      << MissingLines(page.str(), wanted, "- ") << MissingLines(wanted, page.str(), "+ ");
}

}  // namespace
}  // namespace tensord::integration
