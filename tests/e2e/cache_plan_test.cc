// Tests a cache plan, and then the job that it was made for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "e2e/daemon.h"
#include "permafrost/v1/graph_cache.grpc.pb.h"
#include "temp_dir.h"

namespace permafrost::e2e {
namespace {

using nlohmann::json;

int64_t Number(const json& of, const char* field) { return std::stoll(of.at(field).get<std::string>()); }

TEST(CachePlan, AJobTakesWhatItsPlanSaid) {
  TempDir dir;
  Daemon daemon(dir.path() / "state", ShippedSample());
  ASSERT_TRUE(daemon.ready());
  daemon.Import("zinc", ShippedSample());
  const std::vector<std::string> flags{"--dataset", "zinc",   "--epochs", "2", "--batch-size", "64",
                                       "--hidden",  "16",     "--layers", "2", "--seed",       "5",
                                       "--shapes",  "ladder", "--rungs",  "4", "--output",     "json"};
  std::vector<std::string> arguments{"cache", "plan"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  const Output out = daemon.Client(arguments);
  ASSERT_EQ(out.code, 0) << out.err;
  const json plan = json::parse(out.out);
  EXPECT_EQ(plan["schedules"][0]["batching"], "random");
  ASSERT_TRUE(plan.contains("costs")) << plan["noCostsReason"];
  EXPECT_GT(plan["costs"]["captureSeconds"].get<double>(), 0);
  const json& row = plan["rows"][0];

  arguments = {"job", "submit", "--id", "planned"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  ASSERT_EQ(daemon.Client(arguments).code, 0);
  ASSERT_EQ(daemon.AwaitEnd("planned").state(), v1::Job::STATE_SUCCEEDED);
  const json cache = json::parse(daemon.Client({"cache", "show", "planned", "--output", "json"}).out);
  const json& train = cache["statistics"][0];
  EXPECT_EQ(Number(row, "trainExecutables"), 4);
  EXPECT_EQ(Number(row, "trainExecutables"), Number(train, "entries"));
  EXPECT_EQ(Number(row, "evalExecutables"), Number(cache["statistics"][1], "entries"));
  EXPECT_EQ(Number(row, "replayedSteps"), Number(train, "hits") + Number(train, "paddedHits"));
  EXPECT_EQ(Number(row, "rows"), Number(train, "nodes") + Number(train, "edges"));
  EXPECT_EQ(Number(row, "paddingRows"), Number(train, "paddingNodes") + Number(train, "paddingEdges"));
}

TEST(CachePlan, AJobHoldsNoMoreThanItsLimitAsItsPlanSaid) {
  TempDir dir;
  Daemon daemon(dir.path() / "state", ShippedSample());
  ASSERT_TRUE(daemon.ready());
  daemon.Import("zinc", ShippedSample());
  const std::vector<std::vector<std::string>> kCases{{"--shapes", "ladder", "--rungs", "16"},
                                                     {"--cache-policy", "always"},
                                                     {"--shapes", "exact", "--freeze-at", "40"}};
  for (size_t i = 0; i < kCases.size(); ++i) {
    std::vector<std::string> flags{"--dataset", "zinc", "--epochs", "1", "--batch-size",      "64",
                                   "--hidden",  "16",   "--layers", "2", "--max-executables", "10",
                                   "--output",  "json"};
    flags.insert(flags.end(), kCases[i].begin(), kCases[i].end());
    std::vector<std::string> arguments{"cache", "plan", "--without-costs"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Output out = daemon.Client(arguments);
    ASSERT_EQ(out.code, 0) << out.err;
    const json plan = json::parse(out.out);
    const json& row = plan["rows"][0];
    const std::string id = "limited-" + std::to_string(i);
    arguments = {"job", "submit", "--id", id};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    ASSERT_EQ(daemon.Client(arguments).code, 0);
    ASSERT_EQ(daemon.AwaitEnd(id).state(), v1::Job::STATE_SUCCEEDED);
    const json cache = json::parse(daemon.Client({"cache", "show", id, "--output", "json"}).out);
    const json &train = cache["statistics"][0], &eval = cache["statistics"][1];
    EXPECT_LE(Number(train, "entries") + Number(eval, "entries"), 10) << i;
    EXPECT_EQ(Number(row, "trainExecutables"), Number(train, "entries")) << i;
    EXPECT_EQ(Number(row, "evalExecutables"), Number(eval, "entries")) << i;
    EXPECT_EQ(Number(row, "replayedSteps"), Number(train, "hits") + Number(train, "paddedHits")) << i;
    EXPECT_EQ(Number(row, "paddedSteps"), Number(train, "paddedHits")) << i;
    EXPECT_EQ(Number(row, "eagerSteps"), Number(train, "eagerSteps")) << i;
    if (i > 0) continue;
    EXPECT_EQ(Number(train, "cutExecutables") + Number(eval, "cutExecutables"), 22) << "of 16 + 16";
  }
}

TEST(CacheCensus, NeedsNoMacAndNoJob) {
  TempDir dir;
  Daemon daemon(dir.path() / "state", ShippedSample());
  ASSERT_TRUE(daemon.ready());
  daemon.Import("zinc", ShippedSample());
  const auto take = [&](const std::string& lowering) {
    const Output out = daemon.Client({"cache", "census", "--dataset", "zinc", "--epochs", "2", "--hidden", "16",
                                      "--layers", "2", "--lowering", lowering, "--torch", "2.15", "--output", "json"});
    EXPECT_EQ(out.code, 0) << out.err;
    return json::parse(out.out);
  };
  const json plain = take("plain")["lowerings"][0], shape_free = take("shape-free")["lowerings"][0];
  EXPECT_EQ(plain["lowering"], "LOWERING_PLAIN");
  // Under `always`, the second row, nearly every one of the 626 batches has its own shape.
  EXPECT_GT(Number(plain["train"]["all"], "shapeEntries"), 10);
  EXPECT_GT(Number(plain["rows"][1], "runEntries"), 500);
  EXPECT_LT(Number(plain["rows"][0], "runEntries"), Number(plain["rows"][1], "runEntries") / 10) << "a ladder";
  EXPECT_EQ(Number(shape_free["train"]["all"], "runEntries"), 0) << "nothing is left";
}

}  // namespace
}  // namespace permafrost::e2e
