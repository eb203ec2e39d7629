// Reads one of these as a safetensors file:
//   - arbitrary bytes
//   - an arbitrary header with data after it
//   - a good header in which arbitrary bytes replace some of the values
//   - a good header in which some of the numbers are changed
#include <ATen/ATen.h>

#include <cstring>
#include <set>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "fuzz_input.h"
#include "nn/safetensors.h"

namespace permafrost::nn {
namespace {

constexpr int64_t kGoodBytes = 28;

// Returns the header for kGoodBytes bytes of data. The parts of `rest`, separated by bytes of value 1, replace its
// values in order. An empty part keeps the good value.
std::string HeaderOfParts(std::string rest) {
  constexpr struct {
    const char *before, *value;
  } kGood[] = {
      {R"({"b":{"dtype":)", R"("I64")"},
      {R"(,"shape":)", "[2]"},
      {R"(,"data_offsets":)", "[12,28]"},
      {R"(},"a":{"dtype":)", R"("F32")"},
      {R"(,"shape":)", "[1,3]"},
      {R"(,"data_offsets":)", "[0,12]"},
      {R"(},"__metadata__":)", R"({"format":"pt"})"},
  };
  std::string header;
  for (const auto& [before, value] : kGood) {
    const size_t stop = rest.find('\x01');
    const std::string part = rest.substr(0, stop);
    rest = stop == rest.npos ? "" : rest.substr(stop + 1);
    header += before + (part.empty() ? value : part);
  }
  return header + "}";
}

// Appends bytes 0, 1, 2, ... to the header.
std::string WithData(const std::string& header, int64_t bytes) {
  const uint64_t length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  file += header;
  for (int64_t i = 0; i < bytes; ++i) file += static_cast<char>(i);
  return file;
}

std::string FileOf(FuzzInput input) {
  const int kind = input.TakeByte() % 4;
  if (kind == 0) return input.rest();
  // Returns the change that a byte stands for, from -128 to 127. 0 keeps the good number.
  const auto change = [&input] {
    const int64_t byte = input.TakeByte();
    return byte < 128 ? byte : byte - 256;
  };
  const int64_t more_bytes = change();
  if (kind == 1) return WithData(input.rest(), kGoodBytes + more_bytes);
  if (kind == 2) return WithData(HeaderOfParts(input.rest()), kGoodBytes + more_bytes);
  int64_t rows = 1, columns = 3, first = 0, first_end = 12, size = 2, second = 12, end = kGoodBytes;
  for (int64_t* n : {&rows, &columns, &first, &first_end, &size, &second, &end}) *n += change();
  return WithData(absl::StrCat(R"({"b":{"dtype":"I64","shape":[)", size, R"(],"data_offsets":[)", second, ",", end,
                               R"(]},"a":{"dtype":"F32","shape":[)", rows, ",", columns, R"(],"data_offsets":[)", first,
                               ",", first_end, "]}}"),
                  end + more_bytes);
}

std::string_view BodyOf(std::string_view file) {
  uint64_t length = 0;
  Check(file.size() >= sizeof length, "accepted without a length");
  std::memcpy(&length, file.data(), sizeof length);
  Check(length <= file.size() - sizeof length, "accepted with a header beyond its end");
  return file.substr(sizeof length + length);
}

std::string_view BytesOf(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

// Checks that the tensors cover the file's data, in its order and without gaps.
void CheckTensors(const SafetensorsFile& decoded, std::string_view body) {
  std::set<std::string> names;
  for (const NamedTensor& t : decoded.tensors) {
    uint64_t values = 1;
    for (const int64_t size : t.value.sizes()) values *= static_cast<uint64_t>(size);
    const uint64_t bytes = values * t.value.element_size();
    Check(names.insert(t.name).second, "twice: " + t.name);
    Check(t.value.is_contiguous() && t.value.nbytes() == bytes && t.value.storage().nbytes() >= bytes,
          "its shape is not that of its bytes: " + t.name);
    Check(bytes <= body.size(), "it ends beyond the file: " + t.name);
    Check(BytesOf(t.value) == body.substr(0, bytes), "its bytes are not the file's: " + t.name);
    body.remove_prefix(bytes);
  }
  Check(body.empty(), "there are bytes of no tensor");
}

void CheckEqual(const SafetensorsFile& a, const SafetensorsFile& b) {
  Check(a.metadata == b.metadata && a.tensors.size() == b.tensors.size(), "written and read it is another file");
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const at::Tensor &x = a.tensors[i].value, &y = b.tensors[i].value;
    Check(a.tensors[i].name == b.tensors[i].name && x.scalar_type() == y.scalar_type() && x.sizes() == y.sizes() &&
              BytesOf(x) == BytesOf(y),
          "written and read it is another tensor: " + a.tensors[i].name);
  }
}

}  // namespace
}  // namespace permafrost::nn

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace permafrost::nn;
  using permafrost::Check;
  const std::string file = FileOf(permafrost::FuzzInput(data, size));
  const auto decoded = DecodeSafetensors(file);
  if (!decoded.ok()) {
    Check(decoded.status().code() == absl::StatusCode::kDataLoss, "another error: " + decoded.status().ToString());
    return 0;
  }
  CheckTensors(*decoded, BodyOf(file));
  const auto again = DecodeSafetensors(EncodeSafetensors(decoded->tensors, decoded->metadata));
  Check(again.ok(), "written it is not read: " + again.status().ToString());
  CheckEqual(*decoded, *again);
  return 0;
}
