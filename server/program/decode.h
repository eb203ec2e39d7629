// An exported program's JSON (torch/_export/serde/schema.py, major version 8, as torch 2.11 to 2.14 write it) as a
// Program. Threads: pure functions.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "program/archive.h"
#include "program/program.h"

namespace permafrost::program {

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
