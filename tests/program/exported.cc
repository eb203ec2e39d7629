#include "program/exported.h"

#include <ATen/Functions.h>
#include <caffe2/serialize/inline_container.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "program/dtypes.h"

namespace permafrost::program {
namespace {

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

std::string ExportModules(const std::filesystem::path& out, const std::string& names) {
  constexpr int kPartsAreAbsent = 77;
  const std::string python = PERMAFROST_TEST_PYTHON;
  if (python.empty()) return "PERMAFROST_TEST_PYTHON is not set";
  const std::string script = PERMAFROST_SOURCE_DIR "/tests/program/export_modules.py";
  const int status = std::system((python + " " + script + " " + out.string() + " " + names).c_str());
  if (WIFEXITED(status) && WEXITSTATUS(status) == kPartsAreAbsent) return "this Python has no torch_geometric";
  EXPECT_EQ(status, 0) << script;
  return "";
}

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
    if (name.rfind(".data/", 0) == 0) continue;  // The writer's own.
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

}  // namespace permafrost::program
