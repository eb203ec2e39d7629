#include "data/import/import.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/source/import_options.h"
#include "data/source/source_file.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;

// Every format, in the order in which kAuto asks whether a directory is of it.
const auto& Importers() {
  static const std::array kImporters = {OgbGraphsImporter(), OgbNodesImporter(), NpyImporter(), TuImporter(),
                                        EdgeListImporter()};
  return kImporters;
}

absl::StatusOr<Importer> DetectImporter(const fs::path& source) {
  PF_ASSIGN_OR_RETURN(const fs::file_type type, TypeOfSource(source, source.string()));
  if (type == fs::file_type::not_found) return absl::NotFoundError(absl::StrCat(source.string(), ": not found"));
  std::string accepted;
  for (const Importer& importer : Importers()) {
    if (type != fs::file_type::directory) {
      if (importer.detect_file != nullptr ? importer.detect_file(source) : importer.detect == nullptr) return importer;
      continue;
    }
    if (importer.detect == nullptr) continue;
    // A source that cannot be looked at may be of this format, so no other is taken in its place.
    PF_ASSIGN_OR_RETURN(const bool is_of, importer.detect(source));
    if (is_of) return importer;
    absl::StrAppend(&accepted, accepted.empty() ? "" : ", ", AbslView(importer.known_by), " (",
                    AbslView(kImportFormatNames.Name(importer.format)), ")");
  }
  return absl::InvalidArgumentError(absl::StrCat(source.string(), ": format: the directory holds none of ", accepted));
}

absl::StatusOr<Importer> FindImporter(const ImportOptions& options) {
  if (options.format == ImportFormat::kAuto) return DetectImporter(options.source);
  const auto found = std::ranges::find(Importers(), options.format, &Importer::format);
  if (found != Importers().end()) return *found;
  return absl::InvalidArgumentError(absl::StrCat("format: ", AbslView(kImportFormatNames.Name(options.format)),
                                                 " is none of ", kImportFormatNames.Accepted()));
}

absl::StatusOr<std::unique_ptr<FoundSource>> FindSource(const ImportOptions& options, const ImportLimits& limits) {
  PF_ASSIGN_OR_RETURN(const Importer importer, FindImporter(options));
  Violations unused;
  spec::CheckImportFormat(importer.format, options, unused);
  PF_RETURN_IF_ERROR(unused.ToStatus());
  return importer.find(options, limits);
}

}  // namespace

absl::StatusOr<ImportedSummary> FoundGraph::Run(const fs::path& directory, ImportMonitor& monitor) {
  GraphSummary summary;
  PF_ASSIGN_OR_RETURN(const std::unique_ptr<GraphWriter> writer, GraphWriter::Create(directory, monitor.stop()));
  // This tells a graph without categories from one of an older version, whose categories nobody knows.
  writer->categories();
  PF_RETURN_IF_ERROR(Read(directory, monitor, *writer, summary));
  PF_RETURN_IF_ERROR(monitor.Advance("syncing", 0));
  summary.notes = monitor.notes();
  PF_RETURN_IF_ERROR(writer->Finish(summary));
  return summary;
}

absl::StatusOr<ImportedSummary> Import(const ImportOptions& options, const fs::path& directory,
                                       const ImportObserver& observer, std::stop_token stop,
                                       const ImportLimits& limits) {
  PF_ASSIGN_OR_RETURN(const std::unique_ptr<FoundSource> source, FindSource(options, limits));
  ImportMonitor monitor(source->bytes(), observer, std::move(stop), limits);
  PF_RETURN_IF_ERROR(TellUnreadFiles(source->contents(), monitor));
  return source->Run(directory, monitor);
}

absl::Status CheckSource(const ImportOptions& options, const ImportLimits& limits) {
  PF_ASSIGN_OR_RETURN(const std::unique_ptr<FoundSource> source, FindSource(options, limits));
  const ImportObserver nobody;
  ImportMonitor monitor(/*bytes_total=*/0, nobody, std::stop_token(), limits);
  return TellUnreadFiles(source->contents(), monitor);
}

}  // namespace permafrost::data
