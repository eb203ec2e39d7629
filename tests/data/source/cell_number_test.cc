#include "data/source/csv_rows.h"

#include <gtest/gtest.h>

#include <optional>
#include <string_view>

namespace permafrost::data {
namespace {

// The results must not depend on the version of fast_float.
TEST(ParseFinite, RoundsToTheNearestFloatAndRefusesWhatIsNone) {
  constexpr float kLeast = 0x1p-149F;
  const struct {
    const char* why;
    std::string_view cell;
    std::optional<float> want;
  } kCases[] = {
      {"a number", "-2.5e1", -25.0F},
      {"a plus sign", "+1", 1.0F},
      {"nearest to 0", "1e-50", 0.0F},
      {"the same below 0", "-1e-400", 0.0F},
      {"the least above 0", "1.4e-45", kLeast},
      {"nearest to infinity", "1e50", std::nullopt},
      {"the same below 0", "-1e400", std::nullopt},
      {"infinite", "inf", std::nullopt},
      {"no number", "nan", std::nullopt},
      {"two signs", "+-1", std::nullopt},
      {"more than a number", "1e-50x", std::nullopt},
      {"nothing", "", std::nullopt},
  };
  for (const auto& c : kCases) EXPECT_EQ(ParseFinite(c.cell), c.want) << c.why << ": " << c.cell;
  for (const std::string_view cell : {"1e50", "-1e400", "+3.5e38"})
    EXPECT_EQ(WhyNotFinite(cell), kBeyondFloat32) << cell;
  for (const std::string_view cell : {"inf", "nan", "-infinity", "1e50x", "x", ""})
    EXPECT_EQ(WhyNotFinite(cell), "is not a finite number") << cell;
}

}  // namespace
}  // namespace permafrost::data
