#include "tensord/client/tour/confusion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tensord::tour {
namespace {

using ::testing::HasSubstr;

TEST(Confusion, CountsAndRenders) {
  Confusion confusion(3);
  for (int i = 0; i < 3; ++i) confusion.Add(0, 0);
  confusion.Add(0, 2);
  confusion.Add(1, 1);
  EXPECT_EQ(confusion.total(), 5);
  EXPECT_EQ(confusion.correct(), 4);
  EXPECT_EQ(confusion.count(0, 2), 1);
  EXPECT_EQ(confusion.count(2, 0), 0);
  EXPECT_EQ(confusion.Render({}, 0),
            "true \\ said  0  1  2    right\n"
            "          0  3  ·  1   75.0 %\n"
            "          1  ·  1  ·  100.0 %\n"
            "          2  ·  ·  ·        -\n");
}

TEST(Confusion, ListsMistakesIfTheTableIsTooWide) {
  Confusion confusion(100);
  confusion.Add(7, 7);
  confusion.Add(98, 3);
  confusion.Add(12, 99);
  confusion.Add(12, 99);
  EXPECT_EQ(confusion.Render({}, 2),
            "  true  said  times\n"
            "    12    99      2\n"
            "    98     3      1\n");
}

TEST(Confusion, SaysThatThereAreNoMistakes) {
  Confusion confusion(100);
  confusion.Add(7, 7);
  EXPECT_THAT(confusion.Render({}, 0), HasSubstr("no mistakes"));
}

}  // namespace
}  // namespace tensord::tour
