// Tests reading and following a job's log through the manager.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "absl/synchronization/mutex.h"
#include "jobs/manager_fixture.h"

namespace permafrost::jobs {
namespace {

using testing::HasSubstr;

class JobLogTest : public testing::Test {
 protected:
  const TempDir dir_;
  Server server_{dir_.path()};
};

// Follows a log as StreamJobLogs does with `follow`: reads, and waits for a notice if there is nothing new, until a
// read is complete.
std::string Follow(Server& server, const std::string& id, int64_t max_bytes) {
  absl::Mutex mu;
  bool changed = false;
  const auto subscription = server->Subscribe(JobId(id), [&] {
    absl::MutexLock lock(&mu);
    changed = true;
  });
  std::string text;
  int64_t offset = 0;
  while (true) {
    const auto chunk = server->ReadLog(JobId(id), offset, max_bytes);
    EXPECT_TRUE(chunk.ok()) << chunk.status();
    if (!chunk.ok()) return text;
    text += chunk->data;
    EXPECT_EQ(chunk->next_offset, offset + static_cast<int64_t>(chunk->data.size()));
    EXPECT_LE(static_cast<int64_t>(chunk->data.size()), max_bytes);
    offset = chunk->next_offset;
    if (chunk->complete) return text;
    if (!chunk->data.empty()) continue;
    absl::MutexLock lock(&mu);
    if (!mu.AwaitWithTimeout(absl::Condition(&changed), absl::Seconds(60))) {
      ADD_FAILURE() << "the log stood still for a minute after: " << text;
      return text;
    }
    changed = false;
  }
}

TEST_F(JobLogTest, AFollowerGetsTheLastLineAlways) {
  server_->Start();
  for (int i = 0; i < 30; ++i) {
    const std::string id = "job-" + std::to_string(i);
    server_.Create(id);
    const std::string followed = Follow(server_, id, 64);
    EXPECT_THAT(followed, HasSubstr("succeeded: best epoch 2"));
    EXPECT_EQ(followed.back(), '\n');
    EXPECT_EQ(followed, server_.Log(id)) << "nothing was written after the follower had been told that it is complete";
  }
}

TEST_F(JobLogTest, AFollowerOfAQueuedJobSeesItsCancellation) {
  server_.Create("job-a");
  ASSERT_TRUE(server_->Cancel(JobId("job-a")).ok());
  EXPECT_THAT(Follow(server_, "job-a", 1 << 20), HasSubstr("cancelled"));
}

TEST_F(JobLogTest, ReadsPiecesFromAnyOffset) {
  server_.Create("job-a");
  const std::string all = server_.Log("job-a");
  const auto size = static_cast<int64_t>(all.size());
  const struct {
    const char* why;
    int64_t offset, max_bytes;
    std::string want;
  } kCases[] = {
      {"from the start", 0, 10, all.substr(0, 10)},
      {"from the middle", 10, 5, all.substr(10, 5)},
      {"more than there is", 10, 1 << 20, all.substr(10)},
      {"the end", size, 10, ""},
      {"before the end", -5, 100, all.substr(all.size() - 5)},
      {"further before the end than there is", -size - 100, 10, all.substr(0, 10)},
  };
  for (const auto& c : kCases) {
    const auto chunk = server_->ReadLog(JobId("job-a"), c.offset, c.max_bytes);
    ASSERT_TRUE(chunk.ok()) << c.why << ": " << chunk.status();
    EXPECT_EQ(chunk->data, c.want) << c.why;
    EXPECT_FALSE(chunk->complete) << c.why << ": a queued job's log goes on";
  }
  EXPECT_EQ(server_->ReadLog(JobId("job-a"), size + 1, 10).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(server_->ReadLog(JobId("job-a"), 0, 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(server_->ReadLog(JobId("job-x"), 0, 10).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(JobLogTest, ALogThatIsNotThereYetIsEmpty) {
  server_.Create("job-a");
  std::filesystem::remove(server_.JobDirectory("job-a") / "log");
  const auto chunk = server_->ReadLog(JobId("job-a"), 0, 10);
  ASSERT_TRUE(chunk.ok()) << chunk.status();
  EXPECT_EQ(chunk->data, "");
  EXPECT_FALSE(chunk->complete);
}

TEST_F(JobLogTest, TheLogGoesOnAfterAResume) {
  server_.runner().Hold();
  server_->Start();
  server_.Create("job-a", 1);
  server_.runner().AwaitHeld();
  server_->Drain();
  server_.runner().Release();
  server_->Join();
  Server later(dir_.path());
  later->Start();
  const std::string log = Follow(later, "job-a", 1 << 20);
  EXPECT_THAT(log, testing::MatchesRegex("[^\n]*submitted [^\n]*\n[^\n]*started [^\n]*\n[^\n]*runner begins\n"
                                         "[^\n]*drained [^\n]*\n[^\n]*resumed [^\n]*\n[^\n]*runner begins\n"
                                         "[^\n]*epoch 1/1 [^\n]*\n[^\n]*succeeded[^\n]*\n"));
}

}  // namespace
}  // namespace permafrost::jobs
