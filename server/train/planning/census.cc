#include "train/planning/census.h"

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "device/mps/mps_calls.h"
#include "device/mps/stand_in.h"
#include "device/staging.h"
#include "graphcache/shape_plan.h"
#include "nn/optimizer.h"
#include "train/loop/step_engine.h"
#include "train/planning/cache_planner.h"
#include "train/tasks/task.h"

namespace permafrost::train {
namespace {

using graphcache::SizedSchedule;
using spec::OnMiss;
using spec::Policy;
using spec::Shapes;

// Takes the census of one task, whose weights change.
class CensusTaker {
 public:
  CensusTaker(const spec::TrainOptions& options, Task& task)
      : options_(options),
        task_(task),
        optimizer_(options.optimizer, task.tensors().parameters()),
        losses_(at::kMPS),
        eval_losses_(at::kMPS),
        eval_errors_(at::kMPS),
        train_(TrainProgram(task, optimizer_, LossOf(options, at::kMPS), losses_, [](int) {})),
        eval_(EvalProgram(task, LossOf(options, at::kMPS), eval_losses_, eval_errors_)) {}

  absl::StatusOr<graphcache::LoweringCensus> Take(const graphcache::CachePlan& plan, graphcache::TorchRelease release,
                                                  const std::function<bool()>& keep_going);

 private:
  // True if the sizes of a step follow from its batch's shape; else they follow from its inputs, as for sampled blocks.
  bool by_shape() const { return !schedule_->estimated; }
  std::vector<int64_t> SizesOf(HostBatch& batch) const;
  absl::StatusOr<std::vector<int64_t>> SizesAt(Mode mode, const BatchShape& shape) const;
  absl::StatusOr<graphcache::SymbolicStep> Record(Mode mode, graphcache::TorchRelease release);
  // Returns every shape of the mode, as it comes.
  std::vector<graphcache::PlannedShape> ShapesOf(Mode mode) const;
  // Returns the shapes that reach the device under a row's policy.
  std::vector<graphcache::PlannedShape> Reaching(Mode mode, const graphcache::PlanRow& row, int64_t freeze_at) const;
  absl::StatusOr<SizedSchedule> Sized(Mode mode, const std::vector<graphcache::PlannedShape>& shapes) const;

  const spec::TrainOptions& options_;
  Task& task_;
  const graphcache::PlannedSchedule* schedule_ = nullptr;
  nn::Optimizer optimizer_;
  ErrorSums losses_, eval_losses_, eval_errors_;
  const device::StepProgram train_, eval_;
};

std::vector<int64_t> CensusTaker::SizesOf(HostBatch& batch) const {
  const BatchShape shape = batch.padded();
  std::vector<int64_t> sizes{shape.nodes, shape.edges, shape.graphs};
  if (by_shape()) return sizes;
  for (const at::Tensor& input : batch.TakeInputs(0)->tensors) {
    if (input.defined()) sizes.insert(sizes.end(), input.sizes().begin(), input.sizes().end());
  }
  return sizes;
}

absl::StatusOr<std::vector<int64_t>> CensusTaker::SizesAt(Mode mode, const BatchShape& shape) const {
  if (by_shape()) return std::vector{shape.nodes, shape.edges, shape.graphs};
  PF_ASSIGN_OR_RETURN(const auto probes, task_.Probes(mode, shape));
  return SizesOf(*probes[0]);
}

absl::StatusOr<graphcache::SymbolicStep> CensusTaker::Record(Mode mode, graphcache::TorchRelease release) {
  std::vector<std::vector<graphcache::OpCall>> streams;
  std::vector<std::vector<int64_t>> sizes;
  const auto record = [&](HostBatch& batch) {
    const graphcache::StepInputs inputs = device::CopyToDevice(*batch.TakeInputs(std::ssize(streams)), at::kMPS);
    streams.push_back(device::RecordMpsCalls([&] { (mode == Mode::kTrain ? train_ : eval_).run(inputs); }));
    sizes.push_back(SizesOf(batch));
  };
  if (task_.NoDynamicReason().empty()) {
    for (size_t probe = 0; probe < device::kDynamicProbes; ++probe) {
      PF_ASSIGN_OR_RETURN(HostBatch * batch, task_.DynamicProbe(mode, probe));
      record(*batch);
    }
  } else {
    PF_ASSIGN_OR_RETURN(const auto probes, task_.Probes(mode, schedule_->ceiling));
    record(*probes[0]);
  }
  return graphcache::FindCalls(streams, sizes, release);
}

std::vector<graphcache::PlannedShape> CensusTaker::ShapesOf(Mode mode) const {
  if (mode == Mode::kTrain) return schedule_->train;
  std::vector<graphcache::PlannedShape> shapes;
  for (const graphcache::ShapeCount& s : task_.plan().eval_schedule) {
    shapes.push_back({.shape = s.shape, .batches = s.count});
  }
  if (!shapes.empty()) return shapes;
  for (const BatchShape& shape : schedule_->eval_rungs) shapes.push_back({.shape = shape});
  // A whole graph is evaluated in one step.
  const auto batches = [this](data::Split split) -> int64_t { return task_.size(split) > 0 ? 1 : 0; };
  if (!shapes.empty()) {
    shapes.back().batches = options_.epochs * batches(data::Split::kValid) + 2 * batches(data::Split::kTest);
  }
  return shapes;
}

std::vector<graphcache::PlannedShape> CensusTaker::Reaching(Mode mode, const graphcache::PlanRow& row,
                                                            int64_t freeze_at) const {
  std::vector<graphcache::PlannedShape> all = ShapesOf(mode), some;
  const auto take = [&](const std::vector<BatchShape>& shapes) {
    for (const BatchShape& shape : shapes) some.push_back({.shape = shape});
    return some;
  };
  if (row.shapes == Shapes::kLadder) {
    const int64_t rungs = mode == Mode::kTrain ? row.train_executables : row.eval_executables;
    return rungs == 0 ? all : take(LadderOf(task_.plan(), mode, rungs));
  }
  const bool pads = row.options.on_miss == OnMiss::kPad || row.options.on_miss == OnMiss::kReject;
  // Steps that run eager, or are captured and dropped, reach the device all the same.
  if (row.options.policy != Policy::kFreeze || !pads || freeze_at == 0) return all;
  if (mode == Mode::kEval) return take(schedule_->eval_rungs);
  if (!schedule_->rungs.empty()) return take(schedule_->rungs);
  if (std::cmp_less(freeze_at, all.size())) all.resize(static_cast<size_t>(freeze_at));
  const auto is_ceiling = [this](const graphcache::PlannedShape& s) { return s.shape == schedule_->ceiling; };
  const bool seals_ceiling = row.options.on_miss == OnMiss::kPad;
  if (seals_ceiling && std::ranges::none_of(all, is_ceiling)) all.push_back({.shape = schedule_->ceiling});
  return all;
}

absl::StatusOr<SizedSchedule> CensusTaker::Sized(Mode mode, const std::vector<graphcache::PlannedShape>& shapes) const {
  SizedSchedule out;
  for (const graphcache::PlannedShape& shape : shapes) {
    PF_ASSIGN_OR_RETURN(std::vector<int64_t> sizes, SizesAt(mode, shape.shape));
    out.shapes.push_back({std::move(sizes), shape.batches});
  }
  out.first_epoch = std::ssize(shapes);
  if (mode == Mode::kTrain && shapes.size() == schedule_->train.size()) out.first_epoch = schedule_->first_epoch_shapes;
  return out;
}

absl::StatusOr<graphcache::LoweringCensus> CensusTaker::Take(const graphcache::CachePlan& plan,
                                                             graphcache::TorchRelease release,
                                                             const std::function<bool()>& keep_going) {
  schedule_ = &plan.schedules.front();
  graphcache::LoweringCensus out;
  std::array<graphcache::SymbolicStep, 2> steps;
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
    const std::vector<graphcache::PlannedShape> shapes = ShapesOf(mode);
    if (shapes.empty()) continue;
    if (!keep_going()) return absl::CancelledError("stopped while a census was taken");
    const auto m = static_cast<size_t>(mode);
    PF_ASSIGN_OR_RETURN(steps[m], Record(mode, release));
    PF_ASSIGN_OR_RETURN(const SizedSchedule sized, Sized(mode, shapes));
    const auto largest = std::ranges::max_element(
        shapes, {}, [](const graphcache::PlannedShape& s) { return graphcache::Rows(s.shape); });
    out.modes[m] = graphcache::CountMode(steps[m], sized, sized.shapes[static_cast<size_t>(largest - shapes.begin())]);
    for (const std::string& op : steps[m].unknown) {
      if (std::ranges::find(out.unknown, op) == out.unknown.end()) out.unknown.push_back(op);
    }
  }
  for (const graphcache::PlanRow& row : plan.rows) {
    if (row.schedule != 0) continue;
    if (!keep_going()) return absl::CancelledError("stopped while a census was taken");
    std::array<SizedSchedule, 2> schedules;
    for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
      PF_ASSIGN_OR_RETURN(schedules[static_cast<size_t>(mode)],
                          Sized(mode, Reaching(mode, row, plan.freeze_point.freeze_at)));
    }
    graphcache::CensusRow counted = CountPolicy(steps, schedules, KeepsNothing(row.options.policy));
    counted.options = row.options;
    counted.shapes = row.shapes;
    out.rows.push_back(counted);
  }
  return out;
}

}  // namespace

absl::StatusOr<graphcache::Census> TakeCensus(const CensusRequest& request, int threads, const PlanContext& context,
                                              const std::function<bool()>& keep_going) {
  if (spec::IsProgram(request.options)) {
    return absl::FailedPreconditionError("a census is taken of the server's own models; a program has none");
  }
  const device::MpsStandIn within;
  // Autograd asks the one accelerator that it knows for its stream.
  if (const auto accelerator = at::accelerator::getAccelerator(); accelerator != c10::kMPS) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no census can be taken here: its steps run on mps or a stand-in for it, and this libtorch's device is ",
        accelerator ? c10::DeviceTypeName(*accelerator, /*lower_case=*/true) : "none",
        "; ask a server with the CPU's libtorch, or one on a Mac"));
  }
  graphcache::Census census{.release = request.release};
  spec::TrainOptions options = request.options;
  PF_ASSIGN_OR_RETURN(const std::unique_ptr<Task> task,
                      Task::Create(options, request.dataset, at::kMPS, threads, keep_going, context));
  PF_ASSIGN_OR_RETURN(graphcache::CachePlan plan, PlanOf(options, *task, OneShapeReason(DeviceKind::kMps), keep_going));
  graphcache::FillRows(plan);
  const bool plain = options.model.lowering == spec::Lowering::kPlain;
  for (const spec::Lowering lowering : {plain ? spec::Lowering::kPlain : spec::Lowering::kShapeFree,
                                        plain ? spec::Lowering::kShapeFree : spec::Lowering::kPlain}) {
    options.model.lowering = lowering;
    CensusTaker taker(options, *task);
    PF_ASSIGN_OR_RETURN(graphcache::LoweringCensus one, taker.Take(plan, request.release, keep_going));
    one.lowering = spec::kLoweringNames.Name(lowering);
    census.lowerings.push_back(std::move(one));
  }
  census.freeze_at = plan.freeze_point.freeze_at;
  census.schedule = std::move(plan.schedules.front());
  return census;
}

}  // namespace permafrost::train
