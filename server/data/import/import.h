// Reads a source of any known format into a store. The functions for callers come first, then the importers, one for
// each format.
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

// Writes a complete, synced store into `directory`, which must exist and be empty. Returns the summary of the store.
// CheckImportOptions must have accepted `options`. kAuto picks the format from the source, by the first rule that
// fits:
// - a directory with raw/graph-label.csv[.gz|.zst]: kOgbGraphs,
// - a directory with raw/edge.csv[.gz|.zst]: kOgbNodes,
// - a directory with edge_index.npy or adj.npz: kNpy,
// - a directory with NAME_graph_indicator.txt, in it or in its raw/: kTu,
// - a directory with graphs.pfg or graph.pfg: kStore,
// - a file NAME.zip: kTu,
// - a file graphs.pfg or graph.pfg: kStore, which refuses the file, since the source of kStore is the directory,
// - any other file: kEdgeList.
// A kOgbGraphs source without labels is read only if `options` name the format.
// An option that the format does not use is refused. Files that are not read are listed in a note, or refused if they
// were surely meant to be read (TellUnreadFiles). kStore refuses every file beside the store, except dataset.json and
// files whose names begin with a dot.
// Threads: reads the source and calls the observer on the calling thread; parses and sorts edges on limits.threads
// threads.
// Memory: bounded by `limits` and options.memory_bytes. One large graph that does not fit is sorted on disk.
// Errors:
// - InvalidArgument for wrong counts, ids out of range, ragged rows, cells that are not numbers, truncated or corrupt
//   packed files, and duplicate split ids. The message is one line "FILE:ROW: FIELD: what, value, what would be
//   accepted", or "FILE:ROW:COLUMN: ..." for a cell.
// - NotFound for missing files.
// - ResourceExhausted beyond the limits.
// - PermissionDenied for files that the system forbids to read.
// - The errors of limits.may_read.
// - For kStore, the errors of OpenDataset and VerifyAll.
// - Cancelled once `stop` is requested.
// - Transient errors (base/status.h) if the machine fails. The same import may then succeed later.
// The caller removes `directory` after any error.
absl::StatusOr<ImportedSummary> Import(const ImportOptions& options, const std::filesystem::path& directory,
                                       const ImportObserver& observer, std::stop_token stop,
                                       const ImportLimits& limits = {});

// Checks that Import would find its source: the format is known, the files exist, and they fit each other and the
// options. Reads no rows. Errors: those errors of Import that can be found without reading rows.
absl::Status CheckSource(const ImportOptions& options, const ImportLimits& limits);

// The files of a source that an import does not read. They are named in a note, or refused if they were surely meant
// to be read.
// Threads: one at a time; the functions that return names are pure.

// A file that a format reads if it exists.
struct KnownName {
  std::string stem;                       // path below the source without the ending: "raw/node-feat"
  std::vector<std::string_view> endings;  // ".csv", ".csv.gz"; the unpacked form comes first
  std::string table;                      // name of the table; only one file of a table is accepted
};

// The next functions return the names of the files that each format reads from a folder. `split` is the folder below
// split/ that is read, or empty for none.
std::vector<KnownName> OgbGraphsNames(std::string_view split);
std::vector<KnownName> OgbNodesNames(std::string_view split);
std::vector<KnownName> NpyNames();
// `stem` is the common beginning of all paths: "raw/MUTAG" for "raw/MUTAG_A.txt".
std::vector<KnownName> TuNames(std::string_view stem);

struct SourceContents {
  // The paths of all files below the source. nullopt stands for the files in `folder`, or for no files if `folder` is
  // empty.
  std::optional<std::vector<std::string>> all;
  std::filesystem::path folder;
  std::vector<std::string> read;  // the paths of the files that are read
  std::vector<KnownName> known;

  void Add(const SourceFile& file) { read.push_back(file.name); }
  void Add(const std::optional<SourceFile>& file) {
    if (file) Add(*file);
  }
};

// Records a note with the names of the first ten files that are not read, and the number of the remaining ones. In a
// folder, it skips names that begin with ".", __MACOSX, everything below four levels of folders, and everything after
// the first 10,000 entries.
// Errors: InvalidArgument, naming the file and the right name, for
// - a second form of a table that is read, such as raw/edge.csv beside raw/edge.csv.gz, or node_label.npz beside
//   node_label.npy. Sparse features are an exception: for text beside the .npz there is only the note.
// - a known name in another letter case, with '_' instead of '-', with "features" instead of "feat", in the wrong
//   folder, or with an ending that is not read.
// - a misspelt name of a table that the source lacks. Such a name has at most one edit per word of three or four
//   letters, two per longer word, and two in all.
absl::Status TellUnreadFiles(const SourceContents& contents, ImportMonitor& monitor);

// An importer is one row of the registry in import.cc. A new format needs an importer in its own .cc file, a row in
// the registry, a value in ImportFormat and in the proto, and a flag.
// Threads: the importing thread.

// The files that were found for a source and have yet to be read. Borrows the options with which they were found.
class FoundSource {
 public:
  virtual ~FoundSource() = default;
  // Returns the number of bytes that Run reads. A file that is read twice counts twice. The monitor's progress ends
  // at this number.
  virtual int64_t bytes() const = 0;
  // Returns which files the source has, and which of them Run reads. The result is empty if the source is a single
  // file.
  virtual SourceContents contents() const { return {}; }
  // Reads the files and writes a complete, synced store into `directory`, which must exist and be empty. May keep
  // temporary files there meanwhile. Errors: same as Import.
  virtual absl::StatusOr<ImportedSummary> Run(const std::filesystem::path& directory, ImportMonitor& monitor) = 0;
};

// A source of one large graph. The importer writes the sections, and this class writes the file around them.
class FoundGraph : public FoundSource {
 public:
  absl::StatusOr<ImportedSummary> Run(const std::filesystem::path& directory, ImportMonitor& monitor) final;

 private:
  // Writes all sections. Sets all fields of the summary except those that GraphWriter::Finish sets.
  virtual absl::Status Read(const std::filesystem::path& directory, ImportMonitor& monitor, GraphWriter& writer,
                            GraphSummary& summary) = 0;
};

// A source of one large graph. Each call of Read makes a `Reader`, which reads the files and borrows its arguments.
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

// Implements Importer::find: `find_files` finds the files, and a `Source` is made of them.
template <auto find_files, class Source>
absl::StatusOr<std::unique_ptr<FoundSource>> FindAs(const ImportOptions& options, const ImportLimits&) {
  PF_ASSIGN_OR_RETURN(auto files, find_files(options));
  return std::make_unique<Source>(options, std::move(files));
}

struct Importer {
  ImportFormat format;
  // The files by which kAuto recognises a directory of the format, for messages: "raw/edge.csv[.gz]". Empty if the
  // source of the format is always a file.
  std::string_view known_by;
  // Returns true if the directory is of the format. Null if the source of the format is always a file. Errors: same
  // as TypeOfSource (data/source/source_file.h).
  absl::StatusOr<bool> (*detect)(const std::filesystem::path& directory);
  // Returns true if the file's name shows that the file is of the format. If `detect_file` and `detect` are both
  // null, the format takes any file that no other format takes.
  bool (*detect_file)(const std::filesystem::path& file) = nullptr;
  // Finds the files of the source. Errors: NotFound for missing files; InvalidArgument for files that contradict each
  // other or the options. If `find` has to read a file, it asks limits.may_read first.
  absl::StatusOr<std::unique_ptr<FoundSource>> (*find)(const ImportOptions& options, const ImportLimits& limits);
};

// Imports OGB's graph-property CSV layout into a GraphSet, as a stream.
// Source of the layout: Hu et al. 2020, "Open Graph Benchmark" (ogb/io/read_graph_raw.py).
// Memory: the largest graph and the offsets, both bounded by the import's limits. All other data is streamed.
Importer OgbGraphsImporter();

// Imports one large graph of OGB's node-property CSV layout. Tables may also be NPY or NPZ files with the same stems.
// Source of the layout: Hu et al. 2020, "Open Graph Benchmark" (ogb/io/read_graph_raw.py).
// Memory: same as Import. Parses and sorts on limits.threads threads.
Importer OgbNodesImporter();

// Imports one large graph from a file of edges, whatever its packing.
// Memory: same as Import. Parses and sorts on limits.threads threads.
Importer EdgeListImporter();

// Imports one large graph from a directory of NPY and NPZ files:
//   edge_index.npy   [2, edges] or [edges, 2] of integers
//   adj.npz          instead of edge_index.npy: a CSR matrix of scipy.sparse with an edge from i to j for each entry
//                    (i, j); its values are the weights unless all are 1
//   edge_weight.npy, edge_time.npy   [edges]; with edge_index.npy only
//   edge_feat.npy    [edges, columns]; with edge_index.npy only
//   node_feat.npy, or node_feat_bf16.npy (bfloat16 as <u2), or node_feat.npz (CSR)
//   node_label.npy   [nodes] or [nodes, targets]
//   node_time.npy    [nodes]
//   node_pos.npy     [nodes, columns]
//   node_ids.npy or node_names.csv, names of nodes (node_ids.h)
//   {train,valid,test}_idx.npy with rows of nodes, or {train,valid,test}_mask.npy [nodes]
//   split/links/*.npy, a link split (split_files.h)
// The number of nodes is the number of rows of adj, node_feat, node_label, node_time or node_pos. Without these
// files, the number of nodes follows from the edges and edge_list.num_nodes.
// Memory: same as Import. Sorts on limits.threads threads.
Importer NpyImporter();

// Imports a TUDataset into a GraphSet, as a stream. Source of the layout: Morris et al. 2020, "TUDataset: A
// collection of benchmark datasets for learning with graphs"; read as PyG reads it (torch_geometric/io/tu.py). Unlike
// PyG, the importer keeps self-loops. It also keeps repeated edges, unless options.coalesce is set. Memory: the
// labels and offsets of all graphs, and the largest graph; all bounded by the import's limits.
Importer TuImporter();

// Imports a store that a server wrote (data/store/format.h): a directory with graphs.pfg or graph.pfg. A file below
// limits.own_files is linked if possible, and otherwise copied. The whole result is then verified. The store's
// summary is kept unchanged, notes included. Memory: one buffer.
Importer StoreImporter();

}  // namespace permafrost::data
