#include "train/model_options.h"

#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "train/options.h"

namespace permafrost::train {
namespace {

// Options that say something of one level, or of some models, alone.
void CheckModelFits(const nn::ModelOptions& model, FieldChecker& check) {
  const nn::ModelOptions defaults;
  const bool of_nodes = model.level == nn::ModelLevel::kNode;
  const auto refuse = [&](const char* field, bool given) {
    if (!given) return;
    check.Add(absl::StrCat("model.", field),
              absl::StrCat("is given for ", of_nodes ? "one large graph" : "a set of graphs", "; accepted: for ",
                           of_nodes ? "a set of graphs" : "one large graph"));
  };
  refuse("pooling", of_nodes && model.pooling != defaults.pooling);
  refuse("virtual_node", of_nodes && model.virtual_node);
  refuse("input_dropout", !of_nodes && model.input_dropout != 0);
  refuse("normalize_features", !of_nodes && model.normalize_features);
  if (!of_nodes && model.node_inputs == nn::NodeInputs::kLearned) {
    check.Add("model.node_inputs", "learned is given for a set of graphs; accepted: features, degree, constant");
  }
  refuse("edge_inputs", !of_nodes && model.edge_inputs != defaults.edge_inputs);
}

void CheckEdgeInputs(const nn::ModelOptions& model, FieldChecker& check) {
  const nn::ModelTraits& traits = nn::TraitsOf(model.architecture);
  if (model.edge_inputs == nn::EdgeInputs::kAuto || model.level != nn::ModelLevel::kNode) return;
  const std::string_view name = nn::kEdgeInputsNames.Name(model.edge_inputs);
  const bool none = model.edge_inputs == nn::EdgeInputs::kNone;
  if (traits.edges == nn::EdgeUse::kNone && !none) {
    check.Add("model.edge_inputs", absl::StrCat(AbslView(name), " is given for ", AbslView(traits.name),
                                                ", which reads no features of edges; accepted: for gine and gatv2"));
  } else if (traits.edges == nn::EdgeUse::kNeeded && none) {
    check.Add("model.edge_inputs", absl::StrCat("none is given for ", AbslView(traits.name),
                                                ", which reads features of edges; accepted: features, weights"));
  }
}

}  // namespace

void CheckModelOptions(const nn::ModelOptions& model, FieldChecker& check) {
  check.InRange("model.hidden_channels", model.hidden_channels, 1, 4096);
  check.InRange("model.num_layers", model.num_layers, 1, 64);
  const nn::ModelTraits& traits = nn::TraitsOf(model.architecture);
  if (!traits.Serves(model.level)) {
    const bool of_nodes = model.level == nn::ModelLevel::kNode;
    check.Add("model.architecture",
              absl::StrCat(AbslView(traits.name), " is no model of ", of_nodes ? "one large graph" : "a set of graphs",
                           "; accepted: ", ModelsOf(model.level, ", ")));
  }
  if (check.InRange("model.heads", model.heads, 1, 64)) {
    if (model.heads > 1 && !traits.has_heads) {
      check.Add("model.heads",
                absl::StrCat("is given for ", AbslView(traits.name), ", which has none; accepted: for ", "gatv2"));
    } else if (model.hidden_channels % model.heads != 0) {
      check.Add("model.heads", absl::StrCat(model.heads, " heads do not divide ", model.hidden_channels,
                                            " hidden_channels; each takes an equal part"));
    }
  }
  if (model.aggregation != nn::Aggregation::kMean) {
    const std::string_view name = nn::kAggregationNames.Name(model.aggregation);
    if (!traits.has_aggregation) {
      check.Add("model.aggregation",
                absl::StrCat(AbslView(name), " is given for ", AbslView(traits.name), "; accepted: for sage"));
    } else if (model.lowering == nn::Lowering::kShapeFree) {
      check.Add("model.aggregation",
                absl::StrCat(AbslView(name), " is given with lowering shape-free, which has none; accepted: mean"));
    }
  }
  CheckEdgeInputs(model, check);
  check.IsPart("model.dropout", model.dropout);
  check.IsPart("model.input_dropout", model.input_dropout);
  CheckModelFits(model, check);
}

}  // namespace permafrost::train
