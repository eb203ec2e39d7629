// Functions that work on both kinds of dataset: a set of small graphs, and one large graph. Threads: safe anywhere.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <variant>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "data/store/graph.h"
#include "data/store/graph_set.h"

namespace permafrost::data {

// The result of an import: many small graphs (graphs.pfg) or one large graph (graph.pfg).
using ImportedSummary = std::variant<GraphSetSummary, GraphSummary>;

using OpenedDataset = std::variant<std::shared_ptr<const GraphSet>, std::shared_ptr<const Graph>>;

// Opens the store in a dataset's directory, whichever of the two kinds it is. Errors: those of GraphSet::Open and
// Graph::Open.
inline absl::StatusOr<OpenedDataset> OpenDataset(const std::filesystem::path& directory) {
  std::error_code ignored;
  if (std::filesystem::exists(directory / Graph::kFileName, ignored)) {
    PF_ASSIGN_OR_RETURN(auto graph, Graph::Open(directory));
    return OpenedDataset(std::move(graph));
  }
  PF_ASSIGN_OR_RETURN(auto set, GraphSet::Open(directory));
  return OpenedDataset(std::move(set));
}

inline ImportedSummary SummaryOf(const OpenedDataset& dataset) {
  return std::visit([](const auto& store) { return ImportedSummary(store->summary()); }, dataset);
}

// Returns the tables of the dataset's categories. Returns nullopt if `dataset` holds a null pointer, or if an older
// version imported the dataset. Errors: DataLoss.
inline absl::StatusOr<std::optional<Categories>> CategoriesOf(const OpenedDataset& dataset) {
  return std::visit(
      [](const auto& store) {
        return store == nullptr ? absl::StatusOr<std::optional<Categories>>(std::nullopt) : store->categories();
      },
      dataset);
}

// Returns the file that the dataset is mapped from. The path is empty if the dataset is in no file of its own.
inline std::filesystem::path FileOf(const OpenedDataset& dataset) {
  return std::visit([](const auto& store) { return store->path(); }, dataset);
}

inline uint64_t StoreBytes(const ImportedSummary& summary) {
  return std::visit([](const auto& s) { return s.store_bytes; }, summary);
}

// Returns the checksum of everything in the store, or 0 if the dataset is in no file. Equal checksums mean equal
// stores, whatever the datasets are called and however often they were imported.
inline uint64_t ChecksumOf(const OpenedDataset& dataset) {
  return std::visit([](const auto& store) { return store->checksum(); }, dataset);
}

// Returns a checksum of the data without the summary. It stays the same if a later version writes another summary for
// equal data, whereas ChecksumOf changes.
inline uint64_t ContentChecksumOf(const OpenedDataset& dataset) {
  return std::visit([](const auto& store) { return store->content_checksum(); }, dataset);
}

}  // namespace permafrost::data
