// Compares jobs of several ranks with the same job on one rank. Each rank is a runner on its own thread, which the
// others reach through sockets.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "nn/safetensors.h"
#include "node_cases.h"
#include "recorder.h"
#include "runner_fixture.h"

namespace permafrost::train {
namespace {

using testing::HasSubstr;

// Recruits runners in this process.
class ThreadPeers final : public Peers {
 public:
  explicit ThreadPeers(data::OpenedDataset dataset) : dataset_(std::move(dataset)) {}

  int64_t count() const override { return 3; }
  absl::StatusOr<std::unique_ptr<Recruits>> Recruit(const RecruitRequest& request) override {
    ++recruited;
    if (on_recruit) on_recruit();
    auto team = std::make_unique<Threads>();
    team->absent = absent-- > 0;
    const int64_t joins = std::min<int64_t>(request.options.replicas - 1, free);
    if (joins < request.least) return WithReason(absl::UnavailableError("too few are free"), kTooFewPeersReason);
    for (int64_t rank = 1; rank <= joins; ++rank) team->Add(*this, request, rank);
    return team;
  }
  bool CanRecruit(const RecruitRequest& request) override {
    if (free < request.options.replicas - 1) return false;
    is_asked = true;
    return true;
  }

  int recruited = 0;
  std::function<void()> on_recruit;
  std::atomic<int> free = 3;
  int absent = 0;  // the number of future teams whose daemons accept a rank and never connect
  std::atomic<bool> is_asked = false;
  std::function<StopRequest(const Progress&)> stop;  // called by every recruit
  std::vector<absl::Status> ends;                    // the ends of the last recruits, indexed by rank - 1

 private:
  class Threads final : public Recruits {
   public:
    ~Threads() override {
      for (std::thread& thread : threads_) thread.join();
    }
    void Add(ThreadPeers& peers, const RecruitRequest& request, int64_t rank) {
      addresses_.push_back("127.0.0.1:" + std::to_string(rank));
      if (absent) return;
      peers.ends.resize(static_cast<size_t>(rank));
      threads_.emplace_back([&peers, request, rank] {
        const auto runner = MakeTorchRunner({.device = DeviceKind::kCpu, .threads = 1});
        Recorder context;
        context.stop = peers.stop;
        const auto outcome = (*runner)->Run({.options = request.options,
                                             .dataset = peers.dataset_,
                                             .place = RankPlace{.rank = rank,
                                                                .leader_host = "127.0.0.1",
                                                                .rendezvous_port = request.rendezvous_port,
                                                                .rendezvous_token = request.rendezvous_token}},
                                            context);
        peers.ends[static_cast<size_t>(rank - 1)] = outcome.status();
      });
    }
    const std::vector<std::string>& addresses() const override { return addresses_; }
    std::vector<RankProgress> progress() const override {
      std::vector<RankProgress> progress;
      progress.reserve(addresses_.size());
      for (const std::string& address : addresses_) progress.push_back({.address = address});
      return progress;
    }
    absl::Status failure() const override {
      return absent && !addresses_.empty() ? absl::UnavailableError("127.0.0.1:1: it has gone") : absl::OkStatus();
    }
    absl::Status WaitForFailure() override { return failure(); }
    void AwaitEnd(absl::Duration /*timeout*/) override {}
    void Avoid(int64_t rank) override { avoided = rank; }

    bool absent = false;
    int64_t avoided = 0;

   private:
    std::vector<std::string> addresses_;
    std::vector<std::thread> threads_;
  };

  const data::OpenedDataset dataset_;
};

class ReplicasTest : public RunnerTest {
 protected:
  void SetUp() override {
    RunnerTest::SetUp();
    Use(graphs_);
  }
  // Makes `dataset` the dataset of the jobs that follow.
  void Use(data::OpenedDataset dataset) {
    dataset_ = std::move(dataset);
    peers_ = std::make_unique<ThreadPeers>(dataset_);
    runner_ = *MakeTorchRunner(
        {.device = DeviceKind::kCpu, .threads = 1, .peers = peers_.get(), .look_interval = absl::Milliseconds(20)});
  }
  void UseGraph(const TinyGraphOptions& graph) {
    Use(WriteTinyGraph(dir_.path() / ("graph-" + std::to_string(++written_)), graph));
  }
  absl::StatusOr<RunOutcome> Run(const spec::TrainOptions& options, const std::string& job, RunContext& context) {
    return runner_->Run({.options = options, .dataset = dataset_, .job_directory = dir_.path() / job}, context);
  }

  // Runs the job on one rank and on `replicas` ranks, and compares epochs, results and weights.
  void ExpectAsOne(const spec::TrainOptions& options, int64_t replicas, const std::string& name, double tolerance) {
    SCOPED_TRACE(name);
    Recorder one, several;
    const auto alone = Run(options, name + "-1", one);
    ASSERT_TRUE(alone.ok()) << alone.status();
    spec::TrainOptions shared = options;
    shared.replicas = replicas;
    const auto together = Run(shared, name + "-n", several);
    ASSERT_TRUE(together.ok()) << together.status();
    for (const absl::Status& end : peers_->ends) EXPECT_TRUE(end.ok()) << end;
    ASSERT_EQ(one.epochs.size(), several.epochs.size());
    for (size_t e = 0; e < one.epochs.size(); ++e) {
      if (options.optimizer.learning_rate > 1e-9) {
        EXPECT_NEAR(one.epochs[e].train_loss, several.epochs[e].train_loss, tolerance) << "epoch " << e + 1;
      }
      EXPECT_NEAR(one.epochs[e].valid_loss, several.epochs[e].valid_loss, tolerance) << "epoch " << e + 1;
    }
    EXPECT_NEAR(alone->result->best_test_metric, together->result->best_test_metric, tolerance);
    const auto wanted = Weights(name + "-1"), found = Weights(name + "-n");
    ASSERT_EQ(wanted.size(), found.size());
    for (size_t t = 0; t < wanted.size(); ++t) {
      const double away = (wanted[t].value.to(at::kDouble) - found[t].value.to(at::kDouble)).abs().max().item<double>();
      EXPECT_LE(away, tolerance) << wanted[t].name;
    }
  }
  // Waits until the team has asked whether another daemon would join, and has had time to note the answer.
  void AwaitQuestion() {
    if (noted_) return;
    while (!peers_->is_asked) absl::SleepFor(absl::Milliseconds(1));
    absl::SleepFor(absl::Milliseconds(300));
    noted_ = true;
  }
  std::vector<nn::NamedTensor> Weights(const std::string& job) {
    return nn::DecodeSafetensors(Artifact(job, kLastWeightsFile))->tensors;
  }

  data::OpenedDataset dataset_;
  int written_ = 0;
  bool noted_ = false;
  std::unique_ptr<ThreadPeers> peers_;
};

spec::TrainOptions Plain(spec::TrainOptions options) {
  // Adam divides a gradient by its magnitude, so a rounding error can become a difference of 1.
  options.optimizer.algorithm = spec::OptimizerAlgorithm::kSgd;
  options.optimizer.learning_rate = 1e-3;
  options.epochs = 2;
  return options;
}

TEST_F(ReplicasTest, StepsAreThoseOfOneRankWithTheWholeBatch) {
  for (const spec::Architecture model : {spec::Architecture::kGine, spec::Architecture::kGin, spec::Architecture::kGcn,
                                         spec::Architecture::kSage, spec::Architecture::kGatv2}) {
    for (const int64_t replicas : {2, 3}) {
      spec::TrainOptions options = Plain(Options());
      options.model.architecture = model;
      ExpectAsOne(options, replicas, std::string(spec::TraitsOf(model).name) + "-" + std::to_string(replicas), 1e-4);
    }
  }
}

TEST_F(ReplicasTest, SoAreThoseOfEveryPartAndOptimizer) {
  struct Case {
    const char* name;
    std::function<void(spec::TrainOptions&)> set;
  };
  const Case kCases[] = {
      {"virtual-node", [](auto& o) { o.model.virtual_node = true; }},
      {"layer-norm",
       [](auto& o) { o.model.architecture = spec::Architecture::kGin, o.model.norm = spec::Norm::kLayer; }},
      {"no-norm", [](auto& o) { o.model.architecture = spec::Architecture::kGcn, o.model.norm = spec::Norm::kNone; }},
      {"dropout", [](auto& o) { o.model.dropout = 0.3; }},
      {"dropout-of-a-virtual-node", [](auto& o) { o.model.dropout = 0.3, o.model.virtual_node = true; }},
      {"dropout-of-attention",
       [](auto& o) { o.model.architecture = spec::Architecture::kGatv2, o.model.dropout = 0.3; }},
      {"dropout-of-sums", [](auto& o) { o.model.architecture = spec::Architecture::kGcn, o.model.dropout = 0.3; }},
      {"dropout-without-norm",
       [](auto& o) {
         o.model.architecture = spec::Architecture::kGin, o.model.dropout = 0.3, o.model.norm = spec::Norm::kNone;
       }},
      {"clipped", [](auto& o) { o.optimizer.max_grad_norm = 0.5; }},
      {"accumulated", [](auto& o) { o.optimizer.accumulate_steps = 4; }},
      {"averaged", [](auto& o) { o.optimizer.ema_decay = 0.9; }},
      {"mse",
       [](auto& o) {
         o.loss = spec::Loss::kMse, o.metrics = {spec::Metric::kRmse, spec::Metric::kMae};
       }},
      {"plateau", [](auto& o) { o.optimizer.schedule = spec::Schedule::kPlateau; }},
      // 80 graphs: the last batch has one, so that two of three ranks have none.
      {"empty-share", [](auto& o) { o.batch_size = 79; }},
      {"empty-share-eager", [](auto& o) { o.batch_size = 79, o.graph_cache.policy = spec::Policy::kNever; }},
      {"fixed", [](auto& o) { o.fixed_parameters = {"convs.0"}; }},
      {"balanced", [](auto& o) { o.batching.kind = spec::BatchingKind::kBalanced; }},
  };
  for (const Case& c : kCases) {
    spec::TrainOptions options = Plain(Options());
    c.set(options);
    ExpectAsOne(options, 3, c.name, 1e-4);
  }
}

TEST_F(ReplicasTest, AdamLearnsTheSame) {
  // The gradient of a bias before a norm is only rounding error, which Adam would scale to the usual size.
  spec::TrainOptions options = Options();
  options.model.architecture = spec::Architecture::kGin;
  options.model.norm = spec::Norm::kNone;
  ExpectAsOne(options, 2, "adam", 1e-3);
}

TEST_F(ReplicasTest, EveryPolicyTakesTheSameSteps) {
  std::string first;
  for (const spec::Policy policy : {spec::Policy::kFreeze, spec::Policy::kNever}) {
    spec::TrainOptions options = Options();
    options.replicas = 2;
    options.graph_cache.policy = policy;
    // An audit runs a step twice on one rank only.
    options.graph_cache.audit_every = 5;
    Recorder told;
    const std::string name(spec::kPolicyNames.Name(policy));
    const auto outcome = Run(options, name, told);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(told.cache.of(Mode::kTrain).audit_failures, 0) << told.log;
    if (policy == spec::Policy::kFreeze) {
      EXPECT_GT(told.cache.of(Mode::kTrain).audits, 0);
    }
    const std::string weights = HashHex(Hash64(Artifact(name, kLastWeightsFile)));
    if (first.empty()) first = weights;
    EXPECT_EQ(weights, first) << name << ": equal worlds give equal bits, however steps are run";
  }
}

TEST_F(ReplicasTest, GradientsMayTravelInBfloat16) {
  spec::TrainOptions options = Plain(Options());
  options.replicas = 2;
  Recorder whole, halves, eager;
  const auto outcome = Run(options, "whole", whole);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  options.exchange_precision = spec::Precision::kBfloat16;
  ASSERT_TRUE(Run(options, "halves", halves).ok());
  options.graph_cache.policy = spec::Policy::kNever;
  ASSERT_TRUE(Run(options, "eager", eager).ok());
  ASSERT_EQ(whole.epochs.size(), 2);
  for (size_t e = 0; e < whole.epochs.size(); ++e) {
    EXPECT_NE(halves.epochs[e].train_loss, whole.epochs[e].train_loss);
    EXPECT_NEAR(halves.epochs[e].train_loss, whole.epochs[e].train_loss, 1e-2);
  }
  EXPECT_EQ(Artifact("halves", kLastWeightsFile), Artifact("eager", kLastWeightsFile));
  // Each step sends half as many bytes of gradients. Everything else is unchanged.
  const int64_t gradients = 4 * outcome->result->num_parameters * whole.progress.step;
  EXPECT_EQ(whole.progress.exchange->sent_bytes - halves.progress.exchange->sent_bytes, gradients / 2);
}

TEST_F(ReplicasTest, AnInterruptedJobEndsWithTheSameBits) {
  spec::TrainOptions options = Options();
  options.replicas = 2;
  Recorder whole;
  ASSERT_TRUE(Run(options, "whole", whole).ok());
  EXPECT_THAT(whole.log, HasSubstr("trains on 2 daemons: this one and 127.0.0.1:1"));
  Recorder first;
  first.stop = [](const Progress& p) { return p.step >= 13 ? StopRequest::kDrain : StopRequest::kNone; };
  const auto drained = Run(options, "job", first);
  ASSERT_TRUE(drained.ok()) << drained.status();
  EXPECT_EQ(drained->end, RunEnd::kDrained);
  Recorder second;
  const auto outcome = Run(options, "job", second);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_THAT(second.log, HasSubstr("resumed from the checkpoint of step 13"));
  EXPECT_TRUE(Artifact("job", kLastWeightsFile) == Artifact("whole", kLastWeightsFile));
  EXPECT_TRUE(Artifact("job", kTestPredictionsFile) == Artifact("whole", kTestPredictionsFile));
}

TEST_F(ReplicasTest, ARankThatLeavesIsAnErrorOfTheMachineAndTheJobGoesOn) {
  spec::TrainOptions options = Options();
  options.replicas = 3;
  options.checkpoint.every_steps = 4;
  Recorder whole;
  ASSERT_TRUE(Run(options, "whole", whole).ok());
  peers_->stop = [](const Progress& p) { return p.step >= 10 ? StopRequest::kDrain : StopRequest::kNone; };
  Recorder broken;
  const auto failed = Run(options, "job", broken);
  EXPECT_TRUE(IsTransient(failed.status())) << failed.status();
  EXPECT_THAT(std::string(failed.status().message()), HasSubstr("(127.0.0.1) has gone: "));
  EXPECT_EQ(peers_->recruited, 1 + 4) << "three teams that come no further are the last";
  peers_->stop = nullptr;
  Recorder resumed;
  const auto outcome = Run(options, "job", resumed);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_THAT(resumed.log, HasSubstr("resumed from the checkpoint of step 8"));
  EXPECT_TRUE(Artifact("job", kLastWeightsFile) == Artifact("whole", kLastWeightsFile));
}

// Returns options of a job that accepts more daemons, and continues without them. Its steps equal those of one rank,
// up to rounding.
spec::TrainOptions Elastic(spec::TrainOptions options) {
  options = Plain(std::move(options));
  options.epochs = 4;
  options.replicas = 3;
  options.min_replicas = 1;
  options.checkpoint.every_steps = 4;
  return options;
}

TEST_F(ReplicasTest, AJobGoesOnWithTheRanksThatAreLeft) {
  for (const spec::Policy policy : {spec::Policy::kFreeze, spec::Policy::kNever}) {
    spec::TrainOptions options = Elastic(Options());
    options.graph_cache.policy = policy;
    const std::string name(spec::kPolicyNames.Name(policy));
    spec::TrainOptions alone = options;
    alone.replicas = alone.min_replicas = 1;
    Recorder one, told;
    ASSERT_TRUE(Run(alone, name + "-1", one).ok());
    // Three ranks to step 10, two to step 20, then one.
    peers_->free = 2;
    peers_->stop = [this](const Progress& p) {
      const bool leaves = (peers_->free == 2 && p.step >= 10) || (peers_->free == 1 && p.step >= 20);
      return leaves ? StopRequest::kDrain : StopRequest::kNone;
    };
    peers_->on_recruit = [this] { peers_->free = std::max(0, 3 - peers_->recruited); };
    peers_->recruited = 0;
    const auto outcome = Run(options, name, told);
    ASSERT_TRUE(outcome.ok()) << outcome.status() << "\n" << told.log;
    EXPECT_EQ(peers_->recruited, 3) << told.log;
    EXPECT_THAT(told.log, HasSubstr("trains on 3 daemons: this one and 127.0.0.1:1, 127.0.0.1:2\n"));
    EXPECT_THAT(told.log, HasSubstr("has gone: "));
    EXPECT_THAT(told.log, HasSubstr("trains on 2 daemons: this one and 127.0.0.1:1\n"));
    EXPECT_THAT(told.log, HasSubstr("trains alone until other daemons are free\n"));
    ASSERT_EQ(told.epochs.back().epoch, 4);
    EXPECT_NEAR(told.epochs.back().train_loss, one.epochs.back().train_loss, 1e-4);
    EXPECT_NEAR(told.epochs.back().valid_loss, one.epochs.back().valid_loss, 1e-4);
    EXPECT_EQ(told.cache.of(Mode::kTrain).eager_steps > 0, policy == spec::Policy::kNever) << told.log;
    EXPECT_EQ(told.cache.of(Mode::kTrain).oversize_steps, 0) << "each team has room for its share: " << told.log;
    EXPECT_EQ(told.cache.of(Mode::kEval).oversize_steps, 0) << told.log;
    ASSERT_TRUE(told.progress.exchange.has_value());
    EXPECT_EQ(told.progress.exchange->replicas, 1) << "those of now";
  }
}

TEST_F(ReplicasTest, AJobTakesInADaemonThatBecomesFree) {
  for (const spec::Policy policy : {spec::Policy::kFreeze, spec::Policy::kNever}) {
    spec::TrainOptions options = Elastic(Options());
    options.epochs = 20;
    options.checkpoint.every_steps = 40;
    options.graph_cache.policy = policy;
    const std::string name(spec::kPolicyNames.Name(policy));
    spec::TrainOptions alone = options;
    alone.replicas = alone.min_replicas = 1;
    Recorder one, told;
    ASSERT_TRUE(Run(alone, name + "-1", one).ok());
    peers_->free = 0;
    peers_->is_asked = noted_ = false;
    told.stop = [&](const Progress& p) {
      if (p.epoch >= 3) peers_->free = 2;
      // Keeps the job running until the other daemon is noticed.
      if (p.epoch >= 3) AwaitQuestion();
      return StopRequest::kNone;
    };
    peers_->recruited = 0;
    const auto outcome = Run(options, name, told);
    ASSERT_TRUE(outcome.ok()) << outcome.status() << "\n" << told.log;
    EXPECT_EQ(outcome->end, RunEnd::kSucceeded);
    EXPECT_THAT(told.log, HasSubstr("trains alone until other daemons are free\n"));
    EXPECT_THAT(told.log, HasSubstr("another daemon is free: the job goes on with it\n"));
    EXPECT_THAT(told.log, HasSubstr("trains on 3 daemons: this one and 127.0.0.1:1, 127.0.0.1:2\n"));
    EXPECT_EQ(told.log.find("has gone"), std::string::npos) << told.log;
    EXPECT_NEAR(told.epochs.back().train_loss, one.epochs.back().train_loss, 1e-4);
    EXPECT_EQ(told.progress.exchange->replicas, 3);
    ASSERT_EQ(told.progress.exchange->ranks.size(), 3u);
    EXPECT_EQ(told.progress.exchange->ranks[0].address, "");
    EXPECT_GT(told.progress.exchange->ranks[0].steps, 0);
    EXPECT_GT(told.progress.exchange->ranks[0].seconds, told.progress.exchange->ranks[0].exchange_seconds);
    EXPECT_EQ(told.progress.exchange->ranks[2].address, "127.0.0.1:2");
  }
}

TEST_F(ReplicasTest, AJobGoesOnWhereADaemonTakesARankAndDoesNotCome) {
  peers_->absent = 2;
  Recorder told;
  const auto outcome = Run(Elastic(Options()), "job", told);
  ASSERT_TRUE(outcome.ok()) << outcome.status() << "\n" << told.log;
  EXPECT_EQ(peers_->recruited, 3);
  EXPECT_THAT(told.log, HasSubstr("127.0.0.1:1: it has gone: the job goes on from its newest checkpoint"));
  peers_->absent = 3;
  const auto vain = Run(Elastic(Options()), "vain", told);
  EXPECT_EQ(GetReason(vain.status()).reason, kRankLostReason) << vain.status();
}

TEST_F(ReplicasTest, AnErrorOfAJobThatTrainsAloneIsItsOwn) {
  spec::TrainOptions options = Elastic(Options());
  options.optimizer.learning_rate = 1e30;
  peers_->free = 0;
  Recorder told;
  const absl::Status failed = Run(options, "job", told).status();
  EXPECT_EQ(GetReason(failed).reason, "NON_FINITE_LOSS") << failed;
  EXPECT_FALSE(IsTransient(failed));
  EXPECT_EQ(peers_->recruited, 1);
}

TEST_F(ReplicasTest, AJobWithoutRoomForACheckpointDoesNotGrow) {
  spec::TrainOptions options = Elastic(Options());
  options.epochs = 10;
  options.checkpoint.every_steps = 1'000'000;
  peers_->free = 0;
  Recorder told;
  told.stop = [&](const Progress& p) {
    if (p.step >= 3) peers_->free = 2;
    if (p.step >= 3) AwaitQuestion();
    return StopRequest::kNone;
  };
  told.store_epochs = [&]() -> absl::Status {
    // The final write of epochs succeeds.
    return told.epochs.size() < 10 ? AsTransient(absl::UnavailableError("locked")) : absl::OkStatus();
  };
  const auto outcome = Run(options, "job", told);
  ASSERT_TRUE(outcome.ok()) << outcome.status() << "\n" << told.log;
  EXPECT_EQ(peers_->recruited, 1) << told.log;
  EXPECT_FALSE(told.failed_checkpoints.empty());
}

TEST_F(ReplicasTest, AJobWithFewerThanItsFewestDaemonsWaits) {
  spec::TrainOptions options = Elastic(Options());
  options.min_replicas = 2;
  peers_->free = 0;
  Recorder told;
  const auto outcome = Run(options, "job", told);
  EXPECT_TRUE(IsTransient(outcome.status())) << outcome.status();
  EXPECT_EQ(GetReason(outcome.status()).reason, kTooFewPeersReason);
}

TEST_F(ReplicasTest, PatienceIsTheSameOnAllRanks) {
  spec::TrainOptions options = Options();
  options.epochs = 40;
  options.optimizer.learning_rate = 0.05;
  options.patience = 3;
  options.replicas = 2;
  Recorder told;
  const auto outcome = Run(options, "job", told);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_LT(told.epochs.size(), 40u);
  for (const absl::Status& end : peers_->ends) EXPECT_TRUE(end.ok()) << end;
}

TEST_F(ReplicasTest, AJobBeginsWithTheWeightsOfItsLeader) {
  Recorder told;
  ASSERT_TRUE(Run(Options(), "first", told).ok());
  const std::string weights = Artifact("first", kLastWeightsFile);
  for (const char* name : {"as-one-1", "as-one-n"}) {
    ASSERT_TRUE(CreateDirectories(dir_.path() / name).ok());
    ASSERT_TRUE(WriteFileAtomic(dir_.path() / name / kInitialWeightsFile, weights).ok());
  }
  spec::TrainOptions options = Plain(Options());
  options.init_from.job = JobId("first");
  ExpectAsOne(options, 2, "as-one", 1e-4);
}

// With all neighbours, nothing is drawn at random. So the shares together compute the same as the whole batch.
spec::TrainOptions AllNeighbors(spec::Architecture architecture) {
  spec::TrainOptions options = Plain(SampledJob(architecture));
  options.nodes.fan_outs = {-1, -1};
  options.checkpoint.every_seconds = 0;
  return options;
}

TEST_F(ReplicasTest, StepsOnALargeGraphAreThoseOfOneRankWithTheWholeBatch) {
  struct Case {
    const char* name;
    TinyGraphOptions graph;
    spec::Architecture architecture;
    std::function<void(spec::TrainOptions&)> set = [](auto&) {};
  };
  using enum spec::Architecture;
  const Case kCases[] = {
      {"sage", {}, kSage},
      {"gatv2", {}, kGatv2},
      {"sparse",
       {.sparse = true},
       kSage,
       [](auto& o) {
         o.class_weights = {1, 2, 0.5};
       }},
      {"layer-norm", {}, kSage, [](auto& o) { o.model.norm = spec::Norm::kLayer; }},
      {"layer-wise", {}, kSage, [](auto& o) { o.nodes.layer_wise_evaluation = true; }},
      // GCN counts degrees within a block, and a share's block has fewer edges. With a learning rate near 0 the
      // weights do not change, so this compares only evaluation.
      {"layer-wise-gcn",
       {.weighted = true},
       kGcn,
       [](auto& o) { o.nodes.layer_wise_evaluation = true, o.optimizer.learning_rate = 1e-12; }},
      {"joined",
       {},
       kSage,
       [](auto& o) { o.nodes.layer_wise_evaluation = true, o.model.jumping_knowledge = spec::JumpingKnowledge::kMax; }},
      {"apart", {}, kSage, [](auto& o) { o.nodes.disjoint = true; }},
      {"earlier",
       {.timestamped = true, .node_times = true},
       kSage,
       [](auto& o) { o.nodes.disjoint = true, o.nodes.temporal = spec::TemporalSampling::kUniform; }},
      {"measures",
       {.measures = true},
       kSage,
       [](auto& o) {
         o.loss = spec::Loss::kMse, o.metrics = {spec::Metric::kMae, spec::Metric::kR2};
       }},
      // 240 training nodes: the last batch has one, so that two of three ranks have none.
      {"empty-share", {}, kSage, [](auto& o) { o.batch_size = 239; }},
      {"empty-share-eager",
       {},
       kSage,
       [](auto& o) { o.batch_size = 239, o.graph_cache.policy = spec::Policy::kNever; }},
  };
  for (const Case& c : kCases) {
    UseGraph(c.graph);
    spec::TrainOptions options = AllNeighbors(c.architecture);
    c.set(options);
    ExpectAsOne(options, 3, c.name, 1e-4);
  }
}

TEST_F(ReplicasTest, ARankMayHaveNoNodeOfAnyBatch) {
  // Only three of the nodes are training nodes.
  UseGraph({.nodes = 5});
  spec::TrainOptions options = AllNeighbors(spec::Architecture::kSage);
  ExpectAsOne(options, 4, "few", 1e-4);
}

TEST_F(ReplicasTest, SampledJobsLearnAndRepeatTheirBits) {
  struct Case {
    const char* name;
    TinyGraphOptions graph;
    spec::TrainOptions options;
  };
  spec::TrainOptions dropout = SampledJob(spec::Architecture::kSage);
  dropout.model.dropout = 0.3;
  spec::TrainOptions labor = SampledJob(spec::Architecture::kGcn);
  labor.nodes.sampler = spec::SamplerKind::kLabor;
  spec::TrainOptions links = SampledJob(spec::Architecture::kSage);
  links.loss = spec::Loss::kBce;
  links.links = {.enabled = true, .split = {.valid_part = 0.1, .test_part = 0.2, .seed = 4}, .eval_negatives = 20};
  spec::TrainOptions timed = links;
  timed.nodes.disjoint = true;
  timed.nodes.temporal = spec::TemporalSampling::kUniform;
  const Case kCases[] = {
      {"dropout", {}, dropout}, {"labor", {}, labor}, {"links", {}, links}, {"timed", {.timestamped = true}, timed}};
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    UseGraph(c.graph);
    spec::TrainOptions options = c.options;
    options.replicas = 2;
    options.epochs = 10;
    options.checkpoint.every_seconds = 0;
    const std::string name = c.name;
    Recorder whole, first, second;
    const auto outcome = Run(options, name, whole);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_LT(whole.epochs.back().train_loss, 0.97 * whole.epochs.front().train_loss);
    EXPECT_EQ(whole.cache.of(Mode::kTrain).eager_steps, 0) << whole.log;
    const auto stop_at = options.links.enabled ? 20 : 13;
    first.stop = [&](const Progress& p) { return p.step >= stop_at ? StopRequest::kDrain : StopRequest::kNone; };
    ASSERT_TRUE(Run(options, name + "-again", first).ok());
    ASSERT_TRUE(Run(options, name + "-again", second).ok());
    EXPECT_TRUE(Artifact(name, kLastWeightsFile) == Artifact(name + "-again", kLastWeightsFile));
    EXPECT_TRUE(Artifact(name, kTestPredictionsFile) == Artifact(name + "-again", kTestPredictionsFile));
    options.graph_cache.policy = spec::Policy::kNever;
    Recorder eager;
    ASSERT_TRUE(Run(options, name + "-eager", eager).ok());
    // Steps without the cache have no padding, which changes how sums of rows are rounded.
    EXPECT_NEAR(eager.epochs.back().train_loss, whole.epochs.back().train_loss, 1e-3);
  }
}

TEST_F(ReplicasTest, WhatNoServerCanLeadIsRefused) {
  const data::ImportedSummary summary = graphs_->summary();
  spec::TrainOptions options = Options();
  options.replicas = 5;
  const absl::Status too_many = runner_->CheckCompatible(options, summary, "spec.");
  ASSERT_EQ(GetViolations(too_many).size(), 1u) << too_many;
  EXPECT_EQ(GetViolations(too_many)[0].field, "spec.replicas");
  EXPECT_EQ(GetViolations(too_many)[0].description, "5: this server and its --peers are 4 daemons; accepted: 1 to 4");
  options.replicas = 2;
  const auto alone = *MakeTorchRunner({.device = DeviceKind::kCpu, .threads = 1});
  EXPECT_EQ(GetViolations(alone->CheckCompatible(options, summary, "spec."))[0].description,
            "2: this server and its --peers are 1 daemon; accepted: 1 to 1");
  // A server that has lost its peers keeps the job for later.
  Recorder told;
  const auto waits = alone->Run({.options = options, .dataset = graphs_, .job_directory = dir_.path() / "later"}, told);
  EXPECT_TRUE(IsTransient(waits.status())) << waits.status();
  EXPECT_EQ(GetReason(waits.status()).reason, kTooFewPeersReason) << "it waits for them, whatever its max_retries";
}

}  // namespace
}  // namespace permafrost::train
