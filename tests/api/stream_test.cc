// Server streams over a real channel: order, coalescing, the end, and that nothing is left behind.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <limits>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "base/hash.h"
#include "base/monotonic.h"
#include "server_fixture.h"
#include "temp_dir.h"

namespace permafrost::api {
namespace {

class StreamTest : public ServerTest {
 protected:
  std::unique_ptr<grpc::ClientReader<v1::Job>> Watch(grpc::ClientContext& context, const std::string& name) {
    v1::WatchJobRequest request;
    request.set_name(name);
    return job_stub_->WatchJob(&context, request);
  }
  std::unique_ptr<grpc::ClientReader<v1::StreamJobLogsResponse>> Logs(grpc::ClientContext& context, int64_t offset,
                                                                      bool follow) {
    v1::StreamJobLogsRequest request;
    request.set_name("jobs/a");
    request.set_offset(offset);
    request.set_follow(follow);
    return job_stub_->StreamJobLogs(&context, request);
  }
};

TEST_F(StreamTest, WatchJobSendsASnapshotWithAllEpochsFirst) {
  jobs::Job job = MakeJob("a", jobs::JobState::kRunning);
  for (int64_t epoch = 1; epoch <= 3; ++epoch) job.epochs.push_back({.epoch = epoch});
  manager_.Put(job);
  grpc::ClientContext context;
  auto reader = Watch(context, "jobs/a");
  v1::Job got;
  ASSERT_TRUE(reader->Read(&got));
  EXPECT_EQ(got.name(), "jobs/a");
  EXPECT_EQ(got.epochs_size(), 3);
  manager_.Change("a", [](jobs::Job& j) { j.epochs.push_back({.epoch = 4}); });
  ASSERT_TRUE(reader->Read(&got));
  ASSERT_EQ(got.epochs_size(), 1);
  EXPECT_EQ(got.epochs(0).epoch(), 4);
  context.TryCancel();
}

// A notice of a job with a million epochs must not copy them all, for each watcher, under the manager's lock.
TEST_F(StreamTest, WatchersAskForNewEpochsOnly) {
  jobs::Job job = MakeJob("a", jobs::JobState::kRunning);
  for (int64_t epoch = 1; epoch <= 3; ++epoch) job.epochs.push_back({.epoch = epoch});
  manager_.Put(job);
  grpc::ClientContext context;
  auto reader = Watch(context, "jobs/a");
  v1::Job got;
  ASSERT_TRUE(reader->Read(&got));
  EXPECT_EQ(manager_.asked_since().front(), 0);
  manager_.Change("a", [](jobs::Job& j) { j.epochs.push_back({.epoch = 4}); });
  ASSERT_TRUE(reader->Read(&got));
  EXPECT_EQ(manager_.asked_since().at(1), 3);
  context.TryCancel();

  // A cache's watcher wants to know whether the job has ended, and no epoch at all.
  const size_t before = manager_.asked_since().size();
  grpc::ClientContext cache_context;
  v1::WatchGraphCacheRequest request;
  request.set_name("jobs/a/graphCache");
  auto cache_reader = cache_stub_->WatchGraphCache(&cache_context, request);
  v1::GraphCache cache;
  ASSERT_TRUE(cache_reader->Read(&cache));
  const std::vector<int64_t> asked = manager_.asked_since();
  EXPECT_NE(
      std::find(asked.begin() + static_cast<std::ptrdiff_t>(before), asked.end(), std::numeric_limits<int64_t>::max()),
      asked.end());
  cache_context.TryCancel();
}

TEST_F(StreamTest, WatchJobOfAnEndedJobSendsOneResponse) {
  manager_.Put(MakeJob("a", jobs::JobState::kSucceeded));
  grpc::ClientContext context;
  auto reader = Watch(context, "jobs/a");
  v1::Job got;
  ASSERT_TRUE(reader->Read(&got));
  EXPECT_EQ(got.state(), v1::Job::STATE_SUCCEEDED);
  EXPECT_FALSE(reader->Read(&got));
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_TRUE(manager_.hub().AwaitAlive(0));
}

TEST_F(StreamTest, ASlowReaderSkipsStatesButNoEpochAndNotTheEnd) {
  constexpr int kChanges = 60;
  jobs::Job job = MakeJob("a", jobs::JobState::kRunning);
  // Larger than what flow control buffers, so that the writes wait for the reader.
  job.error = std::string(512 << 10, 'x');
  manager_.Put(job);
  grpc::ClientContext context;
  auto reader = Watch(context, "jobs/a");
  v1::Job got;
  ASSERT_TRUE(reader->Read(&got));
  for (int64_t i = 1; i <= kChanges; ++i) {
    manager_.Change("a", [i](jobs::Job& j) {
      j.progress.step = i;
      j.epochs.push_back({.epoch = i});
    });
    // Each change reaches the stream by itself, and would give a response of its own if the stream coalesced nothing.
    ASSERT_TRUE(manager_.hub().AwaitCalls(i));
  }
  manager_.Change("a", [](jobs::Job& j) { j.state = jobs::JobState::kSucceeded; });

  int responses = 0;
  int64_t step = 0;
  std::vector<int64_t> epochs;
  while (reader->Read(&got)) {
    ++responses;
    EXPECT_GE(got.progress().step(), step) << "states come in order";
    step = got.progress().step();
    for (const auto& epoch : got.epochs()) epochs.push_back(epoch.epoch());
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(got.state(), v1::Job::STATE_SUCCEEDED) << "the terminal state is the last response";
  EXPECT_LT(responses, kChanges);
  ASSERT_EQ(epochs.size(), static_cast<size_t>(kChanges)) << "every epoch once";
  for (int64_t i = 0; i < kChanges; ++i) EXPECT_EQ(epochs[i], i + 1);
}

TEST_F(StreamTest, WatchJobSaysNothingWhereNothingChanged) {
  manager_.Put(MakeJob("a", jobs::JobState::kRunning));
  grpc::ClientContext context;
  auto reader = Watch(context, "jobs/a");
  v1::Job got;
  ASSERT_TRUE(reader->Read(&got));
  for (int i = 0; i < 100; ++i) manager_.AppendLog("a", "line\n");
  manager_.Change("a", [](jobs::Job& j) { j.state = jobs::JobState::kFailed; });
  ASSERT_TRUE(reader->Read(&got));
  EXPECT_EQ(got.state(), v1::Job::STATE_FAILED) << "log lines alone send nothing";
  EXPECT_FALSE(reader->Read(&got));
}

TEST_F(StreamTest, WatchJobEndsWithNotFoundWhenTheJobIsDeleted) {
  manager_.Put(MakeJob("a", jobs::JobState::kRunning));
  grpc::ClientContext context;
  auto reader = Watch(context, "jobs/a");
  v1::Job got;
  ASSERT_TRUE(reader->Read(&got));
  ASSERT_TRUE(manager_.Delete(JobId("a")).ok());
  EXPECT_FALSE(reader->Read(&got));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(StreamTest, StreamsRefuseBadAndUnknownNames) {
  for (const auto& [name, code] :
       {std::pair("a", grpc::StatusCode::INVALID_ARGUMENT), std::pair("jobs/none", grpc::StatusCode::NOT_FOUND)}) {
    grpc::ClientContext context;
    auto reader = Watch(context, name);
    v1::Job got;
    EXPECT_FALSE(reader->Read(&got));
    EXPECT_EQ(reader->Finish().error_code(), code) << name;
  }
}

TEST_F(StreamTest, ACancelledWatchLeavesNothingBehind) {
  manager_.Put(MakeJob("a", jobs::JobState::kRunning));
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    auto reader = Watch(context, "jobs/a");
    v1::Job got;
    if (i % 2 == 0) {
      ASSERT_TRUE(reader->Read(&got));  // cancelled while idle; the odd ones around the first write
    }
    context.TryCancel();
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  // Until the server has met them all. With which code is gRPC's own matter where the cancel came before the request.
  const auto met = [this] {
    int calls = 0;
    for (const auto& [key, count] : counts_.all()) calls += count;
    return calls;
  };
  for (const Stopwatch waited; met() < 20 && waited.Elapsed() < kPatience;) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_TRUE(manager_.hub().AwaitAlive(0));
}

TEST_F(StreamTest, CancelsRaceWithChanges) {
  manager_.Put(MakeJob("a", jobs::JobState::kRunning));
  std::atomic<bool> stop = false;
  std::thread changer([&] {
    for (int64_t step = 0; !stop; ++step) {
      manager_.Change("a", [step](jobs::Job& j) { j.progress.step = step; });
      std::this_thread::yield();
    }
  });
  for (int i = 0; i < 100; ++i) {
    grpc::ClientContext context;
    auto reader = Watch(context, "jobs/a");
    v1::Job got;
    for (int reads = 0; reads < i % 4; ++reads) ASSERT_TRUE(reader->Read(&got));
    context.TryCancel();
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  stop = true;
  changer.join();
  EXPECT_TRUE(manager_.hub().AwaitAlive(0));
}

TEST_F(StreamTest, WatchDatasetEndsAfterReady) {
  data::Dataset dataset;
  dataset.id = DatasetId("zinc");
  catalog_.Put(dataset);
  grpc::ClientContext context;
  v1::WatchDatasetRequest request;
  request.set_name("datasets/zinc");
  auto reader = dataset_stub_->WatchDataset(&context, request);
  v1::Dataset got;
  ASSERT_TRUE(reader->Read(&got));
  EXPECT_EQ(got.state(), v1::Dataset::STATE_IMPORTING);
  dataset.state = data::DatasetState::kReady;
  catalog_.Put(dataset);
  ASSERT_TRUE(reader->Read(&got));
  EXPECT_EQ(got.state(), v1::Dataset::STATE_READY);
  EXPECT_FALSE(reader->Read(&got));
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(StreamTest, WatchDatasetEndsWithNotFoundWhenDeleted) {
  data::Dataset dataset;
  dataset.id = DatasetId("zinc");
  catalog_.Put(dataset);
  grpc::ClientContext context;
  v1::WatchDatasetRequest request;
  request.set_name("datasets/zinc");
  auto reader = dataset_stub_->WatchDataset(&context, request);
  v1::Dataset got;
  ASSERT_TRUE(reader->Read(&got));
  ASSERT_TRUE(catalog_.Delete(DatasetId("zinc"), [] { return absl::OkStatus(); }).ok());
  EXPECT_FALSE(reader->Read(&got));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(StreamTest, LogsWithoutFollowAreOfAllSegments) {
  manager_.SetLogSegments(10);
  manager_.Put(MakeJob("a", jobs::JobState::kSucceeded));
  manager_.AppendLog("a", "one\ntwo\nthree\nfour\n");
  grpc::ClientContext context;
  const auto reader = Logs(context, 0, /*follow=*/false);
  std::string text;
  v1::StreamJobLogsResponse piece;
  while (reader->Read(&piece)) text += piece.data();
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(text, "one\ntwo\nthree\nfour\n");
}

TEST_F(StreamTest, LogsWithoutFollowEndAtTheEnd) {
  manager_.Put(MakeJob("a", jobs::JobState::kRunning));
  const std::string log(200'000, 'l');
  manager_.AppendLog("a", log);
  const struct {
    const char* why;
    int64_t offset;
    size_t want;
  } kCases[] = {
      {"from the start", 0, 200'000}, {"from the middle", 150'000, 50'000},
      {"the last bytes", -10, 10},    {"more than there are", -999'999, 200'000},
      {"at the end", 200'000, 0},     {"a multiple of the piece", 200'000 - 65'536, 65'536},
  };
  for (const auto& c : kCases) {
    grpc::ClientContext context;
    auto reader = Logs(context, c.offset, false);
    v1::StreamJobLogsResponse piece;
    size_t bytes = 0;
    while (reader->Read(&piece)) bytes += piece.data().size();
    EXPECT_TRUE(reader->Finish().ok()) << c.why;
    EXPECT_EQ(bytes, c.want) << c.why;
    if (c.want > 0) {
      EXPECT_EQ(piece.next_offset(), 200'000) << c.why;
    }
  }
}

TEST_F(StreamTest, LogsFollowToTheLastByteOfAnEndedJob) {
  manager_.Put(MakeJob("a", jobs::JobState::kRunning));
  manager_.AppendLog("a", "first\n");
  grpc::ClientContext context;
  auto reader = Logs(context, 0, true);
  v1::StreamJobLogsResponse piece;
  ASSERT_TRUE(reader->Read(&piece));
  EXPECT_EQ(piece.data(), "first\n");
  manager_.AppendLog("a", "second\n");
  ASSERT_TRUE(reader->Read(&piece));
  EXPECT_EQ(piece.data(), "second\n");
  EXPECT_EQ(piece.next_offset(), 13);
  manager_.AppendLog("a", "last\n");
  manager_.Change("a", [](jobs::Job& j) { j.state = jobs::JobState::kCancelled; });
  ASSERT_TRUE(reader->Read(&piece));
  EXPECT_EQ(piece.data(), "last\n");
  EXPECT_FALSE(reader->Read(&piece));
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(StreamTest, LogsFollowEndsEvenWithoutANewByte) {
  manager_.Put(MakeJob("a", jobs::JobState::kRunning));
  manager_.AppendLog("a", "only\n");
  grpc::ClientContext context;
  auto reader = Logs(context, 0, true);
  v1::StreamJobLogsResponse piece;
  ASSERT_TRUE(reader->Read(&piece));
  manager_.Change("a", [](jobs::Job& j) { j.state = jobs::JobState::kSucceeded; });
  EXPECT_FALSE(reader->Read(&piece));
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(StreamTest, LogsEndWithNotFoundAndOutOfRange) {
  manager_.Put(MakeJob("a", jobs::JobState::kRunning));
  v1::StreamJobLogsResponse piece;
  {
    grpc::ClientContext context;
    auto reader = Logs(context, 1, true);
    EXPECT_FALSE(reader->Read(&piece));
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::OUT_OF_RANGE);
  }
  manager_.AppendLog("a", "x");
  grpc::ClientContext context;
  auto reader = Logs(context, 0, true);
  ASSERT_TRUE(reader->Read(&piece));
  ASSERT_TRUE(manager_.Delete(JobId("a")).ok());
  EXPECT_FALSE(reader->Read(&piece));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(StreamTest, ExportSendsTheFileInPiecesWithItsHash) {
  const TempDir dir;
  manager_.Put(MakeJob("a", jobs::JobState::kSucceeded));
  for (const size_t size : {size_t{0}, size_t{1}, size_t{64} << 10, (size_t{64} << 10) + 1, size_t{300'000}}) {
    std::string content(size, '\0');
    for (size_t i = 0; i < size; ++i) content[i] = static_cast<char>(i * 31);
    const auto path = dir.path() / ("f" + std::to_string(size));
    std::ofstream(path, std::ios::binary) << content;
    manager_.SetArtifact(path);
    grpc::ClientContext context;
    v1::ExportJobRequest request;
    request.set_name("jobs/a");
    auto reader = job_stub_->ExportJob(&context, request);
    v1::ExportJobResponse piece;
    std::string got, hash;
    int pieces = 0;
    while (reader->Read(&piece)) {
      EXPECT_EQ(hash, "") << "the hash is in the last piece only";
      EXPECT_EQ(piece.total_bytes(), static_cast<int64_t>(size));
      EXPECT_LE(piece.data().size(), size_t{64} << 10);
      got += piece.data();
      hash = piece.xxh3();
      ++pieces;
    }
    EXPECT_TRUE(reader->Finish().ok());
    EXPECT_EQ(got, content);
    EXPECT_EQ(hash, HashHex(Hash64(content))) << size;
    EXPECT_EQ(pieces, std::max<int>(1, static_cast<int>((size + 65'535) / 65'536)));
  }
}

TEST_F(StreamTest, ExportSaysWhyThereIsNothing) {
  manager_.Put(MakeJob("a", jobs::JobState::kRunning));
  const struct {
    const char* name;
    int artifact;
    grpc::StatusCode code;
  } kCases[] = {
      {"jobs/a", 0, grpc::StatusCode::FAILED_PRECONDITION},
      {"jobs/a", 9, grpc::StatusCode::INVALID_ARGUMENT},
      {"a", 0, grpc::StatusCode::INVALID_ARGUMENT},
  };
  for (const auto& c : kCases) {
    grpc::ClientContext context;
    v1::ExportJobRequest request;
    request.set_name(c.name);
    request.set_artifact(static_cast<v1::ExportJobRequest::Artifact>(c.artifact));
    auto reader = job_stub_->ExportJob(&context, request);
    v1::ExportJobResponse piece;
    EXPECT_FALSE(reader->Read(&piece));
    EXPECT_EQ(reader->Finish().error_code(), c.code) << c.name << c.artifact;
  }
}

TEST_F(StreamTest, ShutdownSendsTheLastStateThenUnavailable) {
  manager_.Put(MakeJob("a", jobs::JobState::kRunning));
  grpc::ClientContext context;
  auto reader = Watch(context, "jobs/a");
  v1::Job got;
  ASSERT_TRUE(reader->Read(&got));
  manager_.Change("a", [](jobs::Job& j) { j.state = jobs::JobState::kQueued; });
  server_->Shutdown(kPatience);
  ASSERT_TRUE(reader->Read(&got));
  EXPECT_EQ(got.state(), v1::Job::STATE_QUEUED);
  EXPECT_FALSE(reader->Read(&got));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(manager_.hub().AwaitAlive(0));
}

}  // namespace
}  // namespace permafrost::api
