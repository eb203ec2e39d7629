// Tests commands to a job's graph cache while the job trains.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "e2e/daemon.h"
#include "permafrost/v1/graph_cache.grpc.pb.h"
#include "temp_dir.h"

namespace permafrost::e2e {
namespace {

using testing::HasSubstr;

const v1::GraphCacheStatistics& TrainOf(const v1::GraphCache& cache) { return cache.statistics(0); }
const v1::GraphCacheStatistics& EvalOf(const v1::GraphCache& cache) { return cache.statistics(1); }
int64_t Steps(const v1::GraphCacheStatistics& s) { return s.hits() + s.padded_hits() + s.misses(); }

// The graph cache of the job named "job".
class Cache {
 public:
  explicit Cache(Daemon& daemon) : stub_(v1::GraphCacheService::NewStub(daemon.channel())) {}

  v1::GraphCache Get() {
    return Call<v1::GetGraphCacheRequest>(
        [&](auto* context, const auto& request, auto* out) { return stub_->GetGraphCache(context, request, out); });
  }
  v1::GraphCache Freeze() {
    return Call<v1::FreezeGraphCacheRequest>(
        [&](auto* context, const auto& request, auto* out) { return stub_->FreezeGraphCache(context, request, out); });
  }
  v1::GraphCache Thaw() {
    return Call<v1::ThawGraphCacheRequest>(
        [&](auto* context, const auto& request, auto* out) { return stub_->ThawGraphCache(context, request, out); });
  }
  v1::GraphCache Clear() {
    return Call<v1::ClearGraphCacheRequest>(
        [&](auto* context, const auto& request, auto* out) { return stub_->ClearGraphCache(context, request, out); });
  }
  v1::GraphCache Update(v1::GraphCachePolicy::Policy policy, int64_t freeze_at) {
    return Call<v1::UpdateGraphCachePolicyRequest>([&](auto* context, auto request, auto* out) {
      request.mutable_policy()->set_policy(policy);
      request.mutable_policy()->set_freeze_at(freeze_at);
      return stub_->UpdateGraphCachePolicy(context, request, out);
    });
  }
  std::vector<std::string> Entries() {
    grpc::ClientContext context;
    v1::ListGraphCacheEntriesRequest request;
    request.set_parent("jobs/job/graphCache");
    request.set_page_size(1000);
    v1::ListGraphCacheEntriesResponse response;
    const grpc::Status status = stub_->ListGraphCacheEntries(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    std::vector<std::string> shapes;
    for (const v1::GraphCacheEntry& e : response.entries())
      shapes.push_back(absl::StrCat(v1::GraphCacheMode_Name(e.mode()), " ", e.shape().ShortDebugString()));
    return shapes;
  }

 private:
  template <class Request, class F>
  v1::GraphCache Call(F f) {
    grpc::ClientContext context;
    Request request;
    request.set_name("jobs/job/graphCache");
    v1::GraphCache out;
    const grpc::Status status = f(&context, request, &out);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return out;
  }
  std::unique_ptr<v1::GraphCacheService::Stub> stub_;
};

void Submit(Daemon& daemon, int64_t epochs) {
  grpc::ClientContext context;
  v1::CreateJobRequest request;
  request.set_job_id("job");
  v1::JobSpec& spec = *request.mutable_spec();
  spec.set_dataset("datasets/zinc");
  spec.set_epochs(epochs);
  spec.set_batch_size(64);
  spec.set_seed(5);
  spec.mutable_model()->set_hidden_channels(16);
  spec.mutable_model()->set_num_layers(2);
  spec.mutable_model()->set_dropout(0.1);
  spec.mutable_graph_cache()->set_policy(v1::GraphCachePolicy::POLICY_FREEZE);
  spec.mutable_graph_cache()->set_freeze_at(5);
  spec.mutable_graph_cache()->set_shapes(v1::GraphCachePolicy::SHAPES_EXACT);
  v1::Job job;
  const grpc::Status status = daemon.jobs().CreateJob(&context, request, &job);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(job.spec().graph_cache().on_miss(), v1::GraphCachePolicy::ON_MISS_PAD) << "the server's default";
}

TEST(GraphCache, CommandsTakeEffectAtAStepAndSurviveAKill) {
  const TempDir dir;
  Daemon daemon(dir.path() / "state", ShippedSample());
  ASSERT_TRUE(daemon.ready());
  daemon.Import("zinc", ShippedSample());
  // Long enough that the job still runs at the last kill.
  constexpr int64_t kEpochs = 60;
  Submit(daemon, kEpochs);
  Cache cache(daemon);
  daemon.AwaitStep("job", 20);
  const v1::GraphCache frozen = cache.Get();
  EXPECT_TRUE(frozen.frozen());
  EXPECT_EQ(frozen.freeze_at(), 5);
  EXPECT_EQ(TrainOf(frozen).entries(), 6) << "five shapes and the ceiling";
  EXPECT_GT(EvalOf(frozen).entries(), 0) << "evaluation is captured before it is needed";

  const v1::GraphCache thawed = cache.Thaw();
  EXPECT_FALSE(thawed.frozen());
  EXPECT_GE(thawed.command_step(), 20);
  daemon.AwaitStep("job", thawed.command_step() + 10);
  const v1::GraphCache refrozen = cache.Freeze();
  EXPECT_TRUE(refrozen.frozen());
  EXPECT_GT(refrozen.command_step(), thawed.command_step());
  EXPECT_EQ(refrozen.freeze_step(), refrozen.command_step());
  EXPECT_GT(TrainOf(refrozen).entries(), 6);
  const v1::GraphCache cleared = cache.Clear();
  EXPECT_TRUE(cleared.frozen());
  EXPECT_EQ(TrainOf(cleared).entries(), 1) << "the ceiling, made anew";
  const v1::GraphCache never = cache.Update(v1::GraphCachePolicy::POLICY_NEVER, 0);
  EXPECT_EQ(never.total_bytes() - never.shared_bytes(), 0);
  EXPECT_EQ(TrainOf(never).entries() + EvalOf(never).entries(), 0);
  daemon.AwaitStep("job", never.command_step() + 10);
  const v1::GraphCache again = cache.Update(v1::GraphCachePolicy::POLICY_FREEZE, 7);
  EXPECT_GE(TrainOf(again).eager_steps(), 10);
  EXPECT_GT(again.command_step(), never.command_step());
  // A resumed job captures again the shapes that its checkpoint lists.
  ASSERT_TRUE(WaitUntil(absl::Seconds(120),
                        [&] { return daemon.Get("job").progress().checkpoint_step() > again.command_step() + 15; }));

  // Copies the state that a kill -9 at this moment would leave, while the job itself continues undisturbed.
  daemon.process().Suspend();
  CopyState(dir.path() / "state", dir.path() / "killed");
  daemon.process().Signal(SIGCONT);
  ASSERT_EQ(daemon.AwaitEnd("job").state(), v1::Job::STATE_SUCCEEDED);
  const std::string undisturbed = daemon.LastWeights("job", dir.path() / "a");
  const v1::GraphCache end = cache.Get();
  const std::vector<std::string> entries = cache.Entries();
  EXPECT_EQ(Steps(TrainOf(end)), kEpochs * 157);
  EXPECT_EQ(TrainOf(end).entries(), 8);
  EXPECT_EQ(TrainOf(end).graph_breaks() + EvalOf(end).graph_breaks(), 0);
  EXPECT_EQ(TrainOf(end).frozen_captures(), 0);
  const Output shown = daemon.Client({"cache", "show", "job"});
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("frozen since step"));
  const Output refused = daemon.Client({"cache", "freeze", "job"});
  EXPECT_EQ(refused.code, 4) << refused.out;
  EXPECT_THAT(refused.err, HasSubstr("job"));
  EXPECT_EQ(daemon.Stop(), 0);

  {
    Daemon resumed(dir.path() / "killed", ShippedSample());
    ASSERT_TRUE(resumed.ready());
    resumed.AwaitStep("job", again.command_step() + 200);
    resumed.process().Signal(SIGKILL);
    ASSERT_EQ(resumed.process().Wait(absl::Seconds(30)), 128 + SIGKILL);
  }
  Daemon resumed(dir.path() / "killed", ShippedSample());
  ASSERT_TRUE(resumed.ready());
  ASSERT_EQ(resumed.AwaitEnd("job").state(), v1::Job::STATE_SUCCEEDED);
  EXPECT_TRUE(resumed.LastWeights("job", dir.path() / "b") == undisturbed) << "bit for bit";
  Cache cache_of_resumed(resumed);
  const v1::GraphCache other = cache_of_resumed.Get();
  EXPECT_EQ(cache_of_resumed.Entries(), entries);
  EXPECT_EQ(TrainOf(other).hits(), TrainOf(end).hits());
  EXPECT_EQ(TrainOf(other).padded_hits(), TrainOf(end).padded_hits());
  EXPECT_EQ(TrainOf(other).eager_steps(), TrainOf(end).eager_steps());
  EXPECT_EQ(TrainOf(other).padding_edges(), TrainOf(end).padding_edges());
  EXPECT_EQ(other.command_step(), end.command_step());
  EXPECT_EQ(other.freeze_step(), end.freeze_step());
  EXPECT_GT(TrainOf(other).recaptures(), 0);
  EXPECT_EQ(resumed.Stop(), 0);
}

TEST(GraphCache, AfterTheFreezeNothingIsCompiledAndNothingGrows) {
  const TempDir dir;
  Daemon daemon(dir.path() / "state", ShippedSample());
  ASSERT_TRUE(daemon.ready());
  daemon.Import("zinc", ShippedSample());
  Submit(daemon, /*epochs=*/4);
  Cache cache(daemon);
  ASSERT_TRUE(WaitUntil(absl::Seconds(60), [&] { return cache.Get().frozen(); }));
  const v1::GraphCache first = cache.Get();
  const v1::Job job = daemon.AwaitEnd("job");
  ASSERT_EQ(job.state(), v1::Job::STATE_SUCCEEDED);
  const v1::GraphCache last = cache.Get();
  EXPECT_EQ(last.total_bytes(), first.total_bytes());
  for (int mode = 0; mode < 2; ++mode) {
    const v1::GraphCacheStatistics &a = first.statistics(mode), &b = last.statistics(mode);
    EXPECT_EQ(b.captures(), a.captures());
    EXPECT_EQ(b.entries(), a.entries());
    EXPECT_EQ(b.entry_bytes(), a.entry_bytes());
    EXPECT_EQ(b.eager_steps() + b.transient_steps() + b.frozen_captures(), 0);
  }
  EXPECT_EQ(Steps(TrainOf(last)), 4 * 157);
  EXPECT_EQ(TrainOf(last).misses(), 5) << "the steps that captured the shapes";
  EXPECT_EQ(EvalOf(last).misses(), 0);
  // If the last weights are also the best, they are tested once.
  EXPECT_EQ(Steps(EvalOf(last)), (4 + (job.result().best_epoch() == 4 ? 1 : 2)) * 16);
  EXPECT_EQ(daemon.Stop(), 0);
}

}  // namespace
}  // namespace permafrost::e2e
