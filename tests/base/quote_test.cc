#include "base/text.h"

#include <gtest/gtest.h>

namespace permafrost {
namespace {

TEST(Quote, ShowsShortValuesWholeAndCutsLongOnes) {
  EXPECT_EQ(Quote("a\"b"), "\"a\\\"b\"");
  EXPECT_EQ(Quote("two\nlines\xff"), "\"two\\nlines\\xff\"");
  EXPECT_EQ(Quote(std::string(41, 'x')), "\"" + std::string(40, 'x') + "...\"");
  EXPECT_EQ(Shorten(std::string(40, '7')), std::string(40, '7'));
  EXPECT_EQ(Shorten(std::string(10'000'000, '7')), std::string(40, '7') + "...");
}

TEST(Quote, CutsMessagesBetweenCharacters) {
  EXPECT_EQ(CutMessage("whole", 5), "whole");
  EXPECT_EQ(CutMessage("longer", 5), "lo...");
  EXPECT_EQ(CutMessage("a\xc3\xa9"
                       "bcd",
                       5),
            "a...")
      << "a character of two bytes is not cut in two";
}

TEST(Utf8, FindsTheFirstByteThatIsNone) {
  const struct {
    const char* why;
    std::string_view text;
    std::size_t want;
  } kCases[] = {
      {"nothing", "", std::string_view::npos},
      {"ASCII, longer than a word", "0123456789abcdef", std::string_view::npos},
      {"two, three and four bytes", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", std::string_view::npos},
      {"Latin-1", "caf\xe9", 3},
      {"behind a word of ASCII", "0123456789\xff", 10},
      {"cut off", "a\xe2\x82", 1},
      {"overlong", "\xc0\xaf", 0},
      {"a surrogate", "ab\xed\xa0\x80", 2},
  };
  for (const auto& c : kCases) EXPECT_EQ(FindInvalidUtf8(c.text), c.want) << c.why;
}

}  // namespace
}  // namespace permafrost
