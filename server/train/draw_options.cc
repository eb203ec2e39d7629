#include "train/draw_options.h"

#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "data/sampling/draw_kind.h"

namespace permafrost::train {

void CheckDraws(const TrainOptions& options, FieldChecker& check) {
  const NodeTrainingOptions& nodes = options.nodes;
  if (options.model.level != nn::ModelLevel::kNode) return;
  const auto refuse = [&](bool given, std::string_view field, std::string_view description) {
    if (given) check.Add(absl::StrCat("neighbor_sampling.", AbslView(field)), description);
  };
  const bool temporal = nodes.is_temporal(), timed = nodes.seed_time.has_value();
  if (nodes.fan_outs.empty()) {
    constexpr std::string_view kNothingDrawn = "is given without fan_outs: the whole graph is taken, nothing is drawn";
    refuse(nodes.disjoint, "disjoint", kNothingDrawn);
    refuse(temporal, "temporal", kNothingDrawn);
    refuse(timed, "seed_time", kNothingDrawn);
    refuse(nodes.sampler != data::SamplerKind::kNeighbor, "sampler", kNothingDrawn);
    return;
  }
  if (const auto conflict = data::FindDrawConflict(nodes)) refuse(true, conflict->field, conflict->description);
  refuse(timed && !temporal, "seed_time", "is given without temporal; accepted: with temporal uniform or last");
  refuse(temporal && nodes.layer_wise_evaluation, "layer_wise_evaluation",
         "is given with temporal, and would see edges of any time; accepted: without, which evaluates by samples");
  refuse(temporal && options.model.node_inputs == nn::NodeInputs::kDegree, "temporal",
         "is given with node_inputs degree, which counts edges of any time; accepted: features, learned, constant");
  refuse(temporal && timed && options.links.enabled, "seed_time",
         "is given with link_prediction, whose links have times of their own; accepted: without");
}

}  // namespace permafrost::train
