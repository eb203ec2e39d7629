// Tests the whole work of a user: import, submit, watch, read the metrics, export the weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "e2e/daemon.h"
#include "e2e/process.h"
#include "temp_dir.h"

namespace permafrost::e2e {
namespace {

using testing::HasSubstr;

std::vector<double> TrainLosses(const v1::Job& job) {
  std::vector<double> losses;
  for (const v1::EpochMetrics& e : job.epochs()) losses.push_back(e.train_loss());
  return losses;
}

v1::Job Submit(Daemon& daemon, const std::string& id, int64_t epochs, int64_t batch_size,
               int64_t checkpoint_every = 0) {
  grpc::ClientContext context;
  v1::CreateJobRequest request;
  request.set_job_id(id);
  request.mutable_spec()->set_dataset("datasets/zinc");
  request.mutable_spec()->set_epochs(epochs);
  request.mutable_spec()->set_batch_size(batch_size);
  request.mutable_spec()->set_seed(5);
  request.mutable_spec()->mutable_model()->set_hidden_channels(16);
  request.mutable_spec()->mutable_model()->set_num_layers(2);
  request.mutable_spec()->mutable_checkpoint()->set_every_steps(checkpoint_every);
  v1::Job job;
  const grpc::Status status = daemon.jobs().CreateJob(&context, request, &job);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return job;
}

TEST(EndToEnd, TrainsTheShippedSampleAndCountsIt) {
  const TempDir dir;
  Daemon daemon(dir.path() / "state", ShippedSample());
  ASSERT_TRUE(daemon.ready());
  const v1::Dataset dataset = daemon.Import("zinc", ShippedSample());
  EXPECT_EQ(dataset.graph_set().all().num_graphs(), 12000);
  EXPECT_EQ(dataset.graph_set().train().num_graphs(), 10000);
  EXPECT_TRUE(dataset.graph_set().inverse_edges_added());

  // Every series that may be 0 exists before the first job.
  const std::string before = HttpGet(daemon.metrics(), "/metrics");
  for (const char* series :
       {"permafrost_train_steps_total", "permafrost_jobs{state=\"succeeded\"}", "permafrost_checkpoint_failures_total",
        "permafrost_train_step_seconds_count{phase=\"backward\"}", "permafrost_job_queue_wait_seconds_count"}) {
    EXPECT_EQ(Metric(before, series), 0) << series;
  }

  Submit(daemon, "first", /*epochs=*/3, /*batch_size=*/128);
  EXPECT_TRUE(WaitUntil(absl::Seconds(60), [&] {
    return Metric(HttpGet(daemon.metrics(), "/metrics"), "permafrost_dataset_mapped_bytes") ==
           static_cast<double>(dataset.graph_set().store_bytes());
  })) << "the store is mapped while a job uses it";
  const v1::Job job = daemon.AwaitEnd("first");
  ASSERT_EQ(job.state(), v1::Job::STATE_SUCCEEDED) << job.error();
  const v1::Job whole = daemon.Get("first");
  ASSERT_EQ(whole.epochs_size(), 3);
  EXPECT_LT(whole.epochs(2).train_loss(), whole.epochs(0).train_loss());
  EXPECT_GT(whole.result().best_test_metric(), 0);

  const int steps = 3 * 79;  // 10,000 graphs in batches of 128
  const std::string after = HttpGet(daemon.metrics(), "/metrics");
  EXPECT_EQ(Metric(after, "permafrost_train_steps_total"), steps);
  EXPECT_EQ(Metric(after, "permafrost_train_graphs_total"), 30000);
  EXPECT_EQ(Metric(after, "permafrost_train_nodes_total"),
            3.0 * static_cast<double>(dataset.graph_set().train().num_nodes()));
  EXPECT_EQ(Metric(after, "permafrost_train_edges_total"),
            3.0 * static_cast<double>(dataset.graph_set().train().num_edges()));
  EXPECT_GE(Metric(after, "permafrost_train_padding_nodes_total"), steps) << "one a step at least";
  EXPECT_EQ(Metric(after, "permafrost_train_step_seconds_count{phase=\"backward\"}"), steps);
  EXPECT_EQ(Metric(after, "permafrost_jobs{state=\"succeeded\"}"), 1);
  EXPECT_EQ(Metric(after, "permafrost_train_epoch_seconds_count"), 3);
  EXPECT_GE(Metric(after, "permafrost_checkpoint_seconds_count"), 1) << "at the end at least";
  EXPECT_EQ(Metric(after, "permafrost_dataset_mapped_bytes"), 0);
  EXPECT_GT(Metric(after, "permafrost_device_memory_bytes{kind=\"resident\"}"), 50e6);
  EXPECT_THAT(after, testing::Not(HasSubstr("permafrost_device_memory_bytes{kind=\"driver\"}"))) << "a CPU has none";
  EXPECT_THAT(daemon.Client({"server", "info"}).out, HasSubstr("resident"));
  EXPECT_EQ(Metric(after, "permafrost_grpc_requests_total{code=\"OK\",method=\"JobService/CreateJob\"}"), 1);
  EXPECT_EQ(daemon.Stop(), 0);
}

// Returns an address with a port that is free at this moment.
std::string FreeAddress() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(fd);
  return absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
}

TEST(EndToEnd, MetricsPassPromtoolAndARealPrometheusScrapesThem) {
  if (RunCommand({"/bin/sh", "-c", "command -v prometheus && command -v promtool"}).code != 0) {
    GTEST_SKIP() << "prometheus and promtool are not on PATH (deploy/install-deps --tests brings them)";
  }
  const TempDir dir;
  Daemon daemon(dir.path() / "state", ShippedSample());
  ASSERT_TRUE(daemon.ready());
  {
    std::ofstream(dir.path() / "page") << HttpGet(daemon.metrics(), "/metrics");
    const Output lint =
        RunCommand({"/bin/sh", "-c", absl::StrCat("promtool check metrics <", (dir.path() / "page").string())});
    EXPECT_EQ(lint.code, 0) << lint.out << lint.err;
    EXPECT_EQ(lint.err, "");
  }
  std::ofstream(dir.path() / "prometheus.yml")
      << "global: {scrape_interval: 1s}\n"
      << "scrape_configs: [{job_name: permafrost, static_configs: [{targets: ['" << daemon.metrics() << "']}]}]\n";
  std::unique_ptr<Process> prometheus;
  std::string address, answer;
  // Prometheus cannot pick a free port itself. If another process has taken this one, it ends and the loop tries
  // another port.
  bool ended = true;
  for (int start = 0; start < 5 && ended; ++start) {
    address = FreeAddress();
    prometheus = std::make_unique<Process>(
        std::vector<std::string>{
            "/usr/bin/env", "prometheus", "--config.file=" + (dir.path() / "prometheus.yml").string(),
            "--storage.tsdb.path=" + (dir.path() / "tsdb").string(), "--web.listen-address=" + address},
        dir.path() / "prometheus.log");
    ended = false;
    EXPECT_TRUE(WaitUntil(absl::Seconds(60), [&] {
      ended = prometheus->Wait(absl::ZeroDuration()) != -1;
      answer = HttpGet(address, "/api/v1/query?query=permafrost_build_info");
      return ended || absl::StrContains(answer, "\"version\":\"");
    })) << answer;
  }
  ASSERT_FALSE(ended) << "Prometheus does not start";
  // Waits for a successful scrape, because one may take longer than its limit, which is the scrape interval.
  EXPECT_TRUE(WaitUntil(absl::Seconds(60), [&] {
    answer = HttpGet(address, "/api/v1/query?query=up%3D%3D1");
    return absl::StrContains(answer, "\"result\":[{");
  })) << answer;
  EXPECT_EQ(daemon.Stop(), 0);
}

TEST(EndToEnd, FiveKillsInMidEpochChangeNoBitOfTheWeights) {
  const TempDir dir;
  const auto exported = [&](Daemon& daemon, const std::string& artifact, const std::string& to) {
    const Output out = daemon.Client({"job", "export", "job", "--artifact", artifact, "--to", dir.path() / to});
    EXPECT_EQ(out.code, 0) << out.err;
    std::ifstream in(dir.path() / to, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  // Far more epochs than the kills need, so that the last kill comes before the end, even on a slow machine.
  constexpr int64_t kEpochs = 20, kBatch = 64, kStepsPerEpoch = 157, kEvery = 10;
  std::string want_last, want_best, want_predictions;
  std::vector<double> want_losses;
  {
    Daemon daemon(dir.path() / "undisturbed", ShippedSample());
    ASSERT_TRUE(daemon.ready());
    daemon.Import("zinc", ShippedSample());
    Submit(daemon, "job", kEpochs, kBatch, kEvery);
    ASSERT_EQ(daemon.AwaitEnd("job").state(), v1::Job::STATE_SUCCEEDED);
    want_last = exported(daemon, "last-weights", "a");
    want_best = exported(daemon, "best-weights", "b");
    want_predictions = exported(daemon, "test-predictions", "c");
    want_losses = TrainLosses(daemon.Get("job"));
    ASSERT_EQ(daemon.Stop(), 0);
  }
  const auto state = dir.path() / "killed";
  {
    Daemon daemon(state, ShippedSample());
    ASSERT_TRUE(daemon.ready());
    daemon.Import("zinc", ShippedSample());
    Submit(daemon, "job", kEpochs, kBatch, kEvery);
    // The first kill comes when the job is acknowledged, and perhaps not yet begun.
    daemon.process().Signal(SIGKILL);
    ASSERT_EQ(daemon.process().Wait(absl::Seconds(30)), 128 + SIGKILL);
  }
  for (const int64_t step : {40, 200, 333, 500}) {
    Daemon daemon(state, ShippedSample());
    ASSERT_TRUE(daemon.ready());
    v1::Job seen;
    ASSERT_TRUE(WaitUntil(absl::Seconds(120),
                          [&] {
                            seen = daemon.Get("job");
                            // After a late kill, the job is beyond this step even before it runs again, so the state
                            // is checked too.
                            return seen.state() == v1::Job::STATE_RUNNING && seen.progress().step() >= step;
                          }))
        << step << ": the kill must come before the end: " << seen.ShortDebugString();
    EXPECT_LT(seen.progress().step(), kEpochs * kStepsPerEpoch) << "the kill must come before the end";
    daemon.process().Signal(SIGKILL);
    ASSERT_EQ(daemon.process().Wait(absl::Seconds(30)), 128 + SIGKILL);
  }
  Daemon daemon(state, ShippedSample());
  ASSERT_TRUE(daemon.ready());
  const v1::Job job = daemon.AwaitEnd("job");
  ASSERT_EQ(job.state(), v1::Job::STATE_SUCCEEDED) << job.error();
  EXPECT_GE(job.resumes(), 4);
  EXPECT_TRUE(exported(daemon, "last-weights", "d") == want_last);
  EXPECT_TRUE(exported(daemon, "best-weights", "e") == want_best);
  EXPECT_EQ(exported(daemon, "test-predictions", "f"), want_predictions);
  EXPECT_EQ(TrainLosses(daemon.Get("job")), want_losses);
  EXPECT_EQ(daemon.Stop(), 0);
}

TEST(EndToEnd, SigtermDrainsAndTheNextStartGoesOn) {
  constexpr int kEpochs = 10;
  const TempDir dir;
  const auto state = dir.path() / "state";
  {
    Daemon daemon(state, ShippedSample());
    ASSERT_TRUE(daemon.ready());
    daemon.Import("zinc", ShippedSample());
    Submit(daemon, "job", kEpochs, 64);
    ASSERT_TRUE(WaitUntil(absl::Seconds(60), [&] { return daemon.Get("job").progress().step() >= 20; }));
    EXPECT_EQ(daemon.Stop(), 0);
  }
  Daemon daemon(state, ShippedSample());
  ASSERT_TRUE(daemon.ready());
  const v1::Job job = daemon.AwaitEnd("job");
  EXPECT_EQ(job.state(), v1::Job::STATE_SUCCEEDED) << job.error();
  EXPECT_EQ(job.resumes(), 1);
  EXPECT_EQ(daemon.Get("job").epochs_size(), kEpochs);
  const Output log = daemon.Client({"job", "logs", "job"});
  EXPECT_THAT(log.out, HasSubstr("resumed from the checkpoint of step"));
  EXPECT_EQ(daemon.Stop(), 0);
}

#ifdef __linux__
// The process once executes itself anew (UseShortSpins). pkill and ps must still find it by name.
TEST(EndToEnd, TheProcessHasTheProgramsName) {
  const TempDir dir;
  Daemon daemon(dir.path() / "state", ShippedSample());
  ASSERT_TRUE(daemon.ready());
  std::ifstream comm(absl::StrCat("/proc/", daemon.process().pid(), "/comm"));
  std::string name;
  std::getline(comm, name);
  EXPECT_EQ(name, "permafrostd");
  EXPECT_EQ(daemon.Stop(), 0);
}
#endif

TEST(EndToEnd, ASecondDaemonOnTheStateDirIsRefusedInOneLine) {
  const TempDir dir;
  Daemon daemon(dir.path() / "state", ShippedSample());
  ASSERT_TRUE(daemon.ready());
  const Output second = RunCommand(
      {PERMAFROSTD, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--state-dir", dir.path() / "state"});
  EXPECT_EQ(second.code, 1);
  EXPECT_THAT(second.err, HasSubstr(std::to_string(daemon.process().pid())));
  EXPECT_EQ(std::count(second.err.begin(), second.err.end(), '\n'), 1) << second.err;
  EXPECT_EQ(daemon.Stop(), 0);
}

TEST(EndToEnd, AStoreCutShortInUseCostsThatJobAndNothingElse) {
  const TempDir dir;
  Daemon daemon(dir.path() / "state", ShippedSample());
  ASSERT_TRUE(daemon.ready());
  daemon.Import("zinc", ShippedSample());
  Submit(daemon, "cut", /*epochs=*/1000, /*batch_size=*/64);
  ASSERT_TRUE(WaitUntil(absl::Seconds(60), [&] { return daemon.Get("cut").progress().step() >= 20; }));
  std::filesystem::resize_file(dir.path() / "state/datasets/zinc/graphs.pfg", 4096);
  const v1::Job cut = daemon.AwaitEnd("cut");
  EXPECT_EQ(cut.state(), v1::Job::STATE_FAILED);
  EXPECT_THAT(cut.error(), HasSubstr("cut short while it was in use"));
  // Another job on the dataset is refused with one line. A job on an intact set trains.
  Submit(daemon, "again", 1, 64);
  EXPECT_THAT(daemon.AwaitEnd("again").error(), HasSubstr("graphs.pfg"));
  EXPECT_EQ(daemon.Client({"dataset", "delete", "zinc"}).code, 0);
  daemon.Import("zinc", ShippedSample());
  Submit(daemon, "good", 1, 64);
  EXPECT_EQ(daemon.AwaitEnd("good").state(), v1::Job::STATE_SUCCEEDED);
  EXPECT_EQ(daemon.Stop(), 0);
}

TEST(EndToEnd, BadInputIsAnsweredAndTheDaemonLives) {
  const TempDir dir;
  std::filesystem::create_directories(dir.path() / "root/empty");
  Daemon daemon(dir.path() / "state", dir.path() / "root");
  ASSERT_TRUE(daemon.ready());
  const struct {
    const char* why;
    std::vector<std::string> arguments;
    int code;
    const char* says;
  } kCases[] = {
      {"unknown dataset", {"job", "submit", "--dataset", "nowhere"}, 4, "nowhere"},
      {"unknown job", {"job", "show", "nobody"}, 4, "nobody"},
      {"a path outside the import roots", {"dataset", "import", "a", "/etc"}, 4, "/etc"},
      {"not a dataset",
       {"dataset", "import", "b", dir.path() / "root/empty"},
       1,
       "the directory holds none of raw/graph-label.csv"},
      {"a bad name", {"dataset", "import", "Bad_Name", dir.path() / "root/empty"}, 4, "Bad_Name"},
  };
  for (const auto& c : kCases) {
    const Output out = daemon.Client(c.arguments);
    EXPECT_EQ(out.code, c.code) << c.why << ": " << out.out << out.err;
    EXPECT_THAT(out.err, HasSubstr(c.says)) << c.why;
  }
  EXPECT_EQ(daemon.Client({"server", "info"}).code, 0);
  EXPECT_EQ(daemon.Stop(), 0);
}

TEST(EndToEnd, DrainOverGrpcEndsTheDaemonCleanly) {
  const TempDir dir;
  Daemon daemon(dir.path() / "state", ShippedSample());
  ASSERT_TRUE(daemon.ready());
  EXPECT_EQ(daemon.Client({"server", "drain"}).code, 0);
  EXPECT_EQ(daemon.process().Wait(absl::Seconds(30)), 0);
  const Output after = daemon.Client({"server", "info"});
  EXPECT_EQ(after.code, 3);
  EXPECT_THAT(after.err, HasSubstr("--server"));
}

}  // namespace
}  // namespace permafrost::e2e
