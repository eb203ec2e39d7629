#include "data/import/tu_files.h"

#include <algorithm>
#include <map>
#include <stop_token>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/source/csv_rows.h"
#include "data/source/import_options.h"
#include "data/source/zip_member.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndicator = "_graph_indicator.txt";

// Files by the path below which messages name them.
using FilesByName = std::map<std::string, SourceFile>;

// macOS puts such a file beside each file of an archive; it is no part of the dataset.
bool IsResourceFork(std::string_view path) {
  const size_t slash = path.rfind('/');
  return path.substr(slash == path.npos ? 0 : slash + 1).starts_with("._");
}

// A member's name may be any bytes.
std::string Shown(std::string_view path) { return absl::CHexEscape(AbslView(path)); }

absl::StatusOr<FilesByName> FilesOfZip(const fs::path& source, const ImportLimits& limits,
                                       std::vector<std::string>& all) {
  const std::string name = source.filename().string();
  PF_ASSIGN_OR_RETURN(const auto archive, FindFileAt(source, name, Packing::kPlain));
  if (!archive) return absl::NotFoundError(absl::StrCat(source.string(), ": not found"));
  const ImportObserver nobody;
  const ImportMonitor monitor(0, nobody, std::stop_token(), limits);
  PF_ASSIGN_OR_RETURN(const auto entries, ListZip(*archive, monitor));
  FilesByName files;
  for (const ZipEntry& entry : entries) {
    if (entry.name.ends_with('/') || IsResourceFork(entry.name)) continue;
    all.push_back(entry.name);
    if (!entry.name.ends_with(".txt")) continue;
    // The archive may say anything of its members.
    const uint64_t packed = std::min(entry.packed, static_cast<uint64_t>(archive->bytes));
    files.emplace(entry.name, SourceFile{.path = source,
                                         .name = Shown(entry.name),
                                         .packing = Packing::kZip,
                                         .bytes = static_cast<int64_t>(packed),
                                         .member = entry.name});
  }
  return files;
}

// Calls `take` with the path of whatever lies in `directory` and its raw/, and its name as messages show it.
template <class F>
absl::Status ForEachEntry(const fs::path& directory, const F& take) {
  for (const char* prefix : {"", "raw/"}) {
    const fs::path folder = *prefix == '\0' ? directory : directory / "raw";
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      PF_RETURN_IF_ERROR(take(it->path(), absl::StrCat(prefix, it->path().filename().string())));
    }
    PF_RETURN_IF_ERROR(CheckListed(error, folder.string()));
  }
  return absl::OkStatus();
}

// Returns the files of `source` that end as a TUDataset's do.
absl::StatusOr<FilesByName> FilesOfDirectory(const fs::path& source) {
  FilesByName files;
  const auto take = [&files](const fs::path& path, const std::string& name) -> absl::Status {
    if (!name.ends_with(".txt") || name.find('_') == name.npos) return absl::OkStatus();
    PF_ASSIGN_OR_RETURN(auto file, FindFileAt(path, name, Packing::kPlain));
    if (file) files.emplace(name, *std::move(file));
    return absl::OkStatus();
  };
  PF_RETURN_IF_ERROR(ForEachEntry(source, take));
  return files;
}

// Finds which files of the set exist.
class Finder {
 public:
  Finder(const fs::path& source, FilesByName files) : source_(source), files_(std::move(files)) {}

  // The path of every file up to "_graph_indicator.txt".
  absl::Status FindName() {
    for (const auto& [path, file] : files_) {
      if (!path.ends_with(kIndicator)) continue;
      if (!stem_.empty()) {
        return absl::InvalidArgumentError(absl::StrCat(source_.string(), ": holds several sets, ", Shown(stem_),
                                                       " and ", Shown(path.substr(0, path.size() - kIndicator.size())),
                                                       "; one is accepted"));
      }
      stem_ = path.substr(0, path.size() - kIndicator.size());
    }
    if (!stem_.empty()) return absl::OkStatus();
    return absl::NotFoundError(
        absl::StrCat(source_.string(), ": holds no NAME_graph_indicator.txt, so it is no TUDataset"));
  }
  std::optional<SourceFile> Take(std::string_view table) {
    const auto found = files_.find(absl::StrCat(stem_, "_", AbslView(table), ".txt"));
    if (found == files_.end()) return std::nullopt;
    return found->second;
  }
  absl::StatusOr<SourceFile> TakeRequired(std::string_view table) {
    if (auto file = Take(table)) return *std::move(file);
    return absl::NotFoundError(
        absl::StrCat(Shown(stem_), "_", AbslView(table), ".txt: not found in ", source_.string()));
  }
  const std::string& stem() const { return stem_; }

 private:
  const fs::path& source_;
  FilesByName files_;
  std::string stem_;
};

// Keeps the node's tables that the options ask for.
absl::Status Choose(const TuOptions& options, TuFiles& files) {
  const auto missing = [&](std::string_view table) {
    return absl::InvalidArgumentError(
        absl::StrCat("options.tu.node_features: ", AbslView(kTuNodeFeaturesNames.Name(options.node_features)),
                     ", but there is no ", files.name, "_node_", AbslView(table), ".txt; all and degree are accepted"));
  };
  switch (options.node_features) {
    case TuNodeFeatures::kAll:
      files.degrees = !files.node.labels && !files.node.attributes;
      break;
    case TuNodeFeatures::kLabels:
      if (!files.node.labels) return missing("labels");
      files.node.attributes.reset();
      break;
    case TuNodeFeatures::kAttributes:
      if (!files.node.attributes) return missing("attributes");
      files.node.labels.reset();
      break;
    case TuNodeFeatures::kDegree:
      files.node = {};
      files.degrees = true;
      break;
  }
  return absl::OkStatus();
}

}  // namespace

int64_t TuFiles::bytes() const {
  int64_t sum = 2 * edges.bytes + graph_of_node.bytes;
  for (const auto* file : {&graph_labels, &graph_attributes, &node.attributes, &edge.attributes}) {
    if (*file) sum += (*file)->bytes;
  }
  for (const auto* file : {&node.labels, &edge.labels}) {
    if (*file) sum += 2 * (*file)->bytes;
  }
  return sum;
}

SourceContents TuFiles::contents(const fs::path& source) const {
  SourceContents contents{.all = std::nullopt, .folder = source, .read = {}, .known = TuNames(stem)};
  if (!all_of_archive.empty()) contents.all = all_of_archive;
  // For an archive the name of the member is listed: `name` has it escaped, as messages show it.
  const auto add = [&contents](const SourceFile& file) {
    contents.read.push_back(file.member.empty() ? file.name : file.member);
  };
  add(edges);
  add(graph_of_node);
  for (const auto* file :
       {&graph_labels, &graph_attributes, &node.labels, &node.attributes, &edge.labels, &edge.attributes}) {
    if (*file) add(**file);
  }
  return contents;
}

absl::StatusOr<TuFiles> FindTuFiles(const ImportOptions& options, const ImportLimits& limits) {
  TuFiles files;
  PF_ASSIGN_OR_RETURN(const fs::file_type type, TypeOfSource(options.source, options.source.string()));
  PF_ASSIGN_OR_RETURN(auto found, type == fs::file_type::directory
                                      ? FilesOfDirectory(options.source)
                                      : FilesOfZip(options.source, limits, files.all_of_archive));
  Finder finder(options.source, std::move(found));
  PF_RETURN_IF_ERROR(finder.FindName());
  files.stem = finder.stem();
  files.name = fs::path(finder.stem()).filename().string();
  PF_ASSIGN_OR_RETURN(files.edges, finder.TakeRequired("A"));
  PF_ASSIGN_OR_RETURN(files.graph_of_node, finder.TakeRequired("graph_indicator"));
  files.graph_attributes = finder.Take("graph_attributes");
  // As PyG reads them: measures of a graph are its targets, and only without them its class is.
  if (!files.graph_attributes) files.graph_labels = finder.Take("graph_labels");
  files.node = {finder.Take("node_labels"), finder.Take("node_attributes")};
  files.edge = {finder.Take("edge_labels"), finder.Take("edge_attributes")};
  PF_RETURN_IF_ERROR(Choose(options.tu, files));
  return files;
}

absl::StatusOr<bool> IsTuDirectory(const fs::path& directory) {
  bool found = false;
  const auto look = [&found](const fs::path&, const std::string& name) {
    found = found || name.ends_with(kIndicator);
    return absl::OkStatus();
  };
  PF_RETURN_IF_ERROR(ForEachEntry(directory, look));
  return found;
}

bool IsZipName(const fs::path& file) { return absl::AsciiStrToLower(file.extension().string()) == ".zip"; }

}  // namespace permafrost::data
