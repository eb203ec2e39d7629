#include "device/cuda/graph_capturer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "device/cpu/tape.h"
#include "device/fault.h"
#include "device/step_program.h"

namespace permafrost::device {
namespace {

at::Tensor OnHost(const at::Tensor& t) {
  if (!t.defined()) return t;
  const at::Tensor host = t.detach().to(at::kCPU);
  // If the tensor was on the host already, `to` did not copy it, so it is copied here.
  return host.is_alias_of(t) ? host.clone() : host;
}

bool IsCompared(const at::Tensor& t) { return t.defined() && t.is_floating_point() && t.numel() > 0; }

// Returns the largest |a - b| of all elements. Equal elements and pairs of NaN differ by 0. A difference that is
// infinite or NaN counts as 0, since otherwise the bound computed from the maximum would allow any difference.
double Apart(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  const at::Tensor same = x.eq(y).logical_or(x.isnan().logical_and(y.isnan()));
  return (x - y).abs().masked_fill(same, 0).nan_to_num(0, 0, 0).max().item<double>();
}

double Largest(const at::Tensor& a) { return a.to(at::kDouble).abs().nan_to_num(0, 0, 0).max().item<double>(); }

double Epsilon(c10::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return std::numeric_limits<double>::epsilon();
    case at::kBFloat16:
      return 0x1p-7;
    case at::kHalf:
      return 0x1p-10;
    default:
      return std::numeric_limits<float>::epsilon();
  }
}

// Returns true if each element of `got` differs from that of `want` by at most `allowed` plus two roundings at the
// element's size. An element that is not finite must be the same in both.
bool IsWithin(const at::Tensor& got, const at::Tensor& want, double allowed) {
  const at::Tensor x = got.to(at::kDouble), y = want.to(at::kDouble);
  const at::Tensor same = x.eq(y).logical_or(x.isnan().logical_and(y.isnan()));
  const at::Tensor near = (x - y).abs().le(y.abs().mul(2 * Epsilon(want.scalar_type())).add(allowed));
  return near.logical_and(x.isfinite()).logical_and(y.isfinite()).logical_or(same).all().item<bool>();
}

bool IsEqual(const at::Tensor& got, const at::Tensor& want) {
  if (!want.defined() || !got.defined()) return want.defined() == got.defined();
  return got.sizes() == want.sizes() && got.scalar_type() == want.scalar_type() &&
         (IsCompared(want) || got.equal(want));
}

}  // namespace

HostValues ValuesOf(const StepProgram& program, const std::vector<at::Tensor>& outputs) {
  const at::NoGradGuard no_grad;
  HostValues values;
  for (const StateTensor& s : program.state) values.state.push_back(OnHost(s.value));
  for (const at::Tensor& t : outputs) values.outputs.push_back(OnHost(t));
  return values;
}

std::optional<std::string> FindDifference(const std::vector<StateTensor>& state, const HostValues& start,
                                          const HostValues& run, const HostValues& again, const HostValues& replay) {
  std::map<std::string, double> largest_change;
  for (size_t i = 0; i < state.size(); ++i) {
    if (!IsCompared(run.state[i])) continue;
    double& largest = largest_change[state[i].group];
    largest = std::max(largest, Apart(run.state[i], start.state[i]));
  }
  for (size_t i = 0; i < state.size(); ++i) {
    const at::Tensor &want = run.state[i], &got = replay.state[i];
    if (!IsEqual(got, want)) return state[i].name;
    if (!IsCompared(want)) continue;
    const double allowed = kProofRelative * Apart(want, start.state[i]) + kProofNoise * Apart(again.state[i], want) +
                           kProofFloor * largest_change[state[i].group];
    if (!IsWithin(got, want, allowed)) return state[i].name;
  }
  if (replay.outputs.size() != run.outputs.size()) return "the number of outputs";
  for (size_t i = 0; i < run.outputs.size(); ++i) {
    const at::Tensor &want = run.outputs[i], &got = replay.outputs[i];
    const bool same =
        IsEqual(got, want) && (!IsCompared(want) || IsWithin(got, want,
                                                             (kProofRelative + kProofFloor) * Largest(want) +
                                                                 kProofNoise * Apart(again.outputs[i], want)));
    if (!same) return absl::StrCat("output ", i);
  }
  return std::nullopt;
}

namespace {

using Tensors = std::vector<at::Tensor>;

// The number of runs of a step on the side stream before the capture. In the first, libraries choose their kernels and
// allocate.
constexpr int kWarmUps = 2;

// While an OnSideStream lives, the current stream is `side`, since the default stream cannot be captured.
class OnSideStream {
 public:
  explicit OnSideStream(c10::Stream side)
      : before_(c10::impl::VirtualGuardImpl(side.device_type()).getStream(side.device())), side_(side), scope_(side) {
    WaitFor(before_, side_);
  }
  OnSideStream(const OnSideStream&) = delete;
  ~OnSideStream() {
    UnlessFatal([this] { WaitFor(side_, before_); });
  }

 private:
  // Makes stream `later` wait for all work that was enqueued so far on stream `earlier`.
  static void WaitFor(const c10::Stream& earlier, const c10::Stream& later) {
    if (earlier == later) return;
    c10::Event event(earlier.device_type());
    event.record(earlier);
    event.block(later);
  }

  const c10::Stream before_, side_;
  const c10::StreamGuard scope_;
};

// Returns `batch` with its resident tensors replaced by those of `of`. A graph always reads the resident tensors with
// which it was captured.
graphcache::StepInputs WithResident(graphcache::StepInputs batch, const graphcache::StepInputs& of) {
  for (const size_t place : of.resident) batch.tensors[place] = of.tensors[place];
  return batch;
}

bool IsOfShape(const at::Tensor& tensor, const at::Tensor& like) {
  if (!tensor.defined() || !like.defined()) return tensor.defined() == like.defined();
  return tensor.sizes() == like.sizes() && tensor.scalar_type() == like.scalar_type();
}

// The buffer from which a graph reads its batch. Each batch is copied into it.
class GraphInputs {
 public:
  // Allocates memory for batches of the shape of `batch`, and copies nothing. The graph reads resident tensors where
  // they are.
  GraphInputs(const graphcache::StepInputs& batch, c10::Device device);

  const graphcache::StepInputs& get() const { return inputs_; }
  // Returns the bytes of the memory that this object owns.
  int64_t bytes() const;
  // Enqueues the copy of a batch. `staging` copies the tensors that are on the host. A tensor on the device is not
  // copied again if it is the same tensor as in the previous batch. Errors: Internal if the batch has another shape
  // or other resident tensors.
  absl::Status Take(const graphcache::StepInputs& batch, Staging& staging);

 private:
  absl::Status Check(const graphcache::StepInputs& batch) const;

  const InputLayout layout_;
  const at::Tensor buffer_;  // bytes
  graphcache::StepInputs inputs_;
  std::vector<size_t> own_;        // places of inputs that are on the device and not resident
  std::vector<at::Tensor> given_;  // by place: the tensor from which the input was last copied
};

GraphInputs::GraphInputs(const graphcache::StepInputs& batch, c10::Device device)
    : layout_(batch),
      buffer_(at::empty({layout_.bytes()}, at::TensorOptions().dtype(at::kByte).device(device))),
      inputs_(layout_.ViewsInto(buffer_, batch)),
      given_(inputs_.tensors.size()) {
  for (size_t i = 0; i < inputs_.tensors.size(); ++i) {
    at::Tensor& input = inputs_.tensors[i];
    const bool resident = std::ranges::find(inputs_.resident, i) != inputs_.resident.end();
    if (!input.defined() || layout_.place(i) || resident) continue;
    input = at::empty_like(input);
    own_.push_back(i);
  }
}

int64_t GraphInputs::bytes() const {
  int64_t bytes = layout_.bytes();
  for (const size_t i : own_) bytes += static_cast<int64_t>(inputs_.tensors[i].nbytes());
  return bytes;
}

absl::Status GraphInputs::Check(const graphcache::StepInputs& batch) const {
  if (InputLayout(batch) != layout_ || !std::ranges::equal(batch.tensors, inputs_.tensors, IsOfShape)) {
    return absl::InternalError("a graph of the device was given a batch of another shape than it was captured with");
  }
  for (const size_t place : inputs_.resident) {
    if (batch.tensors[place].const_data_ptr() == inputs_.tensors[place].const_data_ptr()) continue;
    return absl::InternalError(absl::StrCat("a graph of the device was given another tensor than it reads as input ",
                                            place, ", which is to be the same in every batch"));
  }
  return absl::OkStatus();
}

absl::Status GraphInputs::Take(const graphcache::StepInputs& batch, Staging& staging) {
  PF_RETURN_IF_ERROR(Check(batch));
  staging.UploadInto(batch, layout_, buffer_);
  const at::NoGradGuard no_grad;
  for (const size_t i : own_) {
    // A tensor that was copied last time, such as a split's labels, is not copied again.
    if (given_[i].is_same(batch.tensors[i])) continue;
    inputs_.tensors[i].copy_(batch.tensors[i], /*non_blocking=*/true);
    given_[i] = batch.tensors[i];
  }
  return absl::OkStatus();
}

class GraphExecutable final : public graphcache::Executable {
 public:
  // Borrows the program, the staging and `device`. `first` is a batch of the executable's shape.
  GraphExecutable(const GraphDevice& device, std::shared_ptr<const c10::MempoolId_t> pool, Staging& staging,
                  const StepProgram& program, const graphcache::StepInputs& first, const std::vector<Tape::Mark>& marks)
      : pool_(std::move(pool)),
        staging_(staging),
        program_(program),
        inputs_(first, device.device),
        marks_(marks),
        empty_cache_(device.empty_cache),
        graph_(device.make_graph()) {}

  // Captures the step on `first`. Exceptions of the device pass through. After an exception, the program's state is
  // undefined.
  absl::Status Record(const graphcache::StepInputs& first, c10::Stream side) {
    const SilentPhases silent;
    PF_RETURN_IF_ERROR(inputs_.Take(first, staging_));
    const OnSideStream on_side(side);
    for (int run = 0; run < kWarmUps; ++run) program_.run(inputs_.get());
    empty_cache_();
    graph_->BeginCapture(*pool_);
    try {
      outputs_ = std::make_shared<const graphcache::StepOutputs>(program_.run(inputs_.get()));
    } catch (...) {
      EndQuietly();
      throw;
    }
    graph_->EndCapture();
    return absl::OkStatus();
  }

  absl::StatusOr<graphcache::StepResult> Replay(const graphcache::StepInputs& inputs) override {
    PF_RETURN_IF_ERROR(inputs_.Take(inputs, staging_));
    // A graph replays in one call, so the time of the whole step counts for its first phase.
    for (size_t m = 0; m < marks_.size(); ++m) {
      if (m == 1) graph_->Replay();
      MarkPhase(marks_[m].phase, program_.on_phase);
    }
    if (marks_.size() < 2) graph_->Replay();
    return outputs_;
  }

  int64_t bytes() const override { return inputs_.bytes(); }

 private:
  // Ends a failed capture, since otherwise the stream goes on capturing. Ignores further errors, since the first one
  // is reported.
  void EndQuietly() {
    try {
      graph_->EndCapture();
      // NOLINTNEXTLINE(bugprone-empty-catch): the caller tells the error that made the capture fail.
    } catch (const std::exception&) {
    }
  }

  const std::shared_ptr<const c10::MempoolId_t> pool_;
  Staging& staging_;
  const StepProgram& program_;
  GraphInputs inputs_;
  const std::vector<Tape::Mark> marks_;
  const std::function<void()>& empty_cache_;
  graphcache::StepResult outputs_;
  const std::unique_ptr<DeviceGraph> graph_;
};

// Restores the state, then calls the program's steady_state, so that a proof can start from the result.
void BeginProof(const StepProgram& program, SavedState& saved) {
  saved.Rewind();
  if (program.steady_state) program.steady_state();
}

// Runs the step twice on `inputs`, and replays it on `batch`. `batch` is the original of which `inputs` is the copy
// on the device. Returns the name of the first tensor that FindDifference finds; nullopt if there is none.
absl::StatusOr<std::optional<std::string>> ProveReplay(const StepProgram& program, const graphcache::StepInputs& batch,
                                                       const graphcache::StepInputs& inputs,
                                                       GraphExecutable& executable, SavedState& saved) {
  const SilentPhases silent;
  BeginProof(program, saved);
  const HostValues start = ValuesOf(program, {});
  const HostValues run = ValuesOf(program, program.run(inputs));
  BeginProof(program, saved);
  const HostValues again = ValuesOf(program, program.run(inputs));
  BeginProof(program, saved);
  PF_ASSIGN_OR_RETURN(const graphcache::StepResult replayed, executable.Replay(batch));
  return FindDifference(program.state, start, run, again, ValuesOf(program, replayed->tensors));
}

}  // namespace

std::shared_ptr<const c10::MempoolId_t> GraphPool::Current() {
  auto pool = current_.lock();
  if (pool == nullptr) {
    pool = std::make_shared<const c10::MempoolId_t>(make_());
    current_ = pool;
  }
  return pool;
}

absl::StatusOr<std::unique_ptr<graphcache::Executable>> GraphCapturer::Capture(const StepProgram& program,
                                                                               const graphcache::StepInputs& first,
                                                                               const graphcache::StepInputs& second) {
  SavedState saved(program.state);
  Tape tape(program.state);
  const graphcache::StepInputs one = CopyToDevice(first, device_.device), other = CopyToDevice(second, device_.device);
  tape.Record(one.tensors, [&] { return program.run(one); });
  if (tape.broken()) return BreakStatus(*tape.broken());
  tape.Compare(other.tensors, [&] { return program.run(other); });
  if (tape.broken()) return BreakStatus(*tape.broken());
  saved.Rewind();

  if (!side_) side_ = c10::impl::VirtualGuardImpl(device_.device.type()).getNewStream(device_.device);
  auto executable = std::make_unique<GraphExecutable>(device_, pool_.Current(), staging_, program, first, tape.marks());
  try {
    PF_RETURN_IF_ERROR(executable->Record(first, *side_));
  } catch (const c10::Error& error) {
    pool_.Abandon();
    if (IsOutOfMemory(error) || IsFatalToDevice(error)) throw;
    return BreakStatus({"", absl::StrCat("the device refuses it: ", error.what_without_backtrace())});
  }
  PF_ASSIGN_OR_RETURN(const auto difference,
                      ProveReplay(program, WithResident(second, first), WithResident(other, one), *executable, saved));
  if (difference) {
    return BreakStatus({"", absl::StrCat("a replay leaves ", *difference, " otherwise than the step did")});
  }
  return executable;
}

std::vector<at::Tensor> GraphCapturer::RunEager(const StepProgram& program, const graphcache::StepInputs& inputs) {
  return program.run(staging_.Upload(inputs));
}

absl::StatusOr<std::unique_ptr<graphcache::Executable>> GraphCapturer::CaptureDynamic(const StepProgram& /*program*/,
                                                                                      const ProbeInputs& /*probes*/) {
  return absl::UnimplementedError("a graph of this device is of one shape");
}

}  // namespace permafrost::device
