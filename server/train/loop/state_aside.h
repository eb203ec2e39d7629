// Replaces the content of a run's tensors for a while. Weights are replaced by their averages, state by zeros during
// a capture, and everything that a step changed by its values before the step.
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

// Puts the averages of the weights in place of the weights. A job that keeps averages (ema_decay) evaluates and
// exports them.
class AveragedWeights {
 public:
  // Borrows both arguments. Allocates memory for the replaced weights at once, because the memory of a run must not
  // grow.
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

// Holds the values of tensors in an unnamed file, while the tensors are zero in memory. A capture keeps no copy of a
// tensor of zeros.
class ParkedState {
 public:
  // Moves large tensors, one after the other, to an unnamed file in `directory`. The file ends with this process.
  // Skips tensors that are zero or not in this process's memory. Returns nullopt if no tensor is left to move.
  // Errors: ResourceExhausted if the disk would fall below the reserve; those of writing. After an error every tensor
  // is unchanged.
  static absl::StatusOr<std::optional<ParkedState>> Park(const std::filesystem::path& directory,
                                                         const DiskReserve& reserve,
                                                         const std::vector<nn::NamedTensor>& tensors);
  // Puts the tensors back; call it once.
  // Errors: transient ones, if the file cannot be read or holds other bytes than were written. The tensors' content
  // is then useless.
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
// waits for the device. If the loss that it reads is not finite, the run begins again at its newest checkpoint, as
// after a crash. It then takes all steps up to that reading of the loss with care. That means it undoes the first
// step that makes a non-finite value, and skips its batch. The skipped batch follows from the job alone, so a run
// that resumes from any checkpoint skips the same one.

// A job that exceeds one of these limits has another fault than bad batches.
inline constexpr int64_t kMaxRewinds = 100;
inline constexpr int64_t kMaxSkippedBatches = 100;

// Says that a run shall begin again with care.
struct Rewind {
  int64_t until_step = 0;  // steps below this one are taken with care
  int64_t count = 0;       // rewinds of the job, including this one
};

// Returns the name of the first tensor with a value that is not finite, or an empty string. Checks on the host, so
// that no device compiles anything for it.
std::string FindNotFinite(const std::vector<nn::NamedTensor>& tensors);

// Returns FailedPrecondition with reason NON_FINITE_LOSS.
absl::Status NonFiniteError(const std::string& message);

// Finds the batch whose step makes a loss or a weight that is not finite, and undoes that step.
class CarefulSteps {
 public:
  // `tensors` are all tensors that a step changes. They share storage with the run's tensors.
  CarefulSteps(int64_t until_step, std::vector<nn::NamedTensor> tensors)
      : until_step_(until_step), tensors_(std::move(tensors)) {}

  // Returns true if the step that follows `step` steps is to be taken with care.
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
