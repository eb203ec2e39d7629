// What an archive must be: each that is not is refused in one line that names what is wrong, whatever its bytes are.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "program/exported.h"
#include "program/interpreter.h"
#include "program/load.h"
#include "temp_dir.h"

namespace permafrost::program {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class Refusals : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = std::make_unique<TempDir>();
    absent_ = ExportModules(dir_->path(), "gine tied");
  }
  static void TearDownTestSuite() { dir_.reset(); }
  void SetUp() override {
    if (!absent_.empty()) GTEST_SKIP() << absent_;
    at::set_num_threads(1);
  }
  static Records Good(const std::string& name = "tied") { return ReadRecords(dir_->path() / (name + ".pt2")); }
  static std::string MessageOf(const Records& records, const Limits& limits = {}) {
    return std::string(LoadProgramFromBytes(Pack(records), limits).status().message());
  }
  // What is said after `change` of one record's JSON.
  static std::string After(const std::string& record, const std::function<void(json&)>& change) {
    Records records = Good();
    json value = json::parse(records.at(record));
    change(value);
    records[record] = value.dump();
    return MessageOf(records);
  }
  static json& NodeOf(json& form, const std::string& target) {
    for (json& node : form["graph_module"]["graph"]["nodes"])
      if (node["target"] == target) return node;
    ADD_FAILURE() << target;
    return form;
  }
  static json& ArgumentOf(json& node, const std::string& name) {
    for (json& input : node["inputs"])
      if (input["name"] == name) return input["arg"];
    ADD_FAILURE() << name;
    return node;
  }

  static std::unique_ptr<TempDir> dir_;
  static std::string absent_;
};
std::unique_ptr<TempDir> Refusals::dir_;
std::string Refusals::absent_;

constexpr char kTrain[] = "models/train.json";
constexpr char kWeights[] = "data/weights/train_weights_config.json";

TEST_F(Refusals, TakeTheArchiveAsItIs) {
  EXPECT_EQ(MessageOf(Good()), "");
  // A form alone, as torch.export.save names it.
  Records one;
  for (const auto& [name, content] : Good()) {
    std::string renamed = name;
    if (const size_t at = renamed.find("train"); at != std::string::npos) renamed.replace(at, 5, "model");
    if (renamed.find("eval") == std::string::npos) one[renamed] = content;
  }
  EXPECT_EQ(MessageOf(one), "");
}

TEST_F(Refusals, NameAnOperatorThatNoProgramMayUseAndItsLine) {
  for (const char* target :
       {"torch.ops.aten.from_file.default", "torch.ops.mylib.evil.default", "os.system", "torch.ops.higher_order.cond",
        "torch.ops.aten.add.out", "torch.ops.aten.as_strided.default"}) {
    const std::string message =
        After(kTrain, [&](json& form) { NodeOf(form, "torch.ops.aten.where.self")["target"] = target; });
    EXPECT_THAT(message, HasSubstr("node where")) << target;
    EXPECT_THAT(message, HasSubstr(target));
    EXPECT_THAT(message, HasSubstr("modules.py:")) << target;
    EXPECT_THAT(message, HasSubstr("torch.where(low > high, low, high * 0.5)")) << target;
    EXPECT_THAT(message, HasSubstr("no program may use this operator")) << target;
  }
}

TEST_F(Refusals, LookIntoRegions) {
  const std::string message = After(kTrain, [](json& form) {
    json& region = NodeOf(form, "torch.ops.higher_order.wrap_with_autocast")["inputs"][4]["arg"]["as_graph"]["graph"];
    region["nodes"][0]["target"] = "torch.ops.mylib.evil.default";
  });
  EXPECT_THAT(message, HasSubstr("torch.ops.mylib.evil.default"));
}

TEST_F(Refusals, OtherVersions) {
  for (const char* version : {"2.10.0", "2.15.0", "3.11.0", "<=2.4", ""}) {
    EXPECT_THAT(After(kTrain, [&](json& form) { form["torch_version"] = version; }),
                HasSubstr("where 8 of torch 2.11 to 2.14 is accepted"))
        << version;
  }
  EXPECT_THAT(After(kTrain, [](json& form) { form["schema_version"]["major"] = 9; }), HasSubstr("schema_version: 9."));
  for (const char* version : {"2.11.0+cu130", "2.12.1", "2.14.0a0"})
    EXPECT_EQ(After(kTrain, [&](json& form) { form["torch_version"] = version; }), "") << version;
}

TEST_F(Refusals, ArgumentsThatTheOperatorDoesNotTake) {
  const auto after = [](const char* target, const std::function<void(json&)>& change) {
    return After(kTrain, [&](json& form) { change(NodeOf(form, target)); });
  };
  const char* kLinear = "torch.ops.aten.linear.default";
  EXPECT_THAT(after(kLinear,
                    [](json& node) {
                      ArgumentOf(node, "weight") = {{"as_string", "x"}};
                    }),
              HasSubstr("weight: is no Tensor"));
  EXPECT_THAT(after(kLinear, [](json& node) { node["inputs"].erase(1); }), HasSubstr("weight: is missing"));
  EXPECT_THAT(after(kLinear, [](json& node) { node["inputs"][2]["name"] = "other"; }),
              HasSubstr("1 of its arguments are none of the operator's"));
  EXPECT_THAT(after(kLinear,
                    [](json& node) {
                      ArgumentOf(node, "weight") = {{"as_tensor", {{"name", "later"}}}};
                    }),
              HasSubstr("\"later\" is used before it is defined"));
  EXPECT_THAT(after(kLinear,
                    [](json& node) {
                      node["outputs"][0] = {{"as_sym_int", {{"as_name", "n"}}}};
                    }),
              HasSubstr("\"linear\" is used before it is defined"));
  EXPECT_THAT(after("torch.ops.aten.dropout.default",
                    [](json& node) {
                      ArgumentOf(node, "p") = {{"as_int", 1.5}};
                    }),
              HasSubstr("as_int: a 64-bit integer was expected, not 1.5"));
  EXPECT_THAT(after("torch.ops.aten.chunk.default",
                    [](json& node) {
                      ArgumentOf(node, "chunks") = {{"as_int", 9223372036854775808u}};
                    }),
              HasSubstr("a 64-bit integer was expected"));
}

TEST_F(Refusals, WritesToWhatAStepPasses) {
  EXPECT_THAT(
      After(
          kTrain,
          [](json& form) {
            ArgumentOf(NodeOf(form, "torch.ops.aten.add_.Tensor"), "self") = {{"as_tensor", {{"name", "edge_weight"}}}};
          }),
      HasSubstr("input \"edge_weight\": the program writes to it"));
}

TEST_F(Refusals, TensorsWhoseBytesDoNotFit) {
  const auto after = [](const std::function<void(json&)>& change) {
    return After(kWeights, [&](json& table) { change(table["config"]["frozen"]); });
  };
  EXPECT_THAT(after([](json& tensor) { tensor["use_pickle"] = true; }), HasSubstr("frozen: use_pickle"));
  EXPECT_THAT(after([](json& tensor) { tensor["tensor_meta"]["sizes"][0]["as_int"] = 17; }),
              HasSubstr("parameter frozen: is stored as float32 [17], where the graph takes float32 [16]"));
  EXPECT_THAT(after([](json& tensor) { tensor["tensor_meta"]["dtype"] = 8; }), HasSubstr("is stored as float64 [16]"));
  EXPECT_THAT(after([](json& tensor) { tensor["tensor_meta"]["strides"][0]["as_int"] = 2; }),
              HasSubstr("its 64 bytes are not those of float32 [16]"));
  EXPECT_THAT(after([](json& tensor) { tensor["tensor_meta"]["strides"][0]["as_int"] = int64_t{1} << 62; }),
              HasSubstr("its 64 bytes are not those of"));
  EXPECT_THAT(after([](json& tensor) { tensor["tensor_meta"]["storage_offset"]["as_int"] = INT64_MAX; }),
              HasSubstr("at offset 9223372036854775807"));
  EXPECT_THAT(after([](json& tensor) { tensor["tensor_meta"]["storage_offset"]["as_int"] = -1; }),
              HasSubstr("storage_offset: -1 is negative"));
  EXPECT_THAT(after([](json& tensor) { tensor["path_name"] = "nothing"; }), HasSubstr("no such record"));
  EXPECT_THAT(After(kWeights, [](json& table) { table["config"].erase("frozen"); }),
              HasSubstr("parameter frozen: the archive has no such tensor"));
}

TEST_F(Refusals, FormsThatDiffer) {
  Records records = Good();
  const json table = json::parse(records.at("data/weights/eval_weights_config.json"));
  std::string& bytes = records.at("data/weights/" + table["config"]["frozen"]["path_name"].get<std::string>());
  bytes[0] = static_cast<char>(bytes[0] ^ 1);
  // The reader takes the forms in the order of their names.
  EXPECT_THAT(MessageOf(records), HasSubstr("parameter frozen: differs between the forms"));
}

TEST_F(Refusals, ArchivesOfAnotherKind) {
  EXPECT_FALSE(LoadProgramFromBytes("").ok());
  EXPECT_FALSE(LoadProgramFromBytes("PK").ok());
  EXPECT_FALSE(LoadProgram(dir_->path() / "none.pt2").ok());
  EXPECT_THAT(MessageOf({{"data/x", "x"}}), HasSubstr("where train.json and eval.json are accepted"));
  Records records = Good();
  records["models/third.json"] = "{}";
  EXPECT_THAT(MessageOf(records), HasSubstr("holds \"eval, third, train\""));
  records = Good();
  records["byteorder"] = "big";
  EXPECT_THAT(MessageOf(records), HasSubstr("byteorder: \"big\""));
}

TEST_F(Refusals, WhatIsBeyondTheLimits) {
  Limits limits;
  limits.nodes = 10;
  EXPECT_THAT(MessageOf(Good(), limits), HasSubstr("nodes: more than 10 of them"));
  limits = {};
  limits.json_bytes = 1000;
  EXPECT_THAT(MessageOf(Good(), limits), HasSubstr("bytes are more than 1000"));
  limits = {};
  limits.tensor_bytes = 3000;
  limits.json_bytes = 3000;
  EXPECT_THAT(MessageOf(Good(), limits), HasSubstr("are more than 3000"));
  limits = {};
  limits.archive_bytes = 1000;
  EXPECT_THAT(MessageOf(Good(), limits), HasSubstr("more than the 1000 that a program may have"));
  limits = {};
  limits.records = 3;
  EXPECT_THAT(MessageOf(Good(), limits), HasSubstr("records are more than 3"));
  limits = {};
  limits.nested_regions = 0;
  EXPECT_THAT(MessageOf(Good(), limits), HasSubstr("regions within each other"));
}

}  // namespace
}  // namespace permafrost::program
