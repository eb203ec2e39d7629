#include "nn/safetensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::nn {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

struct StoredType {
  at::ScalarType scalar;
  std::string_view name;
};
constexpr std::array<StoredType, 10> kTypes{{{at::kFloat, "F32"},
                                             {at::kDouble, "F64"},
                                             {at::kHalf, "F16"},
                                             {at::kBFloat16, "BF16"},
                                             {at::kLong, "I64"},
                                             {at::kInt, "I32"},
                                             {at::kShort, "I16"},
                                             {at::kChar, "I8"},
                                             {at::kByte, "U8"},
                                             {at::kBool, "BOOL"}}};

std::string TypeNames() {
  std::string names;
  for (const StoredType& t : kTypes) absl::StrAppend(&names, names.empty() ? "" : ", ", AbslView(t.name));
  return names;
}

std::string_view TypeName(at::ScalarType scalar) {
  for (const StoredType& t : kTypes)
    if (t.scalar == scalar) return t.name;
  TORCH_CHECK(false, "safetensors: a tensor of type ", scalar, " cannot be written; accepted: ", TypeNames());
}

std::optional<at::ScalarType> ParseType(std::string_view name) {
  for (const StoredType& t : kTypes)
    if (t.name == name) return t.scalar;
  return std::nullopt;
}

// A tensor as the header describes it.
struct Entry {
  std::string name;
  at::ScalarType type = at::kFloat;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // range of its bytes in the body
};

absl::Status Lost(std::string_view what) { return absl::DataLossError(absl::StrCat("safetensors: ", AbslView(what))); }

// Returns a short list of numbers as " [1,2]", and an empty string for anything else. Nested lists do not reach
// dump(), which recurses for each level, so a file with a million levels cannot exhaust the stack.
std::string Shown(const json& list) {
  constexpr size_t kMost = 16;
  const bool is_plain =
      list.size() <= kMost && std::all_of(list.begin(), list.end(), [](const json& v) { return v.is_number(); });
  return is_plain ? absl::StrCat(" ", list.dump()) : "";
}

// Returns a text from the file in one line, escaped and truncated.
std::string ShownText(const std::string& text) {
  constexpr size_t kMost = 100;
  return absl::StrCat(absl::CHexEscape(text.substr(0, kMost)), text.size() > kMost ? "..." : "");
}

absl::StatusOr<Entry> ReadEntry(const std::string& name, const json& entry, size_t body_bytes) {
  const std::string shown = ShownText(name);
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() || !entry.contains("shape") ||
      !entry["shape"].is_array() || !entry.contains("data_offsets") || !entry["data_offsets"].is_array() ||
      entry["data_offsets"].size() != 2) {
    return Lost(absl::StrCat(shown, ": needs dtype, shape and data_offsets"));
  }
  const auto type = ParseType(entry["dtype"].get<std::string>());
  if (!type) {
    return Lost(
        absl::StrCat(shown, ": dtype \"", ShownText(entry["dtype"].get<std::string>()), "\"; accepted: ", TypeNames()));
  }
  Entry tensor{.name = name, .type = *type, .shape = {}};
  // `strides` is the product of the sizes, where a size of 0 counts as 1.
  int64_t values = 1, strides = 1;
  for (const json& size : entry["shape"]) {
    if (!size.is_number_unsigned() || std::cmp_greater(size.get<uint64_t>(), std::numeric_limits<int64_t>::max()) ||
        __builtin_mul_overflow(strides, std::max<int64_t>(size.get<int64_t>(), 1), &strides)) {
      return Lost(absl::StrCat(shown, ": shape", Shown(entry["shape"]),
                               ": a list of sizes is accepted whose product is below 2^63"));
    }
    tensor.shape.push_back(size.get<int64_t>());
    values *= tensor.shape.back();
  }
  const json& offsets = entry["data_offsets"];
  if (!offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned()) {
    return Lost(absl::StrCat(shown, ": data_offsets", Shown(offsets), ": two places in the data are accepted"));
  }
  tensor.begin = offsets[0].get<uint64_t>();
  tensor.end = offsets[1].get<uint64_t>();
  const uint64_t bytes = tensor.end - tensor.begin, width = c10::elementSize(*type);
  if (tensor.begin > tensor.end || tensor.end > body_bytes || std::cmp_not_equal(bytes / width, values) ||
      bytes % width != 0) {
    return Lost(absl::StrCat(shown, ": data_offsets", Shown(offsets), " do not hold ", values, " values in ",
                             body_bytes, " bytes"));
  }
  return tensor;
}

// Errors: DataLoss unless the tensors lie side by side from the first byte to the last, as the format demands.
// Without this check, a header that is off by one byte would shift every number. Also, many tensors that share bytes
// would take many times the file's size in memory. `entries` is sorted by position.
absl::Status CheckCovered(const std::vector<Entry>& entries, size_t body_bytes) {
  uint64_t covered = 0;
  for (const Entry& e : entries) {
    if (e.begin != covered) {
      return Lost(absl::StrCat(ShownText(e.name), ": data_offsets [", e.begin, ",", e.end, "] begin ",
                               e.begin > covered ? "after a hole" : "within the tensor before", "; ", covered,
                               " is accepted"));
    }
    covered = e.end;
  }
  if (covered == body_bytes) return absl::OkStatus();
  return Lost(absl::StrCat("the tensors end at byte ", covered, " of ", body_bytes, " that follow the header"));
}

}  // namespace

std::string EncodeSafetensors(const std::vector<NamedTensor>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  auto header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  size_t offset = 0;
  for (const NamedTensor& t : tensors) {
    const size_t bytes = t.value.nbytes();
    header[t.name] = {{"dtype", TypeName(t.value.scalar_type())},
                      {"shape", t.value.sizes().vec()},
                      {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string json = header.dump();
  json.resize((json.size() + 7) / 8 * 8, ' ');  // aligns the data to 8 bytes
  const uint64_t length = json.size();
  std::string out;
  out.reserve(sizeof(length) + json.size() + offset);
  out.append(reinterpret_cast<const char*>(&length), sizeof(length));
  out.append(json);
  for (const NamedTensor& t : tensors) {
    const at::Tensor host = t.value.detach().to(at::kCPU).contiguous();
    out.append(static_cast<const char*>(host.const_data_ptr()), host.nbytes());
  }
  return out;
}

std::map<std::string, std::string> ReadSafetensorsMetadata(std::string_view data) {
  std::map<std::string, std::string> metadata;
  uint64_t length = 0;
  if (data.size() < sizeof(length)) return metadata;
  std::memcpy(&length, data.data(), sizeof(length));
  if (length > data.size() - sizeof(length)) return metadata;
  const json header = json::parse(data.substr(sizeof(length), length), nullptr, /*allow_exceptions=*/false);
  const auto found = header.is_object() ? header.find("__metadata__") : header.end();
  if (found == header.end() || !found->is_object()) return metadata;
  for (const auto& [key, value] : found->items()) {
    if (value.is_string()) metadata[key] = value.get<std::string>();
  }
  return metadata;
}

absl::StatusOr<SafetensorsFile> DecodeSafetensors(std::string_view data) {
  uint64_t length = 0;
  if (data.size() < sizeof(length)) return Lost(absl::StrCat(data.size(), " bytes are no header"));
  std::memcpy(&length, data.data(), sizeof(length));
  if (length > data.size() - sizeof(length)) return Lost(absl::StrCat("header length ", length, " is past the end"));
  // Parses into json, because ordered_json would search all earlier names for each new one.
  const json header = json::parse(data.substr(sizeof(length), length), nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) return Lost("the header is not a JSON object");
  const std::string_view body = data.substr(sizeof(length) + length);
  SafetensorsFile file;
  std::vector<Entry> entries;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) return Lost(absl::StrCat("__metadata__.", ShownText(key), " is not a string"));
        file.metadata[key] = value.get<std::string>();
      }
      continue;
    }
    PF_ASSIGN_OR_RETURN(Entry tensor, ReadEntry(name, entry, body.size()));
    entries.push_back(std::move(tensor));
  }
  std::ranges::sort(entries, {}, [](const Entry& e) { return std::tie(e.begin, e.end, e.name); });
  PF_RETURN_IF_ERROR(CheckCovered(entries, body.size()));
  for (const Entry& e : entries) {
    at::Tensor tensor = at::empty(e.shape, e.type);
    if (e.end > e.begin) std::memcpy(tensor.mutable_data_ptr(), body.data() + e.begin, e.end - e.begin);
    file.tensors.push_back({e.name, tensor});
  }
  return file;
}

}  // namespace permafrost::nn
