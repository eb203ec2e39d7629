// The header of an NPY array, versions 1 to 3.
// Source of the format: numpy/lib/format.py.
// Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace permafrost::data {

enum class NpyKind { kBool, kSigned, kUnsigned, kFloat, kBytes };

struct NpyHeader {
  NpyKind kind = NpyKind::kFloat;
  uint64_t item_bytes = 0;
  std::vector<uint64_t> shape;  // its product, and that with item_bytes, fit 63 bits
  std::string descr;            // as the file says it

  uint64_t elements() const;
  // "float32 [3, 4]".
  std::string ToString() const;
};

// Parses the text between the length field and the data: "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }".
// Errors: InvalidArgument saying what cannot be, without the file's name: big-endian, structured or object types,
// orders other than C's.
absl::StatusOr<NpyHeader> ParseNpyHeader(std::string_view text);

}  // namespace permafrost::data
