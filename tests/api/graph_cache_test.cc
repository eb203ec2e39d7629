// Tests GraphCacheService over a real channel: answers, error details, commands that wait, and watches.
#include <gmock/gmock.h>

#include <functional>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "google/rpc/error_details.pb.h"
#include "server_fixture.h"

namespace permafrost::api {
namespace {

using graphcache::CommandKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kName[] = "jobs/a/graphCache";

graphcache::Snapshot Frozen(int64_t step) {
  graphcache::Snapshot snapshot;
  snapshot.frozen = true;
  snapshot.freeze_step = step;
  snapshot.command_step = step;
  return snapshot;
}

class GraphCacheTest : public ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    run_ = &jobs_.Run("a");
  }
  // Makes `snapshot` the cache of the running job `a`. The commands up to its command_sequence have then taken
  // effect.
  void SetCache(const graphcache::Snapshot& snapshot, std::vector<graphcache::EntryInfo> entries = {}) {
    run_->OnGraphCache(snapshot, std::make_shared<const std::vector<graphcache::EntryInfo>>(std::move(entries)));
  }
  std::vector<graphcache::Command> AwaitCommands(int64_t after = 0) {
    return jobs::AwaitCommands(*run_, /*step=*/312, after);
  }
  // Answers the commands up to `sequence`. They took effect at step 312.
  void Answer(int64_t sequence) {
    graphcache::Snapshot snapshot = Frozen(312);
    snapshot.command_sequence = sequence;
    SetCache(snapshot);
  }

  grpc::Status Freeze(grpc::ClientContext& context, v1::GraphCache& response, const std::string& name = kName) {
    v1::FreezeGraphCacheRequest request;
    request.set_name(name);
    return cache_stub_->FreezeGraphCache(&context, request, &response);
  }
  std::unique_ptr<grpc::ClientReader<v1::GraphCache>> Watch(grpc::ClientContext& context,
                                                            const std::string& name = kName) {
    v1::WatchGraphCacheRequest request;
    request.set_name(name);
    return cache_stub_->WatchGraphCache(&context, request);
  }

  train::RunContext* run_ = nullptr;  // the run of job `a`
};

// Calls FreezeGraphCache on a thread of its own, because the call waits for its answer.
class FreezeCall {
 public:
  explicit FreezeCall(v1::GraphCacheService::Stub& stub, absl::Time deadline = absl::InfiniteFuture()) {
    if (deadline != absl::InfiniteFuture()) context_.set_deadline(absl::ToChronoTime(deadline));
    thread_ = std::thread([this, &stub] {
      v1::FreezeGraphCacheRequest request;
      request.set_name(kName);
      status_ = stub.FreezeGraphCache(&context_, request, &response_);
    });
  }
  // If the test failed, nobody answers a command that is still held.
  ~FreezeCall() {
    if (!thread_.joinable()) return;
    Cancel();
    thread_.join();
  }
  FreezeCall(const FreezeCall&) = delete;
  FreezeCall& operator=(const FreezeCall&) = delete;
  void Cancel() { context_.TryCancel(); }
  const grpc::Status& Wait() {
    thread_.join();
    return status_;
  }
  const v1::GraphCache& response() const { return response_; }

 private:
  grpc::ClientContext context_;
  v1::GraphCache response_;
  grpc::Status status_;
  std::thread thread_;
};

TEST_F(GraphCacheTest, JobsThatDoNotSayGetTheServersPolicy) {
  grpc::ClientContext context;
  v1::CreateJobRequest request;
  request.set_job_id("mine");
  request.mutable_spec()->set_dataset("datasets/zinc");
  v1::Job job;
  ASSERT_TRUE(job_stub_->CreateJob(&context, request, &job).ok());
  EXPECT_EQ(jobs_.Get("mine").spec.train.graph_cache, default_graph_cache_);
  EXPECT_EQ(job.spec().graph_cache().ShortDebugString(),
            "policy: POLICY_FREEZE freeze_at: 40 on_miss: ON_MISS_EAGER shapes: SHAPES_AUTO rungs: 0 audit_every: 1000 "
            "strict: false max_executables: 4096");
}

TEST_F(GraphCacheTest, GetTellsTheCache) {
  SetCache(Frozen(312));
  grpc::ClientContext context;
  v1::GetGraphCacheRequest request;
  request.set_name(kName);
  v1::GraphCache cache;
  ASSERT_TRUE(cache_stub_->GetGraphCache(&context, request, &cache).ok());
  EXPECT_EQ(cache.name(), kName);
  EXPECT_TRUE(cache.frozen());
  EXPECT_EQ(cache.freeze_step(), 312);
}

TEST_F(GraphCacheTest, ExplainTellsTheCacheAndItsProfiles) {
  graphcache::Snapshot snapshot = Frozen(312);
  snapshot.profiles.Set(
      {.mode = Mode::kTrain, .step = 1000, .operators = {{"aten::mm", 2, 0.25}}, .lines = {{"net.py:1", 0.25, 0.5}}});
  SetCache(snapshot);
  grpc::ClientContext context;
  v1::ExplainGraphCacheRequest request;
  request.set_name(kName);
  v1::ExplainGraphCacheResponse response;
  ASSERT_TRUE(cache_stub_->ExplainGraphCache(&context, request, &response).ok());
  EXPECT_EQ(response.cache().freeze_step(), 312);
  ASSERT_EQ(response.profiles_size(), 1);
  EXPECT_EQ(response.profiles(0).step(), 1000);
  ASSERT_EQ(response.profiles(0).lines_size(), 1);
  EXPECT_EQ(response.profiles(0).lines(0).ShortDebugString(),
            "line: \"net.py:1\" forward_seconds: 0.25 backward_seconds: 0.5");
}

TEST_F(GraphCacheTest, EveryMethodRefusesBadAndUnknownNames) {
  using Call = std::function<grpc::Status(grpc::ClientContext&, const std::string&)>;
  const auto named = [](auto request, const std::string& name) {
    request.set_name(name);
    return request;
  };
  v1::GraphCache cache;
  const struct {
    const char* field;
    Call call;
  } kCalls[] = {
      {"name",
       [&](auto& context, const auto& name) {
         return cache_stub_->GetGraphCache(&context, named(v1::GetGraphCacheRequest(), name), &cache);
       }},
      {"name",
       [&](auto& context, const auto& name) {
         v1::ExplainGraphCacheResponse response;
         return cache_stub_->ExplainGraphCache(&context, named(v1::ExplainGraphCacheRequest(), name), &response);
       }},
      {"parent",
       [&](auto& context, const auto& name) {
         v1::ListGraphCacheEntriesRequest request;
         request.set_parent(name);
         v1::ListGraphCacheEntriesResponse response;
         return cache_stub_->ListGraphCacheEntries(&context, request, &response);
       }},
      {"name",
       [&](auto& context, const auto& name) {
         auto request = named(v1::UpdateGraphCachePolicyRequest(), name);
         request.mutable_policy()->set_freeze_at(3);
         return cache_stub_->UpdateGraphCachePolicy(&context, request, &cache);
       }},
      {"name",
       [&](auto& context, const auto& name) {
         return cache_stub_->FreezeGraphCache(&context, named(v1::FreezeGraphCacheRequest(), name), &cache);
       }},
      {"name",
       [&](auto& context, const auto& name) {
         return cache_stub_->ThawGraphCache(&context, named(v1::ThawGraphCacheRequest(), name), &cache);
       }},
      {"name",
       [&](auto& context, const auto& name) {
         return cache_stub_->ClearGraphCache(&context, named(v1::ClearGraphCacheRequest(), name), &cache);
       }},
      {"name",
       [&](auto& context, const auto& name) {
         auto reader = Watch(context, name);
         EXPECT_FALSE(reader->Read(&cache));
         return reader->Finish();
       }},
  };
  int index = 0;
  for (const auto& c : kCalls) {
    {
      grpc::ClientContext context;
      const grpc::Status status = c.call(context, "jobs/a");
      EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << index;
      const auto bad = Detail<google::rpc::BadRequest>(status);
      ASSERT_TRUE(bad.has_value()) << index;
      ASSERT_EQ(bad->field_violations_size(), 1) << index;
      EXPECT_EQ(bad->field_violations(0).field(), c.field) << index;
      EXPECT_THAT(bad->field_violations(0).description(), HasSubstr("jobs/ID/graphCache")) << index;
    }
    grpc::ClientContext context;
    const grpc::Status status = c.call(context, "jobs/none/graphCache");
    EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND) << index;
    EXPECT_EQ(Detail<google::rpc::ErrorInfo>(status)->reason(), "JOB_NOT_FOUND") << index;
    ++index;
  }
}

TEST_F(GraphCacheTest, EntriesComeInPages) {
  std::vector<graphcache::EntryInfo> entries;
  for (int64_t i = 1; i <= 5; ++i) entries.push_back({.shape = {.nodes = i}});
  SetCache({}, entries);
  std::vector<int64_t> nodes;
  std::vector<int> sizes;
  v1::ListGraphCacheEntriesRequest request;
  request.set_parent(kName);
  request.set_page_size(2);
  std::string token;
  do {
    grpc::ClientContext context;
    v1::ListGraphCacheEntriesResponse response;
    ASSERT_TRUE(cache_stub_->ListGraphCacheEntries(&context, request, &response).ok());
    for (const auto& entry : response.entries()) nodes.push_back(entry.shape().nodes());
    sizes.push_back(response.entries_size());
    if (!request.page_token().empty()) token = request.page_token();
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_THAT(nodes, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(sizes, ElementsAre(2, 2, 1));

  SetCache({}, {entries[0]});
  request.set_page_token(token);
  grpc::ClientContext context;
  v1::ListGraphCacheEntriesResponse response;
  ASSERT_TRUE(cache_stub_->ListGraphCacheEntries(&context, request, &response).ok());
  EXPECT_EQ(response.entries_size(), 0) << "cleared meanwhile";
  EXPECT_EQ(response.next_page_token(), "");
}

TEST_F(GraphCacheTest, EntriesRefuseABadPageSizeAndToken) {
  grpc::ClientContext context;
  v1::ListGraphCacheEntriesRequest request;
  request.set_parent(kName);
  request.set_page_size(-1);
  request.set_page_token("50");
  v1::ListGraphCacheEntriesResponse response;
  const grpc::Status status = cache_stub_->ListGraphCacheEntries(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const auto bad = Detail<google::rpc::BadRequest>(status);
  ASSERT_EQ(bad->field_violations_size(), 2);
  EXPECT_EQ(bad->field_violations(0).field(), "page_size");
  EXPECT_EQ(bad->field_violations(1).field(), "page_token");
}

TEST_F(GraphCacheTest, CommandsSayWhatTheyAre) {
  std::vector<graphcache::Command> got;
  // Each call has a thread of its own, because it waits for its step.
  const auto call = [&](auto request, auto method) {
    v1::GraphCache cache;
    std::thread client([&] {
      grpc::ClientContext context;
      request.set_name(kName);
      const grpc::Status status = ((*cache_stub_).*method)(&context, request, &cache);
      EXPECT_TRUE(status.ok()) << status.error_message();
    });
    const int64_t before = got.empty() ? 0 : got.back().sequence;
    got.push_back(AwaitCommands(before).front());
    Answer(got.back().sequence);
    client.join();
    EXPECT_EQ(cache.command_step(), 312) << "the cache is the answer";
  };
  v1::UpdateGraphCachePolicyRequest update;
  update.mutable_policy()->set_freeze_at(7);
  using Stub = v1::GraphCacheService::Stub;
  call(update, &Stub::UpdateGraphCachePolicy);
  call(v1::FreezeGraphCacheRequest(), &Stub::FreezeGraphCache);
  call(v1::ThawGraphCacheRequest(), &Stub::ThawGraphCache);
  call(v1::ClearGraphCacheRequest(), &Stub::ClearGraphCache);
  const auto command = [](int64_t sequence, CommandKind kind, graphcache::PolicyUpdate changes = {}) {
    return graphcache::Command{.sequence = sequence, .kind = kind, .update = changes, .step = 312};
  };
  EXPECT_THAT(got,
              ElementsAre(command(1, CommandKind::kUpdatePolicy, {.freeze_at = 7}), command(2, CommandKind::kFreeze),
                          command(3, CommandKind::kThaw), command(4, CommandKind::kClear)));
}

TEST_F(GraphCacheTest, APolicyThatIsBadOnTheWireReachesNoJob) {
  grpc::ClientContext context;
  v1::UpdateGraphCachePolicyRequest request;
  request.set_name("a");
  request.mutable_policy()->set_on_miss(static_cast<v1::GraphCachePolicy::OnMiss>(9));
  v1::GraphCache cache;
  const grpc::Status status = cache_stub_->UpdateGraphCachePolicy(&context, request, &cache);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  const auto bad = Detail<google::rpc::BadRequest>(status);
  ASSERT_EQ(bad->field_violations_size(), 2) << "all at once";
  EXPECT_EQ(bad->field_violations(0).field(), "name");
  EXPECT_EQ(bad->field_violations(1).field(), "policy.on_miss");
  EXPECT_TRUE(run_->TakeCacheCommands(0, 312).empty());
}

TEST_F(GraphCacheTest, ErrorsOfCommandsReachTheClientWithTheirDetails) {
  jobs_.Record(MakeJob("ended", jobs::JobState::kSucceeded));
  jobs::CreateRequest never = jobs::Server::Request("never");
  never.spec.train.graph_cache.policy = spec::Policy::kNever;
  ASSERT_TRUE(jobs_->Create(never).ok());
  const struct {
    const char* job;
    int64_t freeze_at;
    grpc::StatusCode code;
    const char* reason;
  } kCases[] = {
      {"a", -1, grpc::StatusCode::INVALID_ARGUMENT, ""},
      {"ended", 0, grpc::StatusCode::FAILED_PRECONDITION, "JOB_ENDED"},
      {"never", 0, grpc::StatusCode::FAILED_PRECONDITION, "GRAPH_CACHE_KEEPS_NOTHING"},
  };
  for (const auto& c : kCases) {
    grpc::ClientContext context;
    v1::GraphCache cache;
    const std::string name = std::string("jobs/") + c.job + "/graphCache";
    v1::UpdateGraphCachePolicyRequest update;
    update.set_name(name);
    update.mutable_policy()->set_freeze_at(c.freeze_at);
    const grpc::Status status =
        c.freeze_at < 0 ? cache_stub_->UpdateGraphCachePolicy(&context, update, &cache) : Freeze(context, cache, name);
    EXPECT_EQ(status.error_code(), c.code) << c.job << ": " << status.error_message();
    EXPECT_THAT(status.error_message(), testing::Not(testing::IsEmpty()));
    const auto info = Detail<google::rpc::ErrorInfo>(status);
    EXPECT_EQ(info ? info->reason() : "", c.reason);
    const auto bad = Detail<google::rpc::BadRequest>(status);
    EXPECT_EQ(bad ? bad->field_violations(0).field() : "", c.freeze_at < 0 ? "policy.freeze_at" : "");
    EXPECT_FALSE(Detail<google::rpc::RetryInfo>(status).has_value());
  }
  // A command is waiting when the job stops. It stays recorded, and its call gets UNAVAILABLE.
  FreezeCall freeze(*cache_stub_);
  AwaitCommands();
  jobs_->Drain();
  jobs_.runner().Release();
  const grpc::Status drained = freeze.Wait();
  EXPECT_EQ(drained.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(drained)->reason(), "SERVER_DRAINING");
  EXPECT_TRUE(Detail<google::rpc::RetryInfo>(drained).has_value());
}

TEST_F(GraphCacheTest, ACommandWaitsForItsStepAndHoldsUpNothing) {
  FreezeCall freeze(*cache_stub_);
  const auto held = AwaitCommands();
  grpc::ClientContext context;
  v1::GetGraphCacheRequest request;
  request.set_name(kName);
  v1::GraphCache cache;
  EXPECT_TRUE(cache_stub_->GetGraphCache(&context, request, &cache).ok()) << "others are answered meanwhile";
  EXPECT_EQ(counts_.all().count("GraphCacheService/FreezeGraphCache OK"), 0u);
  Answer(held[0].sequence);
  EXPECT_TRUE(freeze.Wait().ok());
  EXPECT_EQ(freeze.response().command_step(), 312);
  EXPECT_TRUE(counts_.Await("GraphCacheService/FreezeGraphCache OK", 1));
}

TEST_F(GraphCacheTest, TheOutcomeOfACommandWhoseClientHasGoneIsDropped) {
  // Connects first, so that the command reaches the server long before its deadline.
  ASSERT_TRUE(channel_->WaitForConnected(absl::ToChronoTime(absl::Now() + kPatience)));
  FreezeCall late(*cache_stub_, absl::Now() + absl::Seconds(3));
  auto held = AwaitCommands();
  EXPECT_EQ(late.Wait().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(counts_.Await("GraphCacheService/FreezeGraphCache CANCELLED", 1))
      << "the call has ended though the command still waits";
  Answer(held[0].sequence);

  FreezeCall cancelled(*cache_stub_);
  held = AwaitCommands(held[0].sequence);
  cancelled.Cancel();
  EXPECT_EQ(cancelled.Wait().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(counts_.Await("GraphCacheService/FreezeGraphCache CANCELLED", 2));
  jobs_->Drain();
  jobs_.runner().Release();
  jobs_->Join();  // the job's end answers the command with an error
}

TEST_F(GraphCacheTest, OutcomesRaceWithCancels) {
  int64_t newest = 0;
  for (int i = 0; i < 50; ++i) {
    FreezeCall freeze(*cache_stub_);
    newest = AwaitCommands(newest).front().sequence;
    std::thread answer([&] { Answer(newest); });
    freeze.Cancel();
    const grpc::Status status = freeze.Wait();
    answer.join();
    EXPECT_TRUE(status.ok() || status.error_code() == grpc::StatusCode::CANCELLED) << status.error_message();
  }
  // Shutdown waits for every call. A call that never finished would delay it for the whole grace period.
  const absl::Time before = absl::Now();
  server_->Shutdown(kPatience);
  EXPECT_LT(absl::Now() - before, kPatience);
}

TEST_F(GraphCacheTest, ShutdownGivesUpCommandsAfterItsGrace) {
  FreezeCall freeze(*cache_stub_);
  const auto held = AwaitCommands();
  server_->Shutdown(absl::Milliseconds(50));
  EXPECT_FALSE(freeze.Wait().ok());
  server_.reset();
  Answer(held[0].sequence);  // the server and the call no longer exist
}

TEST_F(GraphCacheTest, ShutdownLetsCommandsBeAnswered) {
  FreezeCall freeze(*cache_stub_);
  AwaitCommands();
  std::thread shutdown([this] { server_->Shutdown(kPatience); });
  jobs_->Drain();
  jobs_.runner().Release();
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(freeze.Wait())->reason(), "SERVER_DRAINING");
  shutdown.join();
}

TEST_F(GraphCacheTest, WatchSendsEachChangeAndEndsWithTheJob) {
  grpc::ClientContext context;
  auto reader = Watch(context);
  v1::GraphCache got;
  ASSERT_TRUE(reader->Read(&got));
  EXPECT_EQ(got.name(), kName);
  EXPECT_FALSE(got.frozen());
  SetCache(Frozen(312));
  ASSERT_TRUE(reader->Read(&got));
  EXPECT_TRUE(got.frozen());
  jobs::Notices notices(jobs_, "a");
  for (int i = 0; i < 20; ++i) run_->Log(train::LogLevel::kInfo, "line");
  ASSERT_TRUE(notices.AwaitOneMore());
  graphcache::Snapshot last = Frozen(312);
  last.of(Mode::kTrain).hits = 9;
  SetCache(last);
  ASSERT_TRUE(reader->Read(&got));
  EXPECT_EQ(got.statistics(0).hits(), 9) << "log lines alone send nothing";
  jobs_.Succeed();
  EXPECT_FALSE(reader->Read(&got)) << "the last state was sent already";
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_TRUE(jobs_.AwaitWatchers(1)) << "the test's own";
}

TEST_F(GraphCacheTest, ASlowWatcherSkipsStatesButNotTheLast) {
  constexpr int kChanges = 20;
  graphcache::Snapshot snapshot;
  // Larger than the buffers of flow control, so that writes wait for the reader.
  snapshot.freeze_point.no_formula_reason = std::string(512 << 10, 'x');
  SetCache(snapshot);
  jobs::Notices notices(jobs_, "a");
  grpc::ClientContext context;
  auto reader = Watch(context);
  v1::GraphCache got;
  ASSERT_TRUE(reader->Read(&got));
  for (int i = 1; i <= kChanges; ++i) {
    snapshot.command_step = i;
    SetCache(snapshot);
    // Each change reaches the stream separately. Without coalescing, each would get its own response.
    ASSERT_TRUE(notices.AwaitOneMore());
  }
  jobs_.runner().End(absl::InternalError("no more"));
  int responses = 0;
  while (reader->Read(&got)) ++responses;
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(got.command_step(), kChanges);
  EXPECT_LT(responses, kChanges);
}

TEST_F(GraphCacheTest, WatchOfAnEndedJobSendsOneResponse) {
  jobs_.Succeed();
  jobs_.AwaitEnd("a");
  grpc::ClientContext context;
  auto reader = Watch(context);
  v1::GraphCache got;
  EXPECT_TRUE(reader->Read(&got));
  EXPECT_FALSE(reader->Read(&got));
  EXPECT_TRUE(reader->Finish().ok());
}

}  // namespace
}  // namespace permafrost::api
