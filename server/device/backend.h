// The interface through which the rest of the daemon uses a device. Each device has its own folder (cpu/, mps/,
// cuda/), which is compiled on every system, and one row in the table of backend.cc.
// tests/device/backend_conformance_test.cc checks that every device keeps this contract.
// Threads: call OpenBackend once, on any thread. kind(), records(), storage() and Observe() are thread-safe. Call
// everything else on the device's one thread, or before that thread starts.
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

// Makes the executables of one job. The executables borrow their Capturer and must be destroyed before it.
class Capturer {
 public:
  virtual ~Capturer() = default;
  // Makes an executable of `program` for one shape. `first` and `second` are two different batches of this shape.
  // When this returns, state and generators are as before the call, also after an error. Outputs that executables
  // returned before the call are no longer valid. The executable borrows the program. Errors: FailedPrecondition with
  // graphcache::kGraphBreakReason if the step cannot be captured. Exceptions of the program pass through.
  virtual absl::StatusOr<std::unique_ptr<graphcache::Executable>> Capture(const StepProgram& program,
                                                                          const graphcache::StepInputs& first,
                                                                          const graphcache::StepInputs& second) = 0;
  // Makes one executable of `program` that serves every shape. Everything else is as for Capture. If a replay's shape
  // is larger than that of probe 0, allocations for which the shared memory has no room come from the heap. The
  // probes must be as CaptureDynamicOnCpu requires (cpu/cpu_backend.h). Errors of `probes` pass through. Call it only
  // if the backend records().
  virtual absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureDynamic(const StepProgram& program,
                                                                                 const ProbeInputs& probes) = 0;
  // Same as Capture, for a program that needs several executables, each for one shape. Call it for the largest shape
  // first, so that work that the executables share is done once. `inputs` makes a batch of the executable's shape, in
  // which every size is at least 2. The probes are as for CaptureDynamic, but may be small. Call it only if the
  // backend records().
  virtual absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureRung(const StepProgram& program,
                                                                              const BatchInputs& inputs,
                                                                              const ProbeInputs& probes);
  // Runs `program` on `inputs` without capturing it. Returns the program's outputs, which are valid until the next
  // step or capture. Exceptions of the program pass through.
  virtual std::vector<at::Tensor> RunEager(const StepProgram& program, const graphcache::StepInputs& inputs) {
    return program.run(inputs);
  }
  // Runs `program` once on `inputs`. A device that compiles by shape thus compiles the step now and not at the first
  // replay. When this returns, state and generators are as before. Exceptions of the program pass through.
  virtual absl::Status WarmUp(const StepProgram& /*program*/, const graphcache::StepInputs& /*inputs*/) {
    return absl::OkStatus();
  }
  // Returns the bytes of the memory that the executables share at present.
  virtual int64_t shared_bytes() const = 0;
  // Frees as much of the shared memory as it can. The next replay allocates it again. Outputs that executables
  // returned before are no longer valid.
  virtual void GiveBackMemory() {}
};

// Pinned host memory, which the device's kernels read directly. Both tensors are [rows, width] float32 and views of
// this memory. `host` is a tensor of the host, `device` a tensor of the device.
struct PinnedRows {
  at::Tensor host, device;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual DeviceKind kind() const = 0;  // never kAuto
  // The device that holds the tensors of a run.
  virtual c10::Device device() const = 0;
  // Waits for all work enqueued so far. A time measured up to the return then includes this work.
  virtual void Synchronize() const = 0;
  // Checks whether this libtorch can capture steps. The daemon calls it once, at start. Errors: Internal.
  virtual absl::Status CheckCapture() const = 0;
  // Returns true if an executable is a recording of operators. A recording replays bit for bit, and may serve every
  // shape. If it returns false, an executable has one shape, and either is a graph of the device or runs the program
  // itself. The shapes of its executables then bound what a backend that compiles by shape keeps.
  virtual bool records() const = 0;
  // Returns true if an executable is a graph of the device. A graph holds the memory of its step and a copy of its
  // inputs.
  virtual bool captures_graphs() const { return false; }
  // Returns true if the device compiles by shape when a step first runs. It keeps the compiled code until
  // EmptyCaches, even if executables are dropped.
  virtual bool keeps_graphs() const { return false; }
  virtual std::unique_ptr<Capturer> MakeCapturer() const = 0;
  // Compiles `source`, which is in the device's own language (CUDA C++), into kernels that run on this device. Errors:
  // Unimplemented if the device has no such language; FailedPrecondition, in one line, if the source does not compile.
  virtual absl::StatusOr<std::unique_ptr<KernelLauncher>> CompileKernels(const char* /*source*/) const {
    return absl::UnimplementedError("this device compiles no kernels");
  }

  // Call this before any of the methods below. The first thread that calls Enter is the device's thread from then on.
  // Errors: Internal on any other thread.
  virtual absl::Status Enter() const { return absl::OkStatus(); }
  // Runs `step`, a training step or a capture, inside the set-up that the device needs for it. Returns the status of
  // `step`. Errors: same as Enter.
  virtual absl::Status Within(const std::function<absl::Status()>& step) const { return step(); }
  // Updates the state that Observe returns. Call it after each step, outside of Within. Returns true if the driver
  // holds so much memory that the caller must now call EmptyCaches. Errors: same as Enter.
  virtual absl::StatusOr<bool> EndStep() const { return false; }
  // Waits for the device. Then frees the allocator's free blocks and everything that the device has compiled. Call it
  // between two steps. Errors: same as Enter.
  virtual absl::Status EmptyCaches(EmptyReason /*reason*/) const { return absl::OkStatus(); }
  // Call it with true once all planned shapes are compiled, and with false when this is no longer so. Between these
  // two calls, a device refuses to compile further shapes, if it can.
  virtual void SetGraphsFrozen(bool /*frozen*/) const {}

  // Allocates PinnedRows with arbitrary content. Returns nullopt if the device supports no pinned memory or the host
  // has no room. `rows` and `width` must be positive. Freeing the rows waits for the device.
  virtual std::optional<PinnedRows> AllocatePinned(int64_t /*rows*/, int64_t /*width*/) const { return std::nullopt; }

  virtual StorageUse storage() const = 0;
  virtual void RestartStoragePeak() const = 0;
  // Returns the present state. Only the device's thread may read some of the values. For these, Observe returns what
  // that thread last published.
  virtual DeviceState Observe() const = 0;
  // Returns the bytes that tensors may take, for the admission of jobs. 0 means that the number is not known.
  virtual int64_t memory_bytes() const = 0;
};

// Lets a backend remember the one thread that may use its device. Threads: safe anywhere.
class OwnerThread {
 public:
  // Makes the first thread that calls it the owner. Errors: Internal on any other thread, with a message that names
  // `what`, the purpose of the call.
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
  // The share of the recommended maximum, 0..2, at which the driver's memory makes the daemon empty MPS's caches
  // between steps. A smaller share saves memory, but more steps wait while shapes are compiled again. 0 means never.
  double mps_driver_threshold = kDefaultMpsDriverThreshold;
};

// Opens a device. kAuto takes the first one that is present, in the order MPS, CUDA, CPU. Errors: FailedPrecondition
// if this machine or this libtorch lacks the device, naming what is missing; FailedPrecondition if libtorch's version
// was not tested (CheckTorchVersion), or if the device would later refuse an environment variable.
absl::StatusOr<std::unique_ptr<Backend>> OpenBackend(const DeviceChoice& choice, const BackendOptions& options = {});
inline absl::StatusOr<std::unique_ptr<Backend>> OpenBackend(DeviceKind kind, const BackendOptions& options = {}) {
  return OpenBackend(DeviceChoice(kind), options);
}

// Sets the number of threads for the operators that the calling thread runs. This matters on every device, since
// every step also does work on the host. 0 stands for AvailableCores(). Returns the number of threads set.
int UseThreads(int threads, TorchThreads torch_threads = TorchThreads::kAll);

// The peak memory of a capture as a multiple of the step's own peak. It is above 1, since the arena that serves
// replays has gaps between its allocations.
inline constexpr double kCapturePeakFactor = 1.1;

// Returns an upper bound of the peak tensor storage, in bytes, of a capture on the CPU. `step_bytes` is the peak of
// the step when it runs eagerly. `state_bytes` is the size of the tensors that outlive a step: weights, buffers and
// the optimizer's moments. A capture copies these tensors to restore them later. A tensor that is all zeros is not
// copied, so the warm-up of a new job copies no moments.
constexpr int64_t CapturePeakBytes(int64_t step_bytes, int64_t state_bytes) {
  return static_cast<int64_t>(kCapturePeakFactor * static_cast<double>(step_bytes)) + state_bytes;
}

// Returns an upper bound of the bytes that a step takes on its device while it is captured as a graph. The bound
// covers the bytes that the graph holds as long as it lives, and the bytes of the run that proves the graph. The
// arguments are as for CapturePeakBytes. The graphs of a job share their memory, so only the largest counts.
constexpr int64_t GraphPeakBytes(int64_t step_bytes, int64_t state_bytes) { return 2 * step_bytes + state_bytes; }

// Returns an upper bound of the bytes that one recorded step holds for its operators, shapes and numbers, without its
// arena. `layers` is the number of layers of the model. `fused` is true if the step uses the CPU's fused operators,
// since it then has fewer operators. GINE of 4 layers with Adam takes 26 kB if fused, and up to 113 kB otherwise.
constexpr int64_t ExecutableBytes(int64_t layers, bool fused) { return (2 + layers) * (fused ? 8'192 : 24'576); }

}  // namespace permafrost::device
