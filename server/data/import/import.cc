#include "data/import/import.h"

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/source/import_options.h"
#include "data/source/source_file.h"
#include "data/store/graph.h"
#include "data/store/types.h"

namespace permafrost::data {
namespace {

using Endings = std::vector<std::string_view>;

const Endings& OfText() {
  static const auto& endings = *new Endings{".csv", ".csv.gz", ".csv.zst"};
  return endings;
}
const Endings& OfTextOrArray() {
  static const auto& endings = *new Endings{".csv", ".csv.gz", ".csv.zst", ".npy"};
  return endings;
}

void AddNames(std::string_view folder, std::initializer_list<std::string_view> names, const Endings& endings,
              std::vector<KnownName>& known) {
  for (const std::string_view name : names) {
    const std::string stem = absl::StrCat(AbslView(folder), AbslView(name));
    known.push_back({.stem = stem, .endings = endings, .table = stem});
  }
}

void AddSplit(std::string_view split, bool or_masks, std::vector<KnownName>& known) {
  if (split.empty()) return;
  for (const auto& [kind, name] : kSplitNames.rows) {
    const std::string stem = absl::StrCat("split/", AbslView(split), "/", AbslView(name));
    known.push_back({.stem = stem, .endings = OfText(), .table = stem});
    if (or_masks) known.push_back({.stem = absl::StrCat(stem, "_mask"), .endings = OfText(), .table = stem});
  }
}

// Adds the two forms of the table of names: an array of numbers, and text.
void AddNodeNames(std::string_view ids, std::string_view names, std::vector<KnownName>& known) {
  known.push_back({.stem = std::string(ids), .endings = {".npy"}, .table = std::string(names)});
  known.push_back({.stem = std::string(names), .endings = OfText(), .table = std::string(names)});
}

void AddLinks(std::vector<KnownName>& known) {
  AddNames("split/links/", {"train", "valid", "test", "valid_negatives", "test_negatives"}, {".npy"}, known);
}

}  // namespace

std::vector<KnownName> OgbGraphsNames(std::string_view split) {
  std::vector<KnownName> known;
  AddNames("raw/", {"num-node-list", "num-edge-list", "edge", "graph-label", "node-feat", "edge-feat", "node-pos"},
           OfText(), known);
  AddSplit(split, /*or_masks=*/false, known);
  return known;
}

std::vector<KnownName> OgbNodesNames(std::string_view split) {
  std::vector<KnownName> known;
  // Only a set of graphs has raw/graph-label. It is listed so that a misspelt one is refused, and the set is not read
  // as one graph.
  AddNames("raw/", {"num-node-list", "num-edge-list", "edge", "graph-label"}, OfText(), known);
  AddNames("raw/", {"node-feat", "node-pos", "node-label", "edge-weight", "edge-feat"}, OfTextOrArray(), known);
  // Distributed datasets hold the sparse features as text and as an archive, with equal values. The archive is read.
  AddNames("raw/", {"node-feat-sparse"}, OfText(), known);
  known.push_back({.stem = "raw/node-feat-sparse", .endings = {".npz"}, .table = "raw/node-feat-sparse.npz"});
  AddNodeNames("raw/node-ids", "raw/node-names", known);
  AddSplit(split, /*or_masks=*/true, known);
  AddLinks(known);
  return known;
}

std::vector<KnownName> NpyNames() {
  std::vector<KnownName> known;
  AddNames("", {"edge_index", "edge_weight", "edge_time", "edge_feat", "node_label", "node_time", "node_pos"}, {".npy"},
           known);
  AddNames("", {"adj"}, {".npz"}, known);
  AddNodeNames("node_ids", "node_names", known);
  known.push_back({.stem = "node_feat", .endings = {".npy", ".npz"}, .table = "node_feat"});
  known.push_back({.stem = "node_feat_bf16", .endings = {".npy"}, .table = "node_feat"});
  for (const auto& [kind, name] : kSplitNames.rows) {
    for (const std::string_view form : {"_idx", "_mask"}) {
      known.push_back(
          {.stem = absl::StrCat(AbslView(name), AbslView(form)), .endings = {".npy"}, .table = std::string(name)});
    }
  }
  AddLinks(known);
  return known;
}

std::vector<KnownName> TuNames(std::string_view stem) {
  std::vector<KnownName> known;
  // A stem with a dot has no known names, since the text after its dot would be taken for the ending.
  if (stem.find('.', stem.rfind('/') + 1) != stem.npos) return known;
  AddNames(absl::StrCat(AbslView(stem), "_"),
           {"A", "graph_indicator", "graph_labels", "graph_attributes", "node_labels", "node_attributes", "edge_labels",
            "edge_attributes"},
           {".txt"}, known);
  return known;
}

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostNamed = 10;
constexpr size_t kMostNameBytes = 128;
constexpr int kMostEntries = 10'000;
constexpr int kMostDepth = 4;

// Endings of files that are often beside data and are not data.
constexpr std::array<std::string_view, 20> kBesideData = {
    ".md",  ".rst", ".html", ".pdf",  ".png",  ".svg", ".md5", ".sha1", ".sha256", ".sha512",
    ".asc", ".sig", ".log",  ".json", ".yaml", ".yml", ".dvc", ".py",   ".ipynb",  ".license"};

std::string ShownName(std::string_view name) {
  const std::string escaped = absl::Utf8SafeCHexEscape(AbslView(name.substr(0, kMostNameBytes)));
  return name.size() > kMostNameBytes ? absl::StrCat(escaped, "...") : escaped;
}

// The parts of a path below the source. The ending begins at the first dot of the file's name.
struct NameParts {
  std::string_view folder, stem, ending;  // "raw/", "node-feat", ".csv.gz"
};
NameParts PartsOf(std::string_view path) {
  const size_t slash = path.rfind('/');
  const size_t begin = slash == path.npos ? 0 : slash + 1;
  const size_t dot = std::min(path.find('.', begin), path.size());
  return {path.substr(0, begin), path.substr(begin, dot - begin), path.substr(dot)};
}

// Returns the words of a file's stem in lower case. Words are divided by '-', '_' or ' '.
std::vector<std::string> WordsOf(std::string_view stem) {
  std::vector<std::string> words =
      absl::StrSplit(absl::AsciiStrToLower(AbslView(stem)), absl::ByAnyChar("-_ "), absl::SkipEmpty());
  for (std::string& word : words) {
    if (word == "features" || word == "feature") word = "feat";
  }
  return words;
}

// Returns the number of edits between two words. An edit inserts, drops or replaces a letter, or swaps two adjacent
// letters.
size_t EditsBetween(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before_last.swap(last);
    last.swap(row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
  }
  return row[b.size()];
}

// A short word may have fewer edits, since two edits turn "feat" into "year" and "time" into "type".
size_t EditsAllowed(size_t letters) { return letters < 3 ? 0 : letters < 5 ? 1 : 2; }

bool IsMisspelt(const std::vector<std::string>& words, const std::vector<std::string>& known) {
  if (words.size() != known.size()) return false;
  size_t sum = 0;
  for (size_t w = 0; w < words.size(); ++w) {
    const size_t edits = EditsBetween(words[w], known[w]);
    if (edits > EditsAllowed(known[w].size())) return false;
    sum += edits;
  }
  return sum <= 2;
}

class UnreadFiles {
 public:
  explicit UnreadFiles(const SourceContents& contents)
      : contents_(contents), read_(contents.read.begin(), contents.read.end()) {}

  // Returns Ok if the import may ignore the file.
  absl::Status Check(const std::string& path) const {
    const NameParts parts = PartsOf(path);
    const std::string ending = absl::AsciiStrToLower(AbslView(parts.ending));
    const size_t dot = ending.rfind('.');
    const std::string_view last = dot == ending.npos ? std::string_view() : std::string_view(ending).substr(dot);
    if (std::ranges::find(kBesideData, last) != kBesideData.end() || path.ends_with('~')) return absl::OkStatus();
    for (const KnownName& known : contents_.known) {
      if (!IsExact(parts, known)) continue;
      const std::string read = ReadOf(known.table);
      // If no file of this table is read, the options leave the table out.
      return read.empty() ? absl::OkStatus() : SecondForm(path, read);
    }
    const std::vector<std::string> words = WordsOf(parts.stem);
    // Known names with the same words are checked first, since the file's name may also be within two edits of
    // another known name.
    for (const KnownName& known : contents_.known) {
      if (const absl::Status status = CheckSame(path, parts, words, known); !status.ok()) return status;
    }
    for (const KnownName& known : contents_.known) {
      const NameParts of_known = PartsOf(known.stem);
      if (parts.folder != of_known.folder || !ReadOf(known.table).empty()) continue;
      if (IsMisspelt(words, WordsOf(of_known.stem))) return WrongName(path, ending, known);
    }
    return absl::OkStatus();
  }

 private:
  // Checks a file against a known name. Returns Ok if the words of the two names differ.
  absl::Status CheckSame(const std::string& path, const NameParts& parts, const std::vector<std::string>& words,
                         const KnownName& known) const {
    const NameParts of_known = PartsOf(known.stem);
    if (absl::StrJoin(words, "") != absl::StrJoin(WordsOf(of_known.stem), "")) return absl::OkStatus();
    const std::string read = ReadOf(known.table);
    const bool has_ending = std::ranges::find(known.endings, parts.ending) != known.endings.end();
    if (parts.folder != of_known.folder) {
      const bool misplaced =
          (parts.folder.empty() || parts.folder == "raw/") && parts.stem == of_known.stem && has_ending && read.empty();
      return misplaced ? WrongName(path, parts.ending, known) : absl::OkStatus();
    }
    return read.empty() ? WrongName(path, absl::AsciiStrToLower(AbslView(parts.ending)), known)
                        : SecondForm(path, read);
  }

  static bool IsExact(const NameParts& parts, const KnownName& known) {
    const NameParts of_known = PartsOf(known.stem);
    return parts.folder == of_known.folder && parts.stem == of_known.stem &&
           std::ranges::find(known.endings, parts.ending) != known.endings.end();
  }

  static absl::Status SecondForm(const std::string& path, const std::string& read) {
    return absl::InvalidArgumentError(
        absl::StrCat(ShownName(path), ": stands beside ", ShownName(read), ", which is read; one of them is accepted"));
  }

  // Returns the name of a file of the table that is read, or an empty string if none is read.
  std::string ReadOf(const std::string& table) const {
    for (const KnownName& known : contents_.known) {
      if (known.table != table) continue;
      for (const std::string_view ending : known.endings) {
        const std::string name = absl::StrCat(known.stem, AbslView(ending));
        if (read_.contains(name)) return name;
      }
    }
    return "";
  }

  static absl::Status WrongName(const std::string& path, std::string_view ending, const KnownName& known) {
    const bool has_ending = std::ranges::find(known.endings, ending) != known.endings.end();
    std::string accepted = absl::StrCat(known.stem, AbslView(has_ending ? ending : known.endings.front()));
    if (!has_ending) {
      for (const std::string_view other : known.endings) {
        if (other != known.endings.front()) absl::StrAppend(&accepted, ", ", known.stem, AbslView(other));
      }
    }
    return absl::InvalidArgumentError(absl::StrCat(ShownName(path), ": no file of this name is read; accepted: ",
                                                   ShownName(accepted), ", or a source without it"));
  }

  const SourceContents& contents_;
  const std::set<std::string> read_;
};

// Returns the files below the folder. Sets `cut` if the list is incomplete: the folder holds too many entries, or the
// system failed to list the rest.
std::vector<std::string> ListFiles(const fs::path& folder, bool& cut) {
  std::vector<std::string> names;
  std::error_code error;
  int entries = 0;
  for (fs::recursive_directory_iterator it(folder, fs::directory_options::skip_permission_denied, error), end;
       !error && it != end; it.increment(error)) {
    if (++entries > kMostEntries) {
      cut = true;
      break;
    }
    const std::string name = it->path().filename().string();
    std::error_code no_type;
    if (name.starts_with('.') || name == "__MACOSX" || it.depth() >= kMostDepth) {
      it.disable_recursion_pending();
      continue;
    }
    if (!it->is_directory(no_type)) names.push_back(it->path().lexically_relative(folder).generic_string());
  }
  cut = cut || error;
  return names;
}

}  // namespace

absl::Status TellUnreadFiles(const SourceContents& contents, ImportMonitor& monitor) {
  if (!contents.all && contents.folder.empty()) return absl::OkStatus();
  bool cut = false;
  std::vector<std::string> names = contents.all ? *contents.all : ListFiles(contents.folder, cut);
  std::ranges::sort(names);
  const std::set<std::string> read(contents.read.begin(), contents.read.end());
  std::erase_if(names, [&read](const std::string& name) { return read.contains(name); });
  const UnreadFiles unread(contents);
  for (const std::string& name : names) PF_RETURN_IF_ERROR(unread.Check(name));
  if (names.empty()) return absl::OkStatus();
  std::string line = "files that were not read: ";
  for (size_t i = 0; i < std::min(names.size(), kMostNamed); ++i) {
    absl::StrAppend(&line, i == 0 ? "" : ", ", ShownName(names[i]));
  }
  if (names.size() > kMostNamed) {
    absl::StrAppend(&line, " and ", names.size() - kMostNamed, cut ? " or more" : "", " others");
  } else if (cut) {
    absl::StrAppend(&line, " and others");
  }
  monitor.Note(std::move(line));
  return absl::OkStatus();
}

namespace {

// The options of an import allow as many rows as a store can hold.
static_assert(spec::kMostRows == kMaxNodes);

// All formats, in the order in which kAuto tests a directory.
const auto& Importers() {
  static const std::array kImporters = {OgbGraphsImporter(), OgbNodesImporter(), NpyImporter(),
                                        TuImporter(),        StoreImporter(),    EdgeListImporter()};
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
    // A source that cannot be looked at may be of this format. So the error is returned, and no other format is
    // tried.
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
  // This call records that the categories of the graph are known, even if there are none. Graphs of older versions
  // lack this record.
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
