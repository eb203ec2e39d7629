#include "daemon/scrape.h"

#include <cstddef>

namespace permafrost {
namespace {

void RefreshDatasets(const data::Catalog& catalog, telemetry::ServerMetrics& metrics) {
  const data::Catalog::Usage usage = catalog.usage();
  for (const auto& [state, name] : data::kDatasetStateNames.rows) {
    metrics.SetDatasets(name, usage.datasets[static_cast<size_t>(state)]);
  }
  metrics.SetStores("graph_set", usage.graph_sets.count, usage.graph_sets.bytes);
  metrics.SetStores("graph", usage.graphs.count, usage.graphs.bytes);
  metrics.SetMappedBytes(usage.mapped_bytes);
  metrics.SetImports("succeeded", usage.imports.succeeded);
  metrics.SetImports("failed", usage.imports.failed);
  metrics.SetImports("cancelled", usage.imports.cancelled);
  metrics.SetImportRetries(usage.imports.retried);
  metrics.SetImportQueue(usage.imports_waiting);
}

}  // namespace

void RefreshMetrics(const data::Catalog& catalog, const data::UploadStore& uploads, const DiskReserve& disk,
                    telemetry::JobMetrics& job_metrics, telemetry::ServerMetrics& server_metrics) {
  job_metrics.BeforeScrape();
  RefreshDatasets(catalog, server_metrics);
  const data::UploadAccount::Totals held = uploads.totals();
  server_metrics.SetUploads(held.received, held.counted, uploads.max_bytes());
  server_metrics.SetDisk(disk.Free(), disk.bytes());
  server_metrics.SetImportProgress(catalog.import_progress());
  server_metrics.BeforeScrape();
}

}  // namespace permafrost
