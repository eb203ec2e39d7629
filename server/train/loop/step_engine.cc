#include "train/loop/step_engine.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/monotonic.h"
#include "base/status.h"
#include "base/string_view.h"
#include "collective/group.h"
#include "nn/gpu/operators.h"
#include "nn/loss.h"
#include "nn/ops/lowering.h"
#include "train/planning/batch_schedule.h"

namespace permafrost::train {
namespace {

// Declares parameters, buffers and constants.
void Declare(const nn::TensorSet& tensors, std::vector<device::StateTensor>& state) {
  for (const nn::NamedTensor& t : tensors.parameters()) state.push_back({t.name, t.value, "parameter"});
  for (const nn::NamedTensor& t : tensors.buffers()) state.push_back({t.name, t.value, "buffer"});
  for (const nn::NamedTensor& t : tensors.constants()) state.push_back({t.name, t.value, "constant"});
}

// Declares further tensors. Their declared names begin with `prefix`, for example "exp_avg.NAME".
void Declare(const std::string& prefix, const std::vector<nn::NamedTensor>& tensors,
             std::vector<device::StateTensor>& state) {
  for (const nn::NamedTensor& t : tensors) {
    state.push_back({prefix + t.name, t.value, prefix + t.name.substr(0, t.name.find('.'))});
  }
}

// During its lifetime, a backward pass runs on the thread that calls it. By default, autograd uses a separate thread
// for a device other than the CPU. But MPS must be called from one thread only, and a recording sees only the
// operators of its own thread.
class SingleThreadedBackward {
 public:
  SingleThreadedBackward() : before_(State().get_multithreading_enabled()) {
    State().set_multithreading_enabled(false);
  }
  SingleThreadedBackward(const SingleThreadedBackward&) = delete;
  ~SingleThreadedBackward() { State().set_multithreading_enabled(before_); }

 private:
  static c10::AutogradState& State() { return c10::AutogradState::get_tls_state(); }
  const bool before_;
};

// Declares tensors that a step only reads, but that outlive the step.
void Declare(const LossOptions& loss, std::vector<device::StateTensor>& state) {
  if (loss.class_weights.defined()) state.push_back({"loss.class_weights", loss.class_weights, "loss"});
}

// Returns the loss of the program if it computed one, and otherwise the job's loss. A program's loss counts as a mean
// over the labelled rows.
nn::LossTerms LossOfStep(const LossOptions& options, const Task::Output& output) {
  if (!output.loss.defined()) {
    return nn::ComputeLoss(options.loss, output.prediction, output.labels, options.class_weights);
  }
  const at::Tensor count = output.labels.isnan().logical_not().any(/*dim=*/1).sum().to(at::kFloat);
  // If no row has a label, the mean is usually NaN, and counts as 0.
  const at::Tensor mean = at::where(count > 0, output.loss, at::zeros_like(output.loss));
  return {.mean = mean, .sum = mean.detach() * count, .count = count};
}

// If ranks share the step, returns the terms over all ranks. The mean is scaled so that the sum of the ranks'
// gradients is the gradient of the whole batch's mean.
nn::LossTerms ShareTerms(const nn::LossTerms& own) {
  if (!collective::IsShared()) return own;
  const at::Tensor all = collective::AllReduceSum(at::stack({own.sum.detach(), own.count}));
  const at::Tensor count = all[1];
  // If no rank has a label, the divisor is 1 and each mean is 0.
  const at::Tensor part = own.count / at::where(count > 0, count, at::ones_like(count));
  return {.mean = own.mean * part, .sum = all[0], .count = count};
}

// The interval at which entries are copied for other threads. A copy at every step would cost too much if there are
// many entries.
constexpr std::chrono::milliseconds kEntriesInterval(500);

// The number of times that emptied caches are logged. Later times are counted without a log line.
constexpr int64_t kLoggedThresholds = 3;

graphcache::GraphCacheSetup SetupOf(const spec::TrainOptions& options, const Task& task, RunContext& context) {
  return {.options = options.graph_cache,
          .batch_size = (GraphsPerBatch(options, task.sizes()) + options.replicas - 1) / options.replicas,
          .has_partial = HavePartialBatches(options),
          .sizes = task.sizes(),
          .plan = task.plan(),
          .of_seeds = options.model.level == spec::ModelLevel::kNode,
          .pads = task.pads(),
          .now = [] { return absl::Now(); },
          .elapsed = [clock = Stopwatch()] { return clock.Elapsed(); },
          .log = [&context](std::string_view line,
                            bool warning) { context.Log(warning ? LogLevel::kWarning : LogLevel::kInfo, line); },
          .log_error = [&context](std::string_view line) { context.Log(LogLevel::kError, line); }};
}

}  // namespace

absl::Status UseKernelsOf(const device::Backend& backend) {
  nn::gpu::UseKernels(nullptr);
  absl::StatusOr<std::unique_ptr<KernelLauncher>> compiled = backend.CompileKernels(nn::gpu::kKernelSource);
  if (absl::IsUnimplemented(compiled.status())) return absl::OkStatus();
  if (!compiled.ok()) return compiled.status();
  nn::gpu::UseKernels(*std::move(compiled));
  return absl::OkStatus();
}

LossOptions LossOf(const spec::TrainOptions& options, c10::Device device) {
  LossOptions loss{.loss = options.loss,
                   .class_weights = {},
                   .lowering = options.model.lowering,
                   .precision = options.model.precision,
                   .on_wire = std::nullopt};
  if (options.exchange_precision == spec::Precision::kBfloat16) loss.on_wire = at::kBFloat16;
  if (!options.class_weights.empty()) {
    loss.class_weights = at::tensor(options.class_weights, at::TensorOptions().dtype(at::kFloat)).to(device);
  }
  return loss;
}

device::StepProgram TrainProgram(Task& task, nn::Optimizer& optimizer, const LossOptions& loss, ErrorSums& losses,
                                 std::function<void(int)> on_phase) {
  device::StepProgram program;
  Declare(task.tensors(), program.state);
  Declare("optimizer.", optimizer.state(), program.state);
  Declare("train.", losses.tensors(), program.state);
  Declare(loss, program.state);
  program.steady_state = [&optimizer] { optimizer.MakeUpdatesProportional(); };
  program.on_phase = on_phase;
  program.run = [&task, &optimizer, loss, &losses,
                 on_phase = std::move(on_phase)](const graphcache::StepInputs& inputs) -> std::vector<at::Tensor> {
    const nn::LoweringScope lowering(loss.lowering, loss.precision);
    device::MarkPhase(kBegin, on_phase);
    if (const std::optional<Task::RowStep> rows = task.StepRows(inputs)) {
      device::MarkPhase(kForward, on_phase);
      device::MarkPhase(kBackward, on_phase);
      optimizer.StepRows(rows->gradient);
      losses.Add(rows->terms);
      device::MarkPhase(kOptimizer, on_phase);
      return {};
    }
    const Task::Output output = task.Forward(inputs, Mode::kTrain);
    const nn::LossTerms own = LossOfStep(loss, output), terms = ShareTerms(own);
    device::MarkPhase(kForward, on_phase);
    const SingleThreadedBackward on_this_thread;
    std::optional<collective::Part> part;
    if (output.loss.defined() && collective::IsShared()) part.emplace(own.count);
    // grad() is called instead of backward(), because backward() accumulates into .grad. For this, it copies a
    // gradient that is still held elsewhere, for example by a recording.
    std::vector<at::Tensor> gradients = torch::autograd::grad({terms.mean}, optimizer.parameters());
    if (output.loss.defined()) {
      // The program's loss may divide by the number of labels, and the gradient of 0 / 0 is NaN.
      for (at::Tensor& gradient : gradients) gradient = at::where(own.count > 0, gradient, 0.0);
    }
    if (collective::IsShared()) gradients = collective::AllReduceSum(gradients, loss.on_wire);
    device::MarkPhase(kBackward, on_phase);
    optimizer.Step(std::move(gradients));
    losses.Add(terms);
    device::MarkPhase(kOptimizer, on_phase);
    return {};
  };
  return program;
}

device::StepProgram EvalProgram(Task& task, const LossOptions& loss, ErrorSums& losses, ErrorSums& errors) {
  device::StepProgram program;
  Declare(task.tensors(), program.state);
  Declare("eval.", losses.tensors(), program.state);
  Declare("eval.absolute_", errors.tensors(), program.state);
  Declare(loss, program.state);
  program.run = [&task, loss, &losses, &errors](const graphcache::StepInputs& inputs) -> std::vector<at::Tensor> {
    const at::NoGradGuard no_grad;
    const nn::LoweringScope lowering(loss.lowering, loss.precision);
    Task::Output output = task.Forward(inputs, Mode::kEval);
    losses.Add(LossOfStep(loss, output));
    if (!spec::HasClasses(loss.loss)) {
      errors.Add(nn::ComputeLoss(spec::Loss::kL1, output.prediction, output.labels));
    }
    return {std::move(output.prediction)};
  };
  return program;
}

ErrorSums::ErrorSums(c10::Device device, bool pairs) {
  const auto options = at::TensorOptions().device(device).dtype(pairs ? at::kFloat : at::kDouble);
  tensors_ = {{"loss_sum", at::zeros({}, options)}, {"loss_count", at::zeros({}, options)}};
  if (pairs) {
    tensors_.push_back({"loss_sum_rest", at::zeros({}, options)});
    tensors_.push_back({"loss_count_rest", at::zeros({}, options)});
  }
}

void ErrorSums::Reset() {
  for (nn::NamedTensor& t : tensors_) t.value.zero_();
}

void ErrorSums::Add(const nn::LossTerms& terms) {
  Add(0, terms.sum);
  Add(1, terms.count);
}

void ErrorSums::Add(size_t place, const at::Tensor& term) {
  at::Tensor& sum = tensors_[place].value;
  if (tensors_.size() == 2) {
    sum.add_(term);
    return;
  }
  const at::Tensor total = sum + term, added = total - sum;
  tensors_[place + 2].value.add_((sum - (total - added)) + (term - added));
  sum.copy_(total);
}

std::array<double, 2> ErrorSums::Read() const {
  // All values are stacked and read at once, because each read waits for the device.
  std::vector<at::Tensor> values;
  values.reserve(tensors_.size());
  for (const nn::NamedTensor& t : tensors_) values.push_back(t.value);
  const at::Tensor host = at::stack(values).to(at::kCPU).to(at::kDouble);
  const double* const v = host.const_data_ptr<double>();
  if (values.size() == 2) return {v[0], v[1]};
  return {v[0] + v[2], v[1] + v[3]};
}

double ErrorSums::Mean() const {
  const auto [sum, count] = Read();
  return count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN();
}

namespace {

// The step number of each probe. The numbers differ, so that a step whose recording contains its number as a constant
// is detected.
constexpr std::array<int64_t, device::kDynamicProbes> kProbeSteps{0, 1, 5, 2};
constexpr int64_t kRungStep = 3;

// During its lifetime, this rank's steps make no exchanges with other ranks. Captures need this, since ranks capture
// at different times.
struct CaptureScope {
  explicit CaptureScope(collective::Group* group) : shared(group) {}
  const collective::Scope shared;
  const collective::Apart apart;
};

}  // namespace

absl::StatusOr<std::unique_ptr<graphcache::Executable>> StepCompiler::Capture(Mode mode, const BatchShape& shape) {
  const CaptureScope scope(group_);
  PF_ASSIGN_OR_RETURN(const auto probes, task_.Probes(mode, shape));
  return capturer_->Capture(*programs_[static_cast<size_t>(mode)], *probes[0]->TakeInputs(kProbeSteps[0]),
                            *probes[1]->TakeInputs(kProbeSteps[1]));
}

absl::StatusOr<std::unique_ptr<graphcache::Executable>> StepCompiler::CaptureDynamic(Mode mode) {
  const CaptureScope scope(group_);
  return capturer_->CaptureDynamic(*programs_[static_cast<size_t>(mode)],
                                   [&](size_t probe) -> absl::StatusOr<const graphcache::StepInputs*> {
                                     PF_ASSIGN_OR_RETURN(HostBatch * batch, task_.DynamicProbe(mode, probe));
                                     return batch->TakeInputs(kProbeSteps[probe]);
                                   });
}

absl::StatusOr<std::unique_ptr<graphcache::Executable>> StepCompiler::CaptureRung(Mode mode, const BatchShape& shape) {
  const CaptureScope scope(group_);
  bool& resists = resists_[static_cast<size_t>(mode)];
  if (resists || graphcache::AtLeastDynamic(shape) != shape || !NoDynamicReason().empty()) return Capture(mode, shape);
  auto made = capturer_->CaptureRung(
      *programs_[static_cast<size_t>(mode)],
      [&]() -> absl::StatusOr<const graphcache::StepInputs*> {
        PF_ASSIGN_OR_RETURN(HostBatch * batch, task_.RungProbe(mode, shape));
        return batch->TakeInputs(kRungStep);
      },
      [&](size_t probe) -> absl::StatusOr<const graphcache::StepInputs*> {
        PF_ASSIGN_OR_RETURN(HostBatch * batch, task_.SmallProbe(mode, probe));
        return batch->TakeInputs(kProbeSteps[probe]);
      });
  if (made.ok() || GetReason(made.status()).reason != graphcache::kGraphBreakReason) return made;
  resists = true;
  log_(absl::StrCat("each rung of the ladder is recorded for itself, which takes longer: ", made.status().message()));
  return Capture(mode, shape);
}

absl::Status StepCompiler::WarmUp(Mode mode, const BatchShape& shape) {
  const CaptureScope scope(group_);
  if (!backend_.keeps_graphs()) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(const auto probes, task_.Probes(mode, shape));
  return capturer_->WarmUp(*programs_[static_cast<size_t>(mode)], *probes[0]->TakeInputs(kProbeSteps[0]));
}

std::string OneShapeReason(DeviceKind device) {
  return absl::StrCat("executables of ", AbslView(kDeviceNames.Name(device)), " are of one shape each");
}

std::string NoDynamicReason(const device::Backend& backend, const Task& task) {
  if (!backend.records()) return OneShapeReason(backend.kind());
  return task.NoDynamicReason();
}

absl::StatusOr<graphcache::StepResult> StepCompiler::RunEager(Mode mode, const graphcache::StepInputs& inputs) {
  return std::make_shared<const graphcache::StepOutputs>(
      capturer_->RunEager(*programs_[static_cast<size_t>(mode)], inputs));
}

StepEngine::StepEngine(const spec::TrainOptions& options, Task& task, nn::Optimizer& optimizer,
                       const device::Backend& backend, RunContext& context, collective::Group* group)
    : backend_(backend),
      context_(context),
      task_(task),
      group_(group),
      losses_(backend.device()),
      eval_losses_(backend.device()),
      eval_errors_(backend.device()),
      train_(TrainProgram(task, optimizer, LossOf(options, backend.device()), losses_,
                          [this](int phase) { OnPhase(phase); })),
      eval_(EvalProgram(task, LossOf(options, backend.device()), eval_losses_, eval_errors_)),
      compiler_(
          train_, eval_, task, backend, [&context](std::string_view line) { context.Log(LogLevel::kWarning, line); },
          group),
      cache_(SetupOf(options, task, context), compiler_) {
  TellTask();
  AnnouncePolicyOnDevice();
}

StepEngine::~StepEngine() {
  if (told_sealed_) backend_.SetGraphsFrozen(false);
}

void StepEngine::TellTask() {
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) task_.Prepare(mode, cache_.of(mode).dynamic, cache_.ladder(mode));
}

absl::Status StepEngine::Train(HostBatch& batch, int64_t step, PhaseSeconds& seconds) {
  phase_seconds_ = &seconds;
  const collective::Scope shared(group_);
  return Run(Mode::kTrain, batch, step).status();
}

absl::StatusOr<at::Tensor> StepEngine::Evaluate(HostBatch& batch, int64_t step) {
  PF_ASSIGN_OR_RETURN(const graphcache::StepResult result, Run(Mode::kEval, batch, step));
  return result->tensors.at(0);
}

void StepEngine::OnPhase(int phase) {
  if (phase_seconds_ == nullptr) return;  // a warm-up, which does not count as a step
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - std::exchange(phase_begin_, now)).count();
  switch (phase) {
    case kForward:
      phase_seconds_->forward += seconds;
      break;
    case kBackward:
      phase_seconds_->backward += seconds;
      break;
    case kOptimizer:
      phase_seconds_->optimizer += seconds;
      break;
    default:  // kBegin
      break;
  }
}

void StepEngine::Report(bool with_entries) {
  TellTask();
  const Clock::time_point now = Clock::now();
  std::shared_ptr<const std::vector<graphcache::EntryInfo>> entries;
  if (with_entries || now >= next_entries_) {
    entries = std::make_shared<const std::vector<graphcache::EntryInfo>>(cache_.entries());
    next_entries_ = now + kEntriesInterval;
  }
  context_.OnGraphCache(cache_.snapshot(), std::move(entries));
}

// The functions below work between steps, for a device that compiles for each shape and keeps what it compiled (MPS).
// The graph cache bounds the number of shapes that reach the device. Under a policy that keeps nothing, these
// functions empty the device's caches.

absl::StatusOr<graphcache::StepResult> StepEngine::Run(Mode mode, HostBatch& batch, int64_t step) {
  graphcache::StepResult result;
  const absl::Status ran = backend_.Within([&]() -> absl::Status {
    PF_ASSIGN_OR_RETURN(result, cache_.Run(mode, batch, step));
    return absl::OkStatus();
  });
  phase_seconds_ = nullptr;
  PF_RETURN_IF_ERROR(ran);
  PF_RETURN_IF_ERROR(EndStepOnDevice());
  return result;
}

absl::Status StepEngine::CaptureNext(int64_t step) {
  PF_RETURN_IF_ERROR(backend_.Within([&] { return cache_.CaptureNext(step); }));
  TellSealed();
  return absl::OkStatus();
}

absl::Status StepEngine::Apply(const graphcache::Command& command, int64_t step) {
  const spec::Policy before = cache_.options().policy;
  if (command.kind == graphcache::CommandKind::kClear) PF_RETURN_IF_ERROR(EmptyDevice(EmptyReason::kCommand));
  PF_RETURN_IF_ERROR(backend_.Within([&] { return cache_.Apply(command, step); }));
  TellSealed();
  if (cache_.options().policy != before) AnnouncePolicyOnDevice();
  return absl::OkStatus();
}

absl::Status StepEngine::EndStepOnDevice() {
  PF_ASSIGN_OR_RETURN(const bool over_threshold, backend_.EndStep());
  if (!backend_.keeps_graphs()) return absl::OkStatus();
  const spec::Policy policy = cache_.options().policy;
  if (spec::KeepsNothing(policy)) {
    return EmptyDevice(policy == spec::Policy::kNever ? EmptyReason::kNever : EmptyReason::kClearPerStep);
  }
  if (over_threshold) {
    const double before = static_cast<double>(backend_.Observe().memory.driver.value_or(0)) / 1e6;
    PF_RETURN_IF_ERROR(EmptyDevice(EmptyReason::kThreshold));
    cache_.OnDeviceEmptied();
    if (++thresholds_ <= kLoggedThresholds) {
      const double after = static_cast<double>(backend_.Observe().memory.driver.value_or(0)) / 1e6;
      context_.Log(
          LogLevel::kWarning,
          absl::StrFormat("the device's driver holds %.0f MB, its threshold: the caches are emptied, %.0f MB "
                          "are left, and what is planned is captured again before the next step%s",
                          before, after, thresholds_ == kLoggedThresholds ? "; others of this kind are counted" : ""));
    }
  }
  TellSealed();
  return absl::OkStatus();
}

// Lifts the device's freeze of its graphs first, because a frozen device could not compile graphs again after its
// caches are emptied.
absl::Status StepEngine::EmptyDevice(EmptyReason reason) {
  if (std::exchange(told_sealed_, false)) backend_.SetGraphsFrozen(false);
  return backend_.EmptyCaches(reason);
}

void StepEngine::TellSealed() {
  const bool sealed = cache_.sealed();
  if (std::exchange(told_sealed_, sealed) != sealed) backend_.SetGraphsFrozen(sealed);
}

void StepEngine::AnnouncePolicyOnDevice() {
  if (!backend_.keeps_graphs()) return;
  const spec::PolicyOptions& options = cache_.options();
  const std::string device(kDeviceNames.Name(backend_.kind()));
  if (spec::KeepsNothing(options.policy)) {
    context_.Log(LogLevel::kInfo, absl::StrCat("policy ", AbslView(spec::kPolicyNames.Name(options.policy)),
                                               ": the caches of ", device, " are emptied after each step"));
    return;
  }
  const bool compiles = options.on_miss == spec::OnMiss::kEager || options.on_miss == spec::OnMiss::kTransient;
  if (options.policy == spec::Policy::kFreeze && compiles && !spec::WantsLadder(options)) {
    context_.Log(LogLevel::kWarning,
                 absl::StrCat("on_miss ", AbslView(spec::kOnMissNames.Name(options.on_miss)),
                              ": shapes that the frozen cache does not hold reach ", device,
                              ", which keeps what it compiles for them; on_miss pad keeps it flat"));
  }
}

}  // namespace permafrost::train
