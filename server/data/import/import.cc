#include "data/import/import.h"

#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/import/edge_list_import.h"
#include "data/import/npy_import.h"
#include "data/import/ogb_import.h"
#include "data/import/ogb_nodes_import.h"
#include "data/source/import_monitor.h"
#include "data/source/source_file.h"
#include "data/store/graph_writer.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<ImportFormat> FindFormat(const ImportOptions& options) {
  if (options.format != ImportFormat::kAuto) return options.format;
  std::error_code error;
  const fs::file_status status = fs::status(options.source, error);
  if (status.type() == fs::file_type::not_found) {
    return absl::NotFoundError(absl::StrCat(options.source.string(), ": not found"));
  }
  if (error) return absl::PermissionDeniedError(absl::StrCat(options.source.string(), ": ", error.message()));
  if (!fs::is_directory(status)) return ImportFormat::kEdgeList;
  const auto holds = [&](std::string_view name) { return fs::exists(options.source / name, error); };
  if (holds("raw/graph-label.csv") || holds("raw/graph-label.csv.gz")) return ImportFormat::kOgbGraphs;
  if (holds("raw/edge.csv") || holds("raw/edge.csv.gz")) {
    // Of a set of graphs without labels: ImportOgbGraphs says that they are missing.
    return ImportFormat::kOgbNodes;
  }
  if (holds("edge_index.npy") || holds("adj.npz")) return ImportFormat::kNpy;
  return absl::InvalidArgumentError(absl::StrCat(
      options.source.string(),
      ": format: the directory holds none of raw/graph-label.csv[.gz] (ogb-graphs), raw/edge.csv[.gz] (ogb-nodes), "
      "edge_index.npy or adj.npz (npy)"));
}

}  // namespace

absl::StatusOr<ImportedSummary> Import(const ImportOptions& options, const fs::path& directory,
                                       const ImportObserver& observer, std::stop_token stop,
                                       const ImportLimits& limits) {
  PF_RETURN_IF_ERROR(CheckImportOptions(options));
  PF_ASSIGN_OR_RETURN(const ImportFormat format, FindFormat(options));
  if (format == ImportFormat::kOgbGraphs) {
    return ImportOgbGraphs(options, directory, observer, std::move(stop), limits);
  }
  return ImportGraph(options, directory, observer, std::move(stop), limits);
}

absl::StatusOr<GraphSummary> ImportGraph(const ImportOptions& options, const fs::path& directory,
                                         const ImportObserver& observer, std::stop_token stop,
                                         const ImportLimits& limits) {
  PF_RETURN_IF_ERROR(CheckImportOptions(options));
  PF_ASSIGN_OR_RETURN(const ImportFormat format, FindFormat(options));
  const auto run = [&](int64_t bytes_total, const auto& import) -> absl::StatusOr<GraphSummary> {
    ImportMonitor monitor(bytes_total, observer, std::move(stop), limits);
    GraphSummary summary;
    PF_ASSIGN_OR_RETURN(const std::unique_ptr<GraphWriter> writer, GraphWriter::Create(directory, monitor.stop()));
    PF_RETURN_IF_ERROR(import(monitor, *writer, summary));
    PF_RETURN_IF_ERROR(monitor.Advance("syncing", 0));
    PF_RETURN_IF_ERROR(writer->Finish(summary));
    return summary;
  };
  switch (format) {
    case ImportFormat::kEdgeList: {
      PF_ASSIGN_OR_RETURN(const SourceFile file, FindEdgeList(options));
      // Numbers are read twice.
      const int64_t times = options.edge_list.node_ids == NodeIds::kNumbers ? 2 : 1;
      return run(times * file.bytes, [&](ImportMonitor& monitor, GraphWriter& writer, GraphSummary& summary) {
        return ImportEdgeList(options, file, directory, monitor, writer, summary);
      });
    }
    case ImportFormat::kOgbNodes: {
      PF_ASSIGN_OR_RETURN(const OgbNodeFiles files, FindOgbNodeFiles(options));
      return run(files.bytes(), [&](ImportMonitor& monitor, GraphWriter& writer, GraphSummary& summary) {
        return ImportOgbNodes(options, files, directory, monitor, writer, summary);
      });
    }
    case ImportFormat::kNpy: {
      PF_ASSIGN_OR_RETURN(const NpyFiles files, FindNpyFiles(options));
      return run(files.bytes(), [&](ImportMonitor& monitor, GraphWriter& writer, GraphSummary& summary) {
        return ImportNpy(options, files, directory, monitor, writer, summary);
      });
    }
    case ImportFormat::kAuto:
    case ImportFormat::kOgbGraphs:
      break;
  }
  return absl::InvalidArgumentError(absl::StrCat("format: ", AbslView(kImportFormatNames.Name(format)),
                                                 " is not of one large graph; use ogb-nodes, edge-list or npy"));
}

}  // namespace permafrost::data
