// A text file as blocks of whole lines, for those who take many lines at once.
// Threads: one at a time. Memory: a block, or the longest line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "data/source/source_file.h"

namespace permafrost::data {

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

}  // namespace permafrost::data
