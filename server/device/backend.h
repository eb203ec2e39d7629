// The interface through which the rest of the daemon sees a device. Each device has a folder of its own (cpu/, mps/,
// cuda/), which is compiled everywhere, and one row in the table of backend.cc.
// tests/device/backend_conformance_test.cc holds every device to this contract.
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
  // Makes an executable of `program` for one shape: that of `first` and `second`, which are different batches of equal
  // shapes. State and generators are as before when this returns, also after an error. Outputs that earlier
  // executables returned are no longer valid. The executable borrows the program. Errors: FailedPrecondition with
  // graphcache::kGraphBreakReason for a step that cannot be captured. Exceptions of the program pass through.
  virtual absl::StatusOr<std::unique_ptr<graphcache::Executable>> Capture(const StepProgram& program,
                                                                          const graphcache::StepInputs& first,
                                                                          const graphcache::StepInputs& second) = 0;
  // Makes one executable of `program` that serves every shape. Everything else is as for Capture. A replay of a shape
  // larger than probe 0 takes memory from the heap where the shared memory has no room. The probes are those of
  // CaptureDynamicOnCpu (cpu/cpu_backend.h), and their errors pass through. Call it only if the backend records().
  virtual absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureDynamic(const StepProgram& program,
                                                                                 const ProbeInputs& probes) = 0;
  // Same as Capture, for a program of which several executables are wanted, each for one shape. Call it for the
  // largest shape first: work that the executables share is then done once. `inputs` is a batch of the executable's
  // shape in which every size is at least 2. The probes are those of CaptureDynamic, but may be small. Call it only if
  // the backend records().
  virtual absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureRung(const StepProgram& program,
                                                                              const BatchInputs& inputs,
                                                                              const ProbeInputs& probes);
  // Runs `program` on `inputs` without capturing it. Returns the program's outputs, which are valid until the next
  // step or capture. Exceptions of the program pass through.
  virtual std::vector<at::Tensor> RunEager(const StepProgram& program, const graphcache::StepInputs& inputs) {
    return program.run(inputs);
  }
  // Runs `program` once on `inputs`, so that a device that compiles by shape compiles the step now and not at the
  // first replay. State and generators are as before when this returns. Exceptions of the program pass through.
  virtual absl::Status WarmUp(const StepProgram& /*program*/, const graphcache::StepInputs& /*inputs*/) {
    return absl::OkStatus();
  }
  // Returns the bytes that the executables share at present.
  virtual int64_t shared_bytes() const = 0;
  // Gives back as much of the shared memory as it can. The next replay takes it again. Outputs that executables
  // returned before are no longer valid.
  virtual void GiveBackMemory() {}
};

// Pinned memory of the host, which the device's kernels read directly. Both tensors, [rows, width] float32, are views
// of it: `host` is on the host, `device` on the device.
struct PinnedRows {
  at::Tensor host, device;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual DeviceKind kind() const = 0;  // never kAuto
  // The device that holds the tensors of a run.
  virtual c10::Device device() const = 0;
  // Waits for the work queued so far, so that a time measured up to here includes it.
  virtual void Synchronize() const = 0;
  // Checks whether this libtorch can capture steps. The daemon calls it once, at start. Errors: Internal.
  virtual absl::Status CheckCapture() const = 0;
  // Returns true if an executable is a recording of operators, which is replayed bit for bit and may serve every
  // shape. Otherwise an executable has one shape. It is then a graph of the device or the program itself. If the
  // backend compiles by shape, the shapes of the executables bound what it keeps.
  virtual bool records() const = 0;
  // Returns true if an executable is a graph of the device, which holds the memory of its step and a copy of its
  // inputs.
  virtual bool captures_graphs() const { return false; }
  // Returns true if the device compiles by shape when a step first runs. It keeps what it compiled until EmptyCaches,
  // even if executables are dropped.
  virtual bool keeps_graphs() const { return false; }
  virtual std::unique_ptr<Capturer> MakeCapturer() const = 0;
  // Compiles `source`, which is in the device's own language (CUDA C++), into kernels that run on this device. Errors:
  // Unimplemented if the device has no such language; FailedPrecondition, in one line, if the source does not compile.
  virtual absl::StatusOr<std::unique_ptr<KernelLauncher>> CompileKernels(const char* /*source*/) const {
    return absl::UnimplementedError("this device compiles no kernels");
  }

  // Call this before any of the methods below. The first thread that enters is the device's thread from then on.
  // Errors: Internal on any other thread.
  virtual absl::Status Enter() const { return absl::OkStatus(); }
  // Runs `step`, which is a step or a capture, with the set-up that the device needs around it. Returns the status of
  // `step`. Errors: same as Enter.
  virtual absl::Status Within(const std::function<absl::Status()>& step) const { return step(); }
  // Brings the state that Observe returns up to date. Call it after each step, outside of Within. Returns true if the
  // driver holds so much memory that the caller must empty the caches now. Errors: same as Enter.
  virtual absl::StatusOr<bool> EndStep() const { return false; }
  // Waits for the device. Then frees the device's reserve of memory and everything that the device has compiled. Call
  // it between two steps. Errors: same as Enter.
  virtual absl::Status EmptyCaches(EmptyReason /*reason*/) const { return absl::OkStatus(); }
  // Call it with true when all planned shapes are compiled, and with false when that no longer holds. Between these
  // two calls, a device that can refuse other shapes does so.
  virtual void SetGraphsFrozen(bool /*frozen*/) const {}

  // Allocates PinnedRows with arbitrary content. Returns nullopt if the device supports no pinned memory or the host
  // has no room. `rows` and `width` must be positive. Freeing the rows waits for the device.
  virtual std::optional<PinnedRows> AllocatePinned(int64_t /*rows*/, int64_t /*width*/) const { return std::nullopt; }

  virtual StorageUse storage() const = 0;
  virtual void RestartStoragePeak() const = 0;
  // Returns the present state. Values that only the device's thread may read are as that thread last published them.
  virtual DeviceState Observe() const = 0;
  // Returns the memory that tensors may take, for the admission of jobs. 0 means that it is not known.
  virtual int64_t memory_bytes() const = 0;
};

// Lets a backend remember the one thread that may use its device. Threads: safe anywhere.
class OwnerThread {
 public:
  // The first thread that calls this is the owner from then on. Errors: Internal on every other thread; the message
  // names `what`, the purpose of the call.
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
  // MPS's caches are emptied between steps when the driver's memory reaches this share, 0..2, of the recommended
  // maximum. With a smaller share, less memory is used, but more steps wait while shapes are compiled again. 0 means
  // never.
  double mps_driver_threshold = kDefaultMpsDriverThreshold;
};

// kAuto takes the first device that is present: MPS, CUDA, then the CPU. Errors: FailedPrecondition, naming what is
// missing, for a device that this machine or this libtorch lacks. FailedPrecondition also for a libtorch that was not
// tested (CheckTorchVersion), and for an environment that the device would refuse later.
absl::StatusOr<std::unique_ptr<Backend>> OpenBackend(const DeviceChoice& choice, const BackendOptions& options = {});
inline absl::StatusOr<std::unique_ptr<Backend>> OpenBackend(DeviceKind kind, const BackendOptions& options = {}) {
  return OpenBackend(DeviceChoice(kind), options);
}

// Sets the number of threads for the operators that the calling thread runs. This matters on every device, since
// steps on each device also have work on the host. 0 stands for AvailableCores(). Returns the number of threads set.
int UseThreads(int threads, TorchThreads torch_threads = TorchThreads::kAll);

// The peak memory of a capture as a multiple of the step's own peak. The arena that serves replays has gaps between
// its allocations.
inline constexpr double kCapturePeakFactor = 1.1;

// Returns an upper bound of the peak tensor storage, in bytes, of a capture on the CPU. `step_bytes` is the peak of
// the step when it runs eagerly. `state_bytes` is the size of the tensors that outlive a step: weights, buffers and
// the optimizer's moments. A capture copies these tensors in order to put them back. A tensor that is all zeros is
// not copied, so the warm-up of a new job copies no moments.
constexpr int64_t CapturePeakBytes(int64_t step_bytes, int64_t state_bytes) {
  return static_cast<int64_t>(kCapturePeakFactor * static_cast<double>(step_bytes)) + state_bytes;
}

// Returns an upper bound of the bytes that a step takes on its device while it is captured as a graph. The bound
// covers the bytes that the graph holds as long as it lives, and the bytes of the run that proves the graph. The
// arguments are those of CapturePeakBytes. The graphs of a job share their memory, so only the largest counts.
constexpr int64_t GraphPeakBytes(int64_t step_bytes, int64_t state_bytes) { return 2 * step_bytes + state_bytes; }

// Returns an upper bound of the bytes that one recorded step holds for its operators, shapes and numbers, without its
// arena. `layers` is the number of layers of the model. `fused` is true for the CPU's fused operators, of which a
// step has fewer. GINE of 4 layers with Adam takes 26 kB if fused, and up to 113 kB otherwise.
constexpr int64_t ExecutableBytes(int64_t layers, bool fused) { return (2 + layers) * (fused ? 8'192 : 24'576); }

}  // namespace permafrost::device
