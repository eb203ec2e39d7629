// How the JSON of a form is decoded: the wording of refusals, and how size ranges are read.
#include "program/decode.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "program/interpreter.h"
#include "program/synthetic.h"

namespace permafrost::program {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// Returns the form of y = relu(x) with a parameter and a buffer that nothing uses.
json Small() {
  const auto tensor = [](const char* name) { return json{{"as_tensor", {{"name", name}}}}; };
  const json type = {{"dtype", 7},
                     {"requires_grad", false},
                     {"layout", 7},
                     {"sizes", {{{"as_expr", {{"expr_str", "Symbol('s0', positive=True, integer=True)"}}}}}}};
  json form;
  form["schema_version"] = {{"major", 8}, {"minor", 1}};
  form["torch_version"] = "2.13.0";
  form["range_constraints"] = {{"s0", {{"min_val", 2}, {"max_val", 9}}},
                               {"s1", {{"min_val", 3}, {"max_val", nullptr}}}};
  json& graph = form["graph_module"]["graph"];
  graph["inputs"] = {tensor("p"), tensor("b"), tensor("x")};
  graph["outputs"] = json::array({tensor("y")});
  graph["nodes"] = {{{"target", "torch.ops.aten.relu.default"},
                     {"name", "y"},
                     {"inputs", {{{"name", "self"}, {"arg", tensor("x")}}}},
                     {"outputs", json::array({tensor("y")})},
                     {"metadata", json::object()}}};
  for (const char* name : {"p", "b", "x", "y"}) graph["tensor_values"][name] = type;
  graph["sym_int_values"] = json::object();
  json& signature = form["graph_module"]["signature"];
  signature["input_specs"] = {{{"parameter", {{"arg", {{"name", "p"}}}, {"parameter_name", "weight"}}}},
                              {{"buffer", {{"arg", {{"name", "b"}}}, {"buffer_name", "mean"}, {"persistent", true}}}},
                              {{"user_input", {{"arg", tensor("x")}}}}};
  signature["output_specs"] = json::array({{{"user_output", {{"arg", tensor("y")}}}}});
  return form;
}

std::string After(const std::function<void(json& graph, json& signature)>& change) {
  json form = Small();
  change(form["graph_module"]["graph"], form["graph_module"]["signature"]);
  return std::string(DecodeProgram("model", form.dump(), {}).status().message());
}

TEST(Decode, RangesFromTwoBeginAtNothing) {
  const auto program = DecodeProgram("model", Small().dump(), {});
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_EQ(program->ranges.size(), 2u);
  EXPECT_EQ(program->ranges[0].min, 0);
  EXPECT_EQ(program->ranges[0].max, 9);
  EXPECT_EQ(program->ranges[1].min, 3);  // A bound that the module states itself, as SortAggregation does.
  EXPECT_EQ(program->ranges[1].max, INT64_MAX);
}

TEST(Decode, RefusesInputsThatAreConstants) {
  const auto with = [](const json& value) {
    return After([&](json& graph, json& signature) {
      graph["inputs"].push_back(value);
      signature["input_specs"].push_back({{"constant_input", {{"name", "edge_weight"}, {"value", value}}}});
    });
  };
  EXPECT_THAT(with({{"as_none", true}}), HasSubstr("input \"edge_weight\": is None in the export; only tensors and"));
  EXPECT_THAT(with({{"as_int", 3}}), HasSubstr("input \"edge_weight\": is a constant in the export"));
  EXPECT_THAT(After([](json& /*graph*/, json& signature) {
                signature["input_specs"].push_back({{"user_input", {{"arg", {{"as_none", true}}}}}});
              }),
              HasSubstr("an input that is None is not accepted"));
}

TEST(Decode, RefusesUpdatesOfWhatIsNoBuffer) {
  const auto update = [](const char* name) {
    return After([&](json& /*graph*/, json& signature) {
      signature["output_specs"].push_back({{"buffer_mutation", {{"arg", {{"name", "y"}}}, {"buffer_name", name}}}});
    });
  };
  EXPECT_EQ(update("mean"), "");
  EXPECT_THAT(update("weight"), HasSubstr("buffer_mutation: no buffer \"weight\""));
  EXPECT_THAT(update("none"), HasSubstr("buffer_mutation: no buffer \"none\""));
}

TEST(Decode, RefusesUnknownMembers) {
  EXPECT_THAT(After([](json& graph, json& /*signature*/) {
                graph["nodes"][0]["inputs"][0]["arg"]["as_tensor"]["version"] = 2;
              }),
              HasSubstr("as_tensor: \"x\": has members other than its name"));
  EXPECT_THAT(After([](json& graph, json& /*signature*/) { graph["nodes"][0]["inputs"][0]["arg"]["as_int"] = 2; }),
              HasSubstr("one member was expected, not 2"));
}

TEST(Decode, MessagesAreOneLineWhateverNamesHold) {
  const std::string name = "a\nb\x1b[31m\x7f";
  const std::function<void(json&, json&)> kChanges[] = {
      [&](json& graph, json&) { graph["nodes"][0]["inputs"][0]["arg"]["as_tensor"]["name"] = name; },
      [&](json& graph, json&) {
        graph["nodes"][0]["inputs"][0]["arg"] = {{name, 1}};
      },
      [&](json& graph, json&) {
        graph["nodes"][0] = {{"name", name}, {"target", name}};
      },
      [&](json& graph, json&) {
        graph["inputs"].push_back({{"as_tensor", {{"name", name}}}});
      },
      [&](json& graph, json&) {
        graph["inputs"].push_back({{name, 1}});
      },
      [&](json&, json& signature) {
        signature["input_specs"][0] = {{name, json::object()}};
      },
      [&](json&, json& signature) {
        signature["output_specs"][0] = {{name, json::object()}};
      },
      [&](json&, json& signature) { signature["input_specs"][2]["user_input"]["arg"]["as_tensor"]["name"] = name; },
      [&](json&, json& signature) {
        signature["input_specs"][2] = {{"constant_input", {{"name", name}, {"value", {{"as_none", true}}}}}};
      },
  };
  for (const auto& change : kChanges) {
    const std::string message = After(change);
    EXPECT_FALSE(message.empty());
    EXPECT_TRUE(std::none_of(message.begin(), message.end(), [](unsigned char c) { return std::iscntrl(c) != 0; }))
        << message;
  }
}

// A file may omit an argument in the middle and name the next one.
TEST(Decode, ArgumentsOfAssertionsGoByTheirNames) {
  const auto program = [](const char* name) {
    auto made = std::make_shared<Program>();
    Graph& graph = made->graph;
    graph.values = {{"n", ValueKind::kInt}};
    graph.inputs = {0};
    graph.outputs = {0};
    graph.nodes.push_back({.name = "range",
                           .target = "torch.ops.aten.sym_constrain_range_for_size.default",
                           .inputs = {{"size", Ref{0}}, {name, int64_t{5}}}});
    made->inputs.push_back({.name = "n", .value = 0, .kind = ValueKind::kInt, .size = {.expression = "s0"}});
    made->outputs = {0};
    return made;
  };
  auto most = Interpreter::Make(program("max"), {});
  ASSERT_TRUE(most.ok()) << most.status();
  EXPECT_NO_THROW(most->Run({int64_t{3}}));
  EXPECT_THROW(most->Run({int64_t{6}}), c10::Error);
  EXPECT_THAT(std::string(Interpreter::Make(program("maximum"), {}).status().message()),
              HasSubstr("\"maximum\" is none of its arguments"));
}

}  // namespace
}  // namespace permafrost::program
