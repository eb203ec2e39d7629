// An importer is one row of the registry in import.cc. A new format is its own files, a row there, its value of
// ImportFormat with the proto's, and its flag.
// Threads: functions of the importing thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "data/import/unread_files.h"
#include "data/source/import_monitor.h"
#include "data/store/dataset.h"
#include "data/store/graph_writer.h"

namespace permafrost::data {

// The files of a source, found and not yet read. Borrows the options that it was found by.
class FoundSource {
 public:
  virtual ~FoundSource() = default;
  // Bytes that Run reads in all, each reading of a file counted: the end of the progress that the monitor tells.
  virtual int64_t bytes() const = 0;
  // Returns the files that the source has, and those that Run reads. A source that is one file returns nothing.
  virtual SourceContents contents() const { return {}; }
  // Reads the files once through and writes a complete, synced store into `directory`, which exists and is empty; it
  // may hold temporary files meanwhile. Errors: as data::Import.
  virtual absl::StatusOr<ImportedSummary> Run(const std::filesystem::path& directory, ImportMonitor& monitor) = 0;
};

// A source of one large graph: the importer writes the sections, this the file around them.
class FoundGraph : public FoundSource {
 public:
  absl::StatusOr<ImportedSummary> Run(const std::filesystem::path& directory, ImportMonitor& monitor) final;

 private:
  // Writes all sections and sets all of the summary but what GraphWriter::Finish does.
  virtual absl::Status Read(const std::filesystem::path& directory, ImportMonitor& monitor, GraphWriter& writer,
                            GraphSummary& summary) = 0;
};

// A graph whose importer is `Reader`, made of what Read is given, which borrows all of it.
template <class Files, class Reader>
class FoundFiles final : public FoundGraph {
 public:
  FoundFiles(const ImportOptions& options, Files files) : options_(options), files_(std::move(files)) {}
  int64_t bytes() const override { return files_.bytes(); }
  SourceContents contents() const override { return files_.contents(options_.source); }

 private:
  absl::Status Read(const std::filesystem::path& directory, ImportMonitor& monitor, GraphWriter& writer,
                    GraphSummary& summary) override {
    return Reader(options_, files_, directory, monitor, writer, summary).Run();
  }

  const ImportOptions& options_;
  const Files files_;
};

// Importer::find for a source made of the files that `find_files` finds.
template <auto find_files, class Source>
absl::StatusOr<std::unique_ptr<FoundSource>> FindAs(const ImportOptions& options, const ImportLimits&) {
  PF_ASSIGN_OR_RETURN(auto files, find_files(options));
  return std::make_unique<Source>(options, std::move(files));
}

struct Importer {
  ImportFormat format;
  // Tells in messages by what kAuto knows a directory of the format: "raw/edge.csv[.gz]". Empty: the source is a file.
  std::string_view known_by;
  // Returns true if the directory is of the format; nullptr: the source is a file. Errors: as TypeOfSource
  // (data/source/source_file.h).
  absl::StatusOr<bool> (*detect)(const std::filesystem::path& directory);
  // Returns true if a file is of the format, by its name. If this and `detect` are null, any file that no other format
  // knows is.
  bool (*detect_file)(const std::filesystem::path& file) = nullptr;
  // Errors: NotFound for missing files, InvalidArgument for files that contradict each other or the options. A file
  // that has to be read for it is asked for as `limits` say.
  absl::StatusOr<std::unique_ptr<FoundSource>> (*find)(const ImportOptions& options, const ImportLimits& limits);
};

}  // namespace permafrost::data
