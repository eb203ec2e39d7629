// Weights as safetensors: the format that PyTorch's and PyG's users load.
// Source: the safetensors format description (8-byte little-endian header length, JSON header, row-major data).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "nn/tensor_set.h"

namespace permafrost::nn {

// A whole file. float32, float64 and int64 tensors on any device; names unique.
std::string EncodeSafetensors(const std::vector<NamedTensor>& tensors,
                              const std::map<std::string, std::string>& metadata);

struct SafetensorsFile {
  std::vector<NamedTensor> tensors;  // on the CPU, in the order of their bytes
  std::map<std::string, std::string> metadata;
};
// The metadata alone; empty where the header does not add up.
std::map<std::string, std::string> ReadSafetensorsMetadata(std::string_view data);
// Errors: DataLoss naming the field that does not add up.
absl::StatusOr<SafetensorsFile> DecodeSafetensors(std::string_view data);

}  // namespace permafrost::nn
