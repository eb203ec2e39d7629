// The memory that an import of one large graph really takes, and what remains if it is killed. The tests start this
// program again for each import.
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/random.h"
#include "data/graph_folder.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMiB = uint64_t{1} << 20;
// The variable that describes the import to the new process: "SOURCE STORE MEMORY INVERSES KILLED_AT ORDER".
constexpr const char* kJob = "PERMAFROST_TEST_IMPORT";

// Returns the peak resident bytes of this process, or 0 on a system without /proc.
uint64_t PeakBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) * 1024;
  }
  return 0;
}

TEST(ImportMemory, Started) {
  const char* job = std::getenv(kJob);
  if (job == nullptr) GTEST_SKIP() << "the other tests start this one in a process of its own";
  std::istringstream words(job);
  fs::path source, store;
  ImportOptions options;
  int killed_at = 0, sorts = 0, order = 0;
  std::string inverse_edges;
  words >> source >> store >> options.memory_bytes >> inverse_edges >> killed_at >> order;
  options.source = source;
  options.order = static_cast<NodeOrder>(order);
  options.inverse_edges = kInverseEdgesNames.Parse(inverse_edges).value();
  const uint64_t bare = PeakBytes();
  const auto observer = [&](const ImportProgress& progress) {
    if (progress.current_file == "sorting" && ++sorts == killed_at) kill(getpid(), SIGKILL);
  };
  const auto summary = ImportGraph(options, store, observer, std::stop_token());
  ASSERT_TRUE(summary.ok()) << summary.status();
  std::ofstream(store / "peak") << PeakBytes() - bare;
}

// Runs the job in a new process and returns its exit status.
int Start(const std::string& job) {
  const std::string setting = std::string(kJob) + "=" + job;
  std::string program = fs::read_symlink("/proc/self/exe").string(), filter = "--gtest_filter=ImportMemory.Started",
              environment = setting, threads = "OMP_NUM_THREADS=2";
  char* arguments[] = {program.data(), filter.data(), nullptr};
  char* settings[] = {environment.data(), threads.data(), nullptr};
  pid_t child = 0;
  if (posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, settings) != 0) return -1;
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

class ImportMemoryOfAProcess : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists("/proc/self/exe")) GTEST_SKIP() << "this system does not tell a program where it lies";
    // With inverses there are 8M edges of 8 bytes: 61 MiB while they are sorted, plus 31 MiB for the edges as listed.
    SplitMix64 random(3, 0);
    std::ofstream out(source_);
    for (int e = 0; e < 4'000'000; ++e) out << random.Below(200'000) << ',' << random.Below(200'000) << '\n';
  }
  std::string Job(uint64_t memory_bytes, InverseEdges inverse_edges, int killed_at = 0,
                  NodeOrder order = NodeOrder::kNone) {
    fs::remove_all(store_);
    fs::create_directories(store_);
    return source_.string() + " " + store_.string() + " " + std::to_string(memory_bytes) + " " +
           std::string(kInverseEdgesNames.Name(inverse_edges)) + " " + std::to_string(killed_at) + " " +
           std::to_string(static_cast<int>(order));
  }
  uint64_t Peak() {
    uint64_t peak = 0;
    std::ifstream(store_ / "peak") >> peak;
    return peak;
  }
  TempDir temp_;
  const fs::path source_ = temp_.path() / "edges.csv", store_ = temp_.path() / "store";
};

TEST_F(ImportMemoryOfAProcess, StaysNearItsCapForAGraphSeveralTimesLarger) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer takes memory of its own";
#endif
  ASSERT_EQ(Start(Job(256 * kMiB, InverseEdges::kAdd)), 0);
  EXPECT_GT(Peak(), 80 * kMiB) << "the graph is too small to show anything";
  for (const auto& [inverse_edges, name] : kInverseEdgesNames.rows) {
    ASSERT_EQ(Start(Job(16 * kMiB, inverse_edges)), 0);
    // Allows for offsets, threads, and memory that the C library keeps.
    constexpr uint64_t kBeside = 12 * kMiB;
    EXPECT_LT(Peak(), 16 * kMiB + kBeside) << name;
    ASSERT_EQ(Start(Job(16 * kMiB, inverse_edges, 0, NodeOrder::kCommunity)), 0);
    EXPECT_LT(Peak(), 16 * kMiB + kBeside) << "in another order";
  }
}

TEST_F(ImportMemoryOfAProcess, KilledLeavesNothingButItsDirectory) {
  const int status = Start(Job(16 * kMiB, InverseEdges::kAdd, /*killed_at=*/1));
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "the import ended before its runs were merged";
  for (const auto& entry : fs::directory_iterator(store_)) {
    EXPECT_EQ(entry.path().filename(), std::string(Graph::kFileName) + ".part");
  }
  for (const auto& entry : fs::directory_iterator(temp_.path())) {
    EXPECT_TRUE(entry.path() == source_ || entry.path() == store_) << entry.path();
  }
}

}  // namespace
}  // namespace permafrost::data
