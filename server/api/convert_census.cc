#include "api/convert_census.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "api/convert_graph_cache.h"
#include "api/convert_plan.h"
#include "api/text.h"
#include "api/wire_enum.h"
#include "base/status.h"
#include "spec/model.h"

namespace permafrost::api {
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
