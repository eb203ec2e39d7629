#include "data/import/import.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/import/dense_features.h"
#include "data/import/graph_edges.h"
#include "data/import/node_ids.h"
#include "data/import/node_sections.h"
#include "data/import/split_files.h"
#include "data/source/csv_rows.h"
#include "data/source/npy_array.h"
#include "data/source/source_file.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;

// Reads edges from arrays: edge_index.npy with weights and times beside it, or adj.npz.
// Threads: one at a time. Memory: buffers.

struct NpyEdgeFiles {
  const SourceFile& index;
  const std::optional<SourceFile>&weights, &times;
  uint64_t max_id = 0;  // the largest row that a node may have
  std::string why;      // where max_id comes from, in parentheses; may be empty
};

template <class Record>
class NpyEdgeSource final : public EdgeSource<Record> {
 public:
  static absl::StatusOr<NpyEdgeSource> Open(const NpyEdgeFiles& files, ImportMonitor& monitor);
  absl::StatusOr<bool> Next(std::vector<Record>& edges) override;
  uint64_t count() const { return edges_; }

 private:
  NpyEdgeSource(NpyArray sources, uint64_t max_id, std::string why)
      : sources_(std::move(sources)), max_id_(max_id), why_(std::move(why)) {}
  absl::Status ReadEnds(size_t count);

  NpyArray sources_;                 // for [edges, 2] it holds both ends
  std::optional<NpyArray> targets_;  // for [2, edges] only
  std::optional<NpyArray> weights_, times_;
  uint64_t max_id_;
  std::string why_;
  uint64_t edges_ = 0, given_ = 0;
  std::vector<int64_t> ends_;  // all sources and then all targets; for [edges, 2], pairs
  std::vector<float> weight_buffer_;
  std::vector<int64_t> time_buffer_;
};

// Yields the edges of a square matrix. Entry (i, j) is an edge from i to j, and its value is the weight. Zeros are
// not edges.
template <class Record>
class MatrixEdgeSource final : public EdgeSource<Record> {
 public:
  // `name` is the name of the file, for messages.
  MatrixEdgeSource(CsrMatrix matrix, std::string name) : matrix_(std::move(matrix)), name_(std::move(name)) {}
  absl::StatusOr<bool> Next(std::vector<Record>& edges) override;

 private:
  CsrMatrix matrix_;
  std::string name_;
  std::vector<MatrixEntry> entries_;
};

constexpr uint64_t kAtOnce = uint64_t{1} << 16;

absl::StatusOr<NpyArray> OpenBeside(const SourceFile& file, uint64_t edges, ImportMonitor& monitor) {
  PF_ASSIGN_OR_RETURN(NpyArray array, NpyArray::Open(file, /*member=*/"", monitor));
  const auto& shape = array.header().shape;
  if (shape.empty() || shape[0] != edges || array.header().elements() != edges) {
    return array.ShapeError(absl::StrCat("[", edges, "], one an edge"));
  }
  return array;
}

template <class Record>
absl::StatusOr<NpyEdgeSource<Record>> NpyEdgeSource<Record>::Open(const NpyEdgeFiles& files, ImportMonitor& monitor) {
  PF_ASSIGN_OR_RETURN(NpyArray index, NpyArray::Open(files.index, /*member=*/"", monitor));
  const std::vector<uint64_t> shape = index.header().shape;
  const bool rows = shape.size() == 2 && shape[0] == 2;  // [2, 2] is read as [2, edges], as in PyG
  if (shape.size() != 2 || (shape[0] != 2 && shape[1] != 2)) return index.ShapeError("[2, edges] or [edges, 2]");
  NpyEdgeSource source(std::move(index), files.max_id, files.why);
  source.edges_ = rows ? shape[1] : shape[0];
  if (rows) {
    PF_ASSIGN_OR_RETURN(source.targets_, NpyArray::Open(files.index, /*member=*/"", monitor));
    PF_RETURN_IF_ERROR(source.targets_->Skip(source.edges_));
  }
  if (files.weights) {
    PF_ASSIGN_OR_RETURN(source.weights_, OpenBeside(*files.weights, source.edges_, monitor));
  }
  if (files.times) {
    PF_ASSIGN_OR_RETURN(source.times_, OpenBeside(*files.times, source.edges_, monitor));
  }
  return source;
}

template <class Record>
absl::Status NpyEdgeSource<Record>::ReadEnds(size_t count) {
  ends_.resize(2 * count);
  const std::span<int64_t> ends(ends_);
  const auto check = [this](const NpyArray& array, std::span<const int64_t> ids) {
    const auto bad =
        std::ranges::find_if(ids, [this](int64_t id) { return id < 0 || static_cast<uint64_t>(id) > max_id_; });
    if (bad == ids.end()) return absl::OkStatus();
    return array.ElementError(array.position() - static_cast<uint64_t>(ids.end() - bad),
                              absl::StrCat(*bad, " is outside 0..", max_id_, why_));
  };
  if (!targets_) {
    PF_RETURN_IF_ERROR(sources_.ReadIntegers(ends));
    return check(sources_, ends);
  }
  PF_RETURN_IF_ERROR(sources_.ReadIntegers(ends.first(count)));
  PF_RETURN_IF_ERROR(check(sources_, ends.first(count)));
  PF_RETURN_IF_ERROR(targets_->ReadIntegers(ends.subspan(count)));
  return check(*targets_, ends.subspan(count));
}

template <class Record>
absl::StatusOr<bool> NpyEdgeSource<Record>::Next(std::vector<Record>& edges) {
  edges.clear();
  const auto count = static_cast<size_t>(std::min(kAtOnce, edges_ - given_));
  if (count == 0) {
    for (auto* array : {&targets_, &weights_, &times_}) {
      if (*array) PF_RETURN_IF_ERROR((*array)->ExpectEnd());
    }
    if (!targets_) PF_RETURN_IF_ERROR(sources_.ExpectEnd());
    return false;
  }
  PF_RETURN_IF_ERROR(ReadEnds(count));
  edges.resize(count);
  for (size_t e = 0; e < count; ++e) {
    const int64_t from = targets_ ? ends_[e] : ends_[2 * e], to = targets_ ? ends_[count + e] : ends_[2 * e + 1];
    edges[e].key = MakeEdgeKey(static_cast<NodeId>(to), static_cast<NodeId>(from));
  }
  if constexpr (Record::kHasWeight) {
    if (weights_) {
      weight_buffer_.resize(count);
      const uint64_t begin = weights_->position();
      PF_RETURN_IF_ERROR(weights_->ReadFloats(weight_buffer_));
      for (size_t e = 0; e < count; ++e) {
        if (const auto fault = FaultOfWeight(weight_buffer_[e])) return weights_->ElementError(begin + e, *fault);
        edges[e].weight = weight_buffer_[e];
      }
    }
  }
  if constexpr (Record::kHasAll) {
    if (times_) {
      time_buffer_.resize(count);
      PF_RETURN_IF_ERROR(times_->ReadIntegers(time_buffer_));
      for (size_t e = 0; e < count; ++e) edges[e].timestamp = time_buffer_[e];
    }
    for (size_t e = 0; e < count; ++e) edges[e].row = given_ + e;
  }
  given_ += count;
  return true;
}

template <class Record>
absl::StatusOr<bool> MatrixEdgeSource<Record>::Next(std::vector<Record>& edges) {
  edges.clear();
  while (edges.empty()) {
    PF_ASSIGN_OR_RETURN(const bool more, matrix_.Next(entries_));
    if (!more) return false;
    for (const MatrixEntry& entry : entries_) {
      if (entry.value == 0) continue;
      if (const auto fault = FaultOfWeight(entry.value)) {
        return absl::InvalidArgumentError(
            absl::StrCat(name_, ": entry (", entry.row, ", ", entry.column, "): weight: ", *fault));
      }
      Record edge;
      edge.key = MakeEdgeKey(entry.column, entry.row);
      if constexpr (Record::kHasWeight) edge.weight = entry.value;
      edges.push_back(edge);
    }
  }
  return true;
}

struct NpyFiles {
  std::optional<SourceFile> edge_index, adjacency;  // exactly one of the two
  std::optional<SourceFile> edge_weights, edge_times, edge_features;
  std::optional<SourceFile> features, bfloat16_features, sparse_features, positions, labels, times;
  std::optional<std::array<SourceFile, 3>> split;  // by Split
  bool split_masks = false;
  std::optional<LinkFiles> links;
  std::optional<NameFile> names;

  int64_t bytes() const;
  SourceContents contents(const fs::path& source) const;
};

// The number of nodes, as a file tells it.
struct NodeCount {
  uint64_t nodes = 0;
  std::string why;  // "as node_feat.npy has"; empty if no file told the number
};

class NpyImport {
 public:
  NpyImport(const ImportOptions& options, const NpyFiles& files, const fs::path& directory, ImportMonitor& monitor,
            GraphWriter& writer, GraphSummary& summary)
      : options_(options),
        files_(files),
        directory_(directory),
        monitor_(monitor),
        writer_(writer),
        summary_(summary),
        memory_bytes_(ImportMemory(options, monitor.limits())) {}

  absl::Status Run() {
    PF_RETURN_IF_ERROR(CountNodes());
    PF_RETURN_IF_ERROR(files_.edge_index ? ReadEdgeIndex() : ReadMatrix());
    if (summary_.nodes == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          Edges().name, ": edges: there is none, and neither features nor labels say how many nodes there are"));
    }
    count_.nodes = static_cast<uint64_t>(summary_.nodes);
    if (count_.why.empty()) count_.why = absl::StrCat("as ", Edges().name, " has");
    PF_RETURN_IF_ERROR(ReadFeatures());
    if (files_.positions) {
      PF_RETURN_IF_ERROR(
          WritePositions(*files_.positions, /*is_array=*/true, LabelsDue(), monitor_, writer_, summary_));
    }
    if (files_.times) PF_RETURN_IF_ERROR(WriteTimeArray(*files_.times, LabelsDue(), monitor_, writer_, summary_));
    PF_RETURN_IF_ERROR(ReadLabelsAndSplit());
    if (files_.links) {
      PF_RETURN_IF_ERROR(
          WriteLinks(*files_.links, count_.nodes, count_.why, renumbering_, monitor_, writer_, summary_));
    }
    return WriteNodeNames(
        files_.names,
        {.nodes = count_.nodes, .why = count_.why, .renumbering = renumbering_, .memory_bytes = memory_bytes_},
        monitor_, writer_, summary_);
  }

 private:
  const SourceFile& Edges() const { return files_.edge_index ? *files_.edge_index : *files_.adjacency; }

  // Sets the number of nodes from the first file that tells it.
  absl::Status CountNodes() {
    for (const auto* file :
         {&files_.features, &files_.bfloat16_features, &files_.labels, &files_.times, &files_.positions}) {
      if (!*file) continue;
      PF_ASSIGN_OR_RETURN(NpyArray array, NpyArray::Open(**file, /*member=*/"", monitor_));
      const auto& shape = array.header().shape;
      if (shape.empty() || shape[0] == 0 || shape[0] > kMaxNodes) {
        return array.ShapeError(absl::StrCat("1..", kMaxNodes, " rows, one a node"));
      }
      count_ = {shape[0], absl::StrCat("as ", (*file)->name, " has")};
      array.Rewind();
      break;
    }
    if (count_.why.empty() && files_.sparse_features) {
      PF_ASSIGN_OR_RETURN(CsrMatrix matrix, CsrMatrix::Open(*files_.sparse_features, monitor_));
      count_ = {matrix.rows(), absl::StrCat("as ", files_.sparse_features->name, " has")};
      matrix.Rewind();
    }
    return CheckNodes(count_.why.empty() ? Edges().name : count_.why, count_.nodes, monitor_.limits(), options_.order);
  }

  absl::Status ReadEdgeIndex() {
    const bool known = !count_.why.empty();
    const EdgesPlan plan{.options = options_,
                         .directory = directory_,
                         .memory_bytes = memory_bytes_,
                         .least_nodes = known ? count_.nodes : static_cast<uint64_t>(options_.edge_list.num_nodes),
                         .weights = files_.edge_weights.has_value(),
                         .timestamps = files_.edge_times.has_value(),
                         .edge_ids = files_.edge_features.has_value()};
    const NpyEdgeFiles edge_files{.index = *files_.edge_index,
                                  .weights = files_.edge_weights,
                                  .times = files_.edge_times,
                                  .max_id = (known ? std::max<uint64_t>(count_.nodes, 1) : kMaxNodes) - 1,
                                  .why = known ? absl::StrCat(" (", count_.nodes, " nodes, ", count_.why, ")") : ""};
    uint64_t edges = 0;
    const absl::Status written = WithRecord(plan, [&]<class Record>() -> absl::Status {
      PF_ASSIGN_OR_RETURN(auto source, NpyEdgeSource<Record>::Open(edge_files, monitor_));
      edges = source.count();
      return WriteEdges<Record>(source, plan, monitor_, writer_, summary_, renumbering_);
    });
    PF_RETURN_IF_ERROR(written);
    if (!files_.edge_features) return absl::OkStatus();
    PF_ASSIGN_OR_RETURN(summary_.edge_features,
                        WriteFeatureArray(*files_.edge_features, /*bfloat16=*/false,
                                          {.section = SectionKind::kEdgeFeatures,
                                           .rows = edges,
                                           .why = absl::StrCat("as ", files_.edge_index->name, " has edges")},
                                          directory_, monitor_, writer_));
    return absl::OkStatus();
  }

  absl::Status ReadMatrix() {
    // The values are read once to see whether all are 1. Values that are all 1 only mark the edges, and are not
    // weights.
    bool ones = true;
    uint64_t nodes = 0;
    {
      PF_ASSIGN_OR_RETURN(CsrMatrix matrix, CsrMatrix::Open(*files_.adjacency, monitor_));
      nodes = matrix.rows();
      if (matrix.width() != nodes) {
        return absl::InvalidArgumentError(absl::StrCat(files_.adjacency->name, ": shape: is [", nodes, ", ",
                                                       matrix.width(), "], expected as many columns as rows"));
      }
      if (!count_.why.empty() && count_.nodes != nodes) {
        return absl::InvalidArgumentError(absl::StrCat(files_.adjacency->name, ": rows: the matrix has ", nodes,
                                                       ", expected ", count_.nodes, " (", count_.why, ")"));
      }
      PF_RETURN_IF_ERROR(CheckNodes(files_.adjacency->name, nodes, monitor_.limits(), options_.order));
      std::vector<MatrixEntry> entries;
      for (bool more = true; more && ones;) {
        PF_ASSIGN_OR_RETURN(more, matrix.Next(entries));
        ones = std::ranges::all_of(entries, [](const MatrixEntry& e) { return e.value == 0 || e.value == 1; });
      }
      matrix.Rewind();
    }
    const EdgesPlan plan{.options = options_,
                         .directory = directory_,
                         .memory_bytes = memory_bytes_,
                         .least_nodes = nodes,
                         .weights = !ones};
    return WithRecord(plan, [&]<class Record>() -> absl::Status {
      PF_ASSIGN_OR_RETURN(CsrMatrix matrix, CsrMatrix::Open(*files_.adjacency, monitor_));
      MatrixEdgeSource<Record> source(std::move(matrix), files_.adjacency->name);
      return WriteEdges<Record>(source, plan, monitor_, writer_, summary_, renumbering_);
    });
  }

  absl::Status ReadFeatures() {
    const DueTable due{.section = SectionKind::kNodeFeatures,
                       .rows = count_.nodes,
                       .why = count_.why,
                       .as = options_.feature_type,
                       .renumbering = &renumbering_,
                       .memory_bytes = memory_bytes_};
    if (files_.sparse_features) {
      const EdgeSorterOptions sorting{.directory = directory_,
                                      .memory_bytes = memory_bytes_,
                                      .add_inverses = false,
                                      .threads = monitor_.limits().threads};
      PF_ASSIGN_OR_RETURN(auto sparse, SparseFeaturesImport::ReadMatrix(*files_.sparse_features, count_.nodes,
                                                                        absl::StrCat(" (", count_.why, ")"),
                                                                        renumbering_, sorting, monitor_));
      return sparse.width() == 0 ? absl::OkStatus()
                                 : sparse.Write(sparse.width(), directory_, monitor_, writer_, summary_);
    }
    const bool bfloat16 = files_.bfloat16_features.has_value();
    const auto& file = bfloat16 ? files_.bfloat16_features : files_.features;
    if (!file) return absl::OkStatus();
    PF_ASSIGN_OR_RETURN(summary_.node_features, WriteFeatureArray(*file, bfloat16, due, directory_, monitor_, writer_));
    return absl::OkStatus();
  }

  DueLabels LabelsDue() const {
    return {.nodes = count_.nodes,
            .why = count_.why,
            .renumbering = renumbering_,
            .directory = directory_,
            .memory_bytes = memory_bytes_};
  }

  absl::Status ReadLabelsAndSplit() {
    LabelledNodes labelled;
    if (files_.labels) {
      PF_RETURN_IF_ERROR(WriteLabelArray(*files_.labels, LabelsDue(), monitor_, writer_, summary_, labelled));
    }
    if (files_.split) {
      PF_ASSIGN_OR_RETURN(SplitGraphs split,
                          ReadSplitArrays(*files_.split, files_.split_masks, count_.nodes, monitor_));
      return WriteSplits(std::move(split), renumbering_, writer_, summary_);
    }
    return files_.labels ? WriteSplits(DrawNodeSplit(options_, labelled), renumbering_, writer_, summary_)
                         : absl::OkStatus();
  }

  const ImportOptions& options_;
  const NpyFiles& files_;
  const fs::path& directory_;
  ImportMonitor& monitor_;
  GraphWriter& writer_;
  GraphSummary& summary_;
  const uint64_t memory_bytes_;
  NodeCount count_;
  Renumbering renumbering_;
};

// Refuses two files for the same purpose.
absl::Status CheckAtMostOne(std::initializer_list<const std::optional<SourceFile>*> files) {
  const SourceFile* found = nullptr;
  for (const auto* file : files) {
    if (!*file) continue;
    if (found != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat((*file)->name, ": stands beside ", found->name, "; one of them is accepted"));
    }
    found = &**file;
  }
  return absl::OkStatus();
}

absl::Status FindSplitFiles(const fs::path& source, NpyFiles& files) {
  for (const std::string_view ending : {"_idx", "_mask"}) {
    std::array<std::optional<SourceFile>, 3> split;
    bool any = false;
    for (const auto& [kind, name] : kSplitNames.rows) {
      auto& file = split[static_cast<size_t>(kind)];
      PF_ASSIGN_OR_RETURN(file, FindNpy(source, absl::StrCat(AbslView(name), AbslView(ending))));
      any = any || file;
    }
    if (!any) continue;
    files.split.emplace();
    files.split_masks = ending == "_mask";
    for (const auto& [kind, name] : kSplitNames.rows) {
      const auto& file = split[static_cast<size_t>(kind)];
      if (!file) {
        return absl::NotFoundError(absl::StrCat(AbslView(name), AbslView(ending),
                                                ".npy: not found; all of train, valid and test are needed, or none"));
      }
      (*files.split)[static_cast<size_t>(kind)] = *file;
    }
    return absl::OkStatus();
  }
  return absl::OkStatus();
}

int64_t NpyFiles::bytes() const {
  int64_t sum = 0;
  for (const auto* file : {&edge_index, &adjacency, &edge_weights, &edge_times, &edge_features, &features,
                           &bfloat16_features, &sparse_features, &positions, &labels, &times}) {
    if (*file) sum += (*file)->bytes;
  }
  if (split) {
    for (const SourceFile& file : *split) sum += file.bytes;
  }
  if (links) sum += links->bytes();
  if (names) sum += names->file.bytes;
  return sum;
}

SourceContents NpyFiles::contents(const fs::path& source) const {
  SourceContents all{.all = std::nullopt, .folder = source, .read = {}, .known = NpyNames()};
  for (const auto* file : {&edge_index, &adjacency, &edge_weights, &edge_times, &edge_features, &features,
                           &bfloat16_features, &sparse_features, &positions, &labels, &times}) {
    all.Add(*file);
  }
  if (split) {
    for (const SourceFile& file : *split) all.Add(file);
  }
  if (links) links->AddTo(all);
  if (names) all.Add(names->file);
  return all;
}

absl::StatusOr<NpyFiles> FindNpyFiles(const ImportOptions& options) {
  const fs::path& source = options.source;
  NpyFiles files;
  PF_ASSIGN_OR_RETURN(files.edge_index, FindNpy(source, "edge_index"));
  PF_ASSIGN_OR_RETURN(files.adjacency, FindNpz(source, "adj"));
  if (!files.edge_index && !files.adjacency) {
    return absl::NotFoundError(absl::StrCat("edge_index.npy: not found, nor adj.npz, in ", source.string()));
  }
  PF_ASSIGN_OR_RETURN(files.edge_weights, FindNpy(source, "edge_weight"));
  PF_ASSIGN_OR_RETURN(files.edge_times, FindNpy(source, "edge_time"));
  PF_ASSIGN_OR_RETURN(files.edge_features, FindNpy(source, "edge_feat"));
  PF_ASSIGN_OR_RETURN(files.features, FindNpy(source, "node_feat"));
  PF_ASSIGN_OR_RETURN(files.bfloat16_features, FindNpy(source, "node_feat_bf16"));
  PF_ASSIGN_OR_RETURN(files.sparse_features, FindNpz(source, "node_feat"));
  PF_ASSIGN_OR_RETURN(files.positions, FindNpy(source, "node_pos"));
  PF_ASSIGN_OR_RETURN(files.labels, FindNpy(source, "node_label"));
  PF_ASSIGN_OR_RETURN(files.times, FindNpy(source, "node_time"));
  PF_RETURN_IF_ERROR(CheckAtMostOne({&files.edge_index, &files.adjacency}));
  PF_RETURN_IF_ERROR(CheckAtMostOne({&files.features, &files.bfloat16_features, &files.sparse_features}));
  // If feature_type asks for a type but the features are sparse or missing, fails before the edges are read.
  if (!files.features && !files.bfloat16_features) {
    const FeatureSummary found{.type = files.sparse_features ? DataType::kSparse : DataType::kNone};
    PF_RETURN_IF_ERROR(CheckConverted(options, found));
  }
  for (const auto* file : {&files.edge_weights, &files.edge_times, &files.edge_features}) {
    // These files list values in the order of the edges, and a matrix does not define an order of its edges.
    PF_RETURN_IF_ERROR(CheckAtMostOne({&files.adjacency, file}));
  }
  PF_RETURN_IF_ERROR(FindSplitFiles(source, files));
  PF_ASSIGN_OR_RETURN(files.links, FindLinkFiles(source));
  PF_ASSIGN_OR_RETURN(files.names, FindNameFile(source, "node_ids", "node_names"));
  return files;
}

absl::StatusOr<bool> IsNpy(const fs::path& directory) { return HoldsAny(directory, {"edge_index.npy", "adj.npz"}); }

}  // namespace

Importer NpyImporter() {
  return {.format = ImportFormat::kNpy,
          .known_by = "edge_index.npy or adj.npz",
          .detect = &IsNpy,
          .find = &FindAs<FindNpyFiles, FoundFiles<NpyFiles, NpyImport>>};
}

}  // namespace permafrost::data
