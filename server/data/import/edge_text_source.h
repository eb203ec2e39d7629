// Edges of a text file, parsed a block of lines at a time on all threads.
// Threads: one at a time. Memory: BlockBytes() of text and what it parses to.
// Borrows dialect, tables and monitor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/import/edge_lines.h"
#include "data/import/graph_edges.h"
#include "data/import/node_ids.h"
#include "data/source/source_file.h"

namespace permafrost::data {

// A text file as blocks of whole lines, for those who take many lines at once.
// Threads: one at a time. Memory: a block, or the longest line.
class LineBlocks {
 public:
  static absl::StatusOr<LineBlocks> Open(const SourceFile& file, size_t block_bytes, ImportMonitor& monitor);

  // The next lines; each ends with '\n', which is added where the file's last one lacks it. Empty at the end. Valid
  // until the next call. Errors name the file, and the line that could not be read.
  absl::StatusOr<std::string_view> Next();
  // Lines before the block given out last.
  int64_t lines_before() const { return lines_before_; }
  const std::string& name() const { return name_; }
  // Tells the monitor that the file will be read again from its beginning.
  void Rewind() { reader_->Rewind(); }

 private:
  LineBlocks(std::string name, size_t block_bytes, std::unique_ptr<SourceReader> reader)
      : name_(std::move(name)), block_bytes_(block_bytes), reader_(std::move(reader)) {}
  // Reads until the buffer is full or the file at its end.
  absl::Status Fill();

  std::string name_;
  size_t block_bytes_;
  std::unique_ptr<SourceReader> reader_;
  std::unique_ptr<char[]> buffer_;
  size_t capacity_ = 0, filled_ = 0;
  size_t given_ = 0;  // of the buffer, by the last call
  bool ended_ = false;
  int64_t lines_before_ = 0;
};

// Bytes of text that are read at once if an import may take `memory_bytes` and makes a record of each line.
size_t EdgeBlockBytes(uint64_t memory_bytes, size_t record_bytes);

// Finds how the file is to be read from its first lines, and reads them only.
absl::StatusOr<EdgeDialect> FindFileDialect(const SourceFile& file, const EdgeListOptions& options,
                                            ImportMonitor& monitor);

struct EdgeTextInput {
  const SourceFile& file;
  const EdgeDialect& dialect;
  uint64_t memory_bytes = 0;             // for blocks, and at most as much for the tables
  const NumberTable* numbers = nullptr;  // NodeIds::kNumbers
  TextTable* texts = nullptr;            // NodeIds::kText: grows
};

// Every number that the file calls a node by, into `table`. Errors: ResourceExhausted where they do not fit.
absl::Status CollectNumbers(const EdgeTextInput& input, NumberTable& table, ImportMonitor& monitor);

template <class Record>
class EdgeTextSource final : public EdgeSource<Record> {
 public:
  static absl::StatusOr<EdgeTextSource> Open(const EdgeTextInput& input, ImportMonitor& monitor);
  absl::StatusOr<bool> Next(std::vector<Record>& edges) override;
  // Edges given out so far.
  uint64_t count() const { return count_; }
  // Comments passed over so far.
  int64_t comments() const { return comments_; }

 private:
  EdgeTextSource(const EdgeTextInput& input, LineBlocks blocks, int threads)
      : input_(input), blocks_(std::move(blocks)), threads_(threads) {}
  absl::Status Parse(std::string_view text, std::vector<Record>& edges);
  Record ToRecord(const EdgeLine& line, NodeId source, NodeId target) const;

  EdgeTextInput input_;
  LineBlocks blocks_;
  int threads_;
  bool header_passed_ = false;
  std::vector<std::vector<Record>> pieces_;
  uint64_t count_ = 0;
  int64_t comments_ = 0;
};

extern template class EdgeTextSource<PlainEdge>;
extern template class EdgeTextSource<WeightedEdge>;
extern template class EdgeTextSource<FullEdge>;

}  // namespace permafrost::data
