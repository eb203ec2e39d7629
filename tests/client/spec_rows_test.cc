// Tests the rows of a job's fields: each has a help text and is a field of the contract.
#include "client/spec_rows.h"

#include <algorithm>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace permafrost::client {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

SpecRow RowOf(const std::vector<SpecRow>& rows, const std::string& path) {
  const auto row = std::ranges::find_if(rows, [&](const SpecRow& r) { return PathName(r.path) == path; });
  if (row != rows.end()) return *row;
  ADD_FAILURE() << path << " has no row";
  return {};
}

TEST(JobRows, SayTheDefaultsOfEveryKindOfJob) {
  const struct {
    const char *why, *path, *ends;
  } kCases[] = {
      {"all jobs have it", "model.hidden_channels", "(default 64)"},
      {"levels differ, and node2vec has no layers", "model.num_layers",
       "(default 4; on one large graph 2; with --fan-out one for each hop)"},
      {"node2vec differs alone", "optimizer.learning_rate", "(default 0.001; of node2vec 0.01)"},
      {"names are those of the command line", "optimizer.algorithm", "(default adam; of node2vec sparse-adam)"},
      {"the server has a policy", "graph_cache.rungs", "(default: the server's)"},
      {"which the freeze point follows", "graph_cache.freeze_at",
       "(default: the server's; derived where --cache-policy differs from the server's)"},
  };
  for (const auto& c : kCases) EXPECT_THAT(RowOf(JobRows(), c.path).help, EndsWith(c.ends)) << c.why;
}

TEST(JobRows, NameValuesByTheirType) {
  const struct {
    const char *path, *value;
  } kCases[] = {{"epochs", "N"},
                {"optimizer.learning_rate", "X"},
                {"model.dropout", "P"},
                {"loss", "l1|mse|cross-entropy|bce"},
                {"graph_cache.freeze_at", "N|derived"},
                {"model.residual", ""}};
  for (const auto& c : kCases) EXPECT_EQ(RowOf(JobRows(), c.path).value, c.value) << c.path;
}

TEST(JobRows, AFlagMayBeAMessage) {
  EXPECT_EQ(RowOf(JobRows(), "link_prediction").flag, "--link-prediction");
  EXPECT_THAT(FlagNames(RowOf(JobRows(), "graph_cache.strict")), ElementsAre("--strict"));
  EXPECT_THAT(FlagNames(RowOf(JobRows(), "model.architecture")), ElementsAre("--model", "--architecture"));
  EXPECT_THAT(FlagNames(RowOf(JobRows(), "node2vec.num_negative_samples")), IsEmpty());
}

TEST(PolicyRows, LeaveWhatIsNotGivenAsItIs) {
  EXPECT_EQ(RowOf(PolicyRows(), "policy").flag, "--policy");
  for (const SpecRow& row : PolicyRows()) EXPECT_THAT(row.help, EndsWith("(default: as it is)")) << row.flag;
}

TEST(ImportRows, AreTheFieldsOfAnImport) {
  const struct {
    const char *path, *value, *ends;
  } kCases[] = {
      {"format", "auto|ogb-graphs|ogb-nodes|edge-list|npy|tu|store", "auto: found from what is there"},
      {"train_fraction", "0..1", "(default 0.8)"},
      {"edge_list.columns", "COLUMN,...", "a weight)"},
      {"edge_list.comment", "CHAR|none", "(default #)"},
      {"tu.max_degree", "N", "(default 1000)"},
      {"memory_bytes", "SIZE", "a quarter of the machine's)"},
      {"no_out_edges", "", "without random walks"},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(RowOf(ImportRows(), c.path).value, c.value) << c.path;
    EXPECT_THAT(RowOf(ImportRows(), c.path).help, EndsWith(c.ends)) << c.path;
  }
  for (const SpecRow& row : ImportRows()) EXPECT_EQ(row.flag.empty(), PathName(row.path) == "source_path") << row.flag;
}

TEST(DrawRows, AreTheFieldsOfASample) {
  std::vector<std::string> flags;
  for (const SpecRow& row : DrawRows()) {
    flags.push_back(row.flag);
    EXPECT_THAT(row.help, AllOf(Not(IsEmpty()), Not(HasSubstr("{}")))) << row.flag;
  }
  EXPECT_THAT(flags, ElementsAre("--fan-out", "--replace", "--weighted", "--disjoint", "--temporal", "--seed-time",
                                 "--sampler"));
}

}  // namespace
}  // namespace permafrost::client
