// Programs give bit for bit the results of the PyTorch module that they were exported from.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "program/exported.h"
#include "program/interpreter.h"
#include "program/load.h"
#include "program/operators.h"

namespace permafrost::program {
namespace {

std::set<std::string> MutatedNames(const Interpreter& interpreter) {
  std::set<std::string> names;
  for (const size_t place : interpreter.mutated()) names.insert(interpreter.program().state[place].name);
  return names;
}

class Exported : public WithExports {
 protected:
  static void SetUpTestSuite() { Export(kExportModules, ""); }
};

TEST_F(Exported, EqualPyTorchInOutputsGradientsAndBuffers) {
  const std::vector<std::string> names = Names();
  ASSERT_GE(names.size(), 20u);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    ExpectEqualsPyTorch(Load(name), Expected(name));
  }
}

// torch.export assumes that every size is at least 2, but a batch may have smaller ones.
TEST_F(Exported, EqualPyTorchOnBatchesOfOneGraphOneNodeOrOneEdge) {
  int refused = 0;
  for (const std::string& name : Names()) {
    for (const char* batch : {"1-0-1", "5-7-1", "6-1-3"}) {
      SCOPED_TRACE(testing::Message() << name << ", " << batch);
      const LoadedProgram loaded = Load(name);
      const Tensors expected = Expected(name + "." + batch);
      if (expected.contains("train")) {
        ExpectEqualsPyTorch(loaded, expected);
        continue;
      }
      ++refused;
      Interpreter eval = MakeInterpreter(loaded.eval()), train = MakeInterpreter(loaded.train());
      EXPECT_TRUE(EqualBits(eval.Run(InputsOf(eval.program(), expected))[0].toTensor(), expected.at("eval")));
      EXPECT_THROW(train.Run(InputsOf(train.program(), expected)), c10::Error);
    }
  }
  EXPECT_GT(refused, 0);
}

TEST_F(Exported, TellsSizesOfABatchAndWhatAStepWritesTo) {
  const LoadedProgram loaded = Load("gine");
  const Program& program = *loaded.train().program;
  EXPECT_FALSE(program.symbols.nodes.empty());
  EXPECT_FALSE(program.symbols.edges.empty());
  EXPECT_FALSE(program.symbols.graphs.empty());
  EXPECT_NE(program.symbols.nodes, program.symbols.edges);
  EXPECT_EQ(MutatedNames(MakeInterpreter(loaded.train())),
            (std::set<std::string>{"norms.0.num_batches_tracked", "norms.0.running_mean", "norms.0.running_var",
                                   "norms.1.num_batches_tracked", "norms.1.running_mean", "norms.1.running_var"}));
}

TEST_F(Exported, SharesTiedParametersAndThoseOfBothForms) {
  const LoadedProgram loaded = Load("tied");
  const auto tensor = [](const Form& form, const std::string& name) {
    for (size_t i = 0; i < form.state.size(); ++i)
      if (form.program->state[i].name == name) return form.state[i];
    ADD_FAILURE() << name;
    return at::Tensor();
  };
  EXPECT_TRUE(tensor(loaded.train(), "a.weight").is_same(tensor(loaded.train(), "b.weight")));
  EXPECT_TRUE(tensor(loaded.train(), "a.bias").is_same(tensor(loaded.eval(), "a.bias")));
  EXPECT_FALSE(tensor(loaded.train(), "frozen").requires_grad());
  EXPECT_TRUE(tensor(loaded.train(), "unused.weight").requires_grad());
  EXPECT_EQ(MutatedNames(MakeInterpreter(loaded.train())), std::set<std::string>{"calls"});
}

TEST_F(Exported, ListsNodesThatDrawAndLetsOthersDrawForThem) {
  const LoadedProgram loaded = Load("tied");
  EXPECT_TRUE(RandomNodes(*loaded.eval().program).empty());
  const std::vector<const Node*> random = RandomNodes(*loaded.train().program);
  ASSERT_EQ(random.size(), 1u);
  EXPECT_EQ(random[0]->target, "torch.ops.aten.dropout.default");
  EXPECT_NE(random[0]->source.find("drop (Dropout)"), std::string::npos) << random[0]->source;

  std::vector<int64_t> places;
  InterpreterOptions options;
  options.draw = [&places](const Node& /*node*/, int64_t place, torch::jit::Stack& stack) {
    places.push_back(place);
    stack.resize(1);  // Drops no value.
  };
  const Tensors expected = Expected("tied");
  Interpreter train = MakeInterpreter(loaded.train(), options), eval = MakeInterpreter(loaded.eval());
  // The eval form must run first, because the train form counts its calls in a buffer that both share.
  const at::Tensor evaluated = eval.Run(InputsOf(eval.program(), expected))[0].toTensor();
  EXPECT_TRUE(EqualBits(train.Run(InputsOf(train.program(), expected))[0].toTensor(), evaluated));
  EXPECT_EQ(places, std::vector<int64_t>{0});
}

TEST_F(Exported, RefusesInputsOfAnotherShapeOrTypeByName) {
  const LoadedProgram loaded = Load("gine");
  Interpreter train = MakeInterpreter(loaded.train());
  const std::vector<c10::IValue> good = InputsOf(train.program(), Expected("gine"));
  EXPECT_TRUE(train.CheckInputs(good).ok());
  const auto place = [&](const std::string& name) {
    for (size_t i = 0; i < train.program().inputs.size(); ++i)
      if (train.program().inputs[i].name == name) return i;
    ADD_FAILURE() << name;
    return size_t{0};
  };
  const struct {
    const char* why;
    const char* input;
    c10::IValue value;
    const char* told;
  } kCases[] = {
      {"another type", "x", at::zeros({53}), "where int64 ["},
      {"another rank", "edge_index", at::zeros({131}, at::kLong), "of 1 dimensions"},
      {"another fixed size", "edge_index", at::zeros({3, 131}, at::kLong), "3 is not 2"},
      {"fewer edges than elsewhere", "edge_attr", at::zeros({130}, at::kLong), "130 is not 131"},
      {"no tensor", "x", int64_t{3}, "must be a tensor"},
      {"no int", "num_graphs", at::zeros({1}), "must be an int"},
  };
  for (const auto& c : kCases) {
    std::vector<c10::IValue> inputs = good;
    inputs[place(c.input)] = c.value;
    const std::string message(train.CheckInputs(inputs).message());
    EXPECT_NE(message.find(c.told), std::string::npos) << c.why << ": " << message;
    EXPECT_THROW(train.Run(inputs), c10::Error) << c.why;
  }
  EXPECT_FALSE(train.CheckInputs({}).ok());
}

TEST_F(Exported, NamesTheNodeAndItsLineWhereAnOperatorFails) {
  const LoadedProgram loaded = Load("tied");
  Interpreter train = MakeInterpreter(loaded.train());
  Tensors tensors = Expected("tied");
  tensors["in.x"] = tensors["in.x"].add(28);  // Exceeds the embedding's rows.
  try {
    train.Run(InputsOf(train.program(), tensors));
    FAIL() << "an index out of range was taken";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("node embedding (torch.ops.aten.embedding.default"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace permafrost::program
