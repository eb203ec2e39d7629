#include "data/import/row_spool.h"

#include <algorithm>
#include <cstring>

#include "base/status.h"

namespace permafrost::data {
namespace {

constexpr uint64_t kSpoolPieceBytes = uint64_t{1} << 20;

}  // namespace

absl::StatusOr<RowSpool> RowSpool::Create(RowSpoolOptions options, const Renumbering& renumbering,
                                          std::stop_token stop) {
  PF_ASSIGN_OR_RETURN(NamelessFile file, NamelessFile::Create(options.directory));
  return RowSpool(std::move(options), renumbering, std::move(stop), std::move(file));
}

RowSpool::RowSpool(RowSpoolOptions options, const Renumbering& renumbering, std::stop_token stop, NamelessFile file)
    : options_(std::move(options)), renumbering_(&renumbering), stop_(std::move(stop)), file_(std::move(file)) {
  if (renumbering.none()) return;
  const uint64_t half = options_.memory_bytes / 2;
  rows_of_part_ = std::clamp<uint64_t>(half / options_.row_bytes, 1, std::max<uint64_t>(options_.rows, 1));
  parts_.resize((options_.rows + rows_of_part_ - 1) / rows_of_part_);
  buffer_bytes_ = std::min(kSpoolPieceBytes, half / std::max<size_t>(parts_.size(), 1));
}

absl::Status RowSpool::Append(std::span<const std::byte> rows) {
  if (parts_.empty()) return file_.Append(rows, stop_);
  for (; !rows.empty(); rows = rows.subspan(options_.row_bytes)) {
    const NodeId row = renumbering_->New(static_cast<NodeId>(appended_++));
    const size_t part = row / rows_of_part_;
    std::vector<std::byte>& buffer = parts_[part].buffer;
    if (buffer.capacity() == 0) buffer.reserve(std::max(buffer_bytes_, record_bytes()));
    const auto number = std::as_bytes(std::span(&row, 1));
    buffer.insert(buffer.end(), number.begin(), number.end());
    buffer.insert(buffer.end(), rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(options_.row_bytes));
    if (buffer.size() + record_bytes() > buffer_bytes_) PF_RETURN_IF_ERROR(Flush(part));
  }
  return absl::OkStatus();
}

absl::Status RowSpool::Flush(size_t part) {
  Part& p = parts_[part];
  const uint64_t begin = part * rows_of_part_ * record_bytes();
  PF_RETURN_IF_ERROR(file_.Write(begin + p.written, p.buffer, stop_));
  p.written += p.buffer.size();
  p.buffer.clear();
  return absl::OkStatus();
}

absl::Status RowSpool::Drain(const std::function<absl::Status(std::span<const std::byte> rows)>& take) {
  std::vector<std::byte> rows;
  if (parts_.empty()) {
    const uint64_t most = std::max<uint64_t>(1, kSpoolPieceBytes / options_.row_bytes) * options_.row_bytes;
    for (uint64_t at = 0; at < file_.size(); at += rows.size()) {
      PF_RETURN_IF_ERROR(CheckStop(stop_));
      rows.resize(std::min(most, file_.size() - at));
      PF_RETURN_IF_ERROR(file_.Read(at, rows));
      PF_RETURN_IF_ERROR(take(rows));
    }
    return absl::OkStatus();
  }
  for (size_t part = 0; part < parts_.size(); ++part) PF_RETURN_IF_ERROR(Flush(part));
  for (Part& part : parts_) std::vector<std::byte>().swap(part.buffer);
  for (size_t part = 0; part < parts_.size(); ++part) {
    PF_RETURN_IF_ERROR(DrainPart(part, rows));
    PF_RETURN_IF_ERROR(take(rows));
  }
  return absl::OkStatus();
}

absl::Status RowSpool::DrainPart(size_t part, std::vector<std::byte>& rows) {
  const uint64_t first = part * rows_of_part_, row_bytes = options_.row_bytes;
  rows.resize(std::min(rows_of_part_, options_.rows - first) * row_bytes);
  if (parts_[part].written != rows.size() / row_bytes * record_bytes()) {
    return absl::InternalError("the import lost rows on their way to their places");
  }
  const uint64_t most = std::max<uint64_t>(1, kSpoolPieceBytes / record_bytes()) * record_bytes();
  std::vector<std::byte> records;
  for (uint64_t at = 0; at < parts_[part].written; at += records.size()) {
    PF_RETURN_IF_ERROR(CheckStop(stop_));
    records.resize(std::min(most, parts_[part].written - at));
    PF_RETURN_IF_ERROR(file_.Read(first * record_bytes() + at, records));
    for (uint64_t r = 0; r < records.size(); r += record_bytes()) {
      NodeId row;
      std::memcpy(&row, records.data() + r, sizeof(row));
      std::memcpy(rows.data() + (row - first) * row_bytes, records.data() + r + sizeof(row), row_bytes);
    }
  }
  return absl::OkStatus();
}

}  // namespace permafrost::data
