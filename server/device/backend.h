// A device as the rest of the daemon sees it. Each has a folder of its own (cpu/, mps/, cuda/), compiled everywhere,
// and one row in the table of backend.cc; tests/device/backend_conformance_test.cc holds every one of them to this
// contract. Threads: OpenBackend once, on any thread; kind(), records(), storage() and Observe() are safe anywhere; all
// else belongs to the device's one thread, or comes before it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/device.h"
#include "base/operators.h"
#include "base/string_view.h"
#include "device/step_program.h"
#include "graphcache/executable.h"

namespace permafrost::device {

// Makes the executables of one job. They borrow it, and end before it.
class Capturer {
 public:
  virtual ~Capturer() = default;
  // An executable of `program` for the shapes of `first` and `second`, which are different batches of equal shapes.
  // State and generators are as before when this returns, also after an error; what executables returned before is not
  // valid any more. The executable borrows the program. Errors: FailedPrecondition with graphcache::kGraphBreakReason
  // for a step that cannot be captured. Exceptions of the program pass through.
  virtual absl::StatusOr<std::unique_ptr<graphcache::Executable>> Capture(const StepProgram& program,
                                                                          const graphcache::StepInputs& first,
                                                                          const graphcache::StepInputs& second) = 0;
  // One executable of `program` for every shape; as Capture otherwise. Replays of shapes larger than probe 0 take from
  // the heap what the shared memory has no place for. The probes are those of CaptureDynamicOnCpu (cpu/cpu_backend.h);
  // their errors pass through. Only of a backend that records.
  virtual absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureDynamic(const StepProgram& program,
                                                                                 const ProbeInputs& probes) = 0;
  // As Capture, of a program of which several executables are wanted, each for one shape, the largest first: what it
  // shares with the others is done once. `inputs`: a batch of its shape, in which no size is below 2. The probes are
  // those of CaptureDynamic, but may be small. Only of a backend that records.
  virtual absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureRung(const StepProgram& program,
                                                                              const BatchInputs& inputs,
                                                                              const ProbeInputs& probes);
  // Runs `program` on `inputs` without capturing it, and returns what it returned, valid until the next step or
  // capture. Exceptions of the program pass through.
  virtual std::vector<at::Tensor> RunEager(const StepProgram& program, const graphcache::StepInputs& inputs) {
    return program.run(inputs);
  }
  // Runs `program` once on `inputs` where its executables run for the first time only later, so that a device compiles
  // it now. State and generators are as before when it returns. Exceptions of the program pass through.
  virtual absl::Status WarmUp(const StepProgram& /*program*/, const graphcache::StepInputs& /*inputs*/) {
    return absl::OkStatus();
  }
  // Memory that its executables share, as it is now.
  virtual int64_t shared_bytes() const = 0;
  // Gives that memory back where it can, until the next replay takes it again; what executables returned before is not
  // valid any more.
  virtual void GiveBackMemory() {}
};

// Memory of the host that the device's kernels read by themselves, as each of the two sees it: [rows, width] float32.
struct PinnedRows {
  at::Tensor host, device;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual DeviceKind kind() const = 0;  // never kAuto
  // The device that holds the tensors of a run.
  virtual c10::Device device() const = 0;
  // Waits for the work queued so far, so that a clock read afterwards tells the truth.
  virtual void Synchronize() const = 0;
  // Checks whether steps can be captured with this libtorch; asked once, at start. Errors: Internal.
  virtual absl::Status CheckCapture() const = 0;
  // Returns whether an executable is a recording of operators, replayed bit for bit, which may serve every shape. If
  // not, it has one shape: a graph of the device, or the program itself, which bounds what a backend keeps that
  // compiles by shape.
  virtual bool records() const = 0;
  // Returns whether an executable is a graph of the device, which holds the memory of its step and a copy of its
  // inputs.
  virtual bool captures_graphs() const { return false; }
  // Returns whether it compiles by shape when a step first runs, and keeps that, whatever executables are dropped,
  // until EmptyCaches.
  virtual bool keeps_graphs() const { return false; }
  virtual std::unique_ptr<Capturer> MakeCapturer() const = 0;
  // Compiles kernels in the device's own language, CUDA C++. They run on this device. Errors: Unimplemented by a device
  // that has no such language; FailedPrecondition in one line.
  virtual absl::StatusOr<std::unique_ptr<KernelLauncher>> CompileKernels(const char* /*source*/) const {
    return absl::UnimplementedError("this device compiles no kernels");
  }

  // Call this before any of the methods below. The first thread that enters is the device's thread from then on.
  // Errors: Internal on any other one.
  virtual absl::Status Enter() const { return absl::OkStatus(); }
  // Runs `step`, a step or a capture, with what the device needs around it, and returns its status. Errors: as Enter.
  virtual absl::Status Within(const std::function<absl::Status()>& step) const { return step(); }
  // After each step, outside of Within: what Observe tells is brought up to date. True: its driver holds so much memory
  // that the caches are to be emptied now. Errors: as Enter.
  virtual absl::StatusOr<bool> EndStep() const { return false; }
  // Between two steps: waits for the device, and frees what it keeps in reserve, and what it has compiled. Errors: as
  // Enter.
  virtual absl::Status EmptyCaches(EmptyReason /*reason*/) const { return absl::OkStatus(); }
  // Told where all planned shapes are compiled, and where that ends; a device that can then refuses others.
  virtual void SetGraphsFrozen(bool /*frozen*/) const {}

  // Allocates such memory, with any content. Returns nullopt if the device supports no pinned memory or the host has no
  // room. `rows` and `width` must be positive. Freeing it waits for the device.
  virtual std::optional<PinnedRows> AllocatePinned(int64_t /*rows*/, int64_t /*width*/) const { return std::nullopt; }

  virtual StorageUse storage() const = 0;
  virtual void RestartStoragePeak() const = 0;
  // Returns the state as of now; the parts that only the device's thread may read are as it published them last.
  virtual DeviceState Observe() const = 0;
  // Memory that tensors may take; 0: not known. For the admission of jobs.
  virtual int64_t memory_bytes() const = 0;
};

// The one thread that may use a device, for backends. Threads: safe anywhere.
class OwnerThread {
 public:
  // The first thread that asks is the owner from then on. Errors: Internal on every other one, naming `what` it asked
  // for.
  absl::Status Claim(std::string_view what) {
    std::thread::id nobody;
    const std::thread::id self = std::this_thread::get_id();
    if (owner_.compare_exchange_strong(nobody, self) || nobody == self) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(AbslView(what),
                                            ": called from another thread than the one that the device belongs to; "
                                            "everything on it is done by one"));
  }
  bool IsThis() const { return owner_.load() == std::this_thread::get_id(); }

 private:
  std::atomic<std::thread::id> owner_;
};

struct BackendOptions {
  // Driver memory of MPS, as a part of the recommended maximum, from which on its caches are emptied between steps,
  // 0..2. Smaller: less memory, more steps that wait while shapes are compiled again. 0: never.
  double mps_driver_threshold = kDefaultMpsDriverThreshold;
};

// kAuto: MPS, else CUDA, else CPU, whichever is present. Errors: FailedPrecondition for a device that this machine or
// this libtorch lacks, with what is missing; for a libtorch that was not tested (CheckTorchVersion); and for an
// environment that the device would refuse later.
absl::StatusOr<std::unique_ptr<Backend>> OpenBackend(const DeviceChoice& choice, const BackendOptions& options = {});
inline absl::StatusOr<std::unique_ptr<Backend>> OpenBackend(DeviceKind kind, const BackendOptions& options = {}) {
  return OpenBackend(DeviceChoice(kind), options);
}

// Sets how many threads operators use that the calling thread runs, whatever the device: all have work on the host.
// 0: AvailableCores(). Returns how many they are.
int UseThreads(int threads, TorchThreads torch_threads = TorchThreads::kAll);

// The factor by which a capture allocates more at once than the step itself: the arena that replays are served from is
// laid out with gaps.
inline constexpr double kCapturePeakFactor = 1.1;

// Bytes of tensor storage that a capture on the CPU allocates at once, at most. step_bytes: what the step allocates at
// once when it is run eagerly. state_bytes: the tensors that outlive a step (weights, buffers, the optimizer's
// moments), of which a capture keeps a copy in order to put them back. It keeps no copy of tensors that are zero: the
// warm-up of a job that begins copies no moments.
constexpr int64_t CapturePeakBytes(int64_t step_bytes, int64_t state_bytes) {
  return static_cast<int64_t>(kCapturePeakFactor * static_cast<double>(step_bytes)) + state_bytes;
}

// The most bytes that a step captured as a graph of its device takes there: those that the graph holds as long as it
// lives, and those of the run beside it that proves it. The arguments are those of CapturePeakBytes. Graphs of a job
// share their memory, so that only the largest counts.
constexpr int64_t GraphPeakBytes(int64_t step_bytes, int64_t state_bytes) { return 2 * step_bytes + state_bytes; }

// The bytes that the operators, shapes and numbers of one recorded step take at most, its arena apart, by the layers of
// its model. `fused`: the CPU's fused operators, of which a step has fewer (GINE of 4 layers with Adam: 26 kB, without
// them up to 113 kB).
constexpr int64_t ExecutableBytes(int64_t layers, bool fused) { return (2 + layers) * (fused ? 8'192 : 24'576); }

}  // namespace permafrost::device
