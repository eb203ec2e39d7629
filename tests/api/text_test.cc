#include "api/wire/wire_values.h"

#include <gtest/gtest.h>

namespace permafrost::api {
namespace {

TEST(ValidUtf8, ReplacesWhatIsNoUtf8) {
  const struct {
    const char* why;
    std::string_view in, want;
  } kCases[] = {
      {"empty", "", ""},
      {"ASCII", "a\nb", "a\nb"},
      {"two, three and four bytes", "\u00e9\u20ac\U0001F600", "\u00e9\u20ac\U0001F600"},
      {"a lone lead byte", "a\xC3", "a\uFFFD"},
      {"a lone continuation byte", "\x80z", "\uFFFDz"},
      {"a sequence cut short by a letter", "\xE2\x82z", "\uFFFD\uFFFDz"},
      {"overlong slash", "\xC0\xAF", "\uFFFD\uFFFD"},
      {"overlong in three bytes", "\xE0\x80\xAF", "\uFFFD\uFFFD\uFFFD"},
      {"a surrogate", "\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},
      {"above U+10FFFF", "\xF4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
  };
  for (const auto& c : kCases) EXPECT_EQ(ValidUtf8(c.in), c.want) << c.why;
}

TEST(Clip, CutsBetweenCharacters) {
  const struct {
    const char* why;
    std::string_view in;
    size_t max;
    std::string_view want;
  } kCases[] = {
      {"fits", "abcdef", 6, "abcdef"},
      {"one too long", "abcdefg", 6, "abc..."},
      {"not within a character", "ab\u20accdef", 6, "ab..."},
      {"replacement makes it too long", "\x80\x80\x80", 8, "\uFFFD..."},
  };
  for (const auto& c : kCases) EXPECT_EQ(Clip(c.in, c.max), c.want) << c.why;
}

}  // namespace
}  // namespace permafrost::api
