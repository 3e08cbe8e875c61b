// Conversion of requests to the server's own types.
#include "tensord/server/rpc/proto_convert.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tensord::server {
namespace {

// The order decides which error is returned first, and whether two ops share a prepared op.
TEST(ProtoConvertTest, AttributesAreInOrderOfName) {
  google::protobuf::Map<std::string, v1::AttrValue> attrs;
  std::vector<std::string> expected;
  for (char letter = 'a'; letter < 'a' + 20; ++letter) expected.emplace_back(1, letter);
  for (auto name = expected.rbegin(); name != expected.rend(); ++name) attrs[*name].set_b(true);
  const absl::StatusOr<Attributes> converted = FromProto(attrs);
  ASSERT_TRUE(converted.ok()) << converted.status();
  std::vector<std::string> names;
  for (const auto& [name, value] : *converted) names.push_back(name);
  EXPECT_EQ(names, expected);
}

}  // namespace
}  // namespace tensord::server
