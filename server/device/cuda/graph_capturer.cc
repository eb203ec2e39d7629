#include "device/cuda/graph_capturer.h"

#include <ATen/ATen.h>
#include <ATen/core/GraphImplInterface.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "device/cpu/step_state.h"
#include "device/cpu/tape.h"
#include "device/fault.h"

namespace permafrost::device {
namespace {

using Tensors = std::vector<at::Tensor>;

// Runs of a step on the side stream before it is captured: libraries choose their kernels and allocate in the first.
constexpr int kWarmUps = 2;
// How far a replay may be from the step.
constexpr double kRelativeTolerance = 1e-3, kAbsoluteTolerance = 1e-5;

// A stream of the device's own while it lives: no capture is allowed on the default one.
class SideStream {
 public:
  explicit SideStream(c10::Device device)
      : guard_(device.type()), before_(guard_.getStream(device)), side_(guard_.getNewStream(device)), scope_(side_) {
    WaitFor(before_, side_);
  }
  SideStream(const SideStream&) = delete;
  ~SideStream() {
    UnlessFatal([this] { WaitFor(side_, before_); });
  }

 private:
  // Work that `later` is given from now on comes after all that `earlier` has.
  static void WaitFor(const c10::Stream& earlier, const c10::Stream& later) {
    if (earlier == later) return;
    c10::Event event(earlier.device_type());
    event.record(earlier);
    event.block(later);
  }

  const c10::impl::VirtualGuardImpl guard_;
  const c10::Stream before_, side_;
  const c10::StreamGuard scope_;
};

Tensors Clones(const Tensors& tensors) {
  const at::NoGradGuard no_grad;
  Tensors clones;
  for (const at::Tensor& t : tensors) clones.push_back(t.defined() ? t.detach().clone() : t);
  return clones;
}

Tensors ValuesOf(const StepProgram& program) {
  Tensors values;
  for (const StateTensor& s : program.state) values.push_back(s.value);
  return Clones(values);
}

bool IsClose(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  if (!a.is_floating_point()) return a.equal(b);
  return a.allclose(b, kRelativeTolerance, kAbsoluteTolerance, /*equal_nan=*/true);
}

class GraphExecutable final : public graphcache::Executable {
 public:
  // Borrows the program.
  GraphExecutable(c10::Device device, const StepProgram& program, const graphcache::StepInputs& inputs,
                  const std::vector<Tape::Mark>& marks)
      : device_(device),
        program_(program),
        buffers_{Clones(inputs.tensors)},
        marks_(marks),
        graph_(at::create_graph_impl(device.type())) {}

  // Exceptions of the device pass through; the state is then anything.
  void Record(c10::MempoolId_t& pool) {
    const SilentPhases silent;
    const SideStream side(device_);
    for (int run = 0; run < kWarmUps; ++run) program_.run(buffers_);
    graph_->capture_begin(pool);
    try {
      outputs_ = std::make_shared<const graphcache::StepOutputs>(program_.run(buffers_));
    } catch (...) {
      EndQuietly();
      throw;
    }
    graph_->capture_end();
    pool = graph_->pool();
  }

  absl::StatusOr<graphcache::StepResult> Replay(const graphcache::StepInputs& inputs) override {
    {
      const at::NoGradGuard no_grad;
      for (size_t i = 0; i < buffers_.tensors.size(); ++i) {
        if (buffers_.tensors[i].defined()) buffers_.tensors[i].copy_(inputs.tensors[i], /*non_blocking=*/true);
      }
    }
    // A graph is one call, and the time of all of it is that of its first phase.
    for (size_t m = 0; m < marks_.size(); ++m) {
      if (m == 1) graph_->replay();
      MarkPhase(marks_[m].phase, program_.on_phase);
    }
    if (marks_.size() < 2) graph_->replay();
    return outputs_;
  }

  int64_t bytes() const override {
    int64_t bytes = 0;
    for (const at::Tensor& t : buffers_.tensors) bytes += t.defined() ? static_cast<int64_t>(t.nbytes()) : 0;
    return bytes;
  }

 private:
  // A capture that failed has an end, too, or the stream stays captured; its own error adds nothing.
  void EndQuietly() {
    try {
      graph_->capture_end();
    } catch (const std::exception&) {
      graph_->reset();
    }
  }

  const c10::Device device_;
  const StepProgram& program_;
  const graphcache::StepInputs buffers_;
  const std::vector<Tape::Mark> marks_;
  const std::unique_ptr<at::GraphImplInterface> graph_;
  graphcache::StepResult outputs_;
};

// The first thing that a replay of `inputs` leaves otherwise than the step does.
absl::StatusOr<std::optional<std::string>> FindDifference(const StepProgram& program,
                                                          const graphcache::StepInputs& inputs,
                                                          GraphExecutable& executable, SavedState& saved) {
  const SilentPhases silent;
  saved.Rewind();
  const Tensors want_outputs = Clones(program.run(inputs)), want_state = ValuesOf(program);
  saved.Rewind();
  PF_ASSIGN_OR_RETURN(const graphcache::StepResult replayed, executable.Replay(inputs));
  for (size_t i = 0; i < program.state.size(); ++i) {
    if (!IsClose(program.state[i].value, want_state[i])) return program.state[i].name;
  }
  for (size_t i = 0; i < want_outputs.size(); ++i) {
    if (i >= replayed->tensors.size() || !IsClose(replayed->tensors[i], want_outputs[i])) {
      return absl::StrCat("output ", i);
    }
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::unique_ptr<graphcache::Executable>> GraphCapturer::Capture(const StepProgram& program,
                                                                               const graphcache::StepInputs& first,
                                                                               const graphcache::StepInputs& second) {
  SavedState saved(program.state);
  Tape tape(program.state);
  tape.Record(first.tensors, [&] { return program.run(first); });
  if (tape.broken()) return BreakStatus(*tape.broken());
  tape.Compare(second.tensors, [&] { return program.run(second); });
  if (tape.broken()) return BreakStatus(*tape.broken());
  saved.Rewind();

  auto executable = std::make_unique<GraphExecutable>(device_, program, first, tape.marks());
  try {
    executable->Record(pool_);
  } catch (const c10::Error& error) {
    // Such a fault is no property of the step.
    if (IsFatalToDevice(error)) throw;
    return BreakStatus({"", absl::StrCat("the device refuses it: ", error.what_without_backtrace())});
  }
  PF_ASSIGN_OR_RETURN(const auto difference, FindDifference(program, second, *executable, saved));
  if (difference) {
    return BreakStatus({"", absl::StrCat("a replay leaves ", *difference, " otherwise than the step did")});
  }
  return executable;
}

absl::StatusOr<std::unique_ptr<graphcache::Executable>> GraphCapturer::CaptureDynamic(const StepProgram& /*program*/,
                                                                                      const ProbeInputs& /*probes*/) {
  return absl::UnimplementedError("a graph of this device is of one shape");
}

}  // namespace permafrost::device
