#include "data/import/tu_rows.h"

#include "base/status.h"

namespace permafrost::data {

absl::Status TuRows::Keep(int64_t rows) {
  constexpr size_t kBufferBytes = size_t{1} << 19;
  PF_ASSIGN_OR_RETURN(NamelessFile file, NamelessFile::Create(directory_));
  std::vector<std::byte> buffer;
  for (int64_t row = 0; row < rows; ++row) {
    PF_RETURN_IF_ERROR(features_.Next());
    buffer.insert(buffer.end(), features_.row().begin(), features_.row().end());
    if (buffer.size() < kBufferBytes) continue;
    PF_RETURN_IF_ERROR(file.Append(buffer, monitor_.stop()));
    buffer.clear();
  }
  PF_RETURN_IF_ERROR(file.Append(buffer, monitor_.stop()));
  row_.resize(features_.row().size());
  file_ = std::make_unique<NamelessFile>(std::move(file));
  return absl::OkStatus();
}

absl::Status TuRows::Read(uint64_t row) { return file_ ? file_->Read(row * row_.size(), row_) : features_.Next(); }

}  // namespace permafrost::data
