// An exported program's JSON (torch/_export/serde/schema.py, major version 8, as torch 2.11 to 2.14 write it) as a
// Program, and the limits within which it is read. Threads: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "program/program.h"

namespace permafrost::program {

// The bounds of an archive and of what is decoded from it.
struct Limits {
  // Bytes of the archive, and of all tensors in it.
  int64_t archive_bytes = int64_t{16} << 30;
  int64_t tensor_bytes = int64_t{16} << 30;
  // Bytes of one JSON record. The largest of 15 exported modules has 0.5 MiB.
  int64_t json_bytes = int64_t{64} << 20;
  // Lists and objects within each other. A region within another adds seven.
  int64_t json_depth = 200;
  int64_t records = 100'000;
  // Nodes of a form, those of its regions included.
  int64_t nodes = 100'000;
  // Regions (autocast, no_grad) within regions.
  int64_t nested_regions = 8;
  int64_t dimensions = 16;
};

// form: "train". text: the record models/train.json. Errors: DataLoss that names the node or field which does not add
// up, InvalidArgument for a version that is not read.
absl::StatusOr<Program> DecodeProgram(const std::string& form, const std::string& text, const Limits& limits);

// One tensor of data/weights or data/constants.
struct StoredTensor {
  std::string file;  // its bytes, which others may share
  TensorType type;
  std::vector<int64_t> strides;
  int64_t offset = 0;  // elements from the beginning of the file
};
// text: the record data/weights/train_weights_config.json. Returns them by their names in the module. A pickled one is
// refused.
absl::StatusOr<std::map<std::string, StoredTensor>> DecodeTensorTable(const std::string& what, const std::string& text,
                                                                      const Limits& limits);

}  // namespace permafrost::program
