#include "data/source/line_blocks.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace permafrost::data {
namespace {

int64_t CountLines(std::string_view text) { return std::count(text.begin(), text.end(), '\n'); }

}  // namespace

absl::StatusOr<LineBlocks> LineBlocks::Open(const SourceFile& file, size_t block_bytes, ImportMonitor& monitor) {
  PF_ASSIGN_OR_RETURN(auto reader, SourceReader::OpenText(file, monitor));
  return LineBlocks(file.name, block_bytes, std::move(reader));
}

absl::Status LineBlocks::Fill() {
  while (!ended_ && filled_ + 1 < capacity_) {  // a place is kept for the last newline
    const auto read = reader_->Read(buffer_.get() + filled_, capacity_ - filled_ - 1);
    if (!read.ok()) {
      const int64_t line = lines_before_ + CountLines(std::string_view(buffer_.get(), filled_)) + 1;
      return Annotate(read.status(), absl::StrCat(name_, ":", line));
    }
    filled_ += *read;
    ended_ = *read == 0;
  }
  if (ended_ && filled_ > 0 && buffer_[filled_ - 1] != '\n') buffer_[filled_++] = '\n';
  return absl::OkStatus();
}

absl::StatusOr<std::string_view> LineBlocks::Next() {
  if (capacity_ == 0) {
    capacity_ = block_bytes_;
    buffer_ = std::make_unique_for_overwrite<char[]>(capacity_);
  }
  lines_before_ += CountLines(std::string_view(buffer_.get(), given_));
  filled_ -= given_;
  std::memmove(buffer_.get(), buffer_.get() + std::exchange(given_, 0), filled_);
  for (;;) {
    PF_RETURN_IF_ERROR(Fill());
    const std::string_view text(buffer_.get(), filled_);
    const size_t newline = text.rfind('\n');
    if (newline != text.npos) {
      given_ = newline + 1;
      return text.substr(0, given_);
    }
    if (filled_ == 0) return std::string_view();
    if (filled_ > kMaxLineBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(name_, ":", lines_before_ + 1, ": the line is longer than ", kMaxLineBytes, " bytes"));
    }
    auto larger = std::make_unique_for_overwrite<char[]>(2 * capacity_);
    std::memcpy(larger.get(), buffer_.get(), filled_);
    buffer_ = std::move(larger);
    capacity_ *= 2;
  }
}

}  // namespace permafrost::data
