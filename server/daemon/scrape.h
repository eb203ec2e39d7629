// Metrics that are read from the rooms when /metrics is asked, rather than reported by them.
#pragma once

#include "base/resources.h"
#include "data/catalog/catalog.h"
#include "data/catalog/upload_store.h"
#include "telemetry/job_metrics.h"
#include "telemetry/server_metrics.h"

namespace permafrost {

// Threads: one call at a time; the rooms may be in use meanwhile.
void RefreshMetrics(const data::Catalog& catalog, const data::UploadStore& uploads, const DiskReserve& disk,
                    telemetry::JobMetrics& job_metrics, telemetry::ServerMetrics& server_metrics);

}  // namespace permafrost
