// Tests `permafrost cache census` against a scripted server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "client/fake_server.h"
#include "client/plan_view.h"
#include "client/program.h"

namespace permafrost::client {
namespace {

using ::testing::HasSubstr;

v1::OperatorCensus Operator(const char* name, int64_t shape, int64_t epoch, int64_t run) {
  v1::OperatorCensus op;
  op.set_name(name);
  op.set_shape_entries(shape);
  op.set_epoch_entries(epoch);
  op.set_run_entries(run);
  return op;
}

void AddRow(v1::LoweringCensus& lowering, v1::GraphCachePolicy::Policy policy, v1::GraphCachePolicy::Shapes shapes,
            int64_t on_device, int64_t run) {
  v1::GraphCacheCensusRow& row = *lowering.add_rows();
  row.mutable_policy()->set_policy(policy);
  row.mutable_policy()->set_on_miss(v1::GraphCachePolicy::ON_MISS_PAD);
  row.set_shapes(shapes);
  row.set_train_shapes(on_device);
  row.set_eval_shapes(on_device / 2);
  row.set_shape_entries(14);
  row.set_epoch_entries(run / 2);
  row.set_run_entries(run);
  row.set_compiled(run);
}

v1::CensusGraphCacheResponse SampleCensusOnWire() {
  v1::CensusGraphCacheResponse census;
  census.set_torch_release("2.13");
  v1::BatchSchedule& schedule = *census.mutable_schedule();
  schedule.set_batching("random");
  schedule.set_epochs(10);
  schedule.set_batches(1000);
  schedule.set_first_epoch_shapes(97);
  schedule.set_shapes(640);
  census.set_freeze_at(50);
  v1::LoweringCensus& free = *census.add_lowerings();
  free.set_lowering(v1::ModelSpec::LOWERING_SHAPE_FREE);
  free.mutable_train()->set_operators(300);
  *free.mutable_train()->mutable_all() = Operator("", 0, 0, 0);
  AddRow(free, v1::GraphCachePolicy::POLICY_FREEZE, v1::GraphCachePolicy::SHAPES_LADDER, 8, 0);
  v1::LoweringCensus& plain = *census.add_lowerings();
  plain.set_lowering(v1::ModelSpec::LOWERING_PLAIN);
  plain.mutable_train()->set_operators(250);
  plain.mutable_eval()->set_operators(100);
  *plain.mutable_train()->add_by_operator() = Operator("aten::mm", 14, 1358, 8960);
  *plain.mutable_train()->mutable_all() = Operator("", 14, 1358, 8960);
  *plain.mutable_eval()->mutable_all() = Operator("", 5, 50, 50);
  AddRow(plain, v1::GraphCachePolicy::POLICY_FREEZE, v1::GraphCachePolicy::SHAPES_LADDER, 8, 132);
  AddRow(plain, v1::GraphCachePolicy::POLICY_ALWAYS, v1::GraphCachePolicy::SHAPES_EXACT, 640, 9010);
  AddRow(plain, v1::GraphCachePolicy::POLICY_FREEZE, v1::GraphCachePolicy::SHAPES_EXACT, 51, 900);
  AddRow(plain, v1::GraphCachePolicy::POLICY_FREEZE, v1::GraphCachePolicy::SHAPES_LADDER, 8, 132);
  plain.add_unknown_operators("aten::new_one");
  return census;
}

TEST(CensusViewTest, TablesByOperatorAndByPolicyForEachLowering) {
  EXPECT_EQ(RenderCensus(SampleCensusOnWire(), "zinc, batches of 32", {}),
            R"(  census   zinc, batches of 32, on MPS of libtorch 2.13
  batches  random: 1,000 batches in 10 epochs, 640 different shapes (97 in the first epoch); largest 0 nodes, 0 edges

  lowering   shape-free, the job's
  operators  300 in a training step, 0 in an evaluation step

STEP   OPERATOR  A SHAPE  AN EPOCH  THE RUN
train  all             0         0        0

       POLICY  SHAPES       ON DEVICE  A SHAPE  AN EPOCH  THE RUN  COMPILED
asked  freeze  ladder of 8      8 + 4       14         0        0         0

  lowering   plain
  operators  250 in a training step, 100 in an evaluation step
  unknown    aten::new_one

STEP   OPERATOR  A SHAPE  AN EPOCH  THE RUN
train  aten::mm       14     1,358    8,960
train  all            14     1,358    8,960
eval   all             5        50       50

       POLICY             SHAPES       ON DEVICE  A SHAPE  AN EPOCH  THE RUN  COMPILED
asked  freeze             ladder of 8      8 + 4       14        66      132       132
       always             exact        640 + 320       14     4,505    9,010     9,010
       freeze at 50, pad  exact          51 + 25       14       450      900       900
)");
}

TEST(CensusViewTest, AMeasurementStandsBesideIt) {
  v1::CensusGraphCacheResponse census = SampleCensusOnWire();
  census.set_measured_entries(8961);
  EXPECT_THAT(RenderCensus(census, "zinc", {}), HasSubstr("measured  8,961 entries, of the job that ran last"));
}

class CensusCommandTest : public testing::Test {
 protected:
  ProgramResult Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--server", fake_.address(), "cache", "census"});
    return RunProgram(arguments);
  }
  void Start() {
    fake_.censuses.cache = [this](const v1::CensusGraphCacheRequest& request, v1::CensusGraphCacheResponse& response) {
      requests_.Add(request);
      response = SampleCensusOnWire();
      return grpc::Status::OK;
    };
    fake_.Start();
  }

  Recorder<v1::CensusGraphCacheRequest> requests_;
  FakeServer fake_;
};

TEST_F(CensusCommandTest, TakesTheFlagsOfAJob) {
  Start();
  const ProgramResult result =
      Run({"--dataset", "zinc", "--model", "gine", "--lowering", "shape-free", "--torch", "2.15"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("aten::mm"));
  ASSERT_EQ(requests_.seen().size(), 1u);
  const v1::CensusGraphCacheRequest request = requests_.seen()[0];
  EXPECT_EQ(request.torch_release(), "2.15");
  EXPECT_EQ(request.spec().dataset(), "datasets/zinc");
  EXPECT_EQ(request.spec().model().lowering(), v1::ModelSpec::LOWERING_SHAPE_FREE);
}

TEST_F(CensusCommandTest, NoAnswerIsToldWithTheTimeThatItHad) {
  fake_.censuses.cache = [](const v1::CensusGraphCacheRequest&, v1::CensusGraphCacheResponse&) {
    return grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded");
  };
  fake_.Start();
  EXPECT_THAT(Run({"--dataset", "zinc"}).err, HasSubstr(" within 2m 00s (wait longer with --timeout SECONDS)"));
}

TEST_F(CensusCommandTest, WritesJson) {
  Start();
  const ProgramResult result = Run({"--dataset", "zinc", "--output", "json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json census = nlohmann::json::parse(result.out);
  EXPECT_EQ(census["lowerings"][1]["train"]["byOperator"][0]["runEntries"], "8960");
}

}  // namespace
}  // namespace permafrost::client
