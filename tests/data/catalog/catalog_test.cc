#include "data/catalog/catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "data/catalog/catalog_fixture.h"
#include "data/catalog/imports.h"
#include "data/graph_fixture.h"
#include "data/ogb_folder.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(CatalogTest, ImportsAndKeepsWhatItWasAsked) {
  Dataset accepted;
  {
    const auto catalog = Open();
    EXPECT_THAT(catalog->List(), IsEmpty());
    ImportOptions options = Options();
    options.inverse_edges = InverseEdges::kKeep;
    options.split = "plain";
    options.split_seed = UINT64_MAX;
    options.train_fraction = 0.1;
    const auto dataset = catalog->Import(Id("small"), options);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ(dataset->state, DatasetState::kImporting);
    accepted = *dataset;
    const auto ready = AwaitEnd(*catalog, Id("small"));
    ASSERT_TRUE(ready.ok());
    ASSERT_EQ(ready->state, DatasetState::kReady) << ready->error;
    EXPECT_EQ(std::get<GraphSetSummary>(*ready->summary).all.nodes, 5);
    EXPECT_EQ(ready->create_time, accepted.create_time);
    EXPECT_EQ(ready->uid, accepted.uid);
    EXPECT_NE(ready->content_checksum, 0u);
    accepted.content_checksum = ready->content_checksum;
    EXPECT_EQ(catalog->usage().imports.succeeded, 1);
  }
  EXPECT_THAT(OnDisk(), ElementsAre("small")) << "no record, no leavings";
  const auto catalog = Open();
  const auto dataset = catalog->Get(Id("small"));
  ASSERT_TRUE(dataset.ok());
  EXPECT_EQ(dataset->state, DatasetState::kReady);
  EXPECT_EQ(dataset->create_time, accepted.create_time);
  EXPECT_EQ(dataset->uid, accepted.uid);
  EXPECT_EQ(dataset->content_checksum, accepted.content_checksum);
  EXPECT_EQ(dataset->options.source, source());
  EXPECT_EQ(dataset->options.inverse_edges, InverseEdges::kKeep);
  EXPECT_EQ(dataset->options.split, "plain");
  EXPECT_EQ(dataset->options.split_seed, UINT64_MAX);
  EXPECT_EQ(dataset->options.train_fraction, 0.1);
  EXPECT_EQ(std::get<GraphSetSummary>(*dataset->summary).all.edges, 5);
}

TEST_F(CatalogTest, StoresAreSharedAndCountedWhileUsed) {
  const auto catalog = Open();
  ASSERT_TRUE(catalog->Import(Id("small"), Options()).ok());
  ASSERT_EQ(AwaitEnd(*catalog, Id("small"))->state, DatasetState::kReady);
  EXPECT_EQ(catalog->usage().mapped_bytes, 0u);
  auto first = catalog->Open(Id("small")), second = catalog->Open(Id("small"));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(*first, *second);
  EXPECT_EQ(catalog->usage().mapped_bytes, StoreBytes(SummaryOf(*first)));
  first = second = absl::UnknownError("");
  EXPECT_EQ(catalog->usage().mapped_bytes, 0u);
  EXPECT_EQ(GetReason(catalog->Open(Id("other")).status()).reason, "DATASET_NOT_FOUND");
}

TEST_F(CatalogTest, OneLargeGraphIsADatasetToo) {
  TestGraph graph = MakeTestGraph({.nodes = 10, .edges = 20});
  ImportOptions options = Options();
  options.source = root() / "edges.csv";
  options.format = ImportFormat::kEdgeList;
  options.edge_list.columns = {EdgeColumn::kTimestamp};
  WriteText(options.source, "0,1,2\n");
  {
    const auto catalog = Open([&graph](const ImportOptions&, const fs::path& store, const ImportObserver&,
                                       const std::stop_token&, const ImportLimits&) -> absl::StatusOr<ImportedSummary> {
      if (absl::Status written = graph.Write(store); !written.ok()) return written;
      return graph.summary;
    });
    ASSERT_TRUE(catalog->Import(Id("large"), options).ok());
    ASSERT_TRUE(catalog->Import(Id("spare"), options).ok());
    const auto ready = AwaitEnd(*catalog, Id("large"));
    ASSERT_EQ(ready->state, DatasetState::kReady) << ready->error;
    EXPECT_EQ(std::get<GraphSummary>(*ready->summary).edges, 20);
    ASSERT_EQ(AwaitEnd(*catalog, Id("spare"))->state, DatasetState::kReady);
  }
  const auto catalog = Open();
  const auto ready = catalog->Get(Id("large"));
  ASSERT_EQ(ready->state, DatasetState::kReady) << ready->error;
  EXPECT_EQ(std::get<GraphSummary>(*ready->summary).store_bytes, graph.summary.store_bytes);
  EXPECT_EQ(ready->options.format, ImportFormat::kEdgeList);
  EXPECT_EQ(ready->options.edge_list, options.edge_list);
  {
    const auto first = catalog->Open(Id("large")), second = catalog->Open(Id("large"));
    ASSERT_TRUE(first.ok() && second.ok()) << first.status();
    EXPECT_EQ(*first, *second) << "shared";
    EXPECT_EQ(std::get<std::shared_ptr<const Graph>>(*first)->view().nodes, 10u);
    EXPECT_EQ(catalog->usage().mapped_bytes, graph.summary.store_bytes);
  }
  EXPECT_EQ(catalog->usage().mapped_bytes, 0u);
  WriteText(directory() / "spare" / "graph.pfg", "short");
  EXPECT_EQ(catalog->Open(Id("spare")).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Open()->Get(Id("spare"))->error, HasSubstr("graph.pfg: file length: is 5"));
}

TEST_F(CatalogTest, RefusesWhatCannotBe) {
  const auto catalog = Open();
  EXPECT_EQ(catalog->Import(Id("Bad Name"), Options()).status().code(), absl::StatusCode::kInvalidArgument);
  ImportOptions fractions = Options();
  fractions.train_fraction = 2;
  EXPECT_EQ(GetViolations(catalog->Import(Id("a"), fractions).status()).at(0).field, "options.train_fraction");
  ASSERT_TRUE(catalog->Import(Id("small"), Options()).ok());
  const absl::Status again = catalog->Import(Id("small"), Options()).status();
  EXPECT_EQ(again.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(GetReason(again).reason, "DATASET_ALREADY_EXISTS");
  ASSERT_EQ(AwaitEnd(*catalog, Id("small"))->state, DatasetState::kReady);
  EXPECT_EQ(catalog->Import(Id("small"), Options()).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(catalog->Get(Id("other")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(GetReason(catalog->Delete(Id("other"), Unused)).reason, "DATASET_NOT_FOUND");
  catalog->StopImports();
  catalog->StopImports();
  EXPECT_EQ(catalog->Import(Id("late"), Options()).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(OnDisk(), ElementsAre("small"));
}

TEST_F(CatalogTest, ImportRootsCannotBeLeft) {
  const fs::path outside = temp_.path() / "outside";
  WriteFiles(outside, SmallSet());
  WriteFiles(temp_.path() / "root-old", SmallSet());
  fs::create_directory_symlink(outside, root() / "linked");
  fs::create_directory_symlink(source(), root() / "alias");
  const auto copy = [&](const char* name) {
    WriteFiles(root() / name, SmallSet());
    return root() / name;
  };
  const auto relink = [&](const fs::path& link, const fs::path& target) {
    fs::remove_all(link);
    fs::create_symlink(target, link);
  };
  relink(copy("file") / "raw" / "edge.csv", outside / "raw" / "edge.csv");
  relink(copy("raw-dir") / "raw", outside / "raw");
  relink(copy("split-dir") / "split" / "plain", outside / "split" / "plain");
  relink(copy("split-file") / "split" / "plain" / "test.csv", outside / "split" / "plain" / "test.csv");
  relink(copy("dangling") / "raw" / "edge.csv", outside / "raw" / "nothing");
  relink(copy("inside") / "raw" / "edge.csv", source() / "raw" / "edge.csv");
  relink(copy("arrays") / "edge_index.npy", outside / "raw" / "edge.csv");
  relink(copy("others") / "README", outside / "raw" / "edge.csv");
  fs::create_symlink(outside / "raw" / "edge.csv", root() / "linked.csv");
  fs::create_symlink(source() / "raw" / "edge.csv", root() / "alias.csv");
  ASSERT_EQ(mkfifo((root() / "pipe").c_str(), 0600), 0);
  // A directory is imported as a set of graphs. For a file, the importer writes a fixed small graph.
  const auto catalog = Open([](const ImportOptions& options, const fs::path& store, const ImportObserver& observer,
                               std::stop_token stop, const ImportLimits& limits) -> absl::StatusOr<ImportedSummary> {
    if (fs::is_directory(options.source)) return data::Import(options, store, observer, std::move(stop), limits);
    TestGraph graph = MakeTestGraph({.nodes = 3, .edges = 3});
    if (absl::Status written = graph.Write(store); !written.ok()) return written;
    return graph.summary;
  });
  const struct {
    const char* why;
    fs::path source;
    absl::StatusCode want;
  } kCases[] = {
      {"another directory", outside, absl::StatusCode::kPermissionDenied},
      {"up and out", root() / ".." / "outside", absl::StatusCode::kPermissionDenied},
      {"through what does not exist", root() / "nothing" / ".." / ".." / "outside",
       absl::StatusCode::kPermissionDenied},
      {"a name that begins alike", temp_.path() / "root-old", absl::StatusCode::kPermissionDenied},
      {"a linked directory", root() / "linked", absl::StatusCode::kPermissionDenied},
      {"..  behind a link", root() / "linked" / ".." / "root-old", absl::StatusCode::kPermissionDenied},
      {"a linked file", root() / "file", absl::StatusCode::kPermissionDenied},
      {"a linked raw/", root() / "raw-dir", absl::StatusCode::kPermissionDenied},
      {"a linked split folder", root() / "split-dir", absl::StatusCode::kPermissionDenied},
      {"a linked split file", root() / "split-file", absl::StatusCode::kPermissionDenied},
      {"a link to nothing outside", root() / "dangling", absl::StatusCode::kPermissionDenied},
      {"outside and not there: existence is not told", temp_.path() / "nothing", absl::StatusCode::kPermissionDenied},
      {"inside and not there", root() / "nothing", absl::StatusCode::kNotFound},
      {"a linked array", root() / "arrays", absl::StatusCode::kPermissionDenied},
      {"a linked file by itself", root() / "linked.csv", absl::StatusCode::kPermissionDenied},
      {"a file outside", outside / "raw" / "edge.csv", absl::StatusCode::kPermissionDenied},
      {"a pipe", root() / "pipe", absl::StatusCode::kInvalidArgument},
      {"a link that no import reads", root() / "others", absl::StatusCode::kOk},
      {"a file", source() / "raw" / "edge.csv", absl::StatusCode::kOk},
      {"a link to a file inside", root() / "alias.csv", absl::StatusCode::kOk},
      {"a link that stays inside", root() / "inside", absl::StatusCode::kOk},
      {"a linked directory that stays inside", root() / "alias", absl::StatusCode::kOk},
      {"up and in again", root() / "small" / ".." / "small", absl::StatusCode::kOk},
  };
  int accepted = 0;
  for (const auto& c : kCases) {
    ImportOptions options;
    options.source = c.source;
    const DatasetId id("set-" + std::to_string(accepted));
    const auto dataset = catalog->Import(id, options);
    EXPECT_EQ(dataset.status().code(), c.want) << c.why << ": " << dataset.status();
    if (c.want == absl::StatusCode::kPermissionDenied) {
      EXPECT_EQ(GetReason(dataset.status()).reason, "PATH_OUTSIDE_IMPORT_ROOTS") << c.why;
    }
    if (!dataset.ok()) continue;
    ++accepted;
    EXPECT_EQ(AwaitEnd(*catalog, id)->state, DatasetState::kReady) << c.why;
  }
  EXPECT_EQ(accepted, 6);
}

TEST_F(CatalogTest, WithoutRootsNothingIsImportedAndTheRootOfAllAllowsAll) {
  const auto closed = Catalog::Create({.directory = directory(), .import_roots = {}});
  ASSERT_TRUE(closed.ok());
  EXPECT_EQ((*closed)->Import(Id("a"), Options()).status().code(), absl::StatusCode::kPermissionDenied);
  const auto open = Catalog::Create({.directory = temp_.path() / "other", .import_roots = {"/"}});
  ASSERT_TRUE(open.ok());
  EXPECT_TRUE((*open)->Import(Id("a"), Options()).ok());
  EXPECT_EQ(AwaitEnd(**open, Id("a"))->state, DatasetState::kReady);
}

// Only the uid is compared, so the clock does not matter.
TEST_F(CatalogTest, EachImportOfANameIsAnotherDataset) {
  std::string imported;
  {
    const auto catalog = Open();
    const auto first = catalog->Import(Id("small"), Options());
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ(first->uid.size(), 32u);
    ASSERT_EQ(AwaitEnd(*catalog, Id("small"))->state, DatasetState::kReady);
    ASSERT_TRUE(catalog->Delete(Id("small"), Unused).ok());
    const auto second = catalog->Import(Id("small"), Options());
    ASSERT_TRUE(second.ok()) << second.status();
    EXPECT_NE(second->uid, first->uid);
    ASSERT_EQ(AwaitEnd(*catalog, Id("small"))->state, DatasetState::kReady);
    imported = second->uid;
  }
  EXPECT_EQ(Open()->Get(Id("small"))->uid, imported);
  // A version without uids leaves a record like this.
  const fs::path path = directory() / "small" / "dataset.json";
  auto record = RecordFromJson(ReadFile(path).value());
  ASSERT_TRUE(record.ok()) << record.status();
  record->uid.clear();
  WriteText(path, RecordToJson(*record));
  EXPECT_EQ(Open()->Get(Id("small"))->uid, DatasetUidOfTime(record->create_time));
}

TEST_F(CatalogTest, AFailedImportKeepsItsErrorAndMayBeReplaced) {
  WriteText(source() / "raw" / "edge.csv", "2,0\n0,9\n2,0\n1,2\n0,0\n");
  absl::Time create_time;
  {
    const auto catalog = Open();
    ASSERT_TRUE(catalog->Import(Id("small"), Options()).ok());
    const auto failed = AwaitEnd(*catalog, Id("small"));
    ASSERT_EQ(failed->state, DatasetState::kFailed);
    EXPECT_EQ(failed->error, "raw/edge.csv:2: target: 9 is outside 0..2 (graph 0 has 3 nodes)");
    EXPECT_EQ(catalog->usage().imports.failed, 1);
    EXPECT_EQ(GetReason(catalog->Open(Id("small")).status()).reason, "DATASET_NOT_READY");
    create_time = failed->create_time;
  }
  EXPECT_THAT(OnDisk(), ElementsAre("small.json")) << "nothing half-imported remains";
  {
    const auto catalog = Open();
    const auto failed = catalog->Get(Id("small"));
    ASSERT_EQ(failed->state, DatasetState::kFailed) << "it does not begin anew";
    EXPECT_THAT(failed->error, HasSubstr("raw/edge.csv:2"));
    EXPECT_EQ(failed->create_time, create_time);
    WriteFiles(source(), SmallSet());
    ASSERT_TRUE(catalog->Import(Id("small"), Options()).ok());
    EXPECT_EQ(AwaitEnd(*catalog, Id("small"))->state, DatasetState::kReady);
  }
  EXPECT_THAT(OnDisk(), ElementsAre("small"));
}

TEST_F(CatalogTest, DeletesInEveryState) {
  auto catalog = Open();
  ASSERT_TRUE(catalog->Import(Id("ready"), Options()).ok());
  ASSERT_EQ(AwaitEnd(*catalog, Id("ready"))->state, DatasetState::kReady);
  const auto held = catalog->Open(Id("ready"));
  const absl::Status refused =
      catalog->Delete(Id("ready"), [] { return absl::FailedPreconditionError("job x uses it"); });
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(catalog->Get(Id("ready")).ok());
  ASSERT_TRUE(catalog->Delete(Id("ready"), Unused).ok());
  EXPECT_EQ(catalog->Get(Id("ready")).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(held.ok());
  EXPECT_TRUE(std::get<0>(*held)->edge_target().ok()) << "who has it open keeps it";

  WriteText(source() / "raw" / "edge.csv", "x\n");
  ASSERT_TRUE(catalog->Import(Id("failed"), Options()).ok());
  ASSERT_EQ(AwaitEnd(*catalog, Id("failed"))->state, DatasetState::kFailed);
  ASSERT_TRUE(catalog->Delete(Id("failed"), Unused).ok());

  ImportOptions large;
  large.source = LargeSource();
  ASSERT_TRUE(catalog->Import(Id("running"), large).ok());
  ASSERT_TRUE(catalog->Import(Id("waiting"), large).ok());
  AwaitProgress(*catalog, Id("running"));
  ASSERT_TRUE(catalog->Delete(Id("waiting"), Unused).ok());
  ASSERT_TRUE(catalog->Delete(Id("running"), Unused).ok());
  EXPECT_EQ(catalog->usage().imports.cancelled, 2);
  EXPECT_THAT(catalog->List(), IsEmpty());
  EXPECT_EQ(AwaitEnd(*catalog, Id("running")).status().code(), absl::StatusCode::kNotFound);
  catalog.reset();  // waits for its thread to end
  EXPECT_THAT(OnDisk(), IsEmpty());
}

TEST_F(CatalogTest, AnImportThatIsStoppedBeginsAnewAtTheNextStart) {
  ImportOptions options;
  options.source = LargeSource();
  absl::Time create_time;
  {
    const auto catalog = Open();
    create_time = catalog->Import(Id("large"), options)->create_time;
    ASSERT_TRUE(catalog->Import(Id("small"), Options()).ok());
    AwaitProgress(*catalog, Id("large"));
    catalog->StopImports();
    EXPECT_EQ(catalog->Get(Id("large"))->state, DatasetState::kImporting);
    EXPECT_EQ(catalog->usage().imports.cancelled, 0) << "it is not given up";
  }
  EXPECT_THAT(OnDisk(), ElementsAre("large.json", "small.json"));
  WriteFiles(root() / "large", SmallSet());  // makes the import end soon
  fs::remove(root() / "large" / "raw" / "edge.csv.gz");
  const auto catalog = Open();
  EXPECT_EQ(AwaitEnd(*catalog, Id("large"))->state, DatasetState::kReady);
  EXPECT_EQ(AwaitEnd(*catalog, Id("small"))->state, DatasetState::kReady);
  EXPECT_EQ(catalog->Get(Id("large"))->create_time, create_time);
}

TEST_F(CatalogTest, WhatCannotBeOpenedIsListedAsFailed) {
  {
    const auto catalog = Open();
    for (const char* name : {"damaged", "lost"}) {
      ASSERT_TRUE(catalog->Import(Id(name), Options()).ok());
      ASSERT_EQ(AwaitEnd(*catalog, Id(name))->state, DatasetState::kReady);
    }
  }
  WriteText(directory() / "damaged" / "graphs.pfg", "short");
  fs::remove(directory() / "lost" / "dataset.json");
  WriteText(directory() / ".imports" / "scribble.json", "{]");
  WriteText(directory() / "Not An Id", "");
  WriteText(directory() / "file", "");
  const auto catalog = Open();
  ASSERT_EQ(catalog->List().size(), 3u);
  EXPECT_THAT(catalog->Get(Id("damaged"))->error, HasSubstr("file length: is 5"));
  EXPECT_THAT(catalog->Get(Id("lost"))->error, HasSubstr("dataset.json"));
  EXPECT_THAT(catalog->Get(Id("scribble"))->error, HasSubstr("scribble.json"));
  for (const Dataset& dataset : catalog->List()) EXPECT_EQ(dataset.state, DatasetState::kFailed) << dataset.id.value();
  ASSERT_TRUE(catalog->Import(Id("damaged"), Options()).ok()) << "a failed one may be replaced";
  EXPECT_EQ(AwaitEnd(*catalog, Id("damaged"))->state, DatasetState::kReady);
  EXPECT_TRUE(catalog->Delete(Id("lost"), Unused).ok());
  EXPECT_EQ(GetReason(catalog->Import(Id("file"), Options()).status()).reason, "DATASET_ALREADY_EXISTS");
  EXPECT_TRUE(catalog->Delete(Id("scribble"), Unused).ok());
  EXPECT_THAT(OnDisk(), ElementsAre(".quarantine", "Not An Id", "damaged", "file"));
}

TEST_F(CatalogTest, ManyThreads) {
  auto catalog = Open();
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const DatasetId id(t % 2 == 0 ? "even" : "odd");
      for (int i = 0; i < 10; ++i) {
        const auto dataset = catalog->Import(id, Options());
        if (dataset.ok()) catalog->Get(id).status().IgnoreError();
        if (i % 2 == 0) AwaitEnd(*catalog, id).status().IgnoreError();
        catalog->Open(id).status().IgnoreError();
        catalog->List();
        (void)catalog->usage();
        const absl::Status deleted = catalog->Delete(id, Unused);
        EXPECT_TRUE(deleted.ok() || absl::IsNotFound(deleted)) << deleted;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const char* name : {"even", "odd"}) catalog->Delete(Id(name), Unused).IgnoreError();
  catalog.reset();
  EXPECT_THAT(OnDisk(), IsEmpty());
}

}  // namespace
}  // namespace permafrost::data
