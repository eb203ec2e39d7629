// Bounds what a packed file may unpack to: a gzip of one line again and again is a thousandth of its text, and a zstd
// less. Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "data/source/import_options.h"

namespace permafrost::data {

// The reason of the error below; its metadata: `packed_bytes`, `most_bytes`.
inline constexpr char kUnpacksTooFar[] = "UNPACKS_TOO_FAR";

class UnpackBound {
 public:
  // Bounds what `packed_bytes`, as they lie on disk, may unpack to.
  UnpackBound(uint64_t packed_bytes, const ImportLimits& limits);
  // `bytes` more have come out. ResourceExhausted once they are too many; it names no file.
  absl::Status Add(std::size_t bytes);

 private:
  const uint64_t packed_, most_expansion_, harmless_, most_;
  uint64_t unpacked_ = 0;
};

}  // namespace permafrost::data
