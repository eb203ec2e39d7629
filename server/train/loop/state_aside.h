// Tensors of a run that give way for a while: the weights to their averages, state to zeros during a capture, and all
// that a step changes to what it was before the step.
// Threads: the device thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/resources.h"
#include "nn/optimizer.h"
#include "nn/tensor_set.h"

namespace permafrost::train {

// The averages of the weights in their place: what evaluates and is exported where a job keeps some (ema_decay).
class AveragedWeights {
 public:
  // Borrows both. Allocates the room for the weights that step aside, at once, as the storage of a run does not grow.
  AveragedWeights(nn::TensorSet& tensors, const nn::Optimizer& optimizer);

  bool exist() const { return !aside_.empty(); }
  // The model's tensors as a job exports them: averages in place of the parameters, and its buffers. Without averages,
  // and before the first update: the model's own.
  std::vector<nn::NamedTensor> All() const;

  // While it lives the model's parameters are the averages.
  class Scope {
   public:
    explicit Scope(AveragedWeights& weights);
    Scope(const Scope&) = delete;
    ~Scope();

   private:
    AveragedWeights& weights_;
  };

 private:
  nn::TensorSet& tensors_;
  const nn::Optimizer& optimizer_;
  std::vector<at::Tensor> aside_;
};

// Tensors that lie in an unnamed file, and are zero in memory meanwhile: a capture keeps no copy of zeros.
class ParkedState {
 public:
  // Moves large tensors that are not zero and lie in this process's memory, one after the other, to a file in
  // `directory` that has no name and ends with this process. Returns nullopt if there are none. Errors:
  // ResourceExhausted below the reserve; those of writing. Every tensor is then as it was.
  static absl::StatusOr<std::optional<ParkedState>> Park(const std::filesystem::path& directory,
                                                         const DiskReserve& reserve,
                                                         const std::vector<nn::NamedTensor>& tensors);
  // Puts them back; call it once. Errors, transient: the file cannot be read, or holds other bytes than were written.
  // The tensors' content is then useless.
  absl::Status Restore();

 private:
  struct Parked {
    at::Tensor tensor;
    Hash128Value hash;
  };
  ParkedState(Descriptor file, std::filesystem::path directory, std::vector<Parked> parked)
      : file_(std::move(file)), directory_(std::move(directory)), parked_(std::move(parked)) {}

  Descriptor file_;
  std::filesystem::path directory_;
  std::vector<Parked> parked_;
};

// Runs read their loss now and then only, since reading waits for the device. If the loss is not finite, the run begins
// anew at its newest checkpoint, as after a crash, and takes every step up to there with care: the first step that
// spoils something is taken back and its batch skipped. The skipped batch follows from the job alone, so that a run
// that is resumed, from whatever checkpoint, skips the same.

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

// Finds the batch whose step made a loss or a weight that is not finite, and takes that step back.
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
