// The page client/ERRORS.md: causes, and the errors that they give.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tensord/client/tensord.h"
#include "tensord/tests/expect_error.h"
#include "tensord/tests/integration/daemon_process.h"

namespace tensord::integration {

// Adds a row whose cause is the text of the expression.
#define TENSORD_ERROR_ROW(page, ...) (page)->Add(CodeText(#__VA_ARGS__), __VA_ARGS__)

// Returns an expression as Markdown code, without the spaces of line breaks.
std::string CodeText(absl::string_view expression);

using tensord::StatusOf;
// Returns the error that the client has found, or else the server's. Blocks until the tensor is
// done.
inline absl::Status StatusOf(const Tensor& tensor) {
  return tensor.ok() ? tensor.Wait() : tensor.status();
}
inline absl::Status StatusOf(const std::vector<Tensor>& tensors) { return StatusOf(tensors[0]); }

// Collects rows, and writes them as Markdown.
class ErrorsPage {
 public:
  // Replaces `text`, such as a port or a folder, in all later rows. Of several texts that fit, the
  // last one is replaced first.
  void Replace(const std::string& text, const std::string& placeholder);

  void BeginSection(absl::string_view title, absl::string_view introduction,
                    absl::string_view columns = "| a program did this | code | message |");

  // Adds a row. `cause` is Markdown. Makes the current test fail if there is no error, or if its
  // message isn't one line of printable UTF-8.
  template <typename Result>
  void Add(absl::string_view cause, const Result& result) {
    const absl::Status status = StatusOf(result);
    AddRow(cause, absl::StatusCodeToString(status.code()), std::string(status.message()));
  }
  void AddRow(absl::string_view cause, absl::string_view code, std::string message);

  const std::string& text() const { return text_; }

 private:
  std::string WithPlaceholders(std::string message) const;

  std::string text_;
  std::vector<std::pair<std::string, std::string>> replacements_;
};

// Starts a daemon with two CPU devices and replaces its address by `name` in all later rows. If the
// daemon doesn't start, the current test fails, and the result is null.
std::unique_ptr<DaemonProcess> StartDaemon(ErrorsPage* page, const std::string& name,
                                           std::vector<std::string> flags = {});

// Each adds one or several sections.
void AddOpErrors(ErrorsPage* page, const Client& client);
void AddAttributeErrors(ErrorsPage* page, const Client& client);
void AddDeviceErrors(ErrorsPage* page, const Client& client);
void AddDonationErrors(ErrorsPage* page, const Client& client);
void AddReadErrors(ErrorsPage* page, const Client& client);
void AddProgramErrors(ErrorsPage* page, const Client& client);
void AddModelErrors(ErrorsPage* page, const Client& client);
void AddConnectErrors(ErrorsPage* page);
void AddIdentityErrors(ErrorsPage* page);
void AddLimitErrors(ErrorsPage* page);
void AddStreamLimitErrors(ErrorsPage* page, const DaemonProcess& daemon);
void AddSessionErrors(ErrorsPage* page);
void AddLostSessionErrors(ErrorsPage* page);
void AddCopyErrors(ErrorsPage* page);
void AddGroupErrors(ErrorsPage* page);
void AddTensorctlErrors(ErrorsPage* page);

}  // namespace tensord::integration
