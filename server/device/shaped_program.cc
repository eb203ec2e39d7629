#include "device/shaped_program.h"

#include "device/cpu/step_state.h"

namespace permafrost::device {
namespace {

class ShapedProgram final : public graphcache::Executable {
 public:
  ShapedProgram(const StepProgram& program, Staging& staging) : program_(program), staging_(staging) {}
  absl::StatusOr<graphcache::StepResult> Replay(const graphcache::StepInputs& inputs) override {
    return std::make_shared<const graphcache::StepOutputs>(program_.run(staging_.Upload(inputs)));
  }
  // The bytes that the backend keeps for this shape are not known here.
  int64_t bytes() const override { return static_cast<int64_t>(sizeof(*this)); }

 private:
  const StepProgram& program_;
  Staging& staging_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<graphcache::Executable>> ShapedCapturer::Capture(
    const StepProgram& program, const graphcache::StepInputs& /*first*/, const graphcache::StepInputs& /*second*/) {
  return std::make_unique<ShapedProgram>(program, staging_);
}

absl::StatusOr<std::unique_ptr<graphcache::Executable>> ShapedCapturer::CaptureDynamic(const StepProgram& /*program*/,
                                                                                       const ProbeInputs& /*probes*/) {
  return absl::UnimplementedError("this device records no steps: its executables are of one shape each");
}

std::vector<at::Tensor> ShapedCapturer::RunEager(const StepProgram& program, const graphcache::StepInputs& inputs) {
  return program.run(staging_.Upload(inputs));
}

absl::Status ShapedCapturer::WarmUp(const StepProgram& program, const graphcache::StepInputs& inputs) {
  const SavedState saved(program.state);
  RunEager(program, inputs);
  return absl::OkStatus();
}

}  // namespace permafrost::device
