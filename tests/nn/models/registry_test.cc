#include "nn/models/registry.h"

#include <gtest/gtest.h>

namespace permafrost::nn {
namespace {

// What a dataset decides, for either level.
struct Sizes {
  int64_t hidden, layers, in, out;
};
constexpr Sizes kSizes[] = {{64, 4, 20, 3}, {16, 1, 100, 7}, {128, 2, 5, 40}};

GraphModelOptions GraphOptions(Architecture architecture, const Sizes& s) {
  return {.model = {.architecture = architecture, .hidden_channels = s.hidden, .num_layers = s.layers},
          .node = {.categories = {28, 4}},
          .edge = {.float_columns = s.in},
          .num_targets = s.out};
}
NodeModelOptions NodeOptions(Architecture architecture, const Sizes& s) {
  return {.model = {.architecture = architecture, .hidden_channels = s.hidden, .num_layers = s.layers},
          .in_channels = s.in,
          .num_outputs = s.out};
}
StepRows Rows(int64_t layers) {
  return {.nodes = std::vector<double>(static_cast<size_t>(layers) + 1, 1000), .edges = 5000, .graphs = 10};
}

void ExpectDescribes(const std::string& description, const ModelTraits& traits) {
  EXPECT_NE(description.find("\"" + std::string(traits.name) + "\""), std::string::npos) << description;
}

void ExpectParameters(const ModelCost& cost, TensorSet& tensors, std::string_view name) {
  EXPECT_EQ(cost.parameters, static_cast<double>(tensors.num_parameter_values())) << name;
}

TEST(Registry, EveryModelIsMadeAndItsParametersAreCounted) {
  for (const ModelTraits& traits : kModels) {
    for (const Sizes& sizes : kSizes) {
      if (traits.level == ModelLevel::kGraph) {
        const GraphModelOptions options = GraphOptions(traits.architecture, sizes);
        const auto model = MakeGraphModel(options, 1, at::kCPU);
        ExpectDescribes(model->Describe(), traits);
        ExpectParameters(CostOf(options, Rows(sizes.layers)), model->tensors(), traits.name);
      } else {
        const NodeModelOptions options = NodeOptions(traits.architecture, sizes);
        const auto model = MakeNodeModel(options, 1, at::kCPU);
        ExpectDescribes(model->Describe(), traits);
        ExpectParameters(CostOf(options, Rows(sizes.layers)), model->tensors(), traits.name);
      }
    }
  }
}

TEST(Registry, AModelOfTheOtherLevelIsRefusedByName) {
  for (const ModelTraits& traits : kModels) {
    try {
      if (traits.level == ModelLevel::kGraph) {
        MakeNodeModel(NodeOptions(traits.architecture, kSizes[0]), 1, at::kCPU);
      } else {
        MakeGraphModel(GraphOptions(traits.architecture, kSizes[0]), 1, at::kCPU);
      }
      ADD_FAILURE() << traits.name << " was made";
    } catch (const c10::Error& error) {
      EXPECT_NE(std::string(error.what()).find(traits.name), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace permafrost::nn
