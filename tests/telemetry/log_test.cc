#include "telemetry/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "file_size_limit.h"
#include "metric_values.h"
#include "temp_dir.h"

namespace permafrost::telemetry {
namespace {

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

constexpr char kTime[] = "[0-9]+-[0-9]+-[0-9]+T[0-9]+:[0-9]+:[0-9]+\\.[0-9]+Z";

class JobLogTest : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<JobLog>> Open(const std::filesystem::path& path) {
    return JobLog::Open(path, metrics_);
  }
  prometheus::Registry registry_;
  JobMetrics metrics_{registry_, {}};
};

TEST_F(JobLogTest, LinesAreInTheFileWhileTheLogIsOpen) {
  const TempDir dir;
  const auto log = Open(dir.path() / "log");
  ASSERT_TRUE(log.ok()) << log.status();
  (*log)->Write(Severity::kInfo, "first {} %s");
  EXPECT_THAT(ReadAll(dir.path() / "log"), testing::MatchesRegex(std::string(kTime) + " info    first \\{\\} %s\n"));
  (*log)->Write(Severity::kWarning, "second");
  (*log)->Write(Severity::kError, "third");
  EXPECT_THAT(ReadAll(dir.path() / "log"),
              testing::MatchesRegex(std::string(kTime) + " info    first [^\n]*\n" + kTime + " warning second\n" +
                                    kTime + " error   third\n"));
}

TEST_F(JobLogTest, AppendsToWhatIsThere) {
  const TempDir dir;
  for (const char* line : {"before the restart", "after it"}) {
    const auto log = Open(dir.path() / "log");
    ASSERT_TRUE(log.ok()) << log.status();
    (*log)->Write(Severity::kInfo, line);
  }
  EXPECT_THAT(ReadAll(dir.path() / "log"), testing::MatchesRegex("[^\n]*before the restart\n[^\n]*after it\n"));
}

TEST_F(JobLogTest, AnEventIsOneLine) {
  const TempDir dir;
  const auto log = Open(dir.path() / "log");
  ASSERT_TRUE(log.ok()) << log.status();
  (*log)->Write(Severity::kError, "failed: a\nb\r\n");
  EXPECT_THAT(ReadAll(dir.path() / "log"), testing::MatchesRegex("[^\n]*failed: a b\n"));
}

TEST_F(JobLogTest, LinesOfSeveralThreadsDoNotMix) {
  const TempDir dir;
  const auto log = Open(dir.path() / "log");
  ASSERT_TRUE(log.ok()) << log.status();
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) (*log)->Write(Severity::kInfo, std::string(50, static_cast<char>('a' + t)));
    });
  }
  for (auto& thread : threads) thread.join();
  std::istringstream lines(ReadAll(dir.path() / "log"));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const std::string text = line.substr(line.rfind(' ') + 1);
    EXPECT_EQ(text, std::string(50, text.at(0)));
  }
  EXPECT_EQ(count, 400);
}

TEST_F(JobLogTest, AnUnwritablePathIsNamed) {
  const TempDir dir;
  std::ofstream(dir.path() / "file") << "not a directory";
  const auto log = Open(dir.path() / "file" / "log");
  EXPECT_EQ(log.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(log.status().message()), testing::HasSubstr((dir.path() / "file" / "log").string()));
}

TEST_F(JobLogTest, ALineThatCannotBeWrittenIsCountedAndTheFirstIsTold) {
  InitLog();
  const TempDir dir;
  const auto log = Open(dir.path() / "log");
  ASSERT_TRUE(log.ok()) << log.status();
  const auto failures = [this] { return MetricValue(registry_, "permafrost_job_log_failures_total"); };
  // Longer than the captured stderr below, which is a file under the same size limit.
  (*log)->Write(Severity::kInfo, "there is room" + std::string(8192, '.'));
  EXPECT_EQ(failures(), 0);
  testing::internal::CaptureStderr();
  {
    const FileSizeLimit limit(std::filesystem::file_size(dir.path() / "log"));
    for (int i = 0; i < 3; ++i) (*log)->Write(Severity::kInfo, "there is none");
  }
  EXPECT_EQ(failures(), 3);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::MatchesRegex(std::string(kTime) + " warning job log " + (dir.path() / "log").string() +
                                    ": a line could not be written: [^\n]*File too large[^\n]*\n"))
      << "once, not three times";
  (*log)->Write(Severity::kInfo, "there is room again");
  EXPECT_EQ(failures(), 3);
  EXPECT_THAT(ReadAll(dir.path() / "log"), testing::EndsWith("there is room again\n"));
  // A later failure is reported as a new event.
  testing::internal::CaptureStderr();
  {
    const FileSizeLimit limit(std::filesystem::file_size(dir.path() / "log"));
    (*log)->Write(Severity::kInfo, "there is none");
  }
  EXPECT_EQ(failures(), 4);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("could not be written"));
}

TEST_F(JobLogTest, ARotationThatFailedAfterItsRenameIsDoneWithTheNextLine) {
  const TempDir dir;
  const std::filesystem::path path = dir.path() / "log";
  std::ofstream(dir.path() / "log.0") << "oldest";
  const auto log = JobLog::Open(path, metrics_, /*max_bytes=*/1000);
  ASSERT_TRUE(log.ok()) << log.status();
  (*log)->Write(Severity::kInfo, "one");
  std::filesystem::rename(path, dir.path() / "log.6");
  (*log)->Write(Severity::kInfo, "two");
  (*log)->Write(Severity::kInfo, "three");
  EXPECT_THAT(ReadAll(dir.path() / "log.6"), testing::MatchesRegex("[^\n]*one\n[^\n]*two\n"));
  EXPECT_THAT(ReadAll(path), testing::MatchesRegex("[^\n]*three\n"));
  EXPECT_FALSE(std::filesystem::exists(dir.path() / "log.0"));
  EXPECT_EQ(MetricValue(registry_, "permafrost_job_log_dropped_bytes_total"), 6);
  for (int i = 0; i < 100; ++i) (*log)->Write(Severity::kInfo, "more");
  uintmax_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(dir.path())) bytes += file.file_size();
  EXPECT_LE(bytes, 1100u) << "the bound holds again";
}

TEST(LogTest, WritesToStandardError) {
  InitLog();
  testing::internal::CaptureStderr();
  Log(Severity::kWarning, "something {odd}");
  LogOfJob(Severity::kInfo, "job-a", "begins");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::MatchesRegex(std::string(kTime) + " warning something \\{odd\\}\n" + kTime +
                                    " info    job job-a: begins\n"));
}

TEST(LogTest, AsJsonAnEventIsAnObject) {
  InitLog(LogFormat::kJson);
  testing::internal::CaptureStderr();
  Log(Severity::kWarning, "a \"quoted\"\nline \xff");
  LogOfJob(Severity::kError, "job-a", "failed: {}");
  std::istringstream printed(testing::internal::GetCapturedStderr());
  InitLog();
  std::vector<nlohmann::json> events;
  for (std::string line; std::getline(printed, line);) events.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_THAT(events[0].at("time").get<std::string>(), testing::MatchesRegex(kTime));
  EXPECT_EQ(events[0].at("severity"), "warning");
  EXPECT_EQ(events[0].at("logger"), "permafrostd");
  EXPECT_EQ(events[0].at("message"), "a \"quoted\"\nline \xef\xbf\xbd");
  EXPECT_FALSE(events[0].contains("job"));
  EXPECT_EQ(events[1].at("severity"), "error");
  EXPECT_EQ(events[1].at("job"), "job-a");
  EXPECT_EQ(events[1].at("message"), "failed: {}");
}

}  // namespace
}  // namespace permafrost::telemetry
