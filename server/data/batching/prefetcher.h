// Prepares the next batches on another thread.
// Threads: Next from one thread (the device's). Owns its thread; destruction stops it at once, but for the batch that
// it is making.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "base/without_throwing.h"
#include "data/batching/batch_ring.h"

namespace permafrost::data {

template <class Batch>
class Prefetcher {
 public:
  // Fills batch `index`; called on the prefetch thread in order 0..count-1. An exception is an error of its batch: one
  // too large for the memory ends the run and not the process.
  using Producer = std::function<absl::Status(int64_t index, Batch& out)>;

  // `depth`: batches ready ahead, >= 1.
  Prefetcher(int64_t count, int64_t depth, Producer producer)
      : ring_(count, depth), producer_(std::move(producer)), thread_([this] { Run(); }) {}
  ~Prefetcher() {
    ring_.Stop();
    thread_.join();
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // As BatchRing::Next.
  absl::StatusOr<Batch*> Next() { return ring_.Next(); }

 private:
  void Run() {
    for (int64_t index = 0; index < ring_.count() && ring_.AwaitRoom(); ++index) {
      const absl::Status status =
          WithoutThrowing(StdView(absl::StrCat("batch ", index)), [&] { return producer_(index, ring_.Slot()); });
      if (!status.ok()) return ring_.Fail(status);
      ring_.Filled();
    }
  }

  BatchRing<Batch> ring_;
  const Producer producer_;
  std::thread thread_;
};

}  // namespace permafrost::data
