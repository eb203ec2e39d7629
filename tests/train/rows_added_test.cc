// Measures the rows that padding adds on real sets, for random and composed batches, on ladders of one, four and
// eight rungs.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "data/import/import.h"
#include "data/source/source_file.h"
#include "data/store/graph_set.h"
#include "graphcache/shape_plan.h"
#include "temp_dir.h"
#include "train/planning/batch_schedule.h"

namespace permafrost::train {
namespace {

namespace fs = std::filesystem;
using spec::BatchingKind;

constexpr int64_t kEpochs = 30, kBatchSize = 32;

// Returns the rows that padding adds to all batches of the planned epochs, in per cent of the real rows.
double RowsAdded(const std::vector<data::GraphSize>& sizes, BatchingKind kind, int64_t rungs) {
  std::vector<uint32_t> graphs(sizes.size());
  for (size_t i = 0; i < graphs.size(); ++i) graphs[i] = static_cast<uint32_t>(i);
  const data::EpochOrder epochs(graphs, {.batch_size = kBatchSize, .seed = 1, .batching = {.kind = kind}}, sizes);
  graphcache::ShapeCounter shapes;
  int64_t real = 0;
  for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const data::EpochBatches order = epochs.Of(epoch);
    for (int64_t b = 0; b < epochs.batches_per_epoch(); ++b) {
      BatchShape shape;
      for (const uint32_t graph : epochs.Batch(order, b)) {
        shape.nodes += sizes[graph].nodes;
        shape.edges += sizes[graph].edges;
        ++shape.graphs;
      }
      real += graphcache::Rows(shape);
      shapes.Add(data::Batcher::LeastPadded(shape));
    }
  }
  graphcache::ShapeSchedule plan;
  plan.train_schedule = graphcache::MergeNeighbours(shapes.Counts());
  const std::vector<BatchShape> ladder = LadderOf(plan, Mode::kTrain, rungs);
  int64_t padded = 0;
  for (const graphcache::ShapeCount& s : shapes.Counts()) {
    int64_t least = -1;
    for (const BatchShape& rung : ladder)
      if (rung.Holds(s.shape) && (least < 0 || graphcache::Rows(rung) < least)) least = graphcache::Rows(rung);
    EXPECT_GE(least, 0) << ToString(s.shape) << " finds no rung";
    padded += least * s.count;
  }
  return 100 * static_cast<double>(padded - real) / static_cast<double>(real);
}

struct Most {
  BatchingKind kind;
  int64_t rungs;
  double percent;
};

void ExpectAtMost(const char* name, const std::vector<data::GraphSize>& sizes, const std::vector<Most>& wanted) {
  for (const Most& most : wanted) {
    const double added = RowsAdded(sizes, most.kind, most.rungs);
    const std::string batching(spec::kBatchingNames.Name(most.kind));
    std::cout << absl::StrFormat("%s, %s batches, %d rungs: %.2f %% rows added\n", name, batching, most.rungs, added);
    EXPECT_LE(added, most.percent) << name << ", " << batching << ", " << most.rungs;
  }
}

std::vector<data::GraphSize> TrainSizes(const data::Batcher& batcher) {
  std::vector<data::GraphSize> sizes;
  for (const uint32_t graph : batcher.split(data::Split::kTrain)) {
    const BatchShape shape = batcher.ShapeOf({&graph, 1});
    sizes.push_back({shape.nodes, shape.edges});
  }
  return sizes;
}

TEST(RowsAdded, OfTheShippedSample) {
  const TempDir temp;
  fs::create_directories(temp.path() / "store");
  const fs::path source = fs::path(PERMAFROST_SOURCE_DIR) / "deploy/sample/zinc";
  ASSERT_TRUE(data::Import({.source = source}, temp.path() / "store", [](const auto&) {}, {}).ok());
  const auto batcher = *data::Batcher::Create(*data::GraphSet::Open(temp.path() / "store"));
  ExpectAtMost("ZINC", TrainSizes(*batcher),
               {{BatchingKind::kRandom, 1, 20},
                {BatchingKind::kRandom, 4, 3},
                {BatchingKind::kRandom, 8, 1.5},
                {BatchingKind::kBalanced, 1, 1},
                {BatchingKind::kBalanced, 4, 0.5},
                {BatchingKind::kBalanced, 8, 0.3}});
}

// Returns the text of a member of a zipped TUDataset.
std::string ReadMember(const fs::path& archive, const std::string& member) {
  const data::ImportObserver observer;
  const data::ImportLimits limits;
  data::ImportMonitor monitor(0, observer, {}, limits);
  auto reader = data::OpenZipMember({.path = archive, .name = archive.filename()}, member, monitor);
  if (!reader.ok()) throw std::runtime_error(std::string(reader.status().message()));
  std::string text;
  for (char block[1 << 16];;) {
    const auto bytes = (*reader)->Read(block, sizeof block);
    if (!bytes.ok()) throw std::runtime_error(std::string(bytes.status().message()));
    if (*bytes == 0) return text;
    text.append(block, *bytes);
  }
}

TEST(RowsAdded, OfProteinsWhereNearlyEachBatchIsANewShape) {
  const fs::path archive = fs::path(PERMAFROST_SOURCE_DIR) / "../shared/data/tu/PROTEINS.zip";
  if (!fs::exists(archive)) GTEST_SKIP() << "the shared data set PROTEINS is not here";
  std::istringstream indicator(ReadMember(archive, "PROTEINS/PROTEINS_graph_indicator.txt"));
  std::vector<size_t> graph_of;
  std::vector<data::GraphSize> sizes;
  for (size_t graph = 0; indicator >> graph;) {
    graph_of.push_back(graph - 1);
    if (graph > sizes.size()) sizes.resize(graph);
    ++sizes[graph - 1].nodes;
  }
  std::istringstream edges(ReadMember(archive, "PROTEINS/PROTEINS_A.txt"));
  char comma = 0;
  for (size_t from = 0, to = 0; edges >> from >> comma >> to;) ++sizes[graph_of[from - 1]].edges;
  ASSERT_EQ(sizes.size(), 1113U);
  ExpectAtMost("PROTEINS", sizes,
               {{BatchingKind::kRandom, 1, 200},
                {BatchingKind::kRandom, 8, 10},
                {BatchingKind::kBalanced, 1, 7},
                {BatchingKind::kBalanced, 4, 3}});
}

}  // namespace
}  // namespace permafrost::train
