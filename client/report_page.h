// A job's report: one HTML file that needs nothing else.
// Threads: pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/job_view.h"
#include "client/line_chart.h"
#include "permafrost/v1/graph_cache.pb.h"
#include "permafrost/v1/job.pb.h"
#include "permafrost/v1/plan.pb.h"

namespace permafrost::client {

struct ReportData {
  v1::Job job;  // with its epochs
  std::optional<v1::GraphCache> cache;
  std::vector<v1::GraphCacheEntry> entries;
  std::optional<v1::PlanGraphCacheResponse> plan;
  std::vector<v1::Checkpoint> checkpoints;
};

// Names and texts of the server are escaped; the page forbids itself scripts and every load. Light or dark as the
// reader has it.
std::string RenderReport(const ReportData& data, const ViewTime& time);

// Charts of what a job's graph cache did, from what the job's epochs tell. They show for each epoch the parts of its
// training steps that were replayed, the rows that padding added to its batches, and the bytes that the cache held at
// its end. An epoch that an older daemon ran tells nothing of this: it has no points, and neither has the one after it,
// whose own share of the counters is not known. Where no epoch tells it, or there is none, the charts have no points,
// so that DrawChart draws nothing.
std::vector<Chart> CacheHistory(const v1::Job& job);

}  // namespace permafrost::client
