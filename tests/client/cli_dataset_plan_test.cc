#include "client/fake_server.h"
#include "client/program.h"
#include "client/sampling_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace permafrost::client {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

v1::PlannedReading PlannedCase(v1::PlannedReading::Case what, int64_t memory, int64_t row) {
  v1::PlannedReading reading;
  reading.set_what(what);
  reading.set_memory_bytes(memory);
  reading.set_row_bytes(row);
  reading.set_pages_per_row(1);
  reading.set_held_rows(memory / row);
  reading.set_most_memory_bytes(500'000 * row);
  reading.set_hit_rate(0.63);
  reading.set_reads(480'000);
  reading.set_bytes(2e9);
  reading.set_missed_row_bytes(1.9e9);
  reading.set_seconds(7.5);
  reading.set_packed_seconds(2.25);
  reading.set_fill_seconds(1.25);
  return reading;
}

v1::PlanDatasetResponse PlanOfReading() {
  v1::PlanDatasetResponse plan;
  plan.set_num_nodes(500'000);
  plan.set_num_train_nodes(50'000);
  plan.set_num_batches(196);
  plan.set_sampled_batches(196);
  plan.set_mean_rows(6939);
  plan.set_largest_rows(7100);
  plan.set_rows_per_epoch(1.36e6);
  plan.set_distinct_rows(377'000);
  plan.set_edge_bytes(44'000'000);
  plan.mutable_disk()->set_depth(32);
  plan.mutable_disk()->set_seconds_per_read(11e-6);
  plan.mutable_disk()->set_seconds_per_byte(1e-9);
  plan.mutable_disk()->set_sequential_bytes_per_second(9e8);
  plan.mutable_disk()->set_how("io_uring, 2.05 GB of graph.pfg, 0.4 s");
  *plan.add_readings() = PlannedCase(v1::PlannedReading::CASE_AS_ASKED, 350'000'000, 4000);
  *plan.add_readings() = PlannedCase(v1::PlannedReading::CASE_BFLOAT16, 350'000'000, 2000);
  return plan;
}

TEST(DatasetPlanView, FeaturesOfEdgesAreSaidWhereThereAreSome) {
  v1::PlanDatasetResponse plan = PlanOfReading();
  plan.set_edge_feature_bytes(96'000'000);
  EXPECT_THAT(RenderDatasetPlan(plan, "big", {}),
              testing::HasSubstr("  edges  44.0 MB of memory beside the rows, and 96.0 MB where a model reads their "
                                 "features\n"));
}

TEST(DatasetPlanView, OneLineForEachCase) {
  EXPECT_EQ(RenderDatasetPlan(PlanOfReading(), "big", {}),
            "  plan   an epoch of 196 batches over 50,000 of 500,000 nodes of big\n"
            "  rows   6.94k a batch, 7.10k in the largest; 1.36M an epoch; 377,000 different ones\n"
            "  edges  44.0 MB of memory beside the rows\n"
            "  disk   11 us a request and 1.00 GB/s at 32 reads at once, 900 MB/s in sequence (io_uring, 2.05 GB of "
            "graph.pfg, 0.4 s)\n"
            "\n"
            "             MEMORY      ROW  PAGES    HELD    HITS  READS     READ  OF IT ROWS  AN EPOCH    ONCE\n"
            "as asked     350 MB  4.00 kB      1  17.5 %  63.0 %   480k  2.00 GB      95.0 %    7.50 s  1.25 s\n"
            "as bfloat16  350 MB  2.00 kB      1  35.0 %  63.0 %   480k  2.00 GB      95.0 %    7.50 s  1.25 s\n"
            "\n"
            "  memory  all rows are held by 2.00 GB, as bfloat16 by 1.00 GB\n"
            "  order   an epoch takes 2.25 s at least, however the nodes are ordered\n");
}

TEST(DatasetPlanView, APartThatWasSampledSaysSo) {
  v1::PlanDatasetResponse plan = PlanOfReading();
  EXPECT_THAT(RenderDatasetPlan(plan, "big", {}), Not(HasSubstr("sampled")));
  plan.set_sampled_batches(40);
  EXPECT_THAT(RenderDatasetPlan(plan, "big", {}),
              HasSubstr("sampled  40 of the batches; sums of an epoch are scaled up from them\n"));
}

TEST(DatasetPlanView, WhatAllFitsReadsNothing) {
  v1::PlanDatasetResponse plan = PlanOfReading();
  v1::PlannedReading& asked = *plan.mutable_readings(0);
  asked.set_hit_rate(1);
  asked.clear_reads();
  asked.clear_bytes();
  asked.clear_missed_row_bytes();
  asked.clear_seconds();
  const std::string text = RenderDatasetPlan(plan, "big", {});
  EXPECT_THAT(text, HasSubstr(" 100 % "));
  EXPECT_THAT(text, Not(HasSubstr("order")));
  EXPECT_THAT(text, HasSubstr("      0      0 B           -    0.00 s"));
}

class DatasetPlanCommandTest : public testing::Test {
 protected:
  ProgramResult Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--server", fake_.address(), "dataset", "plan"});
    return RunProgram(arguments);
  }

  FakeServer fake_;
  Recorder<v1::PlanDatasetRequest> plans_;
};

TEST_F(DatasetPlanCommandTest, SendsWhatToPlan) {
  fake_.datasets.plan = [this](const v1::PlanDatasetRequest& request, v1::PlanDatasetResponse& response) {
    plans_.Add(request);
    response = PlanOfReading();
    return grpc::Status::OK;
  };
  fake_.Start();
  const ProgramResult result = Run({"big", "--memory", "4GB", "--fan-out", "15,all", "--replace", "--weighted",
                                    "--batch-size", "256", "--seed", "7"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, RenderDatasetPlan(PlanOfReading(), "big", {}));
  const ProgramResult json = Run({"big", "--memory", "512MiB", "--fan-out", "5", "--output", "json"});
  EXPECT_EQ(json.exit_code, 0) << json.err;
  EXPECT_THAT(json.out, HasSubstr("CASE_AS_ASKED"));
  ASSERT_EQ(plans_.seen().size(), 2u);
  const v1::PlanDatasetRequest sent = plans_.seen()[0];
  EXPECT_EQ(sent.name(), "datasets/big");
  EXPECT_EQ(sent.memory_bytes(), 4'000'000'000);
  EXPECT_THAT(sent.neighbors().fan_outs(), ElementsAre(15, -1));
  EXPECT_TRUE(sent.neighbors().replace());
  EXPECT_TRUE(sent.neighbors().weighted());
  EXPECT_EQ(sent.batch_size(), 256);
  EXPECT_EQ(sent.seed(), 7u);
  EXPECT_EQ(plans_.seen()[1].memory_bytes(), 512 << 20);
  EXPECT_EQ(plans_.seen()[1].batch_size(), 0) << "the server's default";
}

TEST_F(DatasetPlanCommandTest, MustKnowWhatToPlan) {
  fake_.Start();
  EXPECT_EQ(Run({"big", "--fan-out", "5"}).exit_code, 2) << "--memory is missing";
  EXPECT_EQ(Run({"big", "--memory", "1GB"}).exit_code, 2) << "--fan-out is missing";
  EXPECT_EQ(Run({"big", "--memory", "much", "--fan-out", "5"}).exit_code, 2);
}

TEST_F(DatasetPlanCommandTest, AFailureIsTold) {
  fake_.datasets.plan = [](const v1::PlanDatasetRequest&, v1::PlanDatasetResponse&) {
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "dataset zinc holds many small graphs");
  };
  fake_.Start();
  const ProgramResult result = Run({"zinc", "--memory", "1GB", "--fan-out", "5"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("holds many small graphs"));
  EXPECT_EQ(result.out, "");
}

}  // namespace
}  // namespace permafrost::client
