// Tests resource names and page tokens, which clients may store.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/wire/resource_name.h"

namespace permafrost::api {
namespace {

using ::testing::HasSubstr;

TEST(ResourceName, RoundTrips) {
  EXPECT_EQ(*ParseJobName("name", "jobs/a-1"), JobId("a-1"));
  EXPECT_EQ(FormatJobName(JobId("a-1")), "jobs/a-1");
  EXPECT_EQ(*ParseGraphCacheName("name", "jobs/a-1/graphCache"), JobId("a-1"));
  EXPECT_EQ(FormatGraphCacheName(JobId("a-1")), "jobs/a-1/graphCache");
  EXPECT_EQ(*ParseDatasetName("name", "datasets/zinc"), DatasetId("zinc"));
  EXPECT_EQ(FormatDatasetName(DatasetId("zinc")), "datasets/zinc");
  EXPECT_EQ(*ParseUploadName("name", "uploads/u-1"), UploadId("u-1"));
}

TEST(ResourceName, ABadNameIsAViolationThatSaysValueAndForm) {
  for (const char* bad :
       {"", "a", "jobs", "jobs/", "Jobs/a", "jobs/A", "jobs/a/b", "jobs/a ", " jobs/a", "datasets/a", "jobs/../a",
        "jobs/1a", "jobs/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}) {
    const auto violations = GetViolations(ParseJobName("name", bad).status());
    ASSERT_EQ(violations.size(), 1u) << bad;
    EXPECT_EQ(violations[0].field, "name");
    EXPECT_THAT(violations[0].description, HasSubstr(std::string("\"") + bad + "\""));
    EXPECT_THAT(violations[0].description, HasSubstr("jobs/ID"));
  }
  EXPECT_THAT(GetViolations(ParseDatasetName("spec.dataset", "jobs/a").status())[0].description,
              HasSubstr("datasets/NAME"));
}

TEST(ResourceName, AGraphCacheIsNamedAfterItsJob) {
  for (const char* bad : {"", "jobs/a", "jobs//graphCache", "jobs/graphCache", "a/graphCache", "jobs/a/graphcache",
                          "jobs/a/graphCache/", "jobs/a/b/graphCache", "jobs/A/graphCache", "/graphCache"}) {
    const auto violations = GetViolations(ParseGraphCacheName("parent", bad).status());
    ASSERT_EQ(violations.size(), 1u) << bad;
    EXPECT_EQ(violations[0].field, "parent");
    EXPECT_THAT(violations[0].description, HasSubstr(std::string("\"") + bad + "\" is not jobs/ID/graphCache"));
  }
  EXPECT_FALSE(ParseJobName("name", "jobs/a/graphCache").ok());
}

TEST(PageSize, ZeroIsTheDefaultAndLargeOnesAreCapped) {
  const struct {
    int32_t in;
    int64_t want;
  } kCases[] = {{0, 50}, {1, 1}, {1000, 1000}, {1001, 1000}, {INT32_MAX, 1000}};
  for (const auto& c : kCases) {
    Violations violations;
    EXPECT_EQ(ReadPageSize(c.in, violations), c.want);
    EXPECT_TRUE(violations.empty());
  }
  Violations violations;
  ReadPageSize(-1, violations);
  EXPECT_EQ(GetViolations(violations.ToStatus())[0].field, "page_size");
}

TEST(DatasetPageToken, RoundTripsAndRefusesOthers) {
  Violations violations;
  EXPECT_EQ(ReadDatasetPageToken("", violations), DatasetId());
  EXPECT_EQ(ReadDatasetPageToken(MakeDatasetPageToken(DatasetId("zinc")), violations), DatasetId("zinc"));
  EXPECT_TRUE(violations.empty());
  for (const char* bad : {"zinc", "!", "emluYw=="}) {
    Violations refused;
    ReadDatasetPageToken(bad, refused);
    ASSERT_FALSE(refused.empty()) << bad;
    EXPECT_EQ(GetViolations(refused.ToStatus())[0].field, "page_token");
  }
}

TEST(EntryPageToken, RoundTripsAndRefusesOthers) {
  const JobId job("a");
  Violations violations;
  EXPECT_EQ(ReadEntryPageToken("", job, violations), 0);
  for (const int64_t position : {int64_t{1}, int64_t{50}, INT64_MAX}) {
    EXPECT_EQ(ReadEntryPageToken(MakeEntryPageToken(job, position), job, violations), position);
  }
  EXPECT_TRUE(violations.empty());
  const std::string good = MakeEntryPageToken(job, 50);
  const std::string others[] = {
      "50",
      "!",
      good + "=",
      good.substr(1),
      MakeEntryPageToken(JobId("b"), 50),
      MakeEntryPageToken(job, -50),
      MakeDatasetPageToken(DatasetId("a")),
  };
  for (const std::string& bad : others) {
    Violations refused;
    EXPECT_EQ(ReadEntryPageToken(bad, job, refused), 0) << bad;
    ASSERT_FALSE(refused.empty()) << bad;
    EXPECT_EQ(GetViolations(refused.ToStatus())[0].field, "page_token");
  }
}

}  // namespace
}  // namespace permafrost::api
