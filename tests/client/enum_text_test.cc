#include "permafrost/v1/enum_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "permafrost/v1/job.pb.h"

namespace permafrost::client {
namespace {

TEST(EnumText, ShortNames) {
  const auto& artifact = *v1::ExportJobRequest::Artifact_descriptor();
  EXPECT_THAT(EnumShortNames(artifact), testing::ElementsAre("best-weights", "last-weights", "test-predictions"));
  EXPECT_EQ(EnumShortName(artifact, v1::ExportJobRequest::ARTIFACT_LAST_WEIGHTS), "last-weights");
  EXPECT_EQ(EnumShortName(artifact, 0), "unspecified");
  EXPECT_EQ(EnumShortName(artifact, 99), "99") << "from a newer server";
}

TEST(EnumText, TakesEverySpelling) {
  const auto& artifact = *v1::ExportJobRequest::Artifact_descriptor();
  for (const char* name : {"best-weights", "best_weights", "ARTIFACT_BEST_WEIGHTS"})
    EXPECT_EQ(ParseEnum(artifact, name), v1::ExportJobRequest::ARTIFACT_BEST_WEIGHTS) << name;
  for (const char* name : {"", "best", "unspecified", "ARTIFACT_UNSPECIFIED", "1"})
    EXPECT_EQ(ParseEnum(artifact, name), std::nullopt) << name;
}

}  // namespace
}  // namespace permafrost::client
