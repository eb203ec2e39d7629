// A job's report: one self-contained HTML file.
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
  v1::Job job;  // including its epochs
  std::optional<v1::GraphCache> cache;
  std::vector<v1::GraphCacheEntry> entries;
  std::optional<v1::PlanGraphCacheResponse> plan;
  std::vector<v1::Checkpoint> checkpoints;
};

// Renders the page. Names and texts from the server are escaped. The page's own security policy forbids scripts and
// all loads. The colours follow the reader's light or dark setting.
std::string RenderReport(const ReportData& data, const ViewTime& time);

// Makes charts of the job's graph cache by epoch. The charts show the share of training steps that were replayed, the
// rows that padding added to batches, and the cache's bytes at the end of each epoch. Epochs that an older daemon ran
// lack the counters, and have no points. The first epoch after them has only the point for bytes, because its other
// values are differences from the previous epoch. If no epoch has the counters, all charts are empty, and DrawChart
// draws nothing.
std::vector<Chart> CacheHistory(const v1::Job& job);

}  // namespace permafrost::client
