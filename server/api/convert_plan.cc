#include "api/convert_plan.h"

#include "api/convert_graph_cache.h"
#include "api/text.h"

namespace permafrost::api {
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

}  // namespace

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

}  // namespace permafrost::api
