#include "program/decode_types.h"

#include <array>
#include <cctype>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace permafrost::program {
namespace {

constexpr std::array<std::pair<int64_t, DType>, 10> kDTypes{{{1, DType::kUint8},
                                                             {2, DType::kInt8},
                                                             {3, DType::kInt16},
                                                             {4, DType::kInt32},
                                                             {5, DType::kInt64},
                                                             {6, DType::kFloat16},
                                                             {7, DType::kFloat32},
                                                             {8, DType::kFloat64},
                                                             {12, DType::kBool},
                                                             {13, DType::kBfloat16}}};
constexpr int64_t kStrided = 7;
constexpr size_t kLongestExpression = 4096;

int64_t NumberOf(const Json& size, const char* what) {
  const auto [kind, value] = Union(size, what);
  if (kind != "as_int") Refuse(absl::StrCat(what, ": a stored tensor's must be a number"));
  return IntOf(*value, what);
}

}  // namespace

DType DecodeDType(const Json& value) {
  const int64_t number = IntOf(value, "dtype");
  for (const auto& [known, dtype] : kDTypes)
    if (known == number) return dtype;
  Refuse(absl::StrCat("dtype: ", number, " is none of ", kDTypeNames.Accepted()));
}

MemoryFormat DecodeMemoryFormat(const Json& value) {
  const int64_t number = IntOf(value, "as_memory_format");
  if (number < 1 || number > 4) Refuse(absl::StrCat("as_memory_format: ", number, " is outside 1..4"));
  return static_cast<MemoryFormat>(number - 1);
}

std::string ReadableExpression(const std::string& text) {
  if (text.size() > kLongestExpression) {
    Refuse(absl::StrCat("expr_str: its ", text.size(), " bytes are more than ", kLongestExpression));
  }
  std::string out;
  // Copies up to `stop`, and passes over what stands up to the ")" after it.
  const auto take = [&](size_t& at, size_t begin, char stop) {
    const size_t end = text.find(stop, begin), close = text.find(')', begin);
    if (end == text.npos || close == text.npos) return false;
    out += text.substr(begin, end - begin);
    at = close + 1;
    return true;
  };
  for (size_t at = 0; at < text.size();) {
    const bool word_before =
        at > 0 && (std::isalnum(static_cast<unsigned char>(text[at - 1])) != 0 || text[at - 1] == '_');
    if (!word_before && text.compare(at, 8, "Symbol('") == 0 && take(at, at + 8, '\'')) continue;
    if (!word_before && text.compare(at, 8, "Integer(") == 0 && take(at, at + 8, ')')) continue;
    out += text[at++];
  }
  return out;
}

Size DecodeSize(const Json& value) {
  const auto [kind, content] = Union(value, "size");
  if (kind == "as_int") return {.number = IntOf(*content, "size"), .expression = ""};
  if (kind != "as_expr") Refuse(absl::StrCat("size: ", Quote(kind), " is none of as_int, as_expr"));
  const std::string expression = ReadableExpression(TextOf(At(*content, "expr_str"), "expr_str"));
  int64_t number = 0;  // A size that turned out to be known is an expression, too: "Integer(64)".
  if (absl::SimpleAtoi(expression, &number)) return {.number = number, .expression = ""};
  if (expression.empty()) Refuse("expr_str: is empty");
  return {.number = 0, .expression = expression};
}

TensorType DecodeTensorType(const Json& meta, const Limits& limits) {
  TensorType type;
  type.dtype = DecodeDType(At(meta, "dtype"));
  type.requires_grad = BoolOf(At(meta, "requires_grad"), "requires_grad");
  const Json& sizes = ListOf(At(meta, "sizes"), "sizes");
  if (sizes.size() > static_cast<size_t>(limits.dimensions)) {
    Refuse(absl::StrCat("sizes: ", sizes.size(), " dimensions are more than ", limits.dimensions));
  }
  type.sizes.reserve(sizes.size());
  for (const Json& size : sizes) {
    type.sizes.push_back(DecodeSize(size));
    if (type.sizes.back().number < 0) Refuse(absl::StrCat("sizes: ", type.sizes.back().number, " is negative"));
  }
  if (IntOf(At(meta, "layout"), "layout") != kStrided) Refuse("layout: only strided tensors (7) are accepted");
  return type;
}

StoredTensor DecodeStoredTensor(const Json& payload, const Limits& limits) {
  if (BoolOf(At(payload, "use_pickle"), "use_pickle")) Refuse("use_pickle: pickled tensors are not read");
  StoredTensor stored;
  stored.file = TextOf(At(payload, "path_name"), "path_name");
  const Json& meta = At(payload, "tensor_meta");
  stored.type = DecodeTensorType(meta, limits);
  for (const Size& size : stored.type.sizes)
    if (!size.expression.empty()) Refuse("sizes: a stored tensor's must be numbers");
  const Json& strides = ListOf(At(meta, "strides"), "strides");
  if (strides.size() != stored.type.sizes.size()) {
    Refuse(absl::StrCat("strides: ", strides.size(), " of them, for ", stored.type.sizes.size(), " sizes"));
  }
  stored.strides.reserve(strides.size());
  for (const Json& stride : strides) stored.strides.push_back(NumberOf(stride, "strides"));
  stored.offset = NumberOf(At(meta, "storage_offset"), "storage_offset");
  if (stored.offset < 0) Refuse(absl::StrCat("storage_offset: ", stored.offset, " is negative"));
  for (const int64_t stride : stored.strides)
    if (stride < 0) Refuse(absl::StrCat("strides: ", stride, " is negative"));
  return stored;
}

}  // namespace permafrost::program
