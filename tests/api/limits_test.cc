// Tests the limits on what clients keep open, and what happens to streams that nobody reads.
#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "api/guard/call_limits.h"
#include "api/streams/stream_sources.h"
#include "base/monotonic.h"
#include "base/status.h"
#include "google/rpc/error_details.pb.h"
#include "permafrost/v1/census.grpc.pb.h"
#include "server_fixture.h"

namespace permafrost::api {
namespace {

using ::testing::HasSubstr;

// Larger than the buffers of a client and a server together.
constexpr size_t kLargeFile = 32 << 20;

class LimitsTest : public ServerTest {
 protected:
  LimitsTest() {
    limits_ = {.watches = 3,
               .log_streams = 2,
               .exports = 2,
               .cache_commands = 2,
               .dataset_reads = 2,
               .plans = 2,
               .deletions = 2,
               .unread = absl::InfiniteDuration()};
  }
  void SetUp() override {
    ServerTest::SetUp();
    run_ = &jobs_.Run("a");
    jobs_.catalog().Put("coming", data::DatasetState::kImporting);
    jobs_.WriteFile("a", "artifacts/best.safetensors", std::string(kLargeFile, 'w'));
  }

  // A stream that stays open until it is destroyed.
  template <class Response>
  struct Stream {
    std::unique_ptr<grpc::ClientContext> context = std::make_unique<grpc::ClientContext>();
    std::unique_ptr<grpc::ClientReader<Response>> reader;

    Stream() = default;
    Stream(Stream&&) noexcept = default;
    Stream& operator=(Stream&&) = delete;
    ~Stream() {
      if (!reader) return;
      context->TryCancel();
      reader->Finish();
    }
    bool Read() {
      Response response;
      return reader->Read(&response);
    }
    grpc::Status End() {
      while (Read()) {
      }
      grpc::Status status = reader->Finish();
      reader.reset();
      return status;
    }
  };
  Stream<v1::ExportJobResponse> Export() {
    Stream<v1::ExportJobResponse> stream;
    v1::ExportJobRequest request;
    request.set_name("jobs/a");
    stream.reader = job_stub_->ExportJob(stream.context.get(), request);
    return stream;
  }
  Stream<v1::Job> WatchJob() {
    Stream<v1::Job> stream;
    v1::WatchJobRequest request;
    request.set_name("jobs/a");
    stream.reader = job_stub_->WatchJob(stream.context.get(), request);
    return stream;
  }
  Stream<v1::GraphCache> WatchCache() {
    Stream<v1::GraphCache> stream;
    v1::WatchGraphCacheRequest request;
    request.set_name("jobs/a/graphCache");
    stream.reader = cache_stub_->WatchGraphCache(stream.context.get(), request);
    return stream;
  }
  Stream<v1::Dataset> WatchDataset() {
    Stream<v1::Dataset> stream;
    v1::WatchDatasetRequest request;
    request.set_name("datasets/coming");
    stream.reader = dataset_stub_->WatchDataset(stream.context.get(), request);
    return stream;
  }
  Stream<v1::ServerInfo> WatchServer() {
    Stream<v1::ServerInfo> stream;
    stream.reader = server_stub_->WatchServer(stream.context.get(), {});
    return stream;
  }
  Stream<v1::StreamJobLogsResponse> FollowLogs() {
    Stream<v1::StreamJobLogsResponse> stream;
    v1::StreamJobLogsRequest request;
    request.set_name("jobs/a");
    request.set_follow(true);
    stream.reader = job_stub_->StreamJobLogs(stream.context.get(), request);
    return stream;
  }

  // Expects a refusal that names the kind of calls, the limit, and the time to retry after.
  static void ExpectTooMany(const grpc::Status& status, const std::string& calls, int limit) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << calls << ": " << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(std::to_string(limit) + " " + calls));
    const auto info = Detail<google::rpc::ErrorInfo>(status);
    ASSERT_TRUE(info) << calls;
    EXPECT_EQ(info->reason(), "TOO_MANY_CALLS");
    EXPECT_EQ(info->metadata().at("calls"), calls);
    EXPECT_EQ(info->metadata().at("limit"), std::to_string(limit));
    const auto retry = Detail<google::rpc::RetryInfo>(status);
    ASSERT_TRUE(retry) << calls;
    EXPECT_GT(retry->retry_delay().seconds(), 0);
  }

  std::vector<graphcache::Command> AwaitCommands(int64_t after) {
    return jobs::AwaitCommands(*run_, /*step=*/1, after);
  }
  // Answers the commands up to `sequence`.
  void Answer(int64_t sequence) {
    graphcache::Snapshot snapshot;
    snapshot.command_sequence = sequence;
    run_->OnGraphCache(snapshot, nullptr);
  }

  const std::filesystem::path artifact_ = jobs_.JobDirectory("a") / "artifacts/best.safetensors";
  train::RunContext* run_ = nullptr;  // the run of job `a`
};

TEST(CallLimit, GivesBackWhatIsDropped) {
  std::optional<CallLimit> limit(std::in_place, "calls", 1);
  absl::StatusOr<CallLimit::Slot> first = limit->Take();
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(absl::IsResourceExhausted(limit->Take().status()));
  CallLimit::Slot copy = *first;
  *first = nullptr;
  EXPECT_FALSE(limit->Take().ok()) << "a copy holds it";
  copy = nullptr;
  CallLimit::Slot last = *limit->Take();
  limit.reset();
  last = nullptr;  // an answer may arrive after the server is gone
}

TEST(CallLimit, LeavesAQuarterToOthers) {
  std::string client = "tokens/first";
  CallLimit limit("calls", 4, [&client](const grpc::CallbackServerContext&) { return client; });
  const grpc::CallbackServerContext context;
  std::vector<CallLimit::Slot> slots;
  slots.reserve(3);
  for (int i = 0; i < 3; ++i) slots.push_back(*limit.Take(context));
  const absl::Status refused = limit.Take(context).status();
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_EQ(GetReason(refused).metadata.at("client"), client);
  EXPECT_EQ(GetReason(refused).metadata.at("limit"), "3");
  EXPECT_THAT(std::string(refused.message()), HasSubstr("3 calls of tokens/first are open"));
  client = "tokens/second";
  CallLimit::Slot other = *limit.Take(context);
  EXPECT_FALSE(limit.Take(context).ok()) << "all are taken";
  slots.pop_back();
  EXPECT_TRUE(limit.Take(context).ok());
}

TEST(CallLimit, OfCallsThatAreCountedToNobodyAllMayBeTaken) {
  CallLimit limit("calls", 4, [](const grpc::CallbackServerContext&) { return ""; });
  const grpc::CallbackServerContext context;
  std::vector<CallLimit::Slot> slots;
  slots.reserve(4);
  for (int i = 0; i < 4; ++i) slots.push_back(*limit.Take(context));
  EXPECT_FALSE(limit.Take(context).ok());
}

TEST_F(LimitsTest, ExportsThatNobodyReadsAreFew) {
  std::vector<Stream<v1::ExportJobResponse>> unread;
  for (int i = 0; i < limits_.exports; ++i) {
    unread.push_back(Export());
    ASSERT_TRUE(unread.back().Read());
  }
  ExpectTooMany(Export().End(), "exports", limits_.exports);
  // The end of one export frees its slot.
  unread.pop_back();
  ASSERT_TRUE(counts_.Await("JobService/ExportJob CANCELLED", 1));
  const Stopwatch waited;
  while (true) {
    if (Export().Read()) break;
    ASSERT_LT(waited.Elapsed(), kPatience) << "its slot never came back";
  }
}

// An export must not use up mappings, which datasets need. 4,096 unread exports would take all of them.
TEST_F(LimitsTest, AnExportMapsNothing) {
  if (!std::filesystem::exists("/proc/self/maps")) GTEST_SKIP() << "mappings are read from /proc";
  auto source = ExportSource::Open(artifact_);
  ASSERT_TRUE(source.ok()) << source.status();
  v1::ExportJobResponse piece;
  ASSERT_TRUE((*source)->Next(piece).ok());
  std::ifstream file("/proc/self/maps");
  const std::string maps{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(maps, HasSubstr("[stack]"));
  EXPECT_THAT(maps, testing::Not(HasSubstr(artifact_.string())));
}

TEST_F(LimitsTest, AnExportTellsOfAFileThatChanges) {
  const auto export_while = [this](const auto& change) {
    std::ofstream(artifact_, std::ios::binary) << std::string(200'000, 'a');
    auto source = ExportSource::Open(artifact_);
    EXPECT_TRUE(source.ok()) << source.status();
    v1::ExportJobResponse piece;
    EXPECT_TRUE((*source)->Next(piece).ok());
    change();
    absl::StatusOr<Pull> pull = Pull::kMore;
    while (pull.ok() && *pull == Pull::kMore) {
      piece.Clear();
      pull = (*source)->Next(piece);
    }
    return pull.status();
  };
  const absl::Status cut = export_while([this] { std::filesystem::resize_file(artifact_, 100'000); });
  EXPECT_EQ(cut.code(), absl::StatusCode::kDataLoss) << cut;
  EXPECT_THAT(std::string(cut.message()), HasSubstr(artifact_.string()));
  const absl::Status written = export_while([this] { std::ofstream(artifact_, std::ios::app) << "more"; });
  EXPECT_EQ(written.code(), absl::StatusCode::kDataLoss) << written;
  const absl::Status replaced = export_while([this] {
    std::ofstream(artifact_.string() + ".new") << "new";
    std::filesystem::rename(artifact_.string() + ".new", artifact_);
  });
  EXPECT_TRUE(replaced.ok()) << "the file that was opened is still whole: " << replaced;
}

TEST_F(LimitsTest, WatchersOfEveryKindCountTogether) {
  auto job = WatchJob();
  ASSERT_TRUE(job.Read());
  auto cache = WatchCache();
  ASSERT_TRUE(cache.Read());
  auto dataset = WatchDataset();
  ASSERT_TRUE(dataset.Read());
  ExpectTooMany(WatchJob().End(), "watches", 3);
  ExpectTooMany(WatchCache().End(), "watches", 3);
  ExpectTooMany(WatchDataset().End(), "watches", 3);
  ExpectTooMany(WatchServer().End(), "watches", 3);
  EXPECT_TRUE(jobs_.AwaitWatchers(2)) << "what is refused subscribes to nothing";
}

TEST_F(LimitsTest, FollowersOfLogsAreFew) {
  run_->Log(train::LogLevel::kInfo, "line");
  auto first = FollowLogs();
  ASSERT_TRUE(first.Read());
  auto second = FollowLogs();
  ASSERT_TRUE(second.Read());
  ExpectTooMany(FollowLogs().End(), "log streams", 2);
}

TEST_F(LimitsTest, CommandsThatWaitAreFewEvenWhenTheirClientsAreGone) {
  v1::FreezeGraphCacheRequest request;
  request.set_name("jobs/a/graphCache");
  v1::GraphCache cache;
  const auto freeze = [&](grpc::ClientContext& context) {
    context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
    return cache_stub_->FreezeGraphCache(&context, request, &cache);
  };
  // Every client gives up, while the manager still holds its command.
  int64_t newest = 0;
  for (int i = 0; i < limits_.cache_commands; ++i) {
    grpc::ClientContext context;
    std::thread client([&] { EXPECT_EQ(freeze(context).error_code(), grpc::StatusCode::CANCELLED); });
    newest = AwaitCommands(newest).back().sequence;
    context.TryCancel();
    client.join();
  }
  ASSERT_EQ(newest, limits_.cache_commands);
  {
    grpc::ClientContext context;
    ExpectTooMany(freeze(context), "graph cache commands", limits_.cache_commands);
  }
  Answer(newest);
  grpc::Status status;
  grpc::ClientContext context;
  std::thread client([&] { status = freeze(context); });
  Answer(AwaitCommands(newest).back().sequence);
  client.join();
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(LimitsTest, PlansAndCensusesOfClientsThatAreGoneLeaveTheirPlaces) {
  const auto plans = v1::PlanService::NewStub(channel_);
  const auto censuses = v1::CensusService::NewStub(channel_);
  const auto plan = [&](grpc::ClientContext& context) {
    context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
    v1::PlanGraphCacheRequest request;
    request.mutable_spec()->set_dataset("datasets/zinc");
    v1::PlanGraphCacheResponse response;
    return plans->PlanGraphCache(&context, request, &response);
  };
  const auto census = [&](grpc::ClientContext& context) {
    context.set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
    v1::CensusGraphCacheRequest request;
    request.mutable_spec()->set_dataset("datasets/zinc");
    v1::CensusGraphCacheResponse response;
    return censuses->CensusGraphCache(&context, request, &response);
  };
  jobs_.runner().HoldPlans(true);
  for (int i = 0; i < limits_.plans; ++i) {
    grpc::ClientContext context;
    grpc::Status status;
    std::thread client([&] { status = i % 2 == 0 ? plan(context) : census(context); });
    jobs_.runner().AwaitPlans(static_cast<size_t>(i) + 1);
    context.TryCancel();
    client.join();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED) << status.error_message();
  }
  // Every call has begun. Each ends only because its client left.
  ASSERT_TRUE(counts_.Await("PlanService/PlanGraphCache CANCELLED", limits_.plans / 2));
  ASSERT_TRUE(counts_.Await("CensusService/CensusGraphCache CANCELLED", limits_.plans / 2));
  jobs_.runner().HoldPlans(false);
  grpc::ClientContext plan_context, census_context;
  const grpc::Status planned = plan(plan_context), taken = census(census_context);
  EXPECT_TRUE(planned.ok()) << planned.error_message();
  EXPECT_TRUE(taken.ok()) << taken.error_message();
}

TEST_F(LimitsTest, DeletionsThatWaitHoldUpNoOtherCall) {
  jobs_.catalog().Put("unused");
  // Every deletion waits for the database.
  SQLite::Database other((jobs_.state_dir() / "permafrost.db").string(), SQLite::OPEN_READWRITE, 5000);
  other.exec("BEGIN IMMEDIATE");
  std::atomic<int> ids = 0;
  const auto remove = [&] {
    v1::DeleteDatasetRequest request;
    request.set_name("datasets/unused");
    request.set_request_id(std::to_string(++ids));
    grpc::ClientContext context;
    google::protobuf::Empty empty;
    return dataset_stub_->DeleteDataset(&context, request, &empty);
  };
  std::vector<std::thread> clients;
  std::vector<grpc::Status> outcomes(static_cast<size_t>(limits_.deletions) + 8);
  clients.reserve(outcomes.size());
  for (grpc::Status& outcome : outcomes) clients.emplace_back([&outcome, &remove] { outcome = remove(); });
  ASSERT_TRUE(counts_.Await("DatasetService/DeleteDataset RESOURCE_EXHAUSTED", 8));
  ExpectTooMany(remove(), "deletions", limits_.deletions);
  grpc::ClientContext context;
  v1::ListDatasetsResponse list;
  EXPECT_TRUE(dataset_stub_->ListDatasets(&context, {}, &list).ok());
  other.exec("COMMIT");
  for (std::thread& client : clients) client.join();
  const auto refused = [](const grpc::Status& s) { return s.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED; };
  EXPECT_EQ(std::count_if(outcomes.begin(), outcomes.end(), refused), 8);
  const auto deleted = [](const grpc::Status& s) { return s.ok(); };
  EXPECT_EQ(std::count_if(outcomes.begin(), outcomes.end(), deleted), 1) << "the other finds it no more";
}

class ConnectionTest : public LimitsTest {
 protected:
  ConnectionTest() { limits_.calls_of_a_connection = 3; }
  grpc::Status Ask(const std::shared_ptr<grpc::Channel>& channel, absl::Duration timeout) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    v1::GetJobRequest request;
    request.set_name("jobs/a");
    v1::Job job;
    return v1::JobService::NewStub(channel)->GetJob(&context, request, &job);
  }
};

TEST_F(ConnectionTest, HasSoManyCallsOpenAndNoMore) {
  std::vector<Stream<v1::Job>> watches;
  for (int i = 0; i < 3; ++i) {
    watches.push_back(WatchJob());
    ASSERT_TRUE(watches.back().Read());
  }
  EXPECT_EQ(Ask(channel_, absl::Milliseconds(300)).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  grpc::ChannelArguments apart;
  apart.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto other = grpc::CreateCustomChannel(server_->address(), grpc::InsecureChannelCredentials(), apart);
  EXPECT_TRUE(Ask(other, kPatience).ok()) << "another connection has as many";
  watches.pop_back();
  EXPECT_TRUE(Ask(channel_, kPatience).ok());
}

class UnreadExportTest : public LimitsTest {
 protected:
  // Longer than the client needs to read its first piece.
  UnreadExportTest() { limits_.unread = absl::Seconds(5); }
};

TEST_F(UnreadExportTest, AnExportThatNobodyReadsIsEnded) {
  auto unread = Export();
  ASSERT_TRUE(unread.Read());
  // The client reads nothing more, and the server ends the stream by itself.
  ASSERT_TRUE(counts_.Await("JobService/ExportJob CANCELLED", 1));
  const grpc::Status status = unread.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("read nothing for"));
}

class UnreadTest : public LimitsTest {
 protected:
  UnreadTest() { limits_.unread = absl::Seconds(1); }
};

TEST_F(UnreadTest, AWatcherWithNothingToReadIsNot) {
  auto watch = WatchJob();
  ASSERT_TRUE(watch.Read());
  const Event never;
  never.WaitFor(2.5 * limits_.unread);
  jobs_.Succeed();
  EXPECT_TRUE(watch.Read());
  EXPECT_TRUE(watch.End().ok());
}

}  // namespace
}  // namespace permafrost::api
