// Tests that a watch reports the states that its client missed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "api/server_fixture.h"
#include "base/monotonic.h"

namespace permafrost::api {
namespace {

class DroppedStatesTest : public ServerTest {
 protected:
  static constexpr char kWatchJob[] = "JobService/WatchJob";
  std::unique_ptr<grpc::ClientReader<v1::Job>> Watch(grpc::ClientContext& context) {
    v1::WatchJobRequest request;
    request.set_name("jobs/a");
    return job_stub_->WatchJob(&context, request);
  }
  // Returns the reported number, or an empty text if there is none.
  static std::string Told(const grpc::ClientContext& context) {
    const auto& trailers = context.GetServerTrailingMetadata();
    const auto told = trailers.find("permafrost-dropped-states");
    return told == trailers.end() ? "" : std::string(told->second.data(), told->second.size());
  }
};

TEST_F(DroppedStatesTest, AreCountedAndToldWithTheEnd) {
  // Larger than the buffers of flow control, so that writes wait for the reader.
  jobs_.runner().SetNotes({std::string(512 << 10, 'x')});
  train::RunContext& run = jobs_.Run("a");
  grpc::ClientContext context;
  const auto reader = Watch(context);
  const Stopwatch watch;
  int64_t step = 1;
  while (DroppedStates(kWatchJob) < 5 && watch.Elapsed() < kPatience) {
    run.OnProgress({.step = ++step});
    absl::SleepFor(absl::Milliseconds(1));
  }
  jobs_.Succeed();
  v1::Job got;
  int64_t responses = 0;
  while (reader->Read(&got)) ++responses;
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(got.state(), v1::Job::STATE_SUCCEEDED) << "the last one comes whatever was passed over";
  EXPECT_EQ(got.progress().step(), step);
  int told = 0;
  ASSERT_TRUE(absl::SimpleAtoi(Told(context), &told)) << Told(context);
  EXPECT_GE(told, 5);
  EXPECT_LE(told + responses, step + 2) << "what was sent was not passed over";
  // The metric counts a state after the stream skipped it, on another thread than the one that ends the stream.
  for (const Stopwatch waited; DroppedStates(kWatchJob) != told && waited.Elapsed() < kPatience;) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_EQ(DroppedStates(kWatchJob), told);
}

TEST_F(DroppedStatesTest, AReaderThatKeepsUpIsToldOfNone) {
  train::RunContext& run = jobs_.Run("a");
  grpc::ClientContext context;
  const auto reader = Watch(context);
  v1::Job got;
  ASSERT_TRUE(reader->Read(&got));
  for (int64_t step = 2; step <= 6; ++step) {
    run.OnProgress({.step = step});
    ASSERT_TRUE(reader->Read(&got));
    EXPECT_EQ(got.progress().step(), step);
  }
  jobs_.Succeed();
  while (reader->Read(&got)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(DroppedStates(kWatchJob), 0);
  EXPECT_EQ(Told(context), "");
}

}  // namespace
}  // namespace permafrost::api
