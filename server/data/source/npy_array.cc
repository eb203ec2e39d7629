#include "data/source/npy_array.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/source/csv_rows.h"
#include "data/store/float_conversion.h"
#include "data/store/graph.h"

namespace permafrost::data {
namespace {

absl::Status Bad(std::string_view what) { return absl::InvalidArgumentError(absl::StrCat("header: ", AbslView(what))); }

// Parses the header text between the length field and the data. It is a Python literal: a dictionary of a string, a
// boolean and a tuple of whole numbers, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }". Errors:
// InvalidArgument, without the file's name, for big-endian, structured or object types, for an order other than C
// order, and for anything malformed.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : rest_(text) {}

  absl::StatusOr<NpyHeader> Run() {
    if (!Take('{')) return Bad("is no dictionary");
    std::optional<std::string> descr;
    std::optional<bool> fortran_order;
    std::optional<std::vector<uint64_t>> shape;
    while (!Take('}')) {
      PF_ASSIGN_OR_RETURN(const std::string key, String());
      if (!Take(':')) return Bad(absl::StrCat("no colon follows ", Quote(key)));
      if (key == "descr") {
        SkipBlanks();
        if (rest_.starts_with('[')) return Bad("descr: is a structured type; one of plain numbers is accepted");
        PF_ASSIGN_OR_RETURN(descr, String());
      } else if (key == "fortran_order") {
        PF_ASSIGN_OR_RETURN(fortran_order, Truth());
      } else if (key == "shape") {
        PF_ASSIGN_OR_RETURN(shape, Tuple());
      } else {
        return Bad(absl::StrCat("has an unknown key ", Quote(key)));
      }
      if (!Take(',') && !rest_.starts_with('}')) return Bad(absl::StrCat("no comma follows ", key));
    }
    SkipBlanks();
    if (!rest_.empty()) return Bad("goes on after its dictionary");
    if (!descr || !fortran_order || !shape) return Bad("lacks one of descr, fortran_order, shape");
    if (*fortran_order && shape->size() > 1) {
      return Bad("fortran_order: is True; save the array in C order (numpy.ascontiguousarray)");
    }
    NpyHeader header{.shape = *std::move(shape), .descr = *std::move(descr)};
    PF_RETURN_IF_ERROR(SetType(header));
    PF_RETURN_IF_ERROR(CheckSize(header));
    return header;
  }

 private:
  void SkipBlanks() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n' || rest_[0] == '\t')) rest_.remove_prefix(1);
  }
  bool Take(char c) {
    SkipBlanks();
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    SkipBlanks();
    return true;
  }
  absl::StatusOr<std::string> String() {
    SkipBlanks();
    if (!rest_.starts_with('\'') && !rest_.starts_with('"')) return Bad("a string is missing");
    const size_t stop = rest_.find(rest_[0], 1);
    if (stop == rest_.npos) return Bad("a string does not end");
    std::string value(rest_.substr(1, stop - 1));
    if (value.find('\\') != value.npos) return Bad(absl::StrCat("cannot read the string ", Quote(value)));
    rest_.remove_prefix(stop + 1);
    SkipBlanks();
    return value;
  }
  absl::StatusOr<bool> Truth() {
    for (const auto& [name, value] : {std::pair(std::string_view("True"), true), {"False", false}}) {
      if (!rest_.starts_with(name)) continue;
      rest_.remove_prefix(name.size());
      SkipBlanks();
      return value;
    }
    return Bad("fortran_order: is neither True nor False");
  }
  absl::StatusOr<std::vector<uint64_t>> Tuple() {
    // NumPy has the same limit.
    constexpr size_t kMostDimensions = 64;
    std::vector<uint64_t> values;
    if (!Take('(')) return Bad("shape: is no tuple");
    while (!Take(')')) {
      uint64_t value = 0;
      const auto [stop, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
      if (error != std::errc()) return Bad("shape: holds something else than whole numbers below 2^64");
      rest_.remove_prefix(static_cast<size_t>(stop - rest_.data()));
      if (rest_.starts_with('L')) rest_.remove_prefix(1);  // Python 2's long
      values.push_back(value);
      if (values.size() > kMostDimensions)
        return Bad(absl::StrCat("shape: has more than ", kMostDimensions, " dimensions"));
      const bool comma = Take(',');
      if (!comma && !rest_.starts_with(')')) return Bad("shape: no comma stands between its numbers");
    }
    return values;
  }

  static absl::Status SetType(NpyHeader& header) {
    const std::string_view descr = header.descr;
    const auto refused = [&] {
      return Bad(absl::StrCat("descr: ", Quote(descr),
                              " is not a type that is read here; little-endian integers, floats and truth values are"));
    };
    if (descr.size() < 3) return refused();
    switch (descr[1]) {
      case 'b':
        header.kind = NpyKind::kBool;
        break;
      case 'i':
        header.kind = NpyKind::kSigned;
        break;
      case 'u':
        header.kind = NpyKind::kUnsigned;
        break;
      case 'f':
        header.kind = NpyKind::kFloat;
        break;
      case 'S':
        header.kind = NpyKind::kBytes;
        break;
      default:
        return refused();
    }
    const std::string_view digits = descr.substr(2);
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), header.item_bytes);
    if (error != std::errc() || stop != digits.data() + digits.size()) return refused();
    const uint64_t n = header.item_bytes;
    const bool known = header.kind == NpyKind::kBool    ? n == 1
                       : header.kind == NpyKind::kFloat ? n == 2 || n == 4 || n == 8
                       : header.kind == NpyKind::kBytes ? n > 0 && n <= 64
                                                        : n == 1 || n == 2 || n == 4 || n == 8;
    if (!known) return refused();
    if (descr[0] == '>' && n > 1 && header.kind != NpyKind::kBytes) {
      return Bad(absl::StrCat("descr: ", Quote(descr), " is big-endian; save the array as little-endian"));
    }
    if (descr[0] != '<' && descr[0] != '|' && descr[0] != '=' && descr[0] != '>') return refused();
    return absl::OkStatus();
  }

  static absl::Status CheckSize(const NpyHeader& header) {
    uint64_t bytes = header.item_bytes;
    for (const uint64_t n : header.shape) {
      if (n != 0 && bytes > uint64_t{std::numeric_limits<int64_t>::max()} / n) {
        return Bad(absl::StrCat("shape: (", absl::StrJoin(header.shape, ", "), ") is more than a file can hold"));
      }
      bytes *= n;
    }
    return absl::OkStatus();
  }

  std::string_view rest_;
};

}  // namespace

uint64_t NpyHeader::elements() const {
  uint64_t product = 1;
  for (const uint64_t n : shape) product *= n;
  return product;
}

std::string NpyHeader::ToString() const {
  constexpr std::string_view kKinds[] = {"bool", "int", "uint", "float", "bytes"};
  return absl::StrCat(AbslView(kKinds[static_cast<size_t>(kind)]),
                      kind == NpyKind::kBool ? "" : absl::StrCat(item_bytes * (kind == NpyKind::kBytes ? 1 : 8)), " [",
                      absl::StrJoin(shape, ", "), "]");
}

namespace {

constexpr size_t kPieceBytes = size_t{1} << 16;

// NOLINTBEGIN(bugprone-signed-char-misuse): int8 here is a number
template <class From, class To>
void Convert(std::span<const std::byte> bytes, std::span<To> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    From value;
    std::memcpy(&value, bytes.data() + i * sizeof(From), sizeof(From));
    out[i] = static_cast<To>(value);
  }
}
// NOLINTEND(bugprone-signed-char-misuse)

template <class To>
void ConvertIntegers(const NpyHeader& header, std::span<const std::byte> bytes, std::span<To> out) {
  const bool is_signed = header.kind == NpyKind::kSigned;
  switch (header.item_bytes) {
    case 1:
      return is_signed ? Convert<int8_t>(bytes, out) : Convert<uint8_t>(bytes, out);
    case 2:
      return is_signed ? Convert<int16_t>(bytes, out) : Convert<uint16_t>(bytes, out);
    case 4:
      return is_signed ? Convert<int32_t>(bytes, out) : Convert<uint32_t>(bytes, out);
    default:
      return is_signed ? Convert<int64_t>(bytes, out) : Convert<uint64_t>(bytes, out);
  }
}

absl::StatusOr<std::optional<SourceFile>> FindArrayFile(const std::filesystem::path& source, std::string_view stem,
                                                        std::string_view ending) {
  std::string name = absl::StrCat(AbslView(stem), AbslView(ending));
  std::filesystem::path path = source / name;
  return FindFileAt(path, std::move(name), Packing::kPlain);
}

}  // namespace

absl::StatusOr<std::optional<SourceFile>> FindNpy(const std::filesystem::path& source, std::string_view stem) {
  return FindArrayFile(source, stem, ".npy");
}
absl::StatusOr<std::optional<SourceFile>> FindNpz(const std::filesystem::path& source, std::string_view stem) {
  return FindArrayFile(source, stem, ".npz");
}

absl::StatusOr<NpyArray> NpyArray::Open(const SourceFile& file, const std::string& member, ImportMonitor& monitor) {
  std::unique_ptr<SourceReader> reader;
  if (member.empty()) {
    PF_ASSIGN_OR_RETURN(reader, SourceReader::Open(file, monitor));
  } else {
    PF_ASSIGN_OR_RETURN(reader, OpenZipMember(file, member + ".npy", monitor));
  }
  NpyArray array(member.empty() ? file.name : absl::StrCat(file.name, ": ", member), std::move(reader));
  PF_RETURN_IF_ERROR(array.ReadHeader());
  return array;
}

absl::Status NpyArray::ReadFully(std::span<std::byte> out) {
  while (!out.empty()) {
    const auto n = reader_->Read(reinterpret_cast<char*>(out.data()), out.size());
    if (!n.ok()) return Annotate(n.status(), name_);
    if (*n == 0) return absl::InvalidArgumentError(absl::StrCat(name_, ": ends before its header says it does"));
    out = out.subspan(*n);
  }
  return absl::OkStatus();
}

absl::Status NpyArray::ReadHeader() {
  // The header of a plain type takes 118 bytes. A structured type can make it long.
  constexpr uint32_t kMostBytes = uint32_t{1} << 16;
  constexpr std::array<unsigned char, 6> kMagic = {0x93, 'N', 'U', 'M', 'P', 'Y'};
  std::array<unsigned char, 8> begin{};
  PF_RETURN_IF_ERROR(ReadFully(std::as_writable_bytes(std::span(begin))));
  if (!std::equal(kMagic.begin(), kMagic.end(), begin.begin())) {
    return absl::InvalidArgumentError(absl::StrCat(name_, ": is no NPY array: it does not begin with \\x93NUMPY"));
  }
  const int version = begin[6];
  if (version < 1 || version > 3) {
    return absl::InvalidArgumentError(absl::StrCat(name_, ": version: ", version, " is outside 1..3"));
  }
  std::array<unsigned char, 4> length{};
  PF_RETURN_IF_ERROR(ReadFully(std::as_writable_bytes(std::span(length).first(version == 1 ? 2 : 4))));
  const uint32_t bytes = length[0] | uint32_t{length[1]} << 8 | uint32_t{length[2]} << 16 | uint32_t{length[3]} << 24;
  if (bytes > kMostBytes) {
    return absl::InvalidArgumentError(absl::StrCat(name_, ": header: its length, ", bytes, ", is above ", kMostBytes));
  }
  std::string text(bytes, '\0');
  PF_RETURN_IF_ERROR(ReadFully(std::as_writable_bytes(std::span(text))));
  auto header = HeaderParser(text).Run();
  if (!header.ok()) return Annotate(header.status(), name_);
  header_ = *std::move(header);
  return absl::OkStatus();
}

absl::Status NpyArray::ReadBytes(std::span<std::byte> out) {
  PF_RETURN_IF_ERROR(ReadFully(out));
  position_ += out.size() / header_.item_bytes;
  return absl::OkStatus();
}

absl::Status NpyArray::ReadIntegers(std::span<int64_t> out) {
  if (header_.kind == NpyKind::kFloat || header_.kind == NpyKind::kBytes) {
    return absl::InvalidArgumentError(absl::StrCat(name_, ": descr: ", header_.descr, ", expected integers"));
  }
  buffer_.resize(kPieceBytes);
  while (!out.empty()) {
    const auto piece = out.first(std::min<size_t>(out.size(), kPieceBytes / header_.item_bytes));
    const auto bytes = std::span(buffer_).first(piece.size() * header_.item_bytes);
    PF_RETURN_IF_ERROR(ReadBytes(bytes));
    ConvertIntegers<int64_t>(header_, bytes, piece);
    if (header_.kind == NpyKind::kUnsigned && header_.item_bytes == 8) {
      // Numbers above the largest int64 became negative in the conversion.
      const auto bad = std::ranges::find_if(piece, [](int64_t value) { return value < 0; });
      if (bad != piece.end()) {
        return ElementError(
            position_ - static_cast<uint64_t>(piece.end() - bad),
            absl::StrCat(static_cast<uint64_t>(*bad), " is above ", std::numeric_limits<int64_t>::max()));
      }
    }
    out = out.subspan(piece.size());
  }
  return absl::OkStatus();
}

absl::Status NpyArray::ReadFloats(std::span<float> out) {
  if (header_.kind == NpyKind::kBytes) {
    return absl::InvalidArgumentError(absl::StrCat(name_, ": descr: ", header_.descr, ", expected numbers"));
  }
  buffer_.resize(kPieceBytes);
  while (!out.empty()) {
    const auto piece = out.first(std::min<size_t>(out.size(), kPieceBytes / header_.item_bytes));
    const auto bytes = std::span(buffer_).first(piece.size() * header_.item_bytes);
    PF_RETURN_IF_ERROR(ReadBytes(bytes));
    if (header_.kind != NpyKind::kFloat) {
      ConvertIntegers<float>(header_, bytes, piece);
    } else if (header_.item_bytes == 8) {
      Convert<double>(bytes, piece);
      PF_RETURN_IF_ERROR(CheckRange(bytes, piece));
    } else if (header_.item_bytes == 4) {
      Convert<float>(bytes, piece);
    } else {
      for (size_t i = 0; i < piece.size(); ++i) {
        uint16_t half;
        std::memcpy(&half, bytes.data() + 2 * i, 2);
        piece[i] = HalfToFloat(half);
      }
    }
    out = out.subspan(piece.size());
  }
  return absl::OkStatus();
}

absl::Status NpyArray::CheckRange(std::span<const std::byte> doubles, std::span<const float> floats) const {
  for (size_t i = 0; i < floats.size(); ++i) {
    if (!std::isinf(floats[i])) continue;
    double was;
    std::memcpy(&was, doubles.data() + i * sizeof(was), sizeof(was));
    if (std::isfinite(was)) return ElementError(position_ - floats.size() + i, kBeyondFloat32);
  }
  return absl::OkStatus();
}

absl::Status NpyArray::Skip(uint64_t elements) {
  if (const absl::Status skipped = reader_->Skip(elements * header_.item_bytes); !skipped.ok()) {
    return Annotate(skipped, name_);
  }
  position_ += elements;
  return absl::OkStatus();
}

absl::Status NpyArray::ExpectEnd() {
  char more;
  const auto n = reader_->Read(&more, 1);
  if (!n.ok()) return Annotate(n.status(), name_);
  if (*n == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name_, ": goes on after its ", header_.ToString()));
}

absl::Status NpyArray::ElementError(uint64_t element, std::string_view what) const {
  std::vector<uint64_t> place(header_.shape.size());
  for (size_t d = place.size(); d > 0; --d) {
    place[d - 1] = element % header_.shape[d - 1];
    element /= header_.shape[d - 1];
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name_, ": element [", absl::StrJoin(place, ", "), "]: ", AbslView(what)));
}

absl::Status NpyArray::ShapeError(std::string_view expected) const {
  return absl::InvalidArgumentError(
      absl::StrCat(name_, ": shape: is ", header_.ToString(), ", expected ", AbslView(expected)));
}

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
    // The rows after the row of the last entry are empty. Reads and checks their offsets.
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
