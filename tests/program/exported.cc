#include "program/exported.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <caffe2/serialize/inline_container.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "program/libtorch.h"

namespace permafrost::program {
namespace {

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void ExpectEqualState(const Form& form, const Tensors& expected) {
  std::set<std::string> gradients;
  for (size_t i = 0; i < form.state.size(); ++i) {
    const State& state = form.program->state[i];
    const at::Tensor& tensor = form.state[i];
    if (state.kind == StateKind::kBuffer) {
      EXPECT_TRUE(EqualBits(tensor, expected.at("buffer." + state.name))) << state.name;
    }
    if (state.kind != StateKind::kParameter || !tensor.grad().defined()) continue;
    gradients.insert("grad." + state.name);
    const auto found = expected.find("grad." + state.name);
    // PyTorch lists a tied parameter under its first name only.
    if (found != expected.end()) {
      EXPECT_TRUE(EqualBits(tensor.grad(), found->second)) << state.name;
    }
  }
  for (const auto& [name, tensor] : expected)
    if (name.rfind("grad.", 0) == 0) {
      EXPECT_TRUE(gradients.contains(name)) << name << " is missing";
    }
}

}  // namespace

Tensors ReadTensors(const std::filesystem::path& stem) {
  const auto index = nlohmann::json::parse(ReadFile(stem.string() + ".json"));
  const std::string bytes = ReadFile(stem.string() + ".bin");
  Tensors tensors;
  for (const auto& [name, entry] : index.items()) {
    const auto dtype = kDTypeNames.Parse(entry.at("dtype").get<std::string>());
    at::Tensor tensor = at::empty(entry.at("sizes").get<std::vector<int64_t>>(), ScalarTypeOf(dtype.value()));
    if (tensor.nbytes() > 0) {
      std::memcpy(tensor.mutable_data_ptr(), bytes.data() + entry.at("place").get<size_t>(), tensor.nbytes());
    }
    tensors.emplace(name, tensor);
  }
  return tensors;
}

std::vector<c10::IValue> InputsOf(const Program& program, const Tensors& tensors) {
  std::vector<c10::IValue> inputs;
  inputs.reserve(program.inputs.size());
  for (const Input& input : program.inputs) {
    const at::Tensor& tensor = tensors.at("in." + input.name);
    inputs.emplace_back(input.kind == ValueKind::kInt ? c10::IValue(tensor.item<int64_t>()) : c10::IValue(tensor));
  }
  return inputs;
}

bool EqualBits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const at::Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  return x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

Records ReadRecords(const std::filesystem::path& archive) {
  caffe2::serialize::PyTorchStreamReader reader(archive.string());
  Records records;
  for (const std::string& name : reader.getAllRecords()) {
    if (name.rfind(".data/", 0) == 0) continue;  // The archive's writer adds these itself.
    const auto [data, size] = reader.getRecord(name);
    records.emplace(name, std::string(static_cast<const char*>(data.get()), size));
  }
  return records;
}

std::string Pack(const Records& records) {
  std::string bytes;
  {
    caffe2::serialize::PyTorchStreamWriter writer([&bytes](const void* data, size_t size) {
      bytes.append(static_cast<const char*>(data), size);
      return size;
    });
    for (const auto& [name, content] : records) writer.writeRecord(name, content.data(), content.size());
    writer.writeEndOfFile();
  }
  return bytes;
}

Interpreter MakeInterpreter(const Form& form, InterpreterOptions options) {
  auto made = Interpreter::Make(form.program, form.state, std::move(options));
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

void ExpectEqualsPyTorch(const LoadedProgram& loaded, const Tensors& expected) {
  ASSERT_EQ(loaded.forms.size(), 2u);
  Interpreter eval = MakeInterpreter(loaded.eval()), train = MakeInterpreter(loaded.train());
  EXPECT_TRUE(EqualBits(eval.Run(InputsOf(eval.program(), expected))[0].toTensor(), expected.at("eval")));
  EXPECT_TRUE(eval.mutated().empty());
  at::manual_seed(11);
  const std::vector<c10::IValue> outputs = train.Run(InputsOf(train.program(), expected));
  EXPECT_TRUE(EqualBits(outputs[0].toTensor(), expected.at("train")));
  const auto loss = expected.find("loss");
  ASSERT_EQ(outputs.size(), loss == expected.end() ? 1u : 2u);
  if (loss != expected.end()) {
    EXPECT_TRUE(EqualBits(outputs[1].toTensor(), loss->second));
  }
  torch::autograd::backward({outputs.size() > 1 ? outputs[1].toTensor() : outputs[0].toTensor().square().sum()}, {});
  ExpectEqualState(loaded.train(), expected);
}

std::unique_ptr<TempDir> WithExports::dir_;
std::string WithExports::absent_;

void WithExports::Export(const std::string& script, const std::string& names) {
  constexpr int kPartsAreAbsent = 77;
  dir_ = std::make_unique<TempDir>();
  absent_.clear();
  const std::string python = PERMAFROST_TEST_PYTHON;
  if (python.empty()) {
    absent_ = "PERMAFROST_TEST_PYTHON is not set";
    return;
  }
  const std::string command = python + " " PERMAFROST_SOURCE_DIR "/tests/program/" + script;
  const int status = std::system((command + " " + dir_->path().string() + " " + names).c_str());
  if (WIFEXITED(status) && WEXITSTATUS(status) == kPartsAreAbsent) {
    absent_ = "this Python has no torch_geometric";
    return;
  }
  EXPECT_EQ(status, 0) << script;
}

void WithExports::TearDownTestSuite() { dir_.reset(); }

void WithExports::SetUp() {
  if (!absent_.empty()) GTEST_SKIP() << absent_;
  at::set_num_threads(1);
}

std::filesystem::path WithExports::Archive(const std::string& name) { return dir_->path() / (name + ".pt2"); }

LoadedProgram WithExports::Load(const std::string& name) {
  auto loaded = LoadProgram(Archive(name));
  EXPECT_TRUE(loaded.ok()) << name << ": " << loaded.status();
  return loaded.ok() ? *std::move(loaded) : LoadedProgram();
}

Tensors WithExports::Expected(const std::string& name) { return ReadTensors(dir_->path() / name); }

std::vector<std::string> WithExports::Names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir_->path()))
    if (entry.path().extension() == ".pt2") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace permafrost::program
