// The progress that an import tells, and the limits of what it may take. Its options: spec/import_options.h.
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

// Called often, on the importing thread; must not block.
using ImportObserver = std::function<void(const ImportProgress&)>;

// A quarter of the memory that this process may use (base/resources.h).
inline uint64_t DefaultImportMemory() { return MemoryLimit() / 4; }

// The limits of what an import may take, whatever its source says: a small gzip can hold billions of rows.
struct ImportLimits {
  // Many small graphs: bytes of memory that each of these may take: what is kept for every graph, the edges of one
  // graph, their features. One large graph: bytes for sorting and buffers in all.
  // Larger: larger sets can be imported, and a hostile one takes more from the rest of the machine.
  uint64_t memory_bytes = DefaultImportMemory();
  // A packed file (gzip, zstd, a member of a ZIP or NPZ) may unpack to `harmless_unpacked_bytes`, or to
  // `most_expansion` times its packed bytes where that is more. Tables pack 2 to 20 times, a column of one value a
  // thousand times, and of such 200 million rows are harmless still. Larger: a hostile file keeps an import busy for
  // longer.
  uint64_t harmless_unpacked_bytes = uint64_t{1} << 30;
  uint64_t most_expansion = 200;
  // Threads that parse and sort the edges of one large graph, >= 1. The store is the same whatever their number.
  int threads = AvailableCores();
  // Ok if a source file may be read that, now open, turns out to lie at this path, links resolved. Errors end the
  // import, after the file's name: a refusal for good; a transient one (base/status.h), if that cannot be told just
  // now, until it is tried again. Empty: any file may be read. It is asked after opening, so that a link moved since an
  // earlier check cannot lead elsewhere. It is not asked if the system does not tell the path (no /proc).
  std::function<absl::Status(const std::filesystem::path&)> may_read;
  // A folder, resolved, of files that the server itself keeps and no more writes to once an import reads them. A file
  // there that is taken over as it is may be linked instead of copied. Empty: there is none.
  std::filesystem::path own_files;
};

// The parts of one import report its progress and its notes to a monitor. They obey the wish to stop it and its limits,
// which the monitor tells them.
// Threads: the importing thread. Borrows the observer and the limits.

// Bytes of a note, or of the error of an import, that are kept: whatever a source holds, a line stays one that can be
// read.
inline constexpr std::size_t kMaxMessageBytes = 2048;

class ImportMonitor {
 public:
  ImportMonitor(int64_t bytes_total, const ImportObserver& observer, std::stop_token stop, const ImportLimits& limits)
      : observer_(observer), stop_(std::move(stop)), limits_(limits) {
    progress_.bytes_total = bytes_total;
  }
  // `bytes` of `file` were read; negative when it is begun anew. Cancelled once the import shall stop.
  absl::Status Advance(const std::string& file, int64_t bytes) {
    progress_.current_file = file;
    progress_.bytes_read += bytes;
    if (observer_) observer_(progress_);
    return CheckStop();
  }
  // Tells the user a line about how the source was read; it stays with the dataset. Bytes that are no UTF-8 are
  // replaced when it is shown, and a long one is cut. The same line is told once.
  void Note(std::string line) {
    line = CutMessage(line, kMaxMessageBytes);
    if (std::ranges::find(notes_, line) == notes_.end()) notes_.push_back(std::move(line));
  }
  // The notes, in the order in which they were told.
  const std::vector<std::string>& notes() const { return notes_; }
  // Cancelled once the import shall stop.
  absl::Status CheckStop() const { return permafrost::CheckStop(stop_); }
  // For the writers, which report no progress of their own.
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
