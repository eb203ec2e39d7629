#include "fuzz_import.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stop_token>
#include <variant>

#include "data/import/import.h"
#include "data/store/graph.h"
#include "data/store/graph_set.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;

// Returns one directory per process, in memory if there is such a file system.
fs::path Root() {
  static const fs::path root = [] {
    const fs::path parent = fs::exists("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path();
    fs::path made = parent / ("permafrost-fuzz." + std::to_string(getpid()));
    fs::create_directories(made);
    return made;
  }();
  return root;
}

}  // namespace

FuzzFiles Parted(const FuzzFiles& good, std::string rest, bool packed) {
  FuzzFiles files;
  for (const auto& [name, bytes] : good) {
    const size_t stop = rest.find('\x01');
    const std::string part = rest.substr(0, stop);
    rest = stop == rest.npos ? "" : rest.substr(stop + 1);
    if (part == "-") continue;
    files.emplace_back(packed && !part.empty() ? name + ".gz" : name, part.empty() ? bytes : part);
  }
  return files;
}

void FuzzImport(const FuzzFiles& files, const std::string& source, ImportOptions options) {
  const fs::path directory = Root() / "source", store = Root() / "store";
  fs::remove_all(directory);
  fs::remove_all(store);
  fs::create_directories(store);
  for (const auto& [name, bytes] : files) {
    fs::create_directories((directory / name).parent_path());
    std::ofstream(directory / name, std::ios::binary) << bytes;
  }
  options.source = source.empty() ? directory : directory / source;
  // Small enough that an input of a few bytes cannot cause minutes of work.
  const ImportLimits limits{.memory_bytes = uint64_t{16} << 20};
  const absl::Status accepted = CheckImportOptions(options);
  const absl::StatusOr<ImportedSummary> imported =
      accepted.ok() ? Import(options, store, /*observer=*/{}, std::stop_token(), limits) : accepted;
  if (!imported.ok()) {
    const std::string message(imported.status().message());
    Check(!message.empty() && message.find('\n') == message.npos, "not one line: " + message);
    Check(imported.status().code() != absl::StatusCode::kInternal, "internal: " + message);
    return;
  }
  const auto whole_store = [](uint64_t, uint64_t) { return true; };
  if (const auto* set_summary = std::get_if<GraphSetSummary>(&*imported)) {
    const auto set = GraphSet::Open(store);
    Check(set.ok(), "not opened: " + set.status().ToString());
    const absl::Status verified = (*set)->VerifyAll(whole_store);
    Check(verified.ok(), "not whole: " + verified.ToString());
    Check((*set)->summary().all.edges == set_summary->all.edges, "another summary");
    return;
  }
  const auto& summary = std::get<GraphSummary>(*imported);
  const auto graph = Graph::Open(store);
  Check(graph.ok(), "not opened: " + graph.status().ToString());
  const absl::Status whole = (*graph)->VerifyAll(whole_store);
  Check(whole.ok(), "not whole: " + whole.ToString());
  Check((*graph)->summary().edges == summary.edges && (*graph)->summary().nodes == summary.nodes, "another summary");
}

}  // namespace permafrost::data
