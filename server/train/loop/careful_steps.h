// Finds the batch whose step made a loss or a weight that is not finite, and takes that step back.
// Runs read their loss now and then only, since reading waits for the device. If the loss is not finite, the run begins
// anew at its newest checkpoint, as after a crash, and takes every step up to there with care: the first step that
// spoils something is taken back and its batch skipped. The skipped batch follows from the job alone, so that a run
// that is resumed, from whatever checkpoint, skips the same.
// Threads: the device thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "nn/tensor_set.h"

namespace permafrost::train {

// More in one job: something else is wrong with it than a batch.
inline constexpr int64_t kMaxRewinds = 100;
inline constexpr int64_t kMaxSkippedBatches = 100;

// A run that is to begin anew with care.
struct Rewind {
  int64_t until_step = 0;  // careful below it
  int64_t count = 0;       // of the job, this one too
};

// The name of the first tensor with a value that is not finite; empty: there is none. Looked at on the host, so that no
// device compiles anything for it.
std::string FindNotFinite(const std::vector<nn::NamedTensor>& tensors);

// FailedPrecondition, reason NON_FINITE_LOSS.
absl::Status NonFiniteError(const std::string& message);

class CarefulSteps {
 public:
  // `tensors`: all that a step changes. Borrowed: they share storage with the run's.
  CarefulSteps(int64_t until_step, std::vector<nn::NamedTensor> tensors)
      : until_step_(until_step), tensors_(std::move(tensors)) {}

  // True if the step after `step` steps is to be taken with care.
  bool Watches(int64_t step) const { return step < until_step_; }
  // Before a step.
  void Keep();
  // After it: whether everything is finite.
  bool AllFinite() const { return FindNotFinite(tensors_).empty(); }
  // Everything is as it was at Keep.
  void TakeBack() const { nn::CopyInto(kept_, tensors_); }
  // Lets go of what Keep copied.
  void Forget() { kept_.clear(); }

 private:
  const int64_t until_step_;
  const std::vector<nn::NamedTensor> tensors_;
  std::vector<nn::NamedTensor> kept_;
};

}  // namespace permafrost::train
