#include "data/source/npy_header.h"

#include <charconv>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/source/csv_rows.h"

namespace permafrost::data {
namespace {

absl::Status Bad(std::string_view what) { return absl::InvalidArgumentError(absl::StrCat("header: ", AbslView(what))); }

// Reads the Python literal that a header is: a dictionary of a string, a truth value and a tuple of whole numbers.
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
    // As many as NumPy itself allows.
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

absl::StatusOr<NpyHeader> ParseNpyHeader(std::string_view text) { return HeaderParser(text).Run(); }

}  // namespace permafrost::data
