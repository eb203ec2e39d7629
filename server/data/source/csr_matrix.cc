#include "data/source/csr_matrix.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "data/source/csv_rows.h"
#include "data/store/graph.h"

namespace permafrost::data {
namespace {

constexpr size_t kPiece = size_t{1} << 16;

absl::Status CheckFormat(const SourceFile& file, ImportMonitor& monitor) {
  PF_ASSIGN_OR_RETURN(NpyArray format, NpyArray::Open(file, "format", monitor));
  std::array<char, 64> text{};
  const NpyHeader& header = format.header();
  if (header.kind == NpyKind::kBytes && header.shape.empty()) {
    PF_RETURN_IF_ERROR(format.ReadBytes(std::as_writable_bytes(std::span(text)).first(header.item_bytes)));
    const std::string_view is(text.data(),
                              static_cast<size_t>(std::find(text.begin(), text.end(), '\0') - text.begin()));
    if (is == "csr") return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(format.name(), ": is ", Quote(is), ", expected csr (matrix.tocsr())"));
  }
  return format.ShapeError("a text");
}

}  // namespace

absl::StatusOr<CsrMatrix> CsrMatrix::Open(const SourceFile& file, ImportMonitor& monitor) {
  PF_RETURN_IF_ERROR(CheckFormat(file, monitor));
  PF_ASSIGN_OR_RETURN(NpyArray shape, NpyArray::Open(file, "shape", monitor));
  if (shape.header().shape != std::vector<uint64_t>{2}) return shape.ShapeError("2 numbers");
  std::array<int64_t, 2> size{};
  PF_RETURN_IF_ERROR(shape.ReadIntegers(size));
  for (uint64_t d = 0; d < 2; ++d) {
    if (size[d] < 0 || static_cast<uint64_t>(size[d]) > kMaxNodes) {
      return shape.ElementError(d, absl::StrCat(size[d], " is outside 0..", kMaxNodes));
    }
  }
  PF_ASSIGN_OR_RETURN(NpyArray offsets, NpyArray::Open(file, "indptr", monitor));
  PF_ASSIGN_OR_RETURN(NpyArray columns, NpyArray::Open(file, "indices", monitor));
  PF_ASSIGN_OR_RETURN(NpyArray values, NpyArray::Open(file, "data", monitor));
  CsrMatrix matrix(std::move(offsets), std::move(columns), std::move(values));
  matrix.rows_ = static_cast<uint64_t>(size[0]);
  matrix.width_ = static_cast<uint64_t>(size[1]);
  if (matrix.offsets_.header().shape != std::vector<uint64_t>{matrix.rows_ + 1}) {
    return matrix.offsets_.ShapeError(absl::StrCat("[", matrix.rows_ + 1, "], one more than its rows"));
  }
  if (matrix.columns_.header().shape.size() != 1) return matrix.columns_.ShapeError("[entries]");
  matrix.entries_ = matrix.columns_.header().elements();
  if (matrix.values_.header().shape != matrix.columns_.header().shape) {
    return matrix.values_.ShapeError(absl::StrCat("[", matrix.entries_, "], as indices"));
  }
  int64_t first = 0;
  PF_RETURN_IF_ERROR(matrix.offsets_.ReadIntegers(std::span(&first, 1)));
  if (first != 0) return matrix.offsets_.ElementError(0, absl::StrCat(first, ", expected 0"));
  return matrix;
}

absl::Status CsrMatrix::FindRow(uint64_t entry) {
  for (;; ++row_) {
    if (row_ >= ends_begin_ + ends_.size()) {
      ends_begin_ += ends_.size();
      const uint64_t left = rows_ - ends_begin_;
      if (left == 0) {
        return offsets_.ElementError(rows_,
                                     absl::StrCat(last_end_, ", expected ", entries_, ", the number of indices"));
      }
      ends_.resize(static_cast<size_t>(std::min<uint64_t>(kPiece, left)));
      PF_RETURN_IF_ERROR(offsets_.ReadIntegers(ends_));
      for (size_t i = 0; i < ends_.size(); ++i) {
        if (ends_[i] < last_end_ || static_cast<uint64_t>(ends_[i]) > entries_) {
          return offsets_.ElementError(ends_begin_ + i + 1,
                                       absl::StrCat(ends_[i], " is outside ", last_end_, "..", entries_));
        }
        last_end_ = ends_[i];
      }
    }
    if (entry < static_cast<uint64_t>(ends_[row_ - ends_begin_])) return absl::OkStatus();
  }
}

absl::StatusOr<bool> CsrMatrix::Next(std::vector<MatrixEntry>& entries) {
  entries.clear();
  const size_t count = static_cast<size_t>(std::min<uint64_t>(kPiece, entries_ - given_));
  if (count == 0) {
    // The offsets of the rows without entries at the end.
    while (ends_begin_ + ends_.size() < rows_) {
      row_ = ends_begin_ + ends_.size();
      const uint64_t before = ends_begin_ + ends_.size();
      ends_begin_ = before;
      ends_.resize(static_cast<size_t>(std::min<uint64_t>(kPiece, rows_ - before)));
      PF_RETURN_IF_ERROR(offsets_.ReadIntegers(ends_));
      for (size_t i = 0; i < ends_.size(); ++i) {
        if (ends_[i] != static_cast<int64_t>(entries_)) {
          return offsets_.ElementError(before + i + 1, absl::StrCat(ends_[i], ", expected ", entries_));
        }
      }
    }
    PF_RETURN_IF_ERROR(offsets_.ExpectEnd());
    PF_RETURN_IF_ERROR(columns_.ExpectEnd());
    PF_RETURN_IF_ERROR(values_.ExpectEnd());
    return false;
  }
  column_buffer_.resize(count);
  value_buffer_.resize(count);
  PF_RETURN_IF_ERROR(columns_.ReadIntegers(column_buffer_));
  PF_RETURN_IF_ERROR(values_.ReadFloats(value_buffer_));
  entries.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t entry = given_ + i;
    PF_RETURN_IF_ERROR(FindRow(entry));
    if (column_buffer_[i] < 0 || static_cast<uint64_t>(column_buffer_[i]) >= width_) {
      return columns_.ElementError(entry, absl::StrCat(column_buffer_[i], " is outside 0..", width_, " - 1"));
    }
    if (!std::isfinite(value_buffer_[i])) return values_.ElementError(entry, "is not a finite number");
    entries.push_back({static_cast<uint32_t>(row_), static_cast<uint32_t>(column_buffer_[i]), value_buffer_[i]});
  }
  given_ += count;
  return true;
}

void CsrMatrix::Rewind() {
  offsets_.Rewind();
  columns_.Rewind();
  values_.Rewind();
}

}  // namespace permafrost::data
