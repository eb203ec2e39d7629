#include "nn/models/model.h"

#include <gtest/gtest.h>

namespace permafrost::nn {
namespace {

// The sizes that a dataset decides, for both levels.
struct Sizes {
  int64_t hidden, layers, in, out;
};
constexpr Sizes kSizes[] = {{64, 4, 20, 3}, {16, 1, 100, 7}, {128, 2, 5, 40}};

GraphModelOptions GraphOptions(const spec::ModelOptions& model, const Sizes& s) {
  return {.model = model, .node = {.categories = {28, 4}}, .edge = {.float_columns = s.in}, .num_targets = s.out};
}
NodeModelOptions NodeOptions(const spec::ModelOptions& model, const Sizes& s, const EncoderInput& edge = {}) {
  return {.model = model, .in_channels = s.in, .num_outputs = s.out, .edge = edge};
}
// Returns the edge inputs that node-level models with this use of edges may read.
std::vector<EncoderInput> EdgesOf(spec::EdgeUse use) {
  std::vector<EncoderInput> edges;
  if (use != spec::EdgeUse::kNeeded) edges.emplace_back();
  if (use != spec::EdgeUse::kNone) edges.insert(edges.end(), {{.float_columns = 3}, {.categories = {4, 9}}});
  return edges;
}
StepRows Rows(int64_t layers) {
  return {.nodes = std::vector<double>(static_cast<size_t>(layers) + 1, 1000), .edges = 5000, .graphs = 10};
}

// Returns every combination of the parts that add parameters.
std::vector<spec::ModelOptions> AllOptions(const spec::ModelTraits& traits, spec::ModelLevel level, const Sizes& s) {
  std::vector<spec::ModelOptions> all;
  for (const auto& [norm, norm_name] : spec::kNormNames.rows) {
    for (const auto& [joined, joined_name] : spec::kJumpingKnowledgeNames.rows) {
      for (const bool virtual_node : {false, true}) {
        if (virtual_node && level == spec::ModelLevel::kNode) continue;
        for (const int64_t heads : {1, 4}) {
          if (heads > 1 && !traits.has_heads) continue;
          all.push_back({.architecture = traits.architecture,
                         .level = level,
                         .hidden_channels = s.hidden,
                         .num_layers = s.layers,
                         .heads = heads,
                         .norm = norm,
                         .jumping_knowledge = joined,
                         .virtual_node = virtual_node});
        }
      }
    }
  }
  return all;
}

template <class Options, class Model>
void ExpectCounted(const Options& options, Model& model, const spec::ModelTraits& traits) {
  const std::string description = model.Describe();
  EXPECT_NE(description.find("\"" + std::string(traits.name) + "\""), std::string::npos) << description;
  EXPECT_EQ(CostOf(options, Rows(options.model.num_layers)).parameters,
            static_cast<double>(model.tensors().num_parameter_values()))
      << description;
}

TEST(Registry, EveryModelIsMadeAndItsParametersAreCounted) {
  for (const spec::ModelTraits& traits : spec::kOwnModels) {
    for (const Sizes& sizes : kSizes) {
      for (const spec::ModelLevel level : {spec::ModelLevel::kGraph, spec::ModelLevel::kNode}) {
        if (!traits.Serves(level) || traits.walks) continue;
        for (const spec::ModelOptions& model : AllOptions(traits, level, sizes)) {
          if (level == spec::ModelLevel::kGraph) {
            const GraphModelOptions options = GraphOptions(model, sizes);
            const auto made = MakeGraphModel(options, 1, at::kCPU);
            ExpectCounted(options, *made, traits);
          } else {
            for (const EncoderInput& edge : EdgesOf(traits.edges)) {
              const NodeModelOptions options = NodeOptions(model, sizes, edge);
              const auto made = MakeNodeModel(options, 1, at::kCPU);
              ExpectCounted(options, *made, traits);
            }
          }
        }
      }
    }
  }
}

TEST(Registry, AModelThatNeedsFeaturesOfEdgesIsRefusedByNameWithoutThem) {
  const spec::ModelOptions gine{.architecture = spec::Architecture::kGine, .level = spec::ModelLevel::kNode};
  try {
    MakeNodeModel(NodeOptions(gine, kSizes[0]), 1, at::kCPU);
    ADD_FAILURE() << "gine was made";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("gine"), std::string::npos);
  }
}

}  // namespace
}  // namespace permafrost::nn
