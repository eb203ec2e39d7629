#include "nn/safetensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <bit>
#include <compare>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::nn {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

struct Type {
  at::ScalarType scalar;
  std::string_view name;
};
constexpr std::array<Type, 3> kTypes{{{at::kFloat, "F32"}, {at::kDouble, "F64"}, {at::kLong, "I64"}}};

std::string_view TypeName(at::ScalarType scalar) {
  for (const Type& t : kTypes)
    if (t.scalar == scalar) return t.name;
  TORCH_CHECK(false, "safetensors: a tensor of type ", scalar, " cannot be written: F32, F64 or I64");
}

std::optional<at::ScalarType> ParseType(std::string_view name) {
  for (const Type& t : kTypes)
    if (t.name == name) return t.scalar;
  return std::nullopt;
}

// Where a tensor lies in the body.
struct Extent {
  uint64_t begin = 0, end = 0;
  std::string name;
  auto operator<=>(const Extent&) const = default;
};

absl::Status Lost(std::string_view what) { return absl::DataLossError(absl::StrCat("safetensors: ", AbslView(what))); }

// As the format has it: side by side, from the first byte to the last. Else a header that is off by a byte shows every
// number shifted.
absl::Status CheckCovered(std::vector<Extent> extents, size_t body_bytes) {
  std::ranges::sort(extents);
  uint64_t covered = 0;
  for (const Extent& e : extents) {
    if (e.begin != covered) {
      return Lost(absl::StrCat(e.name, ": data_offsets [", e.begin, ",", e.end, "] begin ",
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
  nlohmann::ordered_json header;
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
  json.resize((json.size() + 7) / 8 * 8, ' ');  // data begins 8-byte aligned
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

absl::StatusOr<SafetensorsFile> DecodeSafetensors(std::string_view data) {
  uint64_t length = 0;
  if (data.size() < sizeof(length)) return Lost(absl::StrCat(data.size(), " bytes are no header"));
  std::memcpy(&length, data.data(), sizeof(length));
  if (length > data.size() - sizeof(length)) return Lost(absl::StrCat("header length ", length, " is past the end"));
  const auto header =
      nlohmann::ordered_json::parse(data.substr(sizeof(length), length), nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) return Lost("the header is not a JSON object");
  const std::string_view body = data.substr(sizeof(length) + length);
  SafetensorsFile file;
  std::vector<Extent> extents;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) return Lost(absl::StrCat("__metadata__.", key, " is not a string"));
        file.metadata[key] = value.get<std::string>();
      }
      continue;
    }
    if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() || !entry.contains("shape") ||
        !entry["shape"].is_array() || !entry.contains("data_offsets") || !entry["data_offsets"].is_array() ||
        entry["data_offsets"].size() != 2) {
      return Lost(absl::StrCat(name, ": needs dtype, shape and data_offsets"));
    }
    const auto type = ParseType(entry["dtype"].get<std::string>());
    if (!type) return Lost(absl::StrCat(name, ": dtype ", entry["dtype"].dump(), ": F32, F64 or I64 is read"));
    std::vector<int64_t> shape;
    uint64_t values = 1;
    for (const auto& size : entry["shape"]) {
      if (!size.is_number_unsigned() || std::cmp_greater(size.get<uint64_t>(), std::numeric_limits<int64_t>::max()) ||
          __builtin_mul_overflow(values, size.get<uint64_t>(), &values)) {
        return Lost(absl::StrCat(name, ": shape ", entry["shape"].dump()));
      }
      shape.push_back(size.get<int64_t>());
    }
    const auto& offsets = entry["data_offsets"];
    if (!offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned()) {
      return Lost(absl::StrCat(name, ": data_offsets ", offsets.dump()));
    }
    const uint64_t begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>();
    const uint64_t width = c10::elementSize(*type);
    if (begin > end || end > body.size() || (end - begin) / width != values || (end - begin) % width != 0) {
      return Lost(absl::StrCat(name, ": data_offsets ", offsets.dump(), " do not hold ", values, " values in ",
                               body.size(), " bytes"));
    }
    at::Tensor tensor = at::empty(shape, *type);
    if (end > begin) std::memcpy(tensor.mutable_data_ptr(), body.data() + begin, end - begin);
    file.tensors.push_back({name, tensor});
    extents.push_back({.begin = begin, .end = end, .name = name});
  }
  PF_RETURN_IF_ERROR(CheckCovered(std::move(extents), body.size()));
  return file;
}

}  // namespace permafrost::nn
