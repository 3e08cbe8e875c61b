#include "tensord/common/util/stream_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tensord {
namespace {

TEST(StreamCopyTest, CopiesEveryByteAndNoOther) {
  std::vector<uint8_t> from(5000);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i * 37 + 1);
  for (int64_t bytes : {0, 1, 15, 63, 64, 65, 127, 128, 200, 4096, 4159}) {
    for (int64_t to_offset : {0, 1, 7, 16, 63, 64}) {
      for (int64_t from_offset : {0, 3, 64}) {
        std::vector<uint8_t> to(5000, 0xEE);
        std::vector<uint8_t> expected = to;
        std::copy_n(from.begin() + from_offset, bytes, expected.begin() + to_offset);
        StreamCopy(to.data() + to_offset, from.data() + from_offset, bytes);
        EXPECT_EQ(to, expected) << bytes << " " << to_offset << " " << from_offset;
      }
    }
  }
}

}  // namespace
}  // namespace tensord
