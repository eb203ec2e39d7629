#include "api/export_stream.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace permafrost::api {
namespace {

constexpr uint64_t kPieceBytes = 64 << 10;

}  // namespace

absl::StatusOr<std::unique_ptr<ExportStream>> ExportStream::Open(const std::filesystem::path& path) {
  PF_ASSIGN_OR_RETURN(std::unique_ptr<MappedFile> file, MappedFile::Open(path, MappedFile::Access::kTransfer));
  return std::unique_ptr<ExportStream>(new ExportStream(std::move(file)));
}

absl::StatusOr<Pull> ExportStream::Next(v1::ExportJobResponse& response) {
  const uint64_t bytes = std::min(kPieceBytes, file_->size() - offset_);
  if (bytes > 0) {
    response.set_data(file_->data() + offset_, bytes);
    PF_RETURN_IF_ERROR(file_->CheckIntact());
    hash_.Update(response.data().data(), bytes);
  }
  offset_ += bytes;
  response.set_total_bytes(static_cast<int64_t>(file_->size()));
  if (offset_ < file_->size()) return Pull::kMore;
  response.set_xxh3(HashHex(hash_.Digest()));
  return Pull::kLast;
}

}  // namespace permafrost::api
