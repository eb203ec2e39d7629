// The fused operators beside the same of PyTorch's operators, under Google Benchmark, whose flags it takes:
//   build/bin/operators --benchmark_filter=mlp
// With --serve it answers each line on standard input with one line of JSON, for bench/operators.py and
// bench/parallel.py:
//   list                          {"operators": [{"name", "shape"}], "regions": [{"name", "constant"}]}
//   time NAME/fused, NAME/plain   {"seconds": of one run}
//   region NAME SIZE THREADS GAP  {"seconds": of one run, each GAP seconds after the one before}
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include <CLI/CLI.hpp>

#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <stdexcept>

#include "daemon/process_setup.h"
#include "operator_cases.h"

namespace permafrost::nn {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

struct Settings {
  int threads = 2;
  double seconds = 0.02;
  bool serve = false;
};

// Keeps what the last run took.
class LastRun : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) seconds_ = run.real_accumulated_time / static_cast<double>(run.iterations);
  }
  double seconds() const { return seconds_; }

 private:
  double seconds_ = 0;
};

class Operators {
 public:
  explicit Operators(const Settings& settings) : settings_(settings) {
    at::set_num_threads(settings.threads);
    for (const OperatorCase& c : cases_) {
      Register(c.name + "/fused", c.fused);
      Register(c.name + "/plain", c.plain);
    }
  }

  nlohmann::json Answer(const std::string& line) {
    std::istringstream words(line);
    std::string command, name;
    words >> command >> name;
    if (command == "list") return List();
    if (command == "time") return {{"seconds", SecondsOf(name)}};
    int64_t size = 0;
    int threads = 0;
    double gap = 0;
    if (command == "region" && words >> size >> threads >> gap) return {{"seconds", Region(name, size, threads, gap)}};
    return {{"error", "no such command"}};
  }

 private:
  void Register(const std::string& name, const std::function<void()>& run) {
    benchmark::RegisterBenchmark(name.c_str(),
                                 [run](benchmark::State& state) {
                                   while (state.KeepRunning()) run();
                                 })
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond)
        ->MinTime(settings_.seconds);
  }

  static double SecondsOf(const std::string& name) {
    LastRun last;
    // A name goes on with how it is timed.
    if (benchmark::RunSpecifiedBenchmarks(&last, "^" + name + "/") != 1) {
      throw std::runtime_error(name + ": no such benchmark");
    }
    return last.seconds();
  }

  // Threads that wait longer than they spin sleep, and a step's next region must wake them: hence the gap.
  double Region(const std::string& name, int64_t size, int threads, double gap) {
    constexpr int kRuns = 100;
    const std::string full = name + "/" + std::to_string(size);
    for (const ParallelRegion& region : regions_) {
      if (region.name != name || !made_.insert(full).second) continue;
      const auto one_at_a_time = [run = region.make(size), gap](benchmark::State& state) {
        while (state.KeepRunning()) {
          for (const auto until = Clock::now() + Seconds(gap); Clock::now() < until;) continue;
          const auto begin = Clock::now();
          run();
          state.SetIterationTime(Seconds(Clock::now() - begin).count());
        }
      };
      benchmark::RegisterBenchmark(full.c_str(), one_at_a_time)->UseManualTime()->Iterations(kRuns);
    }
    at::set_num_threads(threads);
    const double seconds = SecondsOf(full);
    at::set_num_threads(settings_.threads);
    return seconds;
  }

  nlohmann::json List() const {
    nlohmann::json all;
    for (const OperatorCase& c : cases_) all["operators"].push_back({{"name", c.name}, {"shape", c.shape}});
    for (const ParallelRegion& r : regions_) all["regions"].push_back({{"name", r.name}, {"constant", r.constant}});
    return all;
  }

  Settings settings_;
  std::vector<OperatorCase> cases_ = MakeOperatorCases();
  std::vector<ParallelRegion> regions_ = MakeParallelRegions();
  std::set<std::string> made_;  // regions of a size
};

int Run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  Settings settings;
  CLI::App app(
      "Times the fused operators beside the same of PyTorch's operators. Takes Google Benchmark's flags, too.");
  app.add_option("--threads", settings.threads)->capture_default_str();
  app.add_option("--seconds", settings.seconds, "Each run takes at least")->capture_default_str();
  app.add_flag("--serve", settings.serve, "Answers commands on standard input");
  CLI11_PARSE(app, argc, argv);
  Operators operators(settings);
  if (!settings.serve) {
    benchmark::RunSpecifiedBenchmarks();
    return 0;
  }
  for (std::string line; std::getline(std::cin, line);) {
    nlohmann::json answer;
    try {
      answer = operators.Answer(line);
    } catch (const std::exception& error) {
      answer = {{"error", error.what()}};
    }
    std::cout << answer.dump() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace permafrost::nn

int main(int argc, char** argv) {
  permafrost::UseShortSpins(argv);  // as permafrostd
  return permafrost::nn::Run(argc, argv);
}
