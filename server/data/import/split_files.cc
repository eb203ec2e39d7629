#include "data/import/split_files.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/random.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/source/csv_rows.h"
#include "data/source/npy_array.h"
#include "data/store/other_splits.h"

namespace permafrost::data {
namespace {

// The folder of link splits, below split/ of a source.
constexpr std::string_view kLinkFolder = "links";

constexpr SectionKind kLinkSections[] = {SectionKind::kTrainLinks, SectionKind::kValidLinks, SectionKind::kTestLinks};
constexpr SectionKind kNegativeSections[] = {SectionKind::kTrainLinks, SectionKind::kValidNegatives,
                                             SectionKind::kTestNegatives};
// The most negatives per link. The negatives of one link are held in memory, and more of them would hardly be a
// sample.
constexpr uint64_t kMostNegatives = uint64_t{1} << 20;
constexpr uint64_t kMostRows = std::numeric_limits<uint32_t>::max() - 1;

std::string Stem(std::string_view name) { return absl::StrCat("split/", AbslView(kLinkFolder), "/", AbslView(name)); }

struct NodesDue {
  uint64_t nodes = 0;
  const std::string& why;
  const Renumbering& renumbering;
};

// Writes all elements of the array as a section with `width` columns. The elements are node rows.
absl::Status WriteNodes(NpyArray& array, SectionKind kind, uint64_t width, const NodesDue& due, GraphWriter& writer) {
  constexpr uint64_t kAtOnce = uint64_t{1} << 16;
  PF_RETURN_IF_ERROR(writer.Begin(kind, ElementType::kUint32, static_cast<uint32_t>(width)));
  std::vector<int64_t> values;
  std::vector<NodeId> rows;
  for (uint64_t left = array.header().elements(); left > 0; left -= values.size()) {
    const uint64_t begin = array.position();
    values.resize(std::min(left, kAtOnce));
    PF_RETURN_IF_ERROR(array.ReadIntegers(values));
    rows.clear();
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i] < 0 || static_cast<uint64_t>(values[i]) >= due.nodes) {
        return array.ElementError(begin + i,
                                  absl::StrCat(values[i], " is outside 0..", due.nodes - 1, " (", due.why, ")"));
      }
      rows.push_back(due.renumbering.New(static_cast<NodeId>(values[i])));
    }
    PF_RETURN_IF_ERROR(writer.Append(std::as_bytes(std::span(rows))));
  }
  return array.ExpectEnd();
}

absl::Status WriteNegatives(const SourceFile& file, SectionKind kind, const NodesDue& due, ImportMonitor& monitor,
                            GraphWriter& writer, GivenLinksSummary::Part& part) {
  PF_ASSIGN_OR_RETURN(NpyArray array, NpyArray::Open(file, /*member=*/"", monitor));
  const auto& shape = array.header().shape;
  const auto links = static_cast<uint64_t>(part.links);
  const bool pairs = shape.size() == 2 && shape[1] == 2;
  if (shape.size() != 2 || shape[0] > kMostRows || shape[1] == 0 || shape[1] > kMostNegatives ||
      (!pairs && shape[0] != links)) {
    return array.ShapeError(absl::StrCat("[", links, ", K], K targets of each link's source, K in 1..", kMostNegatives,
                                         " but 2, or [pairs, 2]"));
  }
  if (shape[0] == 0) return array.ExpectEnd();
  (pairs ? part.pairs : part.negatives) = static_cast<int64_t>(shape[pairs ? 0 : 1]);
  return WriteNodes(array, kind, shape[1], due, writer);
}

}  // namespace

int64_t LinkFiles::bytes() const {
  int64_t sum = 0;
  for (const SourceFile& file : links) sum += file.bytes;
  for (const auto& file : negatives) sum += file ? file->bytes : 0;
  return sum;
}

void LinkFiles::AddTo(SourceContents& contents) const {
  for (const SourceFile& file : links) contents.Add(file);
  for (const auto& file : negatives) contents.Add(file);
}

absl::StatusOr<std::optional<LinkFiles>> FindLinkFiles(const std::filesystem::path& source) {
  std::array<std::optional<SourceFile>, 3> links;
  LinkFiles files;
  bool any = false;
  for (const auto& [split, name] : kSplitNames.rows) {
    const auto at = static_cast<size_t>(split);
    PF_ASSIGN_OR_RETURN(links[at], FindNpy(source, Stem(name)));
    any = any || links[at];
    if (split == Split::kTrain) continue;
    PF_ASSIGN_OR_RETURN(files.negatives[at], FindNpy(source, absl::StrCat(Stem(name), "_negatives")));
    any = any || files.negatives[at];
  }
  if (!any) return std::nullopt;
  for (const auto& [split, name] : kSplitNames.rows) {
    auto& file = links[static_cast<size_t>(split)];
    if (!file) {
      return absl::NotFoundError(
          absl::StrCat(Stem(name), ".npy: not found; all of train, valid and test are needed, or none"));
    }
    files.links[static_cast<size_t>(split)] = *std::move(file);
  }
  return files;
}

absl::Status WriteLinks(const LinkFiles& files, uint64_t nodes, const std::string& why, const Renumbering& renumbering,
                        ImportMonitor& monitor, GraphWriter& writer, GraphSummary& summary) {
  const NodesDue due{nodes, why, renumbering};
  summary.links.given = true;
  for (size_t split = 0; split < files.links.size(); ++split) {
    PF_ASSIGN_OR_RETURN(NpyArray array, NpyArray::Open(files.links[split], /*member=*/"", monitor));
    const auto& shape = array.header().shape;
    if (shape.size() != 2 || shape[1] != 2 || shape[0] > kMostRows) {
      return array.ShapeError(absl::StrCat("[links, 2], source and target, of at most ", kMostRows, " links"));
    }
    GivenLinksSummary::Part& part = summary.links.parts[split];
    part.links = static_cast<int64_t>(shape[0]);
    PF_RETURN_IF_ERROR(WriteNodes(array, kLinkSections[split], 2, due, writer));
    if (!files.negatives[split]) continue;
    PF_RETURN_IF_ERROR(WriteNegatives(*files.negatives[split], kNegativeSections[split], due, monitor, writer, part));
  }
  return absl::OkStatus();
}

namespace {

namespace fs = std::filesystem;

absl::StatusOr<bool> HoldsPickles(const fs::path& folder) { return HoldsAny(folder, {"train.pt"}); }

// Returns the names of the split folders. Errors: those of listing split/. If such an error were ignored, a source
// with splits would get a drawn split.
absl::StatusOr<std::vector<std::string>> SplitFolders(const fs::path& source, bool of_links) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(source / "split", error), end; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    PF_ASSIGN_OR_RETURN(const fs::file_type type, TypeOfSource(it->path(), absl::StrCat("split/", name)));
    if (type != fs::file_type::directory || (of_links && name == kLinkFolder)) continue;
    if (of_links) {
      PF_ASSIGN_OR_RETURN(const bool pickles, HoldsPickles(it->path()));
      if (pickles) continue;
    }
    names.push_back(std::move(name));
  }
  PF_RETURN_IF_ERROR(CheckListed(error, "split"));
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

absl::StatusOr<std::optional<SplitFiles>> FindSplit(const fs::path& source, const std::string& wanted, bool or_masks,
                                                    bool of_links) {
  PF_ASSIGN_OR_RETURN(const std::vector<std::string> folders, SplitFolders(source, of_links));
  SplitFiles split{.name = wanted, .files = {}};
  if (wanted.empty()) {
    if (folders.empty()) return std::nullopt;
    if (folders.size() > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("options.split: empty, but the source has several; name one of ", absl::StrJoin(folders, ", ")));
    }
    split.name = folders[0];
  } else if (!std::binary_search(folders.begin(), folders.end(), wanted)) {
    return absl::NotFoundError(absl::StrCat("split/", wanted, ": not found; the source has ",
                                            folders.empty() ? "no split folders" : absl::StrJoin(folders, ", ")));
  }
  if (or_masks) {
    PF_ASSIGN_OR_RETURN(const auto ids, FindSourceFile(source, absl::StrCat("split/", split.name, "/train")));
    PF_ASSIGN_OR_RETURN(const auto mask, FindSourceFile(source, absl::StrCat("split/", split.name, "/train_mask")));
    split.masks = mask && !ids;
  }
  for (const auto& [kind, name] : kSplitNames.rows) {
    const std::string stem = absl::StrCat("split/", split.name, "/", AbslView(name), split.masks ? "_mask" : "");
    PF_ASSIGN_OR_RETURN(auto file, FindSourceFile(source, stem));
    if (!file) {
      PF_ASSIGN_OR_RETURN(const bool pickles, HoldsPickles(source / "split" / split.name));
      return absl::NotFoundError(absl::StrCat(
          stem, ".csv.gz: not found, nor ", stem, ".csv.zst or ", stem, ".csv",
          pickles
              ? "; train.pt beside it is a pickle, which is never read (links: split/links/*.npy are accepted, which "
                "import_pyg of the Python package writes)"
              : ""));
    }
    split.files[static_cast<size_t>(kind)] = *std::move(file);
  }
  return split;
}

absl::StatusOr<SplitGraphs> ReadSplit(const SplitFiles& files, int64_t num_graphs, ImportMonitor& monitor,
                                      std::string_view item) {
  // The place where a graph was seen first: its split, and its row in the file of this split. Row 0 means that the
  // graph was not seen yet.
  struct Place {
    uint32_t split = 0;
    uint32_t row = 0;
  };
  std::vector<Place> places(static_cast<size_t>(num_graphs));
  SplitGraphs out{.name = files.name, .graphs = {}};
  const auto place = [&](const CsvRows& rows, uint32_t split, int64_t graph) {
    Place& at = places[static_cast<size_t>(graph)];
    if (at.row != 0) {
      return rows.Error(item, absl::StrCat(graph, " stands already in ", files.files[at.split].name, ":", at.row));
    }
    at = {split, static_cast<uint32_t>(rows.row())};
    out.graphs[split].push_back(static_cast<uint32_t>(graph));
    return absl::OkStatus();
  };
  for (uint32_t split = 0; split < files.files.size(); ++split) {
    PF_ASSIGN_OR_RETURN(CsvRows rows, CsvRows::Open(files.files[split], monitor));
    if (files.masks) {
      const std::string why = absl::StrCat("one a ", AbslView(item));
      for (int64_t graph = 0; graph < num_graphs; ++graph) {
        PF_ASSIGN_OR_RETURN(const std::string_view line, rows.NextDue(num_graphs, why));
        Cells cells(line);
        std::string_view cell;
        cells.Next(cell);
        if (CountCells(line) != 1 || (cell != "0" && cell != "1")) {
          return rows.Error("mask", absl::StrCat(Quote(line), " is neither 0 nor 1"));
        }
        if (cell == "1") PF_RETURN_IF_ERROR(place(rows, split, graph));
      }
      PF_RETURN_IF_ERROR(rows.ExpectEnd(num_graphs, why));
      continue;
    }
    std::string_view line;
    for (;;) {
      PF_ASSIGN_OR_RETURN(const bool more, rows.Next(line));
      if (!more) break;
      if (const int64_t cells = CountCells(line); cells != 1) {
        return rows.WidthError(cells, 1, absl::StrCat("a ", AbslView(item), " id"));
      }
      Cells cells(line);
      std::string_view cell;
      cells.Next(cell);
      int64_t graph = 0;
      const IntegerCell parsed = ParseInteger(cell, graph);
      if (parsed == IntegerCell::kNotInteger) {
        return rows.Error(item, absl::StrCat(Quote(cell), " is not an integer"));
      }
      if (parsed == IntegerCell::kOutOfRange || graph < 0 || graph >= num_graphs) {
        return rows.Error(item, num_graphs == 0 ? absl::StrCat(Shorten(cell), " cannot be: the set has no graphs")
                                                : absl::StrCat(Shorten(cell), " is outside 0..", num_graphs - 1));
      }
      PF_RETURN_IF_ERROR(place(rows, split, graph));
    }
  }
  return out;
}

SplitGraphs DrawSplit(const ImportOptions& options, int64_t num_graphs) {
  std::vector<uint32_t> ids(static_cast<size_t>(num_graphs));
  std::iota(ids.begin(), ids.end(), 0u);
  SplitMix64 random(options.split_seed, /*stream=*/0);
  Shuffle(std::span(ids), random);
  const auto share = [num_graphs](double fraction) {
    return static_cast<int64_t>(std::llround(fraction * static_cast<double>(num_graphs)));
  };
  const int64_t train = std::min(share(options.train_fraction), num_graphs);
  const int64_t valid = std::min(share(options.valid_fraction), num_graphs - train);
  const auto at = [&ids](int64_t index) { return ids.begin() + index; };
  SplitGraphs out{.name = "random", .graphs = {}};
  out.graphs[0].assign(at(0), at(train));
  out.graphs[1].assign(at(train), at(train + valid));
  out.graphs[2].assign(at(train + valid), ids.end());
  for (auto& graphs : out.graphs) std::sort(graphs.begin(), graphs.end());
  return out;
}

SplitGraphs DrawStratifiedSplit(const ImportOptions& options, std::span<const float> classes) {
  const std::vector<uint32_t> ids = ShuffledByClass(classes, options.split_seed);
  const std::array<double, 3> fractions = {options.train_fraction, options.valid_fraction,
                                           1 - options.train_fraction - options.valid_fraction};
  SplitGraphs out{.name = "random", .graphs = {}};
  double dealt = 0;
  for (const uint32_t graph : ids) {
    ++dealt;
    const auto lack = [&](size_t split) {
      return fractions[split] * dealt - static_cast<double>(out.graphs[split].size());
    };
    size_t to = 0;
    for (size_t split = 1; split < fractions.size(); ++split) {
      if (fractions[split] > 1e-9 && lack(split) > lack(to)) to = split;
    }
    out.graphs[to].push_back(graph);
  }
  for (auto& graphs : out.graphs) std::sort(graphs.begin(), graphs.end());
  return out;
}

}  // namespace permafrost::data
