#include "tensord/server/rpc/auth/file_watch.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>

namespace tensord::server {
namespace {

std::chrono::steady_clock::time_point now;

class FileWatchTest : public testing::Test {
 protected:
  FileWatchTest() { Write(path_, "first\n"); }
  ~FileWatchTest() override { std::remove(path_.c_str()); }

  static void Write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  }
  bool ChangedAfter(std::chrono::milliseconds time) {
    now += time;
    return watch_.Changed();
  }

  static constexpr std::chrono::milliseconds kStep{400};
  const std::string path_ = testing::TempDir() + "file_watch_test";
  FileWatch watch_{{(Write(path_, ""), path_)}, [] { return now; }};
};

TEST_F(FileWatchTest, FileThatIsWrittenInPlaceIsReportedOnceWhenItHasSettled) {
  while (!watch_.Changed()) now += kStep;
  Write(path_, "half");
  EXPECT_FALSE(ChangedAfter(kStep));
  EXPECT_FALSE(ChangedAfter(kStep));
  Write(path_, "half and half");
  EXPECT_FALSE(ChangedAfter(kStep));
  EXPECT_FALSE(ChangedAfter(kStep));
  EXPECT_TRUE(ChangedAfter(FileWatch::kSettleTime));
  EXPECT_FALSE(ChangedAfter(FileWatch::kSettleTime));
}

TEST_F(FileWatchTest, ReplacedFileIsReportedAtTheSecondCheck) {
  while (!watch_.Changed()) now += kStep;
  Write(path_ + ".new", "second");
  std::rename((path_ + ".new").c_str(), path_.c_str());
  EXPECT_FALSE(ChangedAfter(kStep));
  EXPECT_TRUE(ChangedAfter(kStep));
}

}  // namespace
}  // namespace tensord::server
