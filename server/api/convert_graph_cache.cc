#include "api/convert_graph_cache.h"

#include <array>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "api/convert_time.h"
#include "api/resource_name.h"
#include "api/text.h"
#include "api/wire_enum.h"
#include "api/wire_fields.h"
#include "base/string_view.h"

namespace permafrost::api {
namespace {

using Policies = WireEnum<v1::GraphCachePolicy::Policy, spec::kPolicyNames>;
using OnMisses = WireEnum<v1::GraphCachePolicy::OnMiss, spec::kOnMissNames>;
using AllShapes = WireEnum<v1::GraphCachePolicy::Shapes, spec::kShapesNames>;
using Modes = WireEnum<v1::GraphCacheMode, kModeNames>;
using Causes = WireEnum<v1::GraphCacheCause, graphcache::kCauseNames>;
using FreezeSources = WireEnum<v1::FreezePointSource, graphcache::kFreezeSourceNames>;

void StatisticsToWire(Mode mode, const graphcache::ModeStats& stats, v1::GraphCacheStatistics& wire) {
  wire.set_mode(Modes::ToWire(mode));
  WireWriter(wire).Write(stats);
}

// `add` makes one more CauseCount.
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
}

// The value named on the wire, nullopt for the unspecified one; a violation of `field` for one that is unknown.
template <class Table>
std::optional<typename Table::Domain> ReadOptional(int value, std::string_view field, Violations& violations) {
  if (value == 0) return std::nullopt;
  auto any = typename Table::Domain();
  Table::Read(value, field, any, violations);
  return any;
}

graphcache::PolicyUpdate ReadPolicy(const v1::GraphCachePolicy& wire, std::string_view prefix, Violations& violations) {
  const std::string path(prefix);
  graphcache::PolicyUpdate update;
  update.policy = ReadOptional<Policies>(wire.policy(), path + "policy", violations);
  if (wire.has_freeze_at()) update.freeze_at = wire.freeze_at();
  update.on_miss = ReadOptional<OnMisses>(wire.on_miss(), path + "on_miss", violations);
  update.shapes = ReadOptional<AllShapes>(wire.shapes(), path + "shapes", violations);
  if (wire.has_rungs()) update.rungs = wire.rungs();
  if (wire.has_audit_every()) update.audit_every = wire.audit_every();
  if (wire.has_strict()) update.strict = wire.strict();
  if (wire.has_max_executables()) update.max_executables = wire.max_executables();
  return update;
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
  return ReadPolicy(wire.policy(), "policy.", violations);
}

}  // namespace permafrost::api
