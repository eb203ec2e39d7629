#include "train/loop/torch_runner.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "base/device.h"
#include "base/file.h"
#include "base/resources.h"
#include "base/status.h"
#include "base/string_view.h"
#include "base/text.h"
#include "device/backend.h"
#include "device/fault.h"
#include "device/torch_version.h"
#include "nn/ops/lowering.h"
#include "program/load.h"
#include "spec/program_description.h"
#include "train/loop/evaluation.h"
#include "train/loop/initial_weights.h"
#include "train/loop/step_engine.h"
#include "train/loop/team.h"
#include "train/loop/trainer.h"
#include "train/planning/cache_planner.h"
#include "train/planning/job_schedule.h"

namespace permafrost::train {
namespace {

// The time for which a busy daemon is asked again, so that it can leave one team and join the next.
constexpr absl::Duration kPatience = absl::Seconds(3);
constexpr int kMostVain = 3;
constexpr absl::Duration kLongestLook = absl::Minutes(10);

// Returns the outcome of a run that was stopped before its first step or within a step.
RunOutcome StoppedOutcome(const RunContext& context) {
  const bool cancel = context.stop_requested() == StopRequest::kCancel;
  return {.end = cancel ? RunEnd::kCancelled : RunEnd::kDrained, .result = {}};
}

// The functions below describe a program in readable text.
// Threads: pure functions of the program's archive.

// Returns the expression of a size, with the letters N, E and G of a batch instead of the export's symbols.
std::string SizeText(const program::Size& size, const program::BatchSymbols& symbols) {
  if (size.expression.empty()) return absl::StrCat(size.number);
  const auto is_part = [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  const auto letter = [&](const std::string& word) -> std::string {
    if (word == symbols.nodes) return "N";
    if (word == symbols.edges) return "E";
    return word == symbols.graphs ? "G" : word;
  };
  std::string text;
  for (size_t at = 0; at < size.expression.size();) {
    size_t end = at;
    while (end < size.expression.size() && is_part(size.expression[end])) ++end;
    text += end > at ? letter(size.expression.substr(at, end - at)) : std::string(1, size.expression[at]);
    at = std::max(end, at + 1);
  }
  return Shorten(text);
}

std::string TypeText(const program::TensorType& type, const program::BatchSymbols& symbols) {
  std::string sizes;
  for (const program::Size& size : type.sizes)
    absl::StrAppend(&sizes, sizes.empty() ? "" : ", ", SizeText(size, symbols));
  return absl::StrCat(AbslView(program::kDTypeNames.Name(type.dtype)), "[", sizes, "]");
}

std::string TypeText(program::ValueKind kind, const program::TensorType& type, const program::BatchSymbols& symbols) {
  if (kind == program::ValueKind::kTensor) return TypeText(type, symbols);
  return std::string(program::kValueKindNames.Name(kind));
}

// Counts the nodes of the graph and its regions, and collects their ATen operators.
int64_t CountNodes(const program::Graph& graph, std::set<std::string>& operators) {
  int64_t nodes = std::ssize(graph.nodes);
  for (const program::Node& node : graph.nodes) {
    absl::string_view target = node.target;
    if (absl::ConsumePrefix(&target, "torch.ops.") && absl::StartsWith(target, "aten.")) operators.emplace(target);
    for (const program::NamedArgument& input : node.inputs) {
      const auto* region = std::get_if<std::shared_ptr<const program::Graph>>(&input.value);
      if (region != nullptr && *region) nodes += CountNodes(**region, operators);
    }
  }
  return nodes;
}

spec::ProgramForm DescribeForm(const program::Program& program) {
  spec::ProgramForm form{.name = program.form, .inputs = {}, .outputs = {}, .num_nodes = 0, .operators = {}};
  form.inputs.reserve(program.inputs.size());
  for (const program::Input& input : program.inputs) {
    form.inputs.push_back({.name = Shorten(input.name), .type = TypeText(input.kind, input.type, program.symbols)});
  }
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    if (program.outputs[i] == program::kNoValue) continue;
    const program::Graph::Value& value = program.graph.values[program.outputs[i]];
    form.outputs.push_back(
        {.name = Shorten(value.name), .type = TypeText(value.kind, program.output_types[i], program.symbols)});
  }
  std::set<std::string> operators;
  form.num_nodes = CountNodes(program.graph, operators);
  form.operators.assign(operators.begin(), operators.end());
  return form;
}

spec::ProgramTensorKind KindOf(program::StateKind kind) {
  switch (kind) {
    case program::StateKind::kParameter:
      return spec::ProgramTensorKind::kParameter;
    case program::StateKind::kBuffer:
      return spec::ProgramTensorKind::kBuffer;
    case program::StateKind::kConstant:
      break;
  }
  return spec::ProgramTensorKind::kConstant;
}

spec::ProgramDescription Describe(const program::LoadedProgram& loaded) {
  spec::ProgramDescription description;
  description.torch_version = Shorten(loaded.train().program->torch_version);
  std::set<std::pair<program::StateKind, std::string>> told;
  std::set<const c10::TensorImpl*> counted;
  for (const program::Form& form : loaded.forms) {
    description.forms.push_back(DescribeForm(*form.program));
    for (size_t i = 0; i < form.state.size(); ++i) {
      const program::State& state = form.program->state[i];
      const at::Tensor& tensor = form.state[i];
      const bool is_parameter = state.kind == program::StateKind::kParameter;
      if (is_parameter && counted.insert(tensor.unsafeGetTensorImpl()).second) {
        description.num_parameters += tensor.numel();
      }
      if (!told.emplace(state.kind, state.name).second) continue;
      description.tensors.push_back({.name = Shorten(state.name),
                                     .kind = KindOf(state.kind),
                                     .type = TypeText(state.type, {}),
                                     .trained = is_parameter && tensor.requires_grad(),
                                     .persistent = state.persistent});
    }
  }
  std::ranges::stable_sort(description.tensors, {}, &spec::ProgramTensor::kind);
  return description;
}

// Loads the archive and describes it, by the contract of Runner::DescribeProgram. Tensors take at most as much memory
// as the archive has bytes. So an archive that is larger than `limit`, or than the free memory, is refused without
// being read.
absl::StatusOr<spec::ProgramDescription> DescribeProgram(const std::filesystem::path& archive, uint64_t limit,
                                                         const std::optional<MemoryLeft>& memory) {
  std::error_code error;
  const uint64_t bytes = std::filesystem::file_size(archive, error);
  if (error) return SystemError(error.value(), archive, "look at");
  if (bytes > limit) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the archive has ", bytes, " bytes, and this server may use ", limit, " bytes of memory"));
  }
  if (memory && bytes > memory->left) {
    return AsTransient(absl::ResourceExhaustedError(absl::StrCat(
        "the archive has ", bytes, " bytes, and ", memory->left, " bytes of this server's memory are free just now")));
  }
  PF_ASSIGN_OR_RETURN(const program::LoadedProgram loaded, program::LoadProgram(archive));
  return Describe(loaded);
}

class TorchRunner final : public Runner {
 public:
  TorchRunner(std::unique_ptr<device::Backend> backend, int threads, const RunnerOptions& options)
      : backend_(std::move(backend)),
        device_memory_(OwnMemory(*backend_)),
        threads_(threads),
        torch_version_(device::LoadedTorchVersion()),
        reserve_(options.reserve),
        peers_(options.peers),
        peer_timeout_(options.peer_timeout),
        look_interval_(options.look_interval),
        row_caches_(options.features) {
    if (!options.plans.empty()) plans_.emplace(options.plans, options.warn);
  }

  absl::StatusOr<RunOutcome> Run(const RunRequest& request, RunContext& context) override {
    return OnDevice<RunOutcome>([&]() -> absl::StatusOr<RunOutcome> {
      TeamOptions options{.peers = peers_, .step_timeout = peer_timeout_, .look_interval = look_interval_};
      int64_t grown_from = 0;  // the size of the last team if it ended in order to grow; otherwise 0
      int64_t farthest = 0;    // the highest step that any team reached
      int vain = 0;            // teams in a row that reached no higher step
      while (true) {
        // Checks the model again, because less memory may be free than when the job was submitted. If another daemon
        // leads a job with a program, this rank gets the program only after the ranks have connected, and checks it
        // then.
        if (!request.place || !spec::IsProgram(request.options)) {
          PF_RETURN_IF_ERROR(CheckModel(request.options, data::SummaryOf(request.dataset), "spec."));
        }
        // The device may have changed since the job was submitted. The check assumes that there are enough peers,
        // because their number is checked when the team is formed.
        PF_RETURN_IF_ERROR(
            CheckReplicas(request.options.replicas, backend_->kind(), /*peers=*/request.options.replicas, "spec."));
        int64_t reached = 0, size = 0;
        bool grows = false;
        const absl::StatusOr<RunOutcome> outcome = TrainOnce(request, options, context, reached, size, grows);
        // If several teams in a row have reached no higher step, the job goes back to the queue.
        vain = reached > farthest ? 0 : vain + 1;
        farthest = std::max(farthest, reached);
        const bool goes_on = GetReason(outcome.status()).reason == kRankLostReason && vain < kMostVain;
        if (request.place || (!goes_on && !grows)) return outcome;
        if (goes_on) {
          context.Log(LogLevel::kWarning,
                      absl::StrCat(outcome.status().message(),
                                   ": the job goes on from its newest checkpoint with the daemons that are free"));
        } else {
          context.Log(LogLevel::kInfo, "another daemon is free: the job goes on with it");
        }
        options.patience = kPatience;
        // If the last attempt to grow brought no daemon, the time until peers are asked again doubles.
        options.look_interval =
            grows && size <= grown_from ? std::min(2 * options.look_interval, kLongestLook) : look_interval_;
        grown_from = grows ? size : 0;
      }
    });
  }

  absl::StatusOr<graphcache::CachePlan> PlanCache(const PlanRequest& request,
                                                  const std::function<bool()>& keep_going) override {
    const auto plan = [&]() -> absl::StatusOr<graphcache::CachePlan> {
      PF_RETURN_IF_ERROR(CheckCompatible(request.options, data::SummaryOf(request.dataset), "spec."));
      if (request.measure) device::UseThreads(threads_);
      return train::PlanCache(request, *backend_, threads_, Context(), keep_going);
    };
    return request.measure ? OnDevice<graphcache::CachePlan>(plan) : device::CatchTorch(plan);
  }

  absl::StatusOr<graphcache::Census> TakeCensus(const CensusRequest& request,
                                                const std::function<bool()>& keep_going) override {
    // libtorch allows only one accelerator in a process, so the stand-in for MPS would fail a job that trains at the
    // same time.
    if (backend_->kind() == DeviceKind::kCuda) {
      return absl::FailedPreconditionError(
          "a census is taken on a stand-in for MPS, which libtorch refuses beside CUDA: ask a server that runs with "
          "--device cpu");
    }
    return device::CatchTorch([&]() -> absl::StatusOr<graphcache::Census> {
      PF_RETURN_IF_ERROR(CheckCompatible(request.options, data::SummaryOf(request.dataset), "spec."));
      const std::optional<int64_t> measured = backend_->Observe().graph_entries;
      absl::StatusOr<graphcache::Census> census = graphcache::Census();
      const auto take = [&] {
        census = train::TakeCensus(request, threads_, Context(), keep_going);
        return census.status();
      };
      if (backend_->kind() == DeviceKind::kMps) {
        PF_RETURN_IF_ERROR(backend_->Enter());
        PF_RETURN_IF_ERROR(backend_->Within(take));
      } else {
        PF_RETURN_IF_ERROR(take());
      }
      census->measured_entries = measured;
      return census;
    });
  }

  absl::StatusOr<RowsEvaluation> EvaluateWeights(
      const EvaluateRequest& request, const std::function<bool(int64_t done, int64_t total)>& on_progress) override {
    const auto evaluate = [&]() -> absl::StatusOr<RowsEvaluation> {
      PF_RETURN_IF_ERROR(CheckPrecision(request.options.model, backend_->kind(), nn::CanRoundFactors(), "spec."));
      device::UseThreads(threads_);
      // The evaluation has no store of plans, so it leaves nothing on disk.
      return train::EvaluateWeights(request, *backend_, threads_, {.limits = Limits()}, on_progress);
    };
    return backend_->kind() == DeviceKind::kCpu ? device::CatchTorch(evaluate) : OnDevice<RowsEvaluation>(evaluate);
  }

  absl::Status CheckCompatible(const spec::TrainOptions& options, const data::ImportedSummary& summary,
                               std::string_view prefix) const override {
    PF_RETURN_IF_ERROR(
        CheckReplicas(options.replicas, backend_->kind(), peers_ == nullptr ? 0 : peers_->count(), prefix));
    return CheckModel(options, summary, prefix);
  }

  // Same as CheckCompatible, but without the check of the number of replicas, so that it also serves a rank of
  // another daemon's job.
  absl::Status CheckModel(const spec::TrainOptions& options, const data::ImportedSummary& summary,
                          std::string_view prefix) const {
    PF_RETURN_IF_ERROR(CheckPrecision(options.model, backend_->kind(), nn::CanRoundFactors(), prefix));
    return device::CatchTorch([&]() -> absl::Status {
      PF_RETURN_IF_ERROR(Task::Check(options, summary, Limits(), prefix));
      return CheckFixedParameters(options, summary, prefix);
    });
  }

  absl::Status CheckInitialWeights(const spec::TrainOptions& options, const data::ImportedSummary& summary,
                                   std::string_view file, std::string_view prefix,
                                   const WeightsTarget& target) const override {
    return device::CatchTorch([&] { return train::CheckInitialWeights(options, summary, file, prefix, target); });
  }

  absl::StatusOr<std::string> MapNodeRows(NodeRowsRequest request, std::string_view prefix) const override {
    return device::CatchTorch([&] { return train::MapNodeRows(std::move(request), prefix); });
  }

  absl::StatusOr<std::vector<std::string>> CheckFits(const PlanRequest& request, std::string_view prefix,
                                                     const std::function<bool()>& keep_going) override {
    return device::CatchTorch(
        [&] { return Task::CheckFits(request.options, request.dataset, Context(), prefix, keep_going); });
  }

  absl::StatusOr<spec::ProgramDescription> DescribeProgram(const std::filesystem::path& archive) const override {
    return device::CatchTorch([&] { return train::DescribeProgram(archive, MemoryLimit(), GetMemoryLeft()); });
  }

  DeviceKind device() const override { return backend_->kind(); }
  int threads() const override { return threads_; }
  std::string_view torch_version() const override { return torch_version_; }
  // Other threads call these two methods, for example for a metrics scrape. An exception on such a thread would end
  // the process.
  StorageUse storage_use() const override {
    const auto asked = device::CatchTorch([&]() -> absl::StatusOr<StorageUse> { return backend_->storage(); });
    const absl::MutexLock lock(&mu_);
    if (asked.ok()) storage_ = *asked;
    return storage_;
  }
  DeviceState device_state() const override {
    auto asked = device::CatchTorch([&]() -> absl::StatusOr<DeviceState> { return backend_->Observe(); });
    if (asked.ok()) return *std::move(asked);
    DeviceState state;
    state.warnings.push_back(absl::StrCat("the device does not tell its state: ", asked.status().message()));
    state.no_graph_entries_reason = "the device does not tell its state";
    return state;
  }

 private:
  // Forms a team and trains with it until the job or the team ends. Sets `size` to the team's size. If the team did
  // any step, sets `reached` to the team's last step. If the team ended in order to grow, sets `grows` to true.
  absl::StatusOr<RunOutcome> TrainOnce(const RunRequest& request, const TeamOptions& options, RunContext& context,
                                       int64_t& reached, int64_t& size, bool& grows) {
    const absl::StatusOr<std::unique_ptr<Team>> formed = Team::Form(request, options, context);
    if (absl::IsCancelled(formed.status()) && context.stop_requested() != StopRequest::kNone) {
      return StoppedOutcome(context);
    }
    PF_RETURN_IF_ERROR(formed.status());
    Team& team = **formed;
    size = team.size();
    absl::StatusOr<RunOutcome> outcome = TrainWith(team, request, context, reached);
    grows = team.can_grow() && outcome.ok() && outcome->end == RunEnd::kDrained &&
            context.stop_requested() == StopRequest::kNone;
    return outcome;
  }
  // Trains with a team until the job or the team ends. If the team did any step, sets `reached` to the team's last
  // step.
  absl::StatusOr<RunOutcome> TrainWith(Team& team, const RunRequest& asked, RunContext& context, int64_t& reached) {
    RunRequest request = asked;
    request.options.replicas = team.size();
    const absl::Status shared = device::CatchTorch([&] { return team.ShareProgram(request.options.model); });
    const absl::Status sent = shared.ok() ? absl::OkStatus() : team.Explain(shared, context);
    if (absl::IsCancelled(sent)) return StoppedOutcome(context);
    PF_RETURN_IF_ERROR(sent);
    if (request.place && spec::IsProgram(request.options)) {
      PF_RETURN_IF_ERROR(CheckModel(request.options, data::SummaryOf(request.dataset), "spec."));
    }
    device::UseThreads(threads_);  // this sets the calling thread only
    PF_RETURN_IF_ERROR(backend_->EmptyCaches(EmptyReason::kJob));
    backend_->RestartStoragePeak();
    PlanContext plan = Context();
    plan.rows = &row_caches_;
    // Only CUDA gains from this, because the CPU and MPS share the host's memory.
    plan.features_on_device = backend_->kind() == DeviceKind::kCuda;
    if (plan.features_on_device) {
      plan.allocate_pinned = [this](int64_t rows, int64_t width) { return backend_->AllocatePinned(rows, width); };
    }
    plan.reserve = reserve_;
    plan.group = team.group();
    plan.log = [&context](std::string_view line) { context.Log(LogLevel::kInfo, line); };
    std::optional<Rewind> rewind;
    while (true) {
      // Exceptions of a group that has lost ranks are caught here, because the team knows the reason.
      const auto trainer = device::CatchTorch(
          [&] { return Trainer::Create(request, *backend_, threads_, context, plan, team, rewind); });
      const absl::Status begun = trainer.ok() ? absl::OkStatus() : team.Explain(trainer.status(), context);
      if (absl::IsCancelled(begun)) return StoppedOutcome(context);
      PF_RETURN_IF_ERROR(begun);
      absl::StatusOr<RunOutcome> outcome = device::CatchTorch([&] { return (*trainer)->Run(); });
      if ((*trainer)->run_steps() > 0) reached = (*trainer)->step();
      if (!outcome.ok()) outcome = team.Explain(outcome.status(), context);
      // The stop came in the middle of a step, so the next run begins at the newest checkpoint.
      if (absl::IsCancelled(outcome.status())) return StoppedOutcome(context);
      rewind = (*trainer)->rewind();
      if (outcome.ok() || !rewind) return outcome;
      // The run begins again as after a crash, with careful steps (state_aside.h).
      context.Log(LogLevel::kWarning,
                  absl::StrCat(outcome.status().message(), ": back to the newest checkpoint, rewind ", rewind->count,
                               " of ", kMaxRewinds));
    }
  }
  // Returns the present plans and limits.
  PlanContext Context() { return {.plans = plans_ ? &*plans_ : nullptr, .limits = Limits()}; }
  // Runs `body` on the device. The device's thread must call it.
  template <class T>
  absl::StatusOr<T> OnDevice(const std::function<absl::StatusOr<T>()>& body) const {
    absl::StatusOr<T> outcome = device::CatchTorch([&]() -> absl::StatusOr<T> {
      PF_RETURN_IF_ERROR(backend_->Enter());
      absl::StatusOr<T> result;
      PF_RETURN_IF_ERROR(backend_->Within([&] {
        result = body();
        return result.status();
      }));
      return result;
    });
    if (outcome.ok()) return outcome;
    return AskDevice(outcome.status());
  }
  // Returns the cause of `error`, which occurred on the device's thread. If an accelerator no longer answers, that is
  // the cause, whatever the error says.
  absl::Status AskDevice(const absl::Status& error) const {
    if (IsDeviceFault(error) || backend_->kind() == DeviceKind::kCpu) return error;
    const absl::Status answer = device::CatchTorch([&] {
      backend_->Synchronize();
      return absl::OkStatus();
    });
    return IsDeviceFault(answer) ? answer : error;
  }
  MemoryLimits Limits() const {
    return {.process = MemoryLimit(),
            .device = device_memory_,
            .records = backend_->records(),
            .graphs = backend_->captures_graphs()};
  }
  // Returns the size of the device's own memory, or nullopt if the device has none or does not report it.
  static std::optional<uint64_t> OwnMemory(const device::Backend& backend) {
    const int64_t bytes = backend.memory_bytes();
    if (backend.kind() == DeviceKind::kCpu || bytes <= 0) return std::nullopt;
    return static_cast<uint64_t>(bytes);
  }

  const std::unique_ptr<device::Backend> backend_;
  const std::optional<uint64_t> device_memory_;  // read once, because jobs are checked on any thread
  const int threads_;
  const std::string torch_version_;
  std::optional<ScheduleStore> plans_;
  const DiskReserve reserve_;
  Peers* const peers_;
  const absl::Duration peer_timeout_, look_interval_;
  data::RowCaches row_caches_;
  mutable absl::Mutex mu_;
  mutable StorageUse storage_ ABSL_GUARDED_BY(mu_);  // the newest value
};

}  // namespace

absl::StatusOr<std::unique_ptr<Runner>> MakeTorchRunner(const RunnerOptions& options) {
  return device::CatchTorch([&]() -> absl::StatusOr<std::unique_ptr<Runner>> {
    PF_ASSIGN_OR_RETURN(std::unique_ptr<device::Backend> backend,
                        device::OpenBackend(options.device, {.mps_driver_threshold = options.mps_driver_threshold}));
    PF_RETURN_IF_ERROR(backend->CheckCapture());
    if (const absl::Status compiled = UseKernelsOf(*backend); !compiled.ok()) {
      options.warn(absl::StrCat("steps use PyTorch's operators alone, which take longer: ", compiled.message()));
    }
    return std::make_unique<TorchRunner>(std::move(backend), device::UseThreads(options.threads), options);
  });
}

absl::Status CheckPrecision(const spec::ModelOptions& model, DeviceKind device, bool can_round,
                            std::string_view prefix) {
  if (model.precision == spec::Precision::kFloat32) return absl::OkStatus();
  Violations violations;
  const auto refuse = [&](std::string_view why) {
    violations.Add(
        absl::StrCat(AbslView(prefix), "model.precision"),
        absl::StrCat(AbslView(spec::kPrecisionNames.Name(model.precision)), " ", AbslView(why), "; accepted: float32"));
  };
  if (device != DeviceKind::kCpu) {
    refuse(absl::StrCat("is computed on CPUs, and this server's device is ", AbslView(kDeviceNames.Name(device))));
  } else if (!can_round) {
    refuse("wants a processor with AVX512-BF16, which this server's has not");
  } else if (model.lowering == spec::Lowering::kShapeFree) {
    refuse("is given with lowering shape-free");
  }
  return violations.ToStatus();
}

}  // namespace permafrost::train
