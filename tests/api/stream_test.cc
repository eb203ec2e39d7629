// Tests server streams over a real channel: order, coalescing, the end, and that nothing is left behind.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "base/hash.h"
#include "base/monotonic.h"
#include "server_fixture.h"

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
  train::RunContext& run = jobs_.Run("a");
  for (int64_t epoch = 1; epoch <= 3; ++epoch) run.OnEpoch({.epoch = epoch});
  grpc::ClientContext context;
  auto reader = Watch(context, "jobs/a");
  v1::Job got;
  ASSERT_TRUE(reader->Read(&got));
  EXPECT_EQ(got.name(), "jobs/a");
  EXPECT_EQ(got.epochs_size(), 3);
  run.OnEpoch({.epoch = 4});
  ASSERT_TRUE(reader->Read(&got));
  ASSERT_EQ(got.epochs_size(), 1);
  EXPECT_EQ(got.epochs(0).epoch(), 4);
  context.TryCancel();
}

TEST_F(StreamTest, WatchJobOfAnEndedJobSendsOneResponse) {
  jobs_.Record(MakeJob("a", jobs::JobState::kSucceeded));
  grpc::ClientContext context;
  auto reader = Watch(context, "jobs/a");
  v1::Job got;
  ASSERT_TRUE(reader->Read(&got));
  EXPECT_EQ(got.state(), v1::Job::STATE_SUCCEEDED);
  EXPECT_FALSE(reader->Read(&got));
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_TRUE(jobs_.AwaitWatchers(0));
}

TEST_F(StreamTest, ASlowReaderSkipsStatesButNoEpochAndNotTheEnd) {
  constexpr int kChanges = 12;
  // Larger than the buffers of flow control, so that writes wait for the reader.
  jobs_.runner().SetNotes({std::string(512 << 10, 'x')});
  train::RunContext& run = jobs_.Run("a");
  jobs::Notices notices(jobs_, "a");
  grpc::ClientContext context;
  auto reader = Watch(context, "jobs/a");
  v1::Job got;
  ASSERT_TRUE(reader->Read(&got));
  for (int64_t i = 1; i <= kChanges; ++i) {
    run.OnEpoch({.epoch = i});
    // Each change reaches the stream separately. Without coalescing, each would get its own response.
    ASSERT_TRUE(notices.AwaitOneMore());
    run.OnProgress({.step = 1 + i});
    ASSERT_TRUE(notices.AwaitOneMore());
  }
  jobs_.Succeed();

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
  train::RunContext& run = jobs_.Run("a");
  grpc::ClientContext context;
  auto reader = Watch(context, "jobs/a");
  v1::Job got;
  ASSERT_TRUE(reader->Read(&got));
  jobs::Notices notices(jobs_, "a");
  for (int i = 0; i < 100; ++i) run.Log(train::LogLevel::kInfo, "line");
  ASSERT_TRUE(notices.AwaitOneMore());
  jobs_.runner().End(absl::InternalError("no more"));
  ASSERT_TRUE(reader->Read(&got));
  EXPECT_EQ(got.state(), v1::Job::STATE_FAILED) << "log lines alone send nothing";
  EXPECT_FALSE(reader->Read(&got));
}

TEST_F(StreamTest, WatchJobEndsWithNotFoundWhenTheJobIsDeleted) {
  // Larger than the buffers of flow control, so that a write waits for the reader while the job ends and is deleted.
  jobs_.runner().SetNotes({std::string(512 << 10, 'x')});
  train::RunContext& run = jobs_.Run("a");
  grpc::ClientContext context;
  auto reader = Watch(context, "jobs/a");
  v1::Job got;
  ASSERT_TRUE(reader->Read(&got));
  const Stopwatch watch;
  for (int64_t step = 2; DroppedStates("JobService/WatchJob") == 0 && watch.Elapsed() < kPatience; ++step) {
    run.OnProgress({.step = step});
    absl::SleepFor(absl::Milliseconds(1));
  }
  jobs_.Succeed();
  jobs_.AwaitEnd("a");
  ASSERT_TRUE(jobs_->Delete(JobId("a")).ok());
  while (reader->Read(&got)) EXPECT_EQ(got.state(), v1::Job::STATE_RUNNING);
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
  jobs_.Create("a");
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext context;
    auto reader = Watch(context, "jobs/a");
    v1::Job got;
    if (i % 2 == 0) {
      ASSERT_TRUE(reader->Read(&got));  // even streams are cancelled while idle, odd ones near the first write
    }
    context.TryCancel();
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  // Waits until the server has seen the end of all 20. If a cancel overtakes the request, gRPC chooses the code, so
  // calls of every code count.
  const auto met = [this] {
    int calls = 0;
    for (const auto& [key, count] : counts_.all()) calls += count;
    return calls;
  };
  for (const Stopwatch waited; met() < 20 && waited.Elapsed() < kPatience;) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_TRUE(jobs_.AwaitWatchers(0));
}

TEST_F(StreamTest, CancelsRaceWithChanges) {
  train::RunContext& run = jobs_.Run("a");
  std::atomic<bool> stop = false;
  std::thread changer([&] {
    for (int64_t step = 2; !stop; ++step) {
      run.OnProgress({.step = step});
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
  EXPECT_TRUE(jobs_.AwaitWatchers(0));
}

TEST_F(StreamTest, WatchDatasetEndsAfterReady) {
  data::Dataset dataset;
  dataset.id = DatasetId("zinc");
  jobs_.catalog().Put(dataset);
  grpc::ClientContext context;
  v1::WatchDatasetRequest request;
  request.set_name("datasets/zinc");
  auto reader = dataset_stub_->WatchDataset(&context, request);
  v1::Dataset got;
  ASSERT_TRUE(reader->Read(&got));
  EXPECT_EQ(got.state(), v1::Dataset::STATE_IMPORTING);
  dataset.state = data::DatasetState::kReady;
  jobs_.catalog().Put(dataset);
  ASSERT_TRUE(reader->Read(&got));
  EXPECT_EQ(got.state(), v1::Dataset::STATE_READY);
  EXPECT_FALSE(reader->Read(&got));
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(StreamTest, WatchDatasetEndsWithNotFoundWhenDeleted) {
  data::Dataset dataset;
  dataset.id = DatasetId("zinc");
  jobs_.catalog().Put(dataset);
  grpc::ClientContext context;
  v1::WatchDatasetRequest request;
  request.set_name("datasets/zinc");
  auto reader = dataset_stub_->WatchDataset(&context, request);
  v1::Dataset got;
  ASSERT_TRUE(reader->Read(&got));
  ASSERT_TRUE(jobs_.catalog().Delete(DatasetId("zinc"), "", [] { return absl::OkStatus(); }).ok());
  EXPECT_FALSE(reader->Read(&got));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(StreamTest, LogsWithoutFollowAreOfAllSegments) {
  jobs_.Record(MakeJob("a", jobs::JobState::kSucceeded));
  jobs_.WriteFile("a", "log.0", "one\ntwo\n");
  jobs_.WriteFile("a", "log", "three\nfour\n");
  grpc::ClientContext context;
  const auto reader = Logs(context, 0, /*follow=*/false);
  std::string text;
  v1::StreamJobLogsResponse piece;
  while (reader->Read(&piece)) text += piece.data();
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(text, "one\ntwo\nthree\nfour\n");
}

TEST_F(StreamTest, LogsWithoutFollowEndAtTheEnd) {
  jobs_.Create("a");
  jobs_.WriteFile("a", "log", std::string(200'000, 'l'));
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
  train::RunContext& run = jobs_.Run("a");
  run.Log(train::LogLevel::kInfo, "first");
  grpc::ClientContext context;
  auto reader = Logs(context, 0, true);
  v1::StreamJobLogsResponse piece;
  ASSERT_TRUE(reader->Read(&piece));
  EXPECT_THAT(piece.data(), testing::EndsWith("first\n"));
  std::string text = piece.data();
  run.Log(train::LogLevel::kInfo, "second");
  ASSERT_TRUE(reader->Read(&piece));
  EXPECT_THAT(piece.data(), testing::EndsWith("second\n"));
  text += piece.data();
  EXPECT_EQ(piece.next_offset(), static_cast<int64_t>(text.size()));
  run.Log(train::LogLevel::kInfo, "last");
  jobs_.runner().End(absl::InternalError("no more"));
  while (reader->Read(&piece)) text += piece.data();
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(text, jobs_.Log("a"));
  EXPECT_THAT(text, testing::HasSubstr("no more"));
}

TEST_F(StreamTest, LogsFollowEndsEvenWithoutANewByte) {
  jobs_.Record(MakeJob("a", jobs::JobState::kSucceeded));
  jobs_.WriteFile("a", "log", "only\n");
  for (const int64_t offset : {0, 5}) {
    grpc::ClientContext context;
    auto reader = Logs(context, offset, true);
    v1::StreamJobLogsResponse piece;
    std::string text;
    while (reader->Read(&piece)) text += piece.data();
    EXPECT_EQ(text, std::string("only\n").substr(static_cast<size_t>(offset)));
    EXPECT_TRUE(reader->Finish().ok());
  }
}

TEST_F(StreamTest, LogsEndWithNotFoundAndOutOfRange) {
  jobs_.Record(MakeJob("a", jobs::JobState::kSucceeded));
  // Larger than the buffers of a client and a server together.
  constexpr size_t kLog = 32 << 20;
  jobs_.WriteFile("a", "log", std::string(kLog, 'x'));
  v1::StreamJobLogsResponse piece;
  {
    grpc::ClientContext context;
    auto reader = Logs(context, kLog + 1, true);
    EXPECT_FALSE(reader->Read(&piece));
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::OUT_OF_RANGE);
  }
  grpc::ClientContext context;
  auto reader = Logs(context, 0, true);
  ASSERT_TRUE(reader->Read(&piece));
  ASSERT_TRUE(jobs_->Delete(JobId("a")).ok());
  while (reader->Read(&piece)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(StreamTest, ExportSendsTheFileInPiecesWithItsHash) {
  jobs_.Record(MakeJob("a", jobs::JobState::kSucceeded));
  for (const size_t size : {size_t{0}, size_t{1}, size_t{64} << 10, (size_t{64} << 10) + 1, size_t{300'000}}) {
    std::string content(size, '\0');
    for (size_t i = 0; i < size; ++i) content[i] = static_cast<char>(i * 31);
    jobs_.WriteFile("a", "artifacts/best.safetensors", content);
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
  jobs_.Create("a");
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
  jobs_.Run("a");
  grpc::ClientContext context;
  auto reader = Watch(context, "jobs/a");
  v1::Job got;
  ASSERT_TRUE(reader->Read(&got));
  jobs_->Drain();
  jobs_.runner().Release();
  jobs_.AwaitState("a", jobs::JobState::kQueued);
  server_->Shutdown(kPatience);
  ASSERT_TRUE(reader->Read(&got));
  EXPECT_EQ(got.state(), v1::Job::STATE_QUEUED);
  EXPECT_FALSE(reader->Read(&got));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(jobs_.AwaitWatchers(0));
}

}  // namespace
}  // namespace permafrost::api
