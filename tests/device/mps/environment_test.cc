#include "device/mps/mps_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace permafrost::device {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Variables = std::map<std::string, std::string>;

absl::StatusOr<MpsEnvironment> Read(const Variables& variables) {
  return ReadMpsEnvironment([&](const std::string& name) -> std::optional<std::string> {
    const auto it = variables.find(name);
    return it == variables.end() ? std::nullopt : std::optional(it->second);
  });
}

TEST(MpsEnvironmentTest, WhatLibtorchWouldRefuseLaterIsRefusedNow) {
  const struct {
    const char* why;
    Variables variables;
    const char* line;  // nullptr stands for accepted variables
  } kCases[] = {
      {"nothing set", {}, nullptr},
      {"both", {{"PYTORCH_MPS_HIGH_WATERMARK_RATIO", "0.8"}, {"PYTORCH_MPS_LOW_WATERMARK_RATIO", "0.7"}}, nullptr},
      {"no limit", {{"PYTORCH_MPS_HIGH_WATERMARK_RATIO", "0"}}, nullptr},
      {"no number", {{"PYTORCH_MPS_HIGH_WATERMARK_RATIO", "70%"}}, "PYTORCH_MPS_HIGH_WATERMARK_RATIO: \"70%\""},
      {"empty", {{"PYTORCH_MPS_LOW_WATERMARK_RATIO", ""}}, "PYTORCH_MPS_LOW_WATERMARK_RATIO: \"\""},
      {"NaN", {{"PYTORCH_MPS_HIGH_WATERMARK_RATIO", "nan"}}, "accepted: 0 to 2"},
      {"below nothing", {{"PYTORCH_MPS_LOW_WATERMARK_RATIO", "-1"}}, "accepted: 0 to 2"},
      {"above the bound", {{"PYTORCH_MPS_HIGH_WATERMARK_RATIO", "2.5"}}, "accepted: 0 to 2"},
      {"the low one above the high one",
       {{"PYTORCH_MPS_HIGH_WATERMARK_RATIO", "0.5"}, {"PYTORCH_MPS_LOW_WATERMARK_RATIO", "0.6"}},
       "PYTORCH_MPS_LOW_WATERMARK_RATIO is 0.6, above PYTORCH_MPS_HIGH_WATERMARK_RATIO (0.5)"},
      {"the low one's default above the high one",
       {{"PYTORCH_MPS_HIGH_WATERMARK_RATIO", "1.0"}},
       "PYTORCH_MPS_LOW_WATERMARK_RATIO is not set and is taken as 1.4"},
  };
  for (const auto& c : kCases) {
    const auto read = Read(c.variables);
    if (c.line == nullptr) {
      EXPECT_TRUE(read.ok()) << c.why << ": " << read.status();
      continue;
    }
    EXPECT_EQ(read.status().code(), absl::StatusCode::kFailedPrecondition) << c.why;
    EXPECT_THAT(std::string(read.status().message()), HasSubstr(c.line)) << c.why;
  }
}

TEST(MpsEnvironmentTest, WhatDefeatsItsPurposeIsWarnedOf) {
  EXPECT_THAT(Read({})->warnings, IsEmpty());
  EXPECT_THAT(Read({{"PYTORCH_ENABLE_MPS_FALLBACK", "0"}})->warnings, IsEmpty());
  EXPECT_THAT(Read({{"PYTORCH_ENABLE_MPS_FALLBACK", "1"}, {"PYTORCH_MPS_HIGH_WATERMARK_RATIO", "0.0"}})->warnings,
              ElementsAre(HasSubstr("PYTORCH_ENABLE_MPS_FALLBACK=1: operators that MPS lacks run on the CPU"),
                          HasSubstr("PYTORCH_MPS_HIGH_WATERMARK_RATIO=0: memory has no limit")));
}

TEST(MpsEnvironmentTest, SettingsAreWhatIsSetAndTheWatermarksAsTheyHold) {
  EXPECT_THAT(
      Read({{"PYTORCH_MPS_FAST_MATH", "0"}})->settings,
      ElementsAre(DeviceSetting{"PYTORCH_MPS_FAST_MATH", "0"}, DeviceSetting{"PYTORCH_MPS_HIGH_WATERMARK_RATIO", "1.7"},
                  DeviceSetting{"PYTORCH_MPS_LOW_WATERMARK_RATIO", "1.4"}));
}

}  // namespace
}  // namespace permafrost::device
