// The main() of all GoogleTest programs. After a crash, prints a stack trace.
#include <gtest/gtest.h>

#include "absl/debugging/failure_signal_handler.h"
#include "absl/debugging/symbolize.h"

int main(int argc, char** argv) {
  absl::InitializeSymbolizer(argv[0]);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // sanitizers print reports
  absl::InstallFailureSignalHandler(absl::FailureSignalHandlerOptions());
#endif
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
