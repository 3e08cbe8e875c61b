#include "tensord/tests/proxy/frame_scanner.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tensord/tests/http2_frame.h"

namespace tensord::proxy {
namespace {

std::string Frame(FrameType type, size_t length) {
  std::string frame;
  for (const int shift : {16, 8, 0}) frame.push_back(static_cast<char>(length >> shift & 0xff));
  frame.push_back(static_cast<char>(type));
  frame.append(5, '\0');  // flags and stream
  return frame + std::string(length, 'x');
}

TEST(FrameScannerTest, CountsCallsAndNotTheTransport) {
  FrameScanner scanner(FrameScanner::From::kClient);
  EXPECT_FALSE(scanner.Scan(absl::StrCat(kPreface, Frame(kSettings, 30))));
  EXPECT_FALSE(scanner.Scan(Frame(kPing, 8) + Frame(kWindowUpdate, 4) + Frame(kRstStream, 4)));
  EXPECT_TRUE(scanner.Scan(Frame(kHeaders, 100)));
  EXPECT_TRUE(scanner.Scan(Frame(kWindowUpdate, 4) + Frame(kData, 70000) + Frame(kPing, 8)));
  EXPECT_FALSE(scanner.Scan(Frame(kData, 0))) << "an empty frame carries no message";
  EXPECT_TRUE(scanner.is_http2());
}

TEST(FrameScannerTest, FindsFramesInFragments) {
  const std::string all = absl::StrCat(kPreface, Frame(kSettings, 12), Frame(kData, 40),
                                       Frame(kPing, 8), Frame(kHeaders, 5));
  FrameScanner scanner(FrameScanner::From::kClient);
  int64_t counted = 0;
  for (const char byte : all) counted += scanner.Scan(absl::string_view(&byte, 1)) ? 1 : 0;
  EXPECT_EQ(counted, 40 + 5);  // the bytes of the bodies; the heads don't count
}

TEST(FrameScannerTest, EveryByteOfOtherProtocolsCounts) {
  FrameScanner client(FrameScanner::From::kClient);
  EXPECT_TRUE(client.Scan("PRI x"));
  EXPECT_TRUE(client.Scan(Frame(kSettings, 4)));
  EXPECT_TRUE(client.is_raw());
  FrameScanner server(FrameScanner::From::kServer);
  server.SetIsHttp2(false);
  EXPECT_TRUE(server.Scan(Frame(kSettings, 4)));
}

TEST(FrameScannerTest, ServerSettingsMayPrecedeThePreface) {
  FrameScanner server(FrameScanner::From::kServer);
  const std::string early = Frame(kSettings, 20) + Frame(kWindowUpdate, 4);
  EXPECT_FALSE(server.Scan(early.substr(0, 31)));
  server.SetIsHttp2(true);
  EXPECT_FALSE(server.Scan(early.substr(31)));
  EXPECT_TRUE(server.Scan(Frame(kHeaders, 3)));
}

}  // namespace
}  // namespace tensord::proxy
