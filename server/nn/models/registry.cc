#include "nn/models/registry.h"

#include <c10/util/Exception.h>

#include "nn/models/graph_set_model.h"
#include "nn/models/layered_model.h"

namespace permafrost::nn {
namespace {

void Check(spec::Architecture architecture, spec::ModelLevel level) {
  TORCH_CHECK(TraitsOf(architecture).Serves(level), spec::kArchitectureNames.Name(architecture),
              " is not a model of this level");
}

}  // namespace

std::unique_ptr<GraphModel> MakeGraphModel(const GraphModelOptions& options, uint64_t seed, at::Device device) {
  Check(options.model.architecture, spec::ModelLevel::kGraph);
  return std::make_unique<GraphSetModel>(options, seed, device);
}
std::unique_ptr<NodeModel> MakeNodeModel(const NodeModelOptions& options, uint64_t seed, at::Device device) {
  const spec::Architecture architecture = options.model.architecture;
  Check(architecture, spec::ModelLevel::kNode);
  TORCH_CHECK(TraitsOf(architecture).edges != spec::EdgeUse::kNeeded || options.edge.has_features(),
              spec::kArchitectureNames.Name(architecture), " needs features of edges");
  return std::make_unique<LayeredModel>(options, seed, device);
}

ModelCost CostOf(const GraphModelOptions& options, const StepRows& rows) { return GraphSetModel::Cost(options, rows); }
ModelCost CostOf(const NodeModelOptions& options, const StepRows& rows) { return LayeredModel::Cost(options, rows); }

}  // namespace permafrost::nn
