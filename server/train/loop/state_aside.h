// Replaces the values of a run's tensors. Weights are replaced by their averages, and the optimizer's state by zeros
// during a capture. Tensors that a step changed are replaced by their values before the step.
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

// Replaces the weights by their averages. A job that keeps averages (ema_decay) evaluates and exports the averages.
class AveragedWeights {
 public:
  // Borrows both arguments. Allocates the memory for the replaced weights now, because the memory of a run must not
  // grow later.
  AveragedWeights(nn::TensorSet& tensors, const nn::Optimizer& optimizer);

  bool exist() const { return !aside_.empty(); }
  // Returns the model's tensors as a job exports them: averages in place of the parameters, and the model's buffers.
  // Without averages, or before the first update, returns the model's own tensors.
  std::vector<nn::NamedTensor> All() const;

  // During the lifetime of a Scope, the model's parameters hold the averages.
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

// Holds the values of tensors in an unnamed file, while the tensors are zero in memory. This saves memory in a
// capture, which copies no tensor of zeros.
class ParkedState {
 public:
  // Moves large tensors, one after the other, to an unnamed file in `directory`. The file disappears with this
  // process. Skips tensors that are zero, and tensors outside this process's memory. Returns nullopt if no tensor is
  // left to move.
  // Errors: ResourceExhausted if the disk would fall below the reserve; those of writing. After an error every tensor
  // is unchanged.
  static absl::StatusOr<std::optional<ParkedState>> Park(const std::filesystem::path& directory,
                                                         const DiskReserve& reserve,
                                                         const std::vector<nn::NamedTensor>& tensors);
  // Puts the tensors back; call it once.
  // Errors: a transient error if the file cannot be read, or if its bytes differ from those written. The tensors'
  // content is then useless.
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

// The rest of this file handles values that are not finite. A run reads its loss only now and then, because reading
// waits for the device. If the loss is not finite, the run begins again at its newest checkpoint, as after a crash.
// It then checks all values after each step, up to the step at which it read the loss. These are careful steps. The
// first step that produces a non-finite value is undone, and its batch is skipped. The job alone determines which
// batch this is, so a run that resumes from any checkpoint skips the same batch.

// The limits of rewinds and of skipped batches. A job that exceeds one of them has another fault than bad batches.
inline constexpr int64_t kMaxRewinds = 100;
inline constexpr int64_t kMaxSkippedBatches = 100;

// A request to begin a run again with careful steps.
struct Rewind {
  int64_t until_step = 0;  // steps below this one are careful
  int64_t count = 0;       // rewinds of the job, including this one
};

// Returns the name of the first tensor with a value that is not finite, or an empty string. Checks on the host, so
// that no device compiles anything for it.
std::string FindNotFinite(const std::vector<nn::NamedTensor>& tensors);

// Returns FailedPrecondition with reason NON_FINITE_LOSS.
absl::Status NonFiniteError(const std::string& message);

// Finds the step that produces a loss or a weight that is not finite, and undoes it.
class CarefulSteps {
 public:
  // `tensors` are all tensors that a step changes, and share storage with the run's tensors.
  CarefulSteps(int64_t until_step, std::vector<nn::NamedTensor> tensors)
      : until_step_(until_step), tensors_(std::move(tensors)) {}

  // Returns true if the next step is careful. `step` is the number of optimizer steps done.
  bool Watches(int64_t step) const { return step < until_step_; }
  // Copies the tensors. Call it before a step.
  void Keep();
  // Returns true if every tensor is finite. Call it after the step.
  bool AllFinite() const { return FindNotFinite(tensors_).empty(); }
  // Restores all tensors to their values at Keep.
  void TakeBack() const { nn::CopyInto(kept_, tensors_); }
  // Frees the copies that Keep made.
  void Forget() { kept_.clear(); }

 private:
  const int64_t until_step_;
  const std::vector<nn::NamedTensor> tensors_;
  std::vector<nn::NamedTensor> kept_;
};

}  // namespace permafrost::train
