// Decodes an exported program's JSON (torch/_export/serde/schema.py, major version 8, as torch 2.11 to 2.14 write it)
// into a Program, within limits.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "program/program.h"

namespace permafrost::program {

// The limits of an archive and of the program decoded from it.
struct Limits {
  // The most bytes of the archive.
  int64_t archive_bytes = int64_t{16} << 30;
  // The most bytes of all tensors of the archive together.
  int64_t tensor_bytes = int64_t{16} << 30;
  // The most bytes of one JSON record. The largest record of 15 exported modules has 0.5 MiB.
  int64_t json_bytes = int64_t{64} << 20;
  // The deepest nesting of lists and objects in the JSON. Each nested region adds seven levels.
  int64_t json_depth = 200;
  int64_t records = 100'000;
  // The most nodes of a form, including those of its regions.
  int64_t nodes = 100'000;
  // The deepest nesting of regions (autocast, no_grad).
  int64_t nested_regions = 8;
  int64_t dimensions = 16;
};

// Decodes one form. `form` is its name, such as "train", and `text` is the record models/train.json. Errors: DataLoss
// that names the node or field that is inconsistent; InvalidArgument for a version that is not supported.
absl::StatusOr<Program> DecodeProgram(const std::string& form, const std::string& text, const Limits& limits);

// One tensor of data/weights or data/constants in the archive.
struct StoredTensor {
  std::string file;  // the record that holds its bytes; tensors may share one
  TensorType type;
  std::vector<int64_t> strides;
  int64_t offset = 0;  // offset of the first element in the file, in elements
};
// Decodes a table of tensors from `text`, a record such as data/weights/train_weights_config.json. `what` names the
// table in messages. Returns the tensors by their names in the module. Refuses a pickled tensor.
absl::StatusOr<std::map<std::string, StoredTensor>> DecodeTensorTable(const std::string& what, const std::string& text,
                                                                      const Limits& limits);

}  // namespace permafrost::program
