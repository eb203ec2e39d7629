#include "client/cache_history.h"

#include <cstdint>

namespace permafrost::client {
namespace {

constexpr double kBytesPerMegabyte = 1e6;

double Percent(int64_t part, int64_t whole) {
  return whole > 0 ? 100 * static_cast<double>(part) / static_cast<double>(whole) : 0;
}

}  // namespace

std::vector<Chart> CacheHistory(const v1::Job& job) {
  Chart replays{
      .title = "Training steps replayed, %",
      .x_name = "epoch",
      .series = {{.name = "at their shape", .points = {}}, {.name = "padded", .points = {}}},
      .from_zero = true,
  };
  Chart padding{
      .title = "Rows that padding added, % of the batches' own",
      .x_name = "epoch",
      .series = {{.name = "nodes", .points = {}}, {.name = "edges", .points = {}}},
      .from_zero = true,
  };
  Chart bytes{
      .title = "Graph cache, MB",
      .x_name = "epoch",
      .series = {{.name = "executables and their arena", .points = {}}},
      .from_zero = true,
  };
  const v1::EpochMetrics nothing;
  // The counters are sums since the job's first step: an epoch's own are what it adds to those of the epoch before.
  const v1::EpochMetrics* before = &nothing;
  for (const v1::EpochMetrics& epoch : job.epochs()) {
    const bool follows = epoch.epoch() == before->epoch() + 1 && (before == &nothing || before->steps() > 0);
    const int64_t steps = epoch.steps() - before->steps();
    if (epoch.steps() > 0) {
      const auto x = static_cast<double>(epoch.epoch());
      bytes.series[0].points.emplace_back(x, static_cast<double>(epoch.cache_bytes()) / kBytesPerMegabyte);
      if (follows && steps > 0) {
        replays.series[0].points.emplace_back(x, Percent(epoch.exact_hits() - before->exact_hits(), steps));
        replays.series[1].points.emplace_back(x, Percent(epoch.padded_hits() - before->padded_hits(), steps));
        padding.series[0].points.emplace_back(
            x, Percent(epoch.padding_nodes() - before->padding_nodes(), epoch.nodes() - before->nodes()));
        padding.series[1].points.emplace_back(
            x, Percent(epoch.padding_edges() - before->padding_edges(), epoch.edges() - before->edges()));
      }
    }
    before = &epoch;
  }
  return {replays, padding, bytes};
}

}  // namespace permafrost::client
