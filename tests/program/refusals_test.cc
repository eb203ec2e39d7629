// Archives that must be refused, whatever their bytes are. One line names what is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "program/exported.h"
#include "program/interpreter.h"
#include "program/load.h"

namespace permafrost::program {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class Refusals : public WithExports {
 protected:
  static void SetUpTestSuite() { Export(kExportModules, "gine tied"); }
  static Records Good(const std::string& name = "tied") { return ReadRecords(Archive(name)); }
  static std::string MessageOf(const Records& records, const Limits& limits = {}) {
    return std::string(LoadProgramFromBytes(Pack(records), limits).status().message());
  }
  // Returns the loader's message after `change` of one record's JSON.
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
};

constexpr char kTrain[] = "models/train.json";
constexpr char kWeights[] = "data/weights/train_weights_config.json";

TEST_F(Refusals, TakeTheArchiveAsItIs) {
  EXPECT_EQ(MessageOf(Good()), "");
  // A single form, named as torch.export.save names it.
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
  // With stride 0, a tensor of any size could lie in the 64 bytes that exist.
  const auto set_size = [](json& place) { place["sizes"][0]["as_int"] = int64_t{1} << 40; };
  Records records = Good();
  for (const std::string form : {"train", "eval"}) {
    json table = json::parse(records.at("data/weights/" + form + "_weights_config.json"));
    json program = json::parse(records.at("models/" + form + ".json"));
    json& meta = table["config"]["frozen"]["tensor_meta"];
    set_size(meta);
    meta["strides"][0]["as_int"] = 0;
    set_size(program["graph_module"]["graph"]["tensor_values"]["p_frozen"]);
    records["data/weights/" + form + "_weights_config.json"] = table.dump();
    records["models/" + form + ".json"] = program.dump();
  }
  EXPECT_THAT(MessageOf(records), HasSubstr("float32 [1099511627776] repeats the elements of its 64 bytes"));
  EXPECT_THAT(After(kWeights, [](json& table) { table["config"].erase("frozen"); }),
              HasSubstr("parameter frozen: the archive has no such tensor"));
}

TEST_F(Refusals, FormsThatDiffer) {
  Records records = Good();
  const json table = json::parse(records.at("data/weights/eval_weights_config.json"));
  std::string& bytes = records.at("data/weights/" + table["config"]["frozen"]["path_name"].get<std::string>());
  bytes[0] = static_cast<char>(bytes[0] ^ 1);
  // The reader loads the forms in the order of their names.
  EXPECT_THAT(MessageOf(records), HasSubstr("parameter frozen: differs between the forms"));
}

TEST_F(Refusals, ArchivesOfAnotherKind) {
  EXPECT_FALSE(LoadProgramFromBytes("").ok());
  EXPECT_FALSE(LoadProgramFromBytes("PK").ok());
  EXPECT_FALSE(LoadProgram(Archive("none")).ok());
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
  limits.json_depth = 5;
  EXPECT_THAT(MessageOf(Good(), limits), HasSubstr("eval.json: more than 5 lists and objects within each other"));
  limits = {};
  limits.nested_regions = 0;
  EXPECT_THAT(MessageOf(Good(), limits), HasSubstr("regions within each other"));
}

TEST_F(Refusals, ListsWithinEachOtherToAnyDepth) {
  constexpr size_t kDepth = 5'000'000;  // One call per level would overflow the stack.
  Records records = Good();
  std::string& form = records.at(kTrain);
  const size_t at = form.find("\"major\":");
  ASSERT_NE(at, form.npos);
  form.insert(at, "\"major\":" + std::string(kDepth, '[') + std::string(kDepth, ']') + ",");
  EXPECT_THAT(MessageOf(records), HasSubstr("train.json: more than 200 lists and objects within each other"));
}

TEST_F(Refusals, RecordsThatClaimMoreBytesThanTheArchiveHas) {
  const std::string record = "models/train.json";
  std::string bytes = Pack(Good());
  // The last occurrence of the record's name is its entry in the directory. Marked as deflated, a record may claim
  // any size.
  const size_t name = bytes.rfind(record), entry = bytes.rfind("PK\1\2", name);
  ASSERT_NE(entry, bytes.npos);
  bytes[entry + 10] = 8;
  for (const size_t byte : {24, 25, 26}) bytes[entry + byte] = '\xff';
  EXPECT_THAT(std::string(LoadProgramFromBytes(bytes).status().message()),
              HasSubstr("models/train.json: its 16777215 bytes are more than the archive's"));
}

// Changes values of a JSON record, or bytes of the packed archive, depending on a seed.
class Mutator {
 public:
  explicit Mutator(uint32_t seed) : draw_(seed) {}

  std::string Mutate(Records records) {
    if (Below(4) == 0) return MutateBytes(Pack(records));
    std::vector<std::string> names;
    for (const auto& [name, content] : records)
      if (name.ends_with(".json")) names.push_back(name);
    // Programs are chosen most often, because they have the most that can be wrong.
    const std::string name =
        Below(4) != 0 ? (Below(2) != 0 ? "models/train.json" : "models/eval.json") : names[Below(names.size())];
    json value = json::parse(records.at(name));
    for (size_t changes = 1 + Below(3); changes > 0; --changes) Change(value);
    records[name] = value.dump();
    return Pack(records);
  }

 private:
  size_t Below(size_t end) { return std::uniform_int_distribution<size_t>(0, end - 1)(draw_); }

  std::string MutateBytes(std::string bytes) {
    for (size_t changes = 1 + Below(8); changes > 0; --changes) {
      const size_t at = Below(bytes.size());
      switch (Below(4)) {
        case 0:
          bytes[at] = static_cast<char>(Below(256));
          break;
        case 1:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << Below(8)));
          break;
        case 2:
          bytes.erase(at, 1 + Below(64));
          break;
        default:
          bytes.insert(at, 1 + Below(64), static_cast<char>(Below(256)));
      }
      if (bytes.empty()) return bytes;
    }
    if (Below(8) == 0) bytes.resize(Below(bytes.size()));
    return bytes;
  }

  // Returns a value anywhere in the tree.
  json& Pick(json& root) {
    json* at = &root;
    while (at->is_structured() && !at->empty() && Below(12) != 0)
      at = &*std::next(at->begin(), static_cast<std::ptrdiff_t>(Below(at->size())));
    return *at;
  }
  void Change(json& root) {
    const json values[] = {nullptr,
                           true,
                           0,
                           1,
                           -1,
                           2,
                           7,
                           1e308,
                           INT64_MAX,
                           INT64_MIN,
                           UINT64_MAX,
                           int64_t{1} << 40,
                           "",
                           "x",
                           "Infinity",
                           json::array(),
                           json::object(),
                           {{"as_int", -1}},
                           {{"as_none", true}},
                           {{"as_tensor", {{"name", "x"}}}}};
    json& place = Pick(root);
    switch (Below(4)) {
      case 0:
        place = values[Below(std::size(values))];
        break;
      case 1: {
        const json other = Pick(root);
        place = other;
        break;
      }
      case 2:
        if (place.is_structured() && !place.empty()) {
          place.erase(std::next(place.begin(), static_cast<std::ptrdiff_t>(Below(place.size()))));
        }
        break;
      default:
        if (place.is_array() && !place.empty()) {
          place.push_back(place[Below(place.size())]);
        } else if (place.is_number_integer()) {
          place = static_cast<int64_t>(place.get<uint64_t>() + (Below(2) == 0 ? uint64_t{1} : UINT64_MAX));
        } else if (place.is_string()) {
          std::string text = place.get<std::string>();
          if (!text.empty()) text[Below(text.size())] = static_cast<char>(32 + Below(95));
          place = text;
        }
    }
  }

  std::mt19937 draw_;
};

// Runs the loaded forms. Operators may refuse the inputs.
void RunOnce(const LoadedProgram& loaded, const Tensors& tensors) {
  for (const Form& form : loaded.forms) {
    auto interpreter = Interpreter::Make(form.program, form.state);
    ASSERT_TRUE(interpreter.ok()) << interpreter.status();
    std::vector<c10::IValue> inputs;
    for (const Input& input : form.program->inputs) {
      const auto found = tensors.find("in." + input.name);
      if (found == tensors.end()) return;
      inputs.emplace_back(input.kind == ValueKind::kInt ? c10::IValue(int64_t{7}) : c10::IValue(found->second));
    }
    try {
      interpreter->Run(inputs);
    } catch (const c10::Error& error) {  // The step may fail, but the process must not.
      EXPECT_STRNE(error.what_without_backtrace(), "");
    }
  }
}

TEST_F(Refusals, AThousandMutatedArchivesAreRefusedInOneLineOrLoaded) {
  int refused = 0, loaded = 0;
  for (const char* name : {"gine", "tied"}) {
    const Records good = Good(name);
    const Tensors tensors = Expected(name);
    for (uint32_t seed = 0; seed < 500; ++seed) {
      SCOPED_TRACE(testing::Message() << name << ", seed " << seed);
      const auto program = LoadProgramFromBytes(Mutator(seed).Mutate(good));
      if (program.ok()) {
        ++loaded;
        RunOnce(*program, tensors);
        continue;
      }
      ++refused;
      const std::string message(program.status().message());
      EXPECT_FALSE(message.empty());
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
      EXPECT_LT(message.size(), 2000u) << message;
    }
  }
  RecordProperty("refused", refused);
  EXPECT_GT(refused, 300);
  EXPECT_GT(loaded, 50);
}

}  // namespace
}  // namespace permafrost::program
