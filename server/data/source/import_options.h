// The progress that an import reports, and limits on what it may use. The import's options are in
// spec/import_options.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/monotonic.h"
#include "base/resources.h"
#include "base/text.h"
#include "spec/import_options.h"

namespace permafrost::data {

using spec::CheckImportOptions;
using spec::EdgeColumn;
using spec::EdgeListOptions;
using spec::FeatureType;
using spec::Header;
using spec::ImportFormat;
using spec::ImportOptions;
using spec::InverseEdges;
using spec::kEdgeColumnNames;
using spec::kFeatureTypeNames;
using spec::kHeaderNames;
using spec::kImportFormatNames;
using spec::kInverseEdgesNames;
using spec::kNodeFeatureChoiceNames;
using spec::kNodeIdsNames;
using spec::kTuNodeFeaturesNames;
using spec::NodeFeatureChoice;
using spec::NodeIds;
using spec::TuNodeFeatures;
using spec::TuOptions;

struct ImportProgress {
  std::string current_file;
  int64_t bytes_read = 0;
  int64_t bytes_total = 0;
};

// Called often, on the importing thread. Must not block.
using ImportObserver = std::function<void(const ImportProgress&)>;

// A quarter of the memory that this process may use (base/resources.h).
inline uint64_t DefaultImportMemory() { return MemoryLimit() / 4; }

// Limits on what an import may use, whatever its source contains. A small gzip file can hold billions of rows.
struct ImportLimits {
  // The most memory, in bytes. For a set of small graphs, three things may each take this much: the data about all
  // graphs, the edges of one graph, and the edge features of one graph. For one large graph, the limit is on the
  // total for sorting and buffers. A larger value allows larger sets, and lets a hostile source take more memory from
  // the rest of the machine.
  uint64_t memory_bytes = DefaultImportMemory();
  // A packed file (gzip, zstd, a member of a ZIP or NPZ archive) may unpack to the larger of
  // `harmless_unpacked_bytes` and `most_expansion` times its packed size. Tables usually unpack to 2 to 20 times
  // their packed size, and a column of one repeated value to a thousand times. The default of
  // `harmless_unpacked_bytes` admits 200 million short rows of such a column. A larger value lets a hostile file keep
  // an import busy for longer.
  uint64_t harmless_unpacked_bytes = uint64_t{1} << 30;
  uint64_t most_expansion = 200;
  // The number of threads that parse and sort the edges of one large graph, at least 1. The resulting store does not
  // depend on this number.
  int threads = AvailableCores();
  // Returns Ok if a source file may be read. The import calls this function after opening the file, with the path of
  // the opened file, links resolved. So a link that was moved after an earlier check cannot lead elsewhere. An error
  // ends the import; the file's name is put before the error's message. A transient error (base/status.h) means that
  // the answer is unknown for now and the import may be tried again. If the function is empty, any file may be read.
  // The function is not called if the system does not tell the path (no /proc).
  std::function<absl::Status(const std::filesystem::path&)> may_read;
  // A folder of the server's own files, links resolved. Once an import reads a file in this folder, the server no
  // longer writes to that file. So an import that keeps the file unchanged may link it instead of copying it. An
  // empty path means that there is no such folder.
  std::filesystem::path own_files;
};

// The parts of one import report progress and notes to its monitor. From the monitor, they learn the import's limits
// and when to stop.
// Threads: the importing thread. Borrows the observer and the limits.

// The most bytes of a note or of an import's error. Longer texts are cut, so that a line stays readable whatever the
// source holds.
inline constexpr std::size_t kMaxMessageBytes = 2048;

class ImportMonitor {
 public:
  ImportMonitor(int64_t bytes_total, const ImportObserver& observer, std::stop_token stop, const ImportLimits& limits)
      : observer_(observer), stop_(std::move(stop)), limits_(limits) {
    progress_.bytes_total = bytes_total;
  }
  // Reports that `bytes` of `file` were read. A negative number takes back progress when a file is read again from
  // its beginning. Returns Cancelled once the import shall stop.
  absl::Status Advance(const std::string& file, int64_t bytes) {
    progress_.current_file = file;
    progress_.bytes_read += bytes;
    if (observer_) observer_(progress_);
    return CheckStop();
  }
  // Records a line for the user about how the source was read. It is stored with the dataset. A line longer than
  // kMaxMessageBytes is cut. Invalid UTF-8 is replaced when the note is shown. A repeated line is recorded once.
  void Note(std::string line) {
    line = CutMessage(line, kMaxMessageBytes);
    if (std::ranges::find(notes_, line) == notes_.end()) notes_.push_back(std::move(line));
  }
  // Returns the notes in the order in which they were recorded.
  const std::vector<std::string>& notes() const { return notes_; }
  // Returns Cancelled once the import shall stop.
  absl::Status CheckStop() const { return permafrost::CheckStop(stop_); }
  // Returns the stop token, for the writers of the store, which report no progress themselves.
  const std::stop_token& stop() const { return stop_; }
  const ImportLimits& limits() const { return limits_; }

 private:
  ImportProgress progress_;
  std::vector<std::string> notes_;
  const ImportObserver& observer_;
  std::stop_token stop_;
  const ImportLimits& limits_;
};

}  // namespace permafrost::data
