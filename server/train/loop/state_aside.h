// Tensors of a run that give way for a while: the weights to their averages, and state to zeros during a capture.
// Threads: the device thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

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

}  // namespace permafrost::train
