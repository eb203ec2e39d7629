#include "daemon/scrape.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <variant>

namespace permafrost {
namespace {

struct Stores {
  int64_t count = 0;
  uint64_t bytes = 0;
};

void RefreshDatasets(const data::Catalog& catalog, telemetry::ServerMetrics& metrics) {
  std::array<int64_t, data::kDatasetStateNames.rows.size()> datasets{};
  Stores graph_sets, graphs;
  for (const data::Dataset& dataset : catalog.List()) {
    ++datasets[static_cast<size_t>(dataset.state)];
    if (!dataset.summary) continue;
    Stores& stores = std::holds_alternative<data::GraphSummary>(*dataset.summary) ? graphs : graph_sets;
    ++stores.count;
    stores.bytes += data::StoreBytes(*dataset.summary);
  }
  for (const auto& [state, name] : data::kDatasetStateNames.rows) {
    metrics.SetDatasets(name, datasets[static_cast<size_t>(state)]);
  }
  metrics.SetStores("graph_set", graph_sets.count, graph_sets.bytes);
  metrics.SetStores("graph", graphs.count, graphs.bytes);
  metrics.SetMappedBytes(catalog.mapped_bytes());
  const data::Catalog::ImportCounts imports = catalog.import_counts();
  metrics.SetImports("succeeded", imports.succeeded);
  metrics.SetImports("failed", imports.failed);
  metrics.SetImports("cancelled", imports.cancelled);
  metrics.SetImportRetries(imports.retried);
}

}  // namespace

void RefreshMetrics(const data::Catalog& catalog, telemetry::JobMetrics& job_metrics,
                    telemetry::ServerMetrics& server_metrics) {
  job_metrics.BeforeScrape();
  RefreshDatasets(catalog, server_metrics);
  server_metrics.SetImportProgress(catalog.import_progress());
  server_metrics.BeforeScrape();
}

}  // namespace permafrost
