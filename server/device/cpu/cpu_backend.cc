#include "device/cpu/cpu_backend.h"

#include <map>
#include <utility>

#include "base/resources.h"
#include "base/status.h"
#include "device/cpu/capture.h"
#include "device/cpu/storage.h"
#include "device/cpu/tape.h"

namespace permafrost::device {
namespace {

class CpuCapturer final : public Capturer {
 public:
  absl::StatusOr<std::unique_ptr<graphcache::Executable>> Capture(const StepProgram& program,
                                                                  const graphcache::StepInputs& first,
                                                                  const graphcache::StepInputs& second) override {
    return CaptureOnCpu(program, first, second, arena_);
  }
  absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureDynamic(const StepProgram& program,
                                                                         const ProbeInputs& probes) override {
    return CaptureDynamicOnCpu(program, probes, arena_);
  }
  absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureRung(const StepProgram& program,
                                                                      const BatchInputs& inputs,
                                                                      const ProbeInputs& probes) override {
    auto recorded = recorded_.find(&program);
    if (recorded == recorded_.end()) {
      PF_ASSIGN_OR_RETURN(RecordedStep step, RecordOnCpu(program, probes));
      recorded = recorded_.emplace(&program, std::move(step)).first;
    }
    PF_ASSIGN_OR_RETURN(const graphcache::StepInputs* batch, inputs());
    auto made = CaptureRungOnCpu(program, *batch, recorded->second, arena_);
    if (!made.ok()) recorded_.erase(recorded);
    return made;
  }
  int64_t shared_bytes() const override { return static_cast<int64_t>(arena_.bytes()); }
  void GiveBackMemory() override { arena_.Release(); }

 private:
  Arena arena_;
  std::map<const StepProgram*, RecordedStep> recorded_;  // one for training and one for evaluation, of a ladder
};

class CpuBackend final : public Backend {
 public:
  DeviceKind kind() const override { return DeviceKind::kCpu; }
  c10::Device device() const override { return c10::Device(c10::kCPU); }
  void Synchronize() const override {}
  absl::Status CheckCapture() const override { return CheckRecording(); }
  bool records() const override { return true; }
  std::unique_ptr<Capturer> MakeCapturer() const override { return std::make_unique<CpuCapturer>(); }
  StorageUse storage() const override { return ReadStorageUse(); }
  void RestartStoragePeak() const override { device::RestartStoragePeak(); }
  DeviceState Observe() const override {
    DeviceState state;
    state.memory.allocated = ReadStorageUse().bytes;
    state.memory.resident = static_cast<int64_t>(ResidentBytes());
    state.no_graph_entries_reason = "the CPU keeps no compiled graphs but the executables of jobs";
    return state;
  }
  int64_t memory_bytes() const override { return static_cast<int64_t>(MemoryLimit()); }
};

}  // namespace

std::unique_ptr<Backend> MakeCpuBackend() {
  InstallStorageAllocator();
  return std::make_unique<CpuBackend>();
}

}  // namespace permafrost::device
