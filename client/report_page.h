// A job's report: one HTML file that needs nothing else.
// Threads: pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/job_view.h"
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

}  // namespace permafrost::client
