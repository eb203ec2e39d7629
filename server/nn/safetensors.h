// Reads and writes weights as safetensors, the format that users of PyTorch and PyG load.
// Source: the safetensors format description (8-byte little-endian header length, JSON header, row-major data).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "nn/tensor_set.h"

namespace permafrost::nn {

// Returns the bytes of a whole safetensors file. Tensors are float32, float64 or int64, on any device; names are
// unique.
std::string EncodeSafetensors(const std::vector<NamedTensor>& tensors,
                              const std::map<std::string, std::string>& metadata);

struct SafetensorsFile {
  std::vector<NamedTensor> tensors;  // on the CPU, in the order of their bytes
  std::map<std::string, std::string> metadata;
};
// Returns the metadata alone; an empty map if the header is inconsistent.
std::map<std::string, std::string> ReadSafetensorsMetadata(std::string_view data);
// Errors: DataLoss that names the inconsistent field.
absl::StatusOr<SafetensorsFile> DecodeSafetensors(std::string_view data);

}  // namespace permafrost::nn
