// Tests the conversion of jobs to the wire.
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <limits>

#include "api/wire/convert_job.h"
#include "base/status.h"
#include "google/rpc/error_details.pb.h"
#include "job_requests.h"

namespace permafrost::api {
namespace {

TEST(JobToWire, TheMetricIsTheLosss) {
  const struct {
    spec::Loss loss;
    v1::Metric metric;
  } kCases[] = {{spec::Loss::kL1, v1::METRIC_MAE},
                {spec::Loss::kMse, v1::METRIC_MAE},
                {spec::Loss::kCrossEntropy, v1::METRIC_ACCURACY},
                {spec::Loss::kBce, v1::METRIC_ROC_AUC}};
  for (const auto& c : kCases) {
    jobs::Job job = MakeJob("a", jobs::JobState::kSucceeded);
    job.spec.train.loss = c.loss;
    job.epochs = {{.epoch = 1}};
    job.result = train::RunResult();
    const v1::Job wire = JobToWire(job);
    EXPECT_EQ(wire.epochs(0).metric(), c.metric);
    EXPECT_EQ(wire.result().metric(), c.metric);
  }
}

TEST(JobToWire, CarriesEveryField) {
  jobs::Job job = MakeJob("a", jobs::JobState::kFailed);
  job.start_time = absl::FromUnixMillis(1'700'000'001'500);
  job.end_time = absl::FromUnixSeconds(1'700'000'002);
  job.error = "bad \xFF byte";
  job.failure = {absl::StatusCode::kDataLoss, "DATA_DAMAGED", {{"file", "f"}}};
  job.history = {{{jobs::JobState::kWarmingUp, absl::FromUnixSeconds(7), "CAPTURING", "bad \xFF byte"}}, 3};
  job.device_time = absl::Milliseconds(1500);
  job.progress = {.epoch = 1,
                  .step_in_epoch = 2,
                  .steps_per_epoch = 3,
                  .step = 4,
                  .loss = 5,
                  .graphs_per_second = 6,
                  .eta = absl::Milliseconds(7500),
                  .graphs = 8,
                  .nodes = 9,
                  .edges = 10,
                  .padding_nodes = 11,
                  .padding_edges = 12,
                  .phase_seconds = {13, 14, 15, 16},
                  .warm_up_done = 28,
                  .warm_up_total = 29,
                  .checkpoint_step = 17,
                  .look_ahead = train::LookAhead{18, 19, 20, 21, {22, 23, 24, 25, 26, 27}}};
  job.progress.look_ahead->cut_batches = 44;
  job.progress.look_ahead->rows =
      data::RowReading{.reader = {.kind = "pread", .fallback = "no ring", .direct = true, .depth = 30},
                       .counters = {.hits = 31,
                                    .misses = 32,
                                    .evictions = 33,
                                    .reads = 34,
                                    .read_bytes = 35,
                                    .read_errors = 36,
                                    .read_seconds_sum = 37,
                                    .stall_seconds = 38,
                                    .over_budget = 39,
                                    .resizes = 40,
                                    .budget_bytes = 41,
                                    .used_bytes = 42,
                                    .rows = 43}};
  job.epochs = {{1, 2, 3, 4, 5, 6, 7, 8}, {2, 0, 0, 0, 0, 0, 0, 0}};  // the second from a version with a single metric
  job.epochs[0].steps = 9;
  job.epochs[0].exact_hits = 10;
  job.epochs[0].padded_hits = 11;
  job.epochs[0].eager_steps = 12;
  job.epochs[0].captures = 13;
  job.epochs[0].nodes = 14;
  job.epochs[0].edges = 15;
  job.epochs[0].padding_nodes = 16;
  job.epochs[0].padding_edges = 17;
  job.epochs[0].cache_bytes = 18;
  job.result = train::RunResult{1, 2, 3, 4, 5, 6, 7, 8, 9};
  job.resumes = 18;
  job.labels = {{"team", "gnn"}};
  job.pausing = true;
  job.trouble = {"disk\xff", 2, absl::FromUnixSeconds(1'700'000'009)};
  v1::Job want;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"pb(
        name: "jobs/a"
        state: STATE_FAILED
        create_time { seconds: 1700000000 }
        start_time { seconds: 1700000001 nanos: 500000000 }
        end_time { seconds: 1700000002 }
        error: "bad \357\277\275 byte"
        progress {
          epoch: 1
          step_in_epoch: 2
          steps_per_epoch: 3
          step: 4
          loss: 5
          graphs_per_second: 6
          eta { seconds: 7 nanos: 500000000 }
          graphs: 8
          nodes: 9
          edges: 10
          padding_nodes: 11
          padding_edges: 12
          phase_seconds { batch: 13 forward: 14 backward: 15 optimizer: 16 }
          checkpoint_step: 17
          look_ahead {
            depth: 18
            ready: 19
            sampled_edges: 20
            stalls: 21
            wanted_pages: 22
            resident_pages: 23
            sampled_pages: 24
            advised_bytes: 25
            advice_calls: 26
            major_faults: 27
            features {
              reader: "pread"
              fallback: "no ring"
              direct: true
              depth: 30
              hits: 31
              misses: 32
              evictions: 33
              reads: 34
              read_bytes: 35
              read_errors: 36
              read_seconds: 37
              stall_seconds: 38
              over_budget: 39
              resizes: 40
              budget_bytes: 41
              used_bytes: 42
              rows: 43
            }
            cut_batches: 44
          }
          warm_up_done: 28
          warm_up_total: 29
        }
        epochs {
          epoch: 1
          train_loss: 2
          valid_loss: 3
          valid_metric: 4
          learning_rate: 5
          train_seconds: 6
          valid_seconds: 7
          graphs_per_second: 8
          metric: METRIC_MAE
          valid_metrics { metric: METRIC_MAE value: 4 }
          steps: 9
          exact_hits: 10
          padded_hits: 11
          eager_steps: 12
          captures: 13
          nodes: 14
          edges: 15
          padding_nodes: 16
          padding_edges: 17
          cache_bytes: 18
        }
        epochs {
          epoch: 2
          metric: METRIC_MAE
          valid_metrics { metric: METRIC_MAE }
        }
        result {
          best_epoch: 1
          best_valid_metric: 2
          best_test_metric: 3
          best_test_loss: 4
          final_test_metric: 5
          final_test_loss: 6
          train_seconds: 7
          mean_step_milliseconds: 8
          num_parameters: 9
          metric: METRIC_MAE
          best_valid_metrics { metric: METRIC_MAE value: 2 }
          best_test_metrics { metric: METRIC_MAE value: 3 }
          final_test_metrics { metric: METRIC_MAE value: 5 }
        }
        resumes: 18
        last_error: "disk\357\277\275"
        retry_time { seconds: 1700000009 }
        labels { key: "team" value: "gnn" }
        pausing: true
        state_changes {
          state: STATE_WARMING_UP
          time { seconds: 7 }
          reason: "CAPTURING"
          message: "bad \357\277\275 byte"
        }
        dropped_state_changes: 3
        error_status { code: 15 message: "bad \357\277\275 byte" }
        device_time { seconds: 1 nanos: 500000000 }
      )pb",
      &want));
  want.set_etag(jobs::EtagOf(job));
  google::rpc::ErrorInfo info;
  info.set_reason("DATA_DAMAGED");
  info.set_domain("permafrost.dev");
  (*info.mutable_metadata())["file"] = "f";
  want.mutable_error_status()->add_details()->PackFrom(info);
  v1::Job got = JobToWire(job);
  got.clear_spec();
  EXPECT_EQ(got.DebugString(), want.DebugString());
}

TEST(JobToWire, AFailureOfAnOlderVersionHasItsLineOnly) {
  jobs::Job job = MakeJob("a", jobs::JobState::kFailed);
  job.error = "a line";
  const v1::Job wire = JobToWire(job);
  EXPECT_EQ(wire.error_status().code(), static_cast<int>(absl::StatusCode::kUnknown));
  EXPECT_EQ(wire.error_status().message(), "a line");
  EXPECT_TRUE(wire.error_status().details().empty());
}

TEST(JobToWire, LimitsComeBackAsTheyWereGiven) {
  v1::CreateJobRequest request;
  request.mutable_spec()->set_dataset("datasets/zinc");
  request.mutable_spec()->mutable_max_runtime()->set_seconds(90);
  request.mutable_spec()->mutable_max_runtime()->set_nanos(7);
  request.mutable_spec()->mutable_deadline()->set_seconds(4'000'000'000);
  request.mutable_spec()->set_max_retries(3);
  const auto read = CreateRequestFromWire(request, {}, nullptr);
  ASSERT_TRUE(read.ok()) << read.status();
  jobs::Job job = MakeJob("a", jobs::JobState::kQueued);
  job.spec = read->spec;
  const v1::JobSpec wire = JobToWire(job).spec();
  EXPECT_EQ(wire.max_runtime().DebugString(), request.spec().max_runtime().DebugString());
  EXPECT_EQ(wire.deadline().DebugString(), request.spec().deadline().DebugString());
  EXPECT_EQ(wire.max_retries(), 3);
  request.mutable_spec()->mutable_deadline()->set_nanos(-1);
  request.mutable_spec()->mutable_max_runtime()->set_seconds(std::numeric_limits<int64_t>::max());
  const auto refused = GetViolations(CreateRequestFromWire(request, {}, nullptr).status());
  ASSERT_EQ(refused.size(), 2u);
  EXPECT_EQ(refused[0].field, "spec.max_runtime");
  EXPECT_EQ(refused[1].field, "spec.deadline");
}

TEST(JobToWire, LeavesOutWhatIsNotKnown) {
  const v1::Job job = JobToWire(MakeJob("a", jobs::JobState::kQueued));
  EXPECT_FALSE(job.has_start_time());
  EXPECT_FALSE(job.has_end_time());
  EXPECT_FALSE(job.has_result());
  EXPECT_FALSE(job.progress().has_eta());
  EXPECT_FALSE(job.progress().has_look_ahead());
  EXPECT_FALSE(job.spec().has_neighbor_sampling()) << "nothing samples small graphs";
}

}  // namespace
}  // namespace permafrost::api
