#include "tensord/client/creation.h"

#include "tensord/client/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tensord {
namespace {

TEST(CreationTest, ErrorForAnInvalidDeviceSuggestsTryDevice) {
  const Tensor tensors[] = {Zeros({}, {2}),
                            Full({}, {2}, 1.5),
                            Arange({}, 3),
                            Eye({}, 3),
                            Eye({}, 3, 4, 1),
                            Uniform({}, {2}, 1),
                            Normal({}, {2}, 1),
                            Uniform({}, {2}, RandomStream{1, 2}),
                            Normal({}, {2}, RandomStream{1, 2}),
                            RandInt({}, {2}, 0, 5, 1),
                            FromScalar({}, 1),
                            FromVector<float>({}, {1, 2, 3}),
                            FromVector<bool>({}, {3}, {true, false, true})};
  for (const Tensor& tensor : tensors) {
    EXPECT_EQ(tensor.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(tensor.status().message(), testing::HasSubstr("client.TryDevice()"));
  }
}

}  // namespace
}  // namespace tensord
