// Prepares the next batches on another thread.
// Threads: Next from one thread (the device's). Owns its thread; destruction stops it at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "data/batch.h"

namespace permafrost::data {

class Prefetcher {
 public:
  // Fills batch `index`; called on the prefetch thread in order 0..count-1.
  using Producer = std::function<absl::Status(int64_t index, PaddedBatch& out)>;

  // `depth`: batches ready ahead, >= 1.
  Prefetcher(int64_t count, int64_t depth, Producer producer);
  ~Prefetcher();

  // The next batch, the caller's until the following call; nullptr after the last one. An error of the producer is
  // returned in its place and again on every later call.
  absl::StatusOr<PaddedBatch*> Next();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace permafrost::data
