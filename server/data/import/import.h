// Reads a source of any known format into a store: what callers use first, then the importers, one for each format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "data/source/import_options.h"
#include "data/source/source_file.h"
#include "data/store/dataset.h"
#include "data/store/store_writer.h"

namespace permafrost::data {

// Writes a complete, synced store into `directory` (which exists and is empty) and returns its summary.
// options: as CheckImportOptions accepts them. kAuto: a file NAME.zip is kTu and any other an edge list; a directory
// with raw/graph-label.csv[.gz|.zst] is kOgbGraphs; one with raw/edge.csv[.gz|.zst] is kOgbNodes; one with
// edge_index.npy or adj.npz is kNpy; one with NAME_graph_indicator.txt, in it or in its raw/, is kTu; one with
// graphs.pfg or graph.pfg is kStore. kOgbGraphs without labels is read where it is named.
// An option that the format does not use is refused. Files that are not read are told in a note, or refused where they
// were surely meant to be read (TellUnreadFiles). kStore refuses every other file than
// dataset.json and those whose names begin with a dot.
// Threads: reads on the calling thread, which the observer is called on too; sorts over limits.threads.
// Memory: as `limits` and options.memory_bytes say; one large graph is sorted on disk where it does not fit.
// Errors: InvalidArgument with one line "FILE:ROW: FIELD: what, value, what would be accepted" (COLUMN too where a cell
// is meant: "FILE:ROW:COLUMN") for wrong counts, ids out of range, ragged rows, not-a-number cells, truncated or
// corrupt packings, duplicate split ids; NotFound for missing files; ResourceExhausted beyond the limits;
// PermissionDenied for what the system does not let be read; what limits.may_read says; of kStore those of OpenDataset
// and VerifyAll; Cancelled when `stop` is requested; transient (base/status.h) where the machine fails, so that the
// same import may succeed later. The caller removes `directory` on any error.
absl::StatusOr<ImportedSummary> Import(const ImportOptions& options, const std::filesystem::path& directory,
                                       const ImportObserver& observer, std::stop_token stop,
                                       const ImportLimits& limits = {});

// Ok if Import would find its source: its format is known, and its files are there and go with each other and the
// options. Reads no rows. Errors: as Import's, as far as they can be told so.
absl::Status CheckSource(const ImportOptions& options, const ImportLimits& limits);

// Files of a source that an import does not read: named in a note, or refused where they were surely meant to be read.
// Threads: one at a time.

// The names of the files that each format reads from a folder. Threads: pure.

// A file that a format reads where it is there.
struct KnownName {
  std::string stem;                       // below the source, without its ending: "raw/node-feat"
  std::vector<std::string_view> endings;  // ".csv", ".csv.gz"; the first is the plain one
  std::string table;                      // names of one table are forms of it; one of them is accepted
};

// split: the name of the folder below split/ that is read; empty: none.
std::vector<KnownName> OgbGraphsNames(std::string_view split);
std::vector<KnownName> OgbNodesNames(std::string_view split);
std::vector<KnownName> NpyNames();
// stem: the path of every file up to its table: "raw/MUTAG".
std::vector<KnownName> TuNames(std::string_view stem);

struct SourceContents {
  // All files, by their paths below the source. nullopt: the files of `folder`; none if `folder` is empty.
  std::optional<std::vector<std::string>> all;
  std::filesystem::path folder;
  std::vector<std::string> read;  // of them
  std::vector<KnownName> known;

  void Add(const SourceFile& file) { read.push_back(file.name); }
  void Add(const std::optional<SourceFile>& file) {
    if (file) Add(*file);
  }
};

// Notes the files that are not read: the first ten of them, and how many more there are. Files and folders whose names
// begin with "." are passed over, and so is what lies deeper than four folders or beyond the first 10,000 entries.
// Errors: InvalidArgument, naming the file and the right name, for
// - a second form of a table that is read, such as raw/edge.csv beside raw/edge.csv.gz, or node_label.npz beside
//   node_label.npy; but of sparse features text beside the .npz is only named,
// - a known name in another case, with '_' for '-', with "features" for "feat", in the wrong folder, or with an ending
//   that is not read,
// - a name within two edits of a known one whose table is not there: one in a word of three or four letters, two in a
//   longer one.
absl::Status TellUnreadFiles(const SourceContents& contents, ImportMonitor& monitor);

// An importer is one row of the registry in import.cc. A new format is its own files, a row there, its value of
// ImportFormat with the proto's, and its flag.
// Threads: functions of the importing thread.

// The files of a source, found and not yet read. Borrows the options that it was found by.
class FoundSource {
 public:
  virtual ~FoundSource() = default;
  // Returns how many bytes Run reads in all, counting each reading of a file. The monitor's progress ends at this
  // number.
  virtual int64_t bytes() const = 0;
  // Returns the files that the source has, and those that Run reads. A source that is one file returns nothing.
  virtual SourceContents contents() const { return {}; }
  // Reads the files and writes a complete, synced store into `directory`, which exists and is empty; it may hold
  // temporary files meanwhile. Errors: as data::Import.
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
  // Says in messages by which files kAuto recognises a directory of the format: "raw/edge.csv[.gz]". Empty: the source
  // is a file.
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

// Streaming import of OGB's graph-property CSV layout into a GraphSet.
// Source of the layout: Hu et al. 2020, "Open Graph Benchmark" (ogb/io/read_graph_raw.py).
// Memory: bounded by the largest graph and the offsets, and so by the import's limits; columns are streamed.
Importer OgbGraphsImporter();

// Import of one large graph of OGB's node-property CSV layout; tables may be NPY or NPZ files of the same stems.
// Source of the layout: Hu et al. 2020, "Open Graph Benchmark" (ogb/io/read_graph_raw.py).
// Memory: as data::Import; parses and sorts over the threads of the import's limits.
Importer OgbNodesImporter();

// Import of one large graph from a file of edges, whatever its packing.
// Memory: as data::Import; parses and sorts over the threads of the import's limits.
Importer EdgeListImporter();

// Import of one large graph from a directory of NPY and NPZ files:
//   edge_index.npy   [2, edges] or [edges, 2] of integers; or adj.npz, scipy.sparse's CSR: row i to column j, and its
//                    values as weights unless all are 1
//   edge_weight.npy, edge_time.npy   [edges]; with edge_index.npy only
//   edge_feat.npy    [edges, columns]; with edge_index.npy only
//   node_feat.npy, or node_feat_bf16.npy (bfloat16 as <u2), or node_feat.npz (CSR)
//   node_label.npy   [nodes] or [nodes, targets]
//   {train,valid,test}_idx.npy of rows, or {train,valid,test}_mask.npy [nodes]
// The rows of node_feat, node_label or adj give the number of nodes; without them, the edges and edge_list.num_nodes
// do.
// Memory: as data::Import; sorts over the threads of the import's limits.
Importer NpyImporter();

// Streaming import of a TUDataset into a GraphSet. Source of the layout: Morris et al. 2020, "TUDataset: A collection
// of benchmark datasets for learning with graphs"; read as PyG reads it (torch_geometric/io/tu.py), but for what PyG
// drops: self-loops stay, and several edges with equal ends do unless options.coalesce. Memory: the labels and offsets
// of all graphs, and the largest graph; bounded by the import's limits.
Importer TuImporter();

// Import of the store that a server wrote (data/store/format.h), of either kind: graphs.pfg or graph.pfg in a
// directory. The file is linked where it lies in limits.own_files, else copied, and verified whole where it is then.
// Its summary, notes included, stays as it is. Memory: a buffer.
Importer StoreImporter();

}  // namespace permafrost::data
