// Expectations on errors, for tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tensord {

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

// Expects that a Status or StatusOr has this code, and that its message contains all of `words`.
template <typename Result>
void ExpectError(const Result& result, absl::StatusCode code,
                 const std::vector<std::string>& words = {}) {
  const absl::Status& status = StatusOf(result);
  EXPECT_EQ(status.code(), code) << status;
  for (const std::string& word : words) {
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(word));
  }
}

}  // namespace tensord
