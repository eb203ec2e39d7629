#include "api/wire/convert_graph_cache.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "api/wire/resource_name.h"
#include "api/wire/wire_fields.h"
#include "api/wire/wire_values.h"
#include "base/status.h"
#include "base/string_view.h"
#include "spec/model.h"

namespace permafrost::api {
namespace {

using AllShapes = WireEnum<v1::GraphCachePolicy::Shapes, spec::kShapesNames>;
using Modes = WireEnum<v1::GraphCacheMode, kModeNames>;
using Causes = WireEnum<v1::GraphCacheCause, graphcache::kCauseNames>;
using FreezeSources = WireEnum<v1::FreezePointSource, graphcache::kFreezeSourceNames>;

void StatisticsToWire(Mode mode, const graphcache::ModeStats& stats, v1::GraphCacheStatistics& wire) {
  wire.set_mode(Modes::ToWire(mode));
  WireWriter(wire).Write(stats);
}

// `add` appends a CauseCount and returns it.
template <class Add>
void CausesToWire(Mode mode, const graphcache::CauseCounts& counts, Add add) {
  for (const auto& [cause, name] : graphcache::kCauseNames.rows) {
    if (counts.of(cause) == 0) continue;
    v1::CauseCount& out = *add();
    out.set_mode(Modes::ToWire(mode));
    out.set_cause(Causes::ToWire(cause));
    out.set_count(counts.of(cause));
  }
}

void AuditFailureToWire(const graphcache::AuditFailure& failure, v1::AuditFailure& wire) {
  wire.set_mode(Modes::ToWire(failure.mode));
  ShapeToWire(failure.shape, *wire.mutable_shape());
  wire.set_step(failure.step);
  wire.set_op(ValidUtf8(failure.op));
  wire.set_why(ValidUtf8(failure.why));
  wire.set_count(failure.count);
}

void ProfileToWire(const graphcache::StepProfile& profile, v1::StepProfile& wire) {
  wire.set_mode(Modes::ToWire(profile.mode));
  ShapeToWire(profile.shape, *wire.mutable_shape());
  wire.set_step(profile.step);
  wire.set_replay_seconds(profile.replay_seconds);
  wire.set_eager_seconds(profile.eager_seconds);
  wire.set_product_seconds(profile.product_seconds);
  for (const graphcache::OperatorTime& time : profile.operators) {
    v1::OperatorTime& out = *wire.add_operators();
    out.set_op(ValidUtf8(time.op));
    out.set_calls(time.calls);
    out.set_seconds(time.seconds);
    out.set_product(graphcache::IsProduct(time.op));
  }
  for (const graphcache::LineTime& time : profile.lines) {
    v1::LineTime& out = *wire.add_lines();
    out.set_line(ValidUtf8(time.line));
    out.set_forward_seconds(time.forward_seconds);
    out.set_backward_seconds(time.backward_seconds);
  }
}

}  // namespace

void ShapeToWire(const BatchShape& shape, v1::BatchShape& wire) {
  wire.set_nodes(shape.nodes);
  wire.set_edges(shape.edges);
  wire.set_graphs(shape.graphs);
}

v1::GraphCachePolicy::Shapes ShapesToWire(spec::Shapes shapes) { return AllShapes::ToWire(shapes); }

v1::FreezePointSource FreezePointSourceToWire(graphcache::FreezeSource source) { return FreezeSources::ToWire(source); }

v1::GraphCache GraphCacheToWire(const JobId& job, const graphcache::Snapshot& snapshot) {
  v1::GraphCache wire;
  wire.set_name(FormatGraphCacheName(job));
  *wire.mutable_policy() = GraphCachePolicyToWire(snapshot.options);
  wire.set_freeze_at(snapshot.freeze_point.freeze_at);
  wire.set_freeze_point_source(FreezeSources::ToWire(snapshot.freeze_point.source));
  if (snapshot.freeze_point.freeze_at == 0) {
    wire.set_no_op_reason(ValidUtf8(snapshot.freeze_point.no_formula_reason));
  }
  wire.set_frozen(snapshot.frozen);
  wire.set_armed(snapshot.armed);
  wire.set_freeze_step(snapshot.freeze_step);
  SetTime(snapshot.freeze_time, [&wire] { return wire.mutable_freeze_time(); });
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
    StatisticsToWire(mode, snapshot.of(mode), *wire.add_statistics());
  }
  int64_t total = snapshot.shared_bytes;
  for (const graphcache::ModeStats& stats : snapshot.modes) total += stats.entry_bytes;
  wire.set_shared_bytes(snapshot.shared_bytes);
  wire.set_total_bytes(total);
  if (snapshot.train_ceiling != BatchShape{}) ShapeToWire(snapshot.train_ceiling, *wire.mutable_train_ceiling());
  if (snapshot.eval_ceiling != BatchShape{}) ShapeToWire(snapshot.eval_ceiling, *wire.mutable_eval_ceiling());
  wire.set_planned_train_shapes(snapshot.planned_train_shapes);
  wire.set_of_seeds(snapshot.of_seeds);
  wire.set_planned_rungs(snapshot.planned_rungs);
  for (const graphcache::GraphBreak& graph_break : snapshot.graph_breaks) {
    v1::GraphBreak& out = *wire.add_graph_breaks();
    out.set_mode(Modes::ToWire(graph_break.mode));
    out.set_op(ValidUtf8(graph_break.op));
    out.set_why(ValidUtf8(graph_break.why));
    out.set_count(graph_break.count);
  }
  for (const graphcache::AuditFailure& failure : snapshot.audit_failures) {
    AuditFailureToWire(failure, *wire.add_audit_failures());
  }
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
    const graphcache::ModeStats& stats = snapshot.of(mode);
    CausesToWire(mode, stats.captures_by_cause, [&wire] { return wire.add_captures_by_cause(); });
    CausesToWire(mode, stats.misses_by_cause, [&wire] { return wire.add_misses_by_cause(); });
  }
  wire.set_command_step(snapshot.command_step);
  return wire;
}

v1::ExplainGraphCacheResponse ExplanationToWire(const JobId& job, const graphcache::Snapshot& snapshot) {
  v1::ExplainGraphCacheResponse wire;
  *wire.mutable_cache() = GraphCacheToWire(job, snapshot);
  for (const graphcache::StepProfile& profile : snapshot.profiles.list()) ProfileToWire(profile, *wire.add_profiles());
  return wire;
}

v1::GraphCacheEntry GraphCacheEntryToWire(const graphcache::EntryInfo& entry) {
  v1::GraphCacheEntry wire;
  wire.set_mode(Modes::ToWire(entry.mode));
  ShapeToWire(entry.shape, *wire.mutable_shape());
  wire.set_bytes(entry.bytes);
  wire.set_hits(entry.hits);
  wire.set_padded_hits(entry.padded_hits);
  wire.set_capture_seconds(entry.capture_seconds);
  wire.set_created_step(entry.created_step);
  SetTime(entry.last_use, [&wire] { return wire.mutable_last_use_time(); });
  wire.set_dynamic(entry.dynamic);
  if (entry.replays > 0) wire.set_replay_seconds(entry.replay_seconds / static_cast<double>(entry.replays));
  wire.set_withdrawn(entry.withdrawn);
  return wire;
}

v1::GraphCachePolicy GraphCachePolicyToWire(const spec::PolicyOptions& options) {
  v1::GraphCachePolicy wire;
  WireWriter(wire).Write(options);
  return wire;
}

spec::PolicyOptions WithPolicyDefaults(const v1::GraphCachePolicy& wire, const spec::PolicyOptions& defaults,
                                       spec::PolicyOptions options) {
  if (options.policy != defaults.policy && !wire.has_freeze_at()) options.freeze_at = 0;
  if (spec::KeepsNothing(options.policy) && !wire.has_strict()) options.strict = false;
  return options;
}

graphcache::PolicyUpdate PolicyUpdateFromWire(const v1::UpdateGraphCachePolicyRequest& wire, Violations& violations) {
  if (!wire.has_policy()) {
    violations.Add("policy", "is missing; accepted: a GraphCachePolicy with at least one field");
  }
  graphcache::PolicyUpdate update;
  WireReader(wire.policy(), "policy.", violations).Read(update);
  return update;
}

namespace {

void CostsToWire(const graphcache::StepCosts& costs, v1::StepCosts& wire) {
  wire.set_replay_fixed_seconds(costs.replay.fixed);
  wire.set_replay_seconds_per_row(costs.replay.per_row);
  wire.set_replay_seconds_per_padding_row(costs.padding_row);
  wire.set_eager_fixed_seconds(costs.eager.fixed);
  wire.set_eager_seconds_per_row(costs.eager.per_row);
  wire.set_capture_seconds(costs.capture);
  wire.set_eval_capture_seconds(costs.eval_capture);
  wire.set_dynamic_capture_seconds(costs.dynamic_capture);
  wire.set_dynamic_eval_capture_seconds(costs.dynamic_eval_capture);
  wire.set_entry_bytes(costs.entry_bytes);
  wire.set_eval_entry_bytes(costs.eval_entry_bytes);
  wire.set_dynamic_entry_bytes(costs.dynamic_entry_bytes);
  wire.set_dynamic_eval_entry_bytes(costs.dynamic_eval_entry_bytes);
  wire.set_shared_bytes(costs.shared_bytes);
}

void RowToWire(const graphcache::PlanRow& row, v1::GraphCachePlanRow& wire) {
  *wire.mutable_policy() = GraphCachePolicyToWire(row.options);
  wire.set_shapes(ShapesToWire(row.shapes));
  wire.set_schedule(static_cast<int32_t>(row.schedule));
  wire.set_train_executables(row.train_executables);
  wire.set_eval_executables(row.eval_executables);
  wire.set_captures(row.captures);
  wire.set_replayed_steps(row.replayed);
  wire.set_padded_steps(row.padded);
  wire.set_eager_steps(row.eager);
  wire.set_rejected_steps(row.rejected);
  wire.set_rows(row.real_rows);
  wire.set_padding_rows(row.padding_rows);
  if (row.bytes) wire.set_bytes(*row.bytes);
  if (row.step_seconds) wire.set_step_seconds(*row.step_seconds);
  if (row.train_seconds) wire.set_train_seconds(*row.train_seconds);
}

void ScheduleToWire(const graphcache::PlannedSchedule& schedule, v1::BatchSchedule& wire) {
  wire.set_batching(schedule.batching);
  wire.set_epochs(schedule.epochs);
  wire.set_batches(graphcache::Batches(schedule));
  wire.set_first_epoch_shapes(schedule.first_epoch_shapes);
  wire.set_shapes(std::ssize(schedule.train));
  wire.set_estimated(schedule.estimated);
  wire.set_cut(schedule.cut);
  ShapeToWire(schedule.ceiling, *wire.mutable_ceiling());
  wire.set_eval_shapes(schedule.eval_shapes);
  wire.set_sampled_batches(schedule.sampled_batches);
  wire.set_sampled_shapes(schedule.sampled_shapes);
  wire.set_rungs(std::ssize(schedule.rungs));
  wire.set_max_nodes(schedule.max_nodes);
  wire.set_max_edges(schedule.max_edges);
}

}  // namespace

v1::PlanGraphCacheResponse CachePlanToWire(const graphcache::CachePlan& plan) {
  v1::PlanGraphCacheResponse wire;
  *wire.mutable_policy() = GraphCachePolicyToWire(plan.options);
  for (const graphcache::PlannedSchedule& schedule : plan.schedules) ScheduleToWire(schedule, *wire.add_schedules());
  for (const graphcache::PlanRow& row : plan.rows) RowToWire(row, *wire.add_rows());
  wire.set_recommended_row(static_cast<int32_t>(plan.recommended));
  wire.set_recommendation(ValidUtf8(plan.reason));
  wire.set_freeze_at(plan.freeze_point.freeze_at);
  wire.set_freeze_point_source(FreezePointSourceToWire(plan.freeze_point.source));
  if (plan.freeze_point.freeze_at == 0) wire.set_no_op_reason(ValidUtf8(plan.freeze_point.no_formula_reason));
  wire.set_no_dynamic_reason(ValidUtf8(plan.no_dynamic_reason));
  if (plan.costs) CostsToWire(*plan.costs, *wire.mutable_costs());
  wire.set_no_costs_reason(ValidUtf8(plan.no_costs_reason));
  return wire;
}

namespace {

using CensusLowerings = WireEnum<v1::ModelSpec::Lowering, spec::kLoweringNames>;

void OperatorToWire(const graphcache::OpCensus& op, v1::OperatorCensus& wire) {
  wire.set_name(ValidUtf8(op.op));
  wire.set_shape_entries(op.shape);
  wire.set_epoch_entries(op.epoch);
  wire.set_run_entries(op.run);
}

void StepToWire(const graphcache::ModeCensus& step, v1::StepCensus& wire) {
  wire.set_operators(step.operators);
  for (const graphcache::OpCensus& op : step.ops) OperatorToWire(op, *wire.add_by_operator());
  OperatorToWire(step.all, *wire.mutable_all());
}

void CensusRowToWire(const graphcache::CensusRow& row, v1::GraphCacheCensusRow& wire) {
  *wire.mutable_policy() = GraphCachePolicyToWire(row.options);
  wire.set_shapes(ShapesToWire(row.shapes));
  wire.set_train_shapes(row.train_shapes);
  wire.set_eval_shapes(row.eval_shapes);
  wire.set_shape_entries(row.shape);
  wire.set_epoch_entries(row.epoch);
  wire.set_run_entries(row.run);
  wire.set_compiled(row.compiled);
}

}  // namespace

v1::CensusGraphCacheResponse CensusToWire(const graphcache::Census& census) {
  v1::CensusGraphCacheResponse wire;
  wire.set_torch_release(std::string(graphcache::kTorchReleaseNames.Name(census.release)));
  for (const graphcache::LoweringCensus& lowering : census.lowerings) {
    v1::LoweringCensus& to = *wire.add_lowerings();
    to.set_lowering(
        CensusLowerings::ToWire(spec::kLoweringNames.Parse(lowering.lowering).value_or(spec::Lowering::kAuto)));
    StepToWire(lowering.modes[static_cast<size_t>(Mode::kTrain)], *to.mutable_train());
    StepToWire(lowering.modes[static_cast<size_t>(Mode::kEval)], *to.mutable_eval());
    for (const graphcache::CensusRow& row : lowering.rows) CensusRowToWire(row, *to.add_rows());
    for (const std::string& op : lowering.unknown) to.add_unknown_operators(ValidUtf8(op));
  }
  ScheduleToWire(census.schedule, *wire.mutable_schedule());
  wire.set_freeze_at(census.freeze_at);
  if (census.measured_entries) wire.set_measured_entries(*census.measured_entries);
  return wire;
}

absl::StatusOr<graphcache::TorchRelease> TorchReleaseFromWire(const std::string& release) {
  if (release.empty()) return graphcache::TorchRelease::k2_13;
  if (const auto known = graphcache::kTorchReleaseNames.Parse(release)) return *known;
  Violations violations;
  violations.Add("torch_release", absl::StrCat(ValidUtf8(release),
                                               " is unknown; accepted: ", graphcache::kTorchReleaseNames.Accepted()));
  return violations.ToStatus();
}

}  // namespace permafrost::api
