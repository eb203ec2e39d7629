// Compares the census of every model with pinned values, and with steps that are counted one by one.
#include "train/planning/cache_planner.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "device/backend.h"
#include "device/mps/stand_in.h"
#include "device/staging.h"
#include "step_cases.h"
#include "temp_dir.h"
#include "train/loop/step_engine.h"
#include "train/tasks/task.h"

namespace permafrost::train {
namespace {

using graphcache::Census;
using graphcache::ModeCensus;
using graphcache::TorchRelease;
using ::testing::IsEmpty;

class CensusTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { device::UseThreads(2); }
  void SetUp() override {
    if (!device::MpsStandIn::present()) GTEST_SKIP() << "MPS is real here, or libtorch is for another accelerator";
  }
  data::OpenedDataset Open(const CaseData& data) { return Write(data, dir_.path() / std::to_string(++folders_)); }
  static Census Take(const spec::TrainOptions& options, const data::OpenedDataset& dataset, TorchRelease release) {
    auto census = TakeCensus({.options = options, .dataset = dataset, .release = release}, 2, {}, [] { return true; });
    EXPECT_TRUE(census.ok()) << census.status();
    return census.ok() ? *census : Census{.lowerings = {{}, {}}};
  }

  TempDir dir_;
  int folders_ = 0;
};

// Returns the entries of a step at one shape, such as "linear 4, mm 9".
std::string Entries(const ModeCensus& census) {
  std::string text;
  for (const graphcache::OpCensus& op : census.ops) {
    text += (text.empty() ? "" : ", ") + op.op.substr(6) + " " + std::to_string(op.shape);
  }
  return text;
}

std::string ReadReference() {
  std::ifstream file(std::string(PERMAFROST_SOURCE_DIR) + "/server/graphcache/REFERENCE.md");
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(CensusTest, EveryOperatorOfEveryModelHasARule) {
  for (const StepCase& c : StepCases()) {
    // Jobs with walks have operators without a rule, which are reported as unknown. Their batches all have one shape.
    if (Walks(c.options)) continue;
    for (const auto& lowering : Take(c.options, Open(c.data), TorchRelease::k2_13).lowerings) {
      EXPECT_THAT(lowering.unknown, IsEmpty()) << c.why << ", " << lowering.lowering;
      EXPECT_GT(lowering.modes[0].operators, 0) << c.why;
    }
  }
}

// The census of a training step and an evaluation step of each model. The jobs are small, with a plain loss, and
// sampled if they have one large graph.
struct Pinned {
  TorchRelease release;
  const char* lowering;
  std::string train, eval;
  bool operator==(const Pinned&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Pinned& p) {
  return out << "{" << graphcache::kTorchReleaseNames.Name(p.release) << ", " << p.lowering << ", \"" << p.train
             << "\", \"" << p.eval << "\"}";
}

TEST_F(CensusTest, OfEveryModelByBothReleasesAndLowerings) {
  using enum TorchRelease;
  constexpr const char *kPlain = "plain", *kFree = "shape-free";
  const std::map<std::string, std::vector<Pinned>> pinned{
      {"gine",
       {{k2_13, kPlain,
         "addmm 3, arange 1, index_add 3, index_add_ 3, index_select 4, mm 6, sgn 1, threshold_backward 3, where 5",
         "addmm 3, index_add 3, index_select 3, where 1"},
        {k2_13, kFree, "arange 1, where 5", "where 1"},
        {k2_15, kPlain, "addmm 3, mm 6, sgn 1, threshold_backward 3", "addmm 3"},
        {k2_15, kFree, "", ""}}},
      {"gine of nodes",
       {{k2_13, kPlain,
         "_log_softmax 1, _log_softmax_backward_data 1, addmm 6, arange 1, index_add 2, index_add_ 1, index_select 4, "
         "mm 10, threshold_backward 4, where 2",
         "_log_softmax 1, addmm 6, arange 1, index_add 2, index_select 2, where 2"},
        {k2_13, kFree, "arange 1, where 2", "arange 1, where 2"},
        {k2_15, kPlain, "_log_softmax 1, _log_softmax_backward_data 1, addmm 6, mm 10, threshold_backward 4",
         "_log_softmax 1, addmm 6"},
        {k2_15, kFree, "", ""}}},
      {"sage",
       {{k2_13, kPlain,
         "addmm 3, arange 3, index_add 4, index_add_ 1, index_select 4, mm 6, sgn 1, threshold_backward 1, where 5",
         "addmm 3, arange 2, index_add 3, index_select 2, where 1"},
        {k2_13, kFree, "arange 3, where 5", "arange 2, where 1"},
        {k2_15, kPlain, "addmm 3, mm 6, sgn 1, threshold_backward 1", "addmm 3"},
        {k2_15, kFree, "", ""}}},
      {"sage of nodes",
       {{k2_13, kPlain,
         "_log_softmax 1, _log_softmax_backward_data 1, addmm 2, arange 1, index_add 2, index_select 2, mm 3, "
         "threshold_backward 1, where 2",
         "_log_softmax 1, addmm 2, arange 1, index_add 1, index_select 1, where 2"},
        {k2_13, kFree, "arange 1, where 2", "arange 1, where 2"},
        {k2_15, kPlain, "_log_softmax 1, _log_softmax_backward_data 1, addmm 2, mm 3, threshold_backward 1",
         "_log_softmax 1, addmm 2"},
        {k2_15, kFree, "", ""}}},
      {"gcn",
       {{k2_13, kPlain,
         "addmm 3, arange 3, index_add 5, index_add_ 1, index_select 6, mm 6, sgn 1, threshold_backward 1, where 8",
         "addmm 3, arange 2, index_add 4, index_select 4, where 3"},
        {k2_13, kFree, "arange 3, where 8", "arange 2, where 3"},
        {k2_15, kPlain, "addmm 3, mm 6, sgn 1, threshold_backward 1", "addmm 3"},
        {k2_15, kFree, "", ""}}},
      {"gcn of nodes",
       {{k2_13, kPlain,
         "_log_softmax 1, _log_softmax_backward_data 1, addmm 2, arange 1, index_add 4, index_select 5, mm 3, "
         "threshold_backward 1, where 5",
         "_log_softmax 1, addmm 2, arange 1, index_add 3, index_select 4, where 4"},
        {k2_13, kFree, "arange 1, where 5", "arange 1, where 4"},
        {k2_15, kPlain, "_log_softmax 1, _log_softmax_backward_data 1, addmm 2, mm 3, threshold_backward 1",
         "_log_softmax 1, addmm 2"},
        {k2_15, kFree, "", ""}}},
      {"gin",
       {{k2_13, kPlain,
         "addmm 3, arange 1, index_add 3, index_add_ 2, index_select 3, mm 6, sgn 1, threshold_backward 2, where 5",
         "addmm 3, index_add 3, index_select 2, where 1"},
        {k2_13, kFree, "arange 1, where 5", "where 1"},
        {k2_15, kPlain, "addmm 3, mm 6, sgn 1, threshold_backward 2", "addmm 3"},
        {k2_15, kFree, "", ""}}},
      {"gin of nodes",
       {{k2_13, kPlain,
         "_log_softmax 1, _log_softmax_backward_data 1, addmm 4, arange 1, index_add 3, index_select 3, mm 7, "
         "threshold_backward 2, where 2",
         "_log_softmax 1, addmm 4, arange 1, index_add 2, index_select 2, where 2"},
        {k2_13, kFree, "arange 1, where 2", "arange 1, where 2"},
        {k2_15, kPlain, "_log_softmax 1, _log_softmax_backward_data 1, addmm 4, mm 7, threshold_backward 2",
         "_log_softmax 1, addmm 4"},
        {k2_15, kFree, "", ""}}},
      {"gatv2",
       {{k2_13, kPlain,
         "addmm 3, arange 3, index_add 7, index_add_ 4, index_select 9, mm 8, sgn 1, threshold_backward 1, where 7",
         "addmm 3, arange 2, index_add 6, index_select 7, mm 1, where 2"},
        {k2_13, kFree, "arange 3, where 7", "arange 2, where 2"},
        {k2_15, kPlain, "addmm 3, mm 8, sgn 1, threshold_backward 1", "addmm 3, mm 1"},
        {k2_15, kFree, "", ""}}},
      {"gatv2 of nodes",
       {{k2_13, kPlain,
         "_log_softmax 1, _log_softmax_backward_data 1, addmm 4, arange 1, index_add 4, index_add_ 6, index_select 6, "
         "mm "
         "6, threshold_backward 1, where 3",
         "_log_softmax 1, addmm 4, arange 1, index_add 4, index_select 6, where 3"},
        {k2_13, kFree, "arange 1, where 3", "arange 1, where 3"},
        {k2_15, kPlain, "_log_softmax 1, _log_softmax_backward_data 1, addmm 4, mm 6, threshold_backward 1",
         "_log_softmax 1, addmm 4"},
        {k2_15, kFree, "", ""}}},
  };
  const std::string reference = ReadReference();
  std::vector<std::string> names;
  for (const spec::ModelTraits& model : spec::kOwnModels) {
    if (model.of_graphs) names.emplace_back(model.name);
    if (model.of_nodes && !model.walks) names.push_back(std::string(model.name) + " of nodes");
  }
  for (const std::string& name : names) {
    EXPECT_TRUE(pinned.contains(name)) << "pin the census of " << name;
    const auto cases = StepCases();
    const auto job = std::ranges::find(cases, name, &StepCase::why);
    ASSERT_NE(job, cases.end());
    const auto dataset = Open(job->data);
    std::vector<Pinned> found;
    std::string row = "| " + name + " |";
    for (const TorchRelease release : {k2_13, k2_15}) {
      for (const spec::Lowering lowering : {spec::Lowering::kPlain, spec::Lowering::kShapeFree}) {
        spec::TrainOptions options = job->options;
        options.model.lowering = lowering;
        const auto census = Take(options, dataset, release).lowerings[0];
        found.push_back({release, lowering == spec::Lowering::kPlain ? kPlain : kFree, Entries(census.modes[0]),
                         Entries(census.modes[1])});
        row +=
            " " + std::to_string(census.modes[0].all.shape) + " + " + std::to_string(census.modes[1].all.shape) + " |";
      }
    }
    EXPECT_EQ(found, pinned.contains(name) ? pinned.at(name) : std::vector<Pinned>()) << name;
    EXPECT_NE(reference.find(row), std::string::npos) << "server/graphcache/REFERENCE.md lacks the row " << row;
  }
}

// Returns the number of entries that the first epoch's steps add, each run separately.
int64_t CountOneByOne(const spec::TrainOptions& options, const data::OpenedDataset& dataset, TorchRelease release) {
  const device::MpsStandIn within;
  const auto task = *Task::Create(options, dataset, at::kMPS, 2, [] { return true; });
  nn::Optimizer optimizer(options.optimizer, task->tensors().parameters());
  ErrorSums losses(at::kMPS);
  const device::StepProgram program = TrainProgram(*task, optimizer, LossOf(options, at::kMPS), losses, [](int) {});
  std::set<std::string> keys;
  int64_t entries = 0;
  const auto batches = task->TrainBatches(0, 0);
  for (int64_t step = 0;; ++step) {
    const auto batch = batches->Next();
    EXPECT_TRUE(batch.ok());
    if (*batch == nullptr) return entries;
    const auto inputs = (*batch)->PadTo((*batch)->least_padded(), step);
    EXPECT_TRUE(inputs.ok()) << inputs.status();
    const graphcache::StepInputs on_device = device::CopyToDevice(**inputs, at::kMPS);
    for (const graphcache::OpCall& call : device::RecordMpsCalls([&] { program.run(on_device); })) {
      std::string key = call.op + call.rest;
      for (const graphcache::CallTensor& tensor : call.tensors) {
        key += "|" + tensor.type;
        for (const int64_t size : tensor.sizes) key += "," + std::to_string(size);
      }
      for (const int64_t integer : call.integers) key += ";" + std::to_string(integer);
      if (keys.insert(key).second) entries += EntriesOf(call, release).value_or(0);
    }
  }
}

TEST_F(CensusTest, AnEpochIsWhatItsStepsAddOneByOne) {
  for (const StepCase& c : StepCases()) {
    const auto dataset = Open(c.data);
    for (const spec::Lowering lowering : {spec::Lowering::kPlain, spec::Lowering::kShapeFree}) {
      spec::TrainOptions options = c.options;
      options.model.lowering = lowering;
      const Census census = Take(options, dataset, TorchRelease::k2_13);
      EXPECT_EQ(census.lowerings[0].lowering, spec::kLoweringNames.Name(lowering));
      // For sampled blocks, the share of each planned rung is only an estimate.
      if (census.schedule.estimated) continue;
      EXPECT_EQ(census.lowerings[0].modes[0].all.epoch, CountOneByOne(options, dataset, TorchRelease::k2_13)) << c.why;
    }
  }
}

}  // namespace
}  // namespace permafrost::train
