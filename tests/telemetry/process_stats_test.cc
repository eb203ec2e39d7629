#include "telemetry/server_metrics.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"

namespace permafrost::telemetry {
namespace {

TEST(ProcessStatsTest, CountsDescriptorsAndThreads) {
  const ProcessStats before = ReadProcessStats();
  const int fd = open("/dev/null", O_RDONLY);
  ASSERT_GE(fd, 0);
  absl::Notification started, done;
  std::thread thread([&] {
    started.Notify();
    done.WaitForNotification();
  });
  started.WaitForNotification();
  const ProcessStats during = ReadProcessStats();
  done.Notify();
  thread.join();
  close(fd);
  EXPECT_EQ(during.open_fds, before.open_fds + 1);
  EXPECT_GE(during.threads, 2);
  EXPECT_GT(during.threads, before.threads - 1);
}

TEST(ProcessStatsTest, AgreesWithTheSystem) {
  const ProcessStats stats = ReadProcessStats();
  EXPECT_LE(stats.resident_bytes, stats.virtual_bytes);
  EXPECT_GT(stats.resident_bytes, uint64_t{100} << 10);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(stats.max_fds, static_cast<int64_t>(limit.rlim_cur));
  const double now = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  EXPECT_LE(stats.start_time_seconds, now + 1);
  EXPECT_GT(stats.start_time_seconds, now - 86400) << "in seconds since 1970, not since boot";
}

TEST(ProcessStatsTest, CpuTimeGrowsWithWork) {
  const double before = ReadProcessStats().cpu_seconds;
  rusage usage{};
  volatile double sink = 1;
  // The system counts in ticks of 10 ms: work until rusage, which is finer, says that some have passed.
  const auto used = [&] {
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
  };
  const double start = used();
  while (used() < start + 0.05) {
    for (int i = 0; i < 10000; ++i) sink = sink * 1.0000001;
  }
  EXPECT_GT(ReadProcessStats().cpu_seconds, before);
}

}  // namespace
}  // namespace permafrost::telemetry
