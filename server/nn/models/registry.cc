#include "nn/models/registry.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>

#include "nn/models/gcn.h"
#include "nn/models/gine.h"
#include "nn/models/sage.h"

namespace permafrost::nn {
namespace {

template <class Interface, class Options>
struct Row {
  Architecture architecture;
  std::unique_ptr<Interface> (*make)(const Options& options, uint64_t seed, at::Device device);
  ModelCost (*cost)(const Options& options, const StepRows& rows);
};

template <class Interface, class Options, class Model>
constexpr Row<Interface, Options> RowOf(Architecture architecture) {
  return {architecture,
          [](const Options& options, uint64_t seed, at::Device device) -> std::unique_ptr<Interface> {
            return std::make_unique<Model>(options, seed, device);
          },
          &Model::Cost};
}
template <class Model>
constexpr auto GraphRow = RowOf<GraphModel, GraphModelOptions, Model>;
template <class Model>
constexpr auto NodeRow = RowOf<NodeModel, NodeModelOptions, Model>;

constexpr std::array kGraphModels{GraphRow<Gine>(Architecture::kGine)};
constexpr std::array kNodeModels{NodeRow<Sage>(Architecture::kSage), NodeRow<Gcn>(Architecture::kGcn)};

// Each model of nn/options.h has its row here, at its level.
template <class Rows>
constexpr bool HoldsAll(const Rows& rows, ModelLevel level) {
  return std::ranges::count(kModels, level, &ModelTraits::level) == std::ssize(rows) &&
         std::ranges::all_of(rows, [&](const auto& row) { return TraitsOf(row.architecture).level == level; });
}
static_assert(HoldsAll(kGraphModels, ModelLevel::kGraph) && HoldsAll(kNodeModels, ModelLevel::kNode));

template <class Rows>
const auto& Find(const Rows& rows, Architecture architecture) {
  const auto row = std::ranges::find(rows, architecture, [](const auto& r) { return r.architecture; });
  TORCH_CHECK(row != rows.end(), kArchitectureNames.Name(architecture), " is not a model of this level");
  return *row;
}

}  // namespace

std::unique_ptr<GraphModel> MakeGraphModel(const GraphModelOptions& options, uint64_t seed, at::Device device) {
  return Find(kGraphModels, options.model.architecture).make(options, seed, device);
}
std::unique_ptr<NodeModel> MakeNodeModel(const NodeModelOptions& options, uint64_t seed, at::Device device) {
  return Find(kNodeModels, options.model.architecture).make(options, seed, device);
}

ModelCost CostOf(const GraphModelOptions& options, const StepRows& rows) {
  return Find(kGraphModels, options.model.architecture).cost(options, rows);
}
ModelCost CostOf(const NodeModelOptions& options, const StepRows& rows) {
  return Find(kNodeModels, options.model.architecture).cost(options, rows);
}

}  // namespace permafrost::nn
