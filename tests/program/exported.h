// Archives that Python's torch.export wrote, and the results that PyTorch computed with their modules.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "program/interpreter.h"
#include "program/load.h"
#include "temp_dir.h"

namespace permafrost::program {

// Tensors by name. tests/program/export_modules.py lists the names.
using Tensors = std::map<std::string, at::Tensor>;
Tensors ReadTensors(const std::filesystem::path& stem);

// Returns the tensors named `in.NAME` that are inputs of the program.
std::vector<c10::IValue> InputsOf(const Program& program, const Tensors& tensors);

bool EqualBits(const at::Tensor& a, const at::Tensor& b);

// Runs the eval form, then the train form with a backward pass. The backward pass starts from the loss, or from the
// sum of the squared output if there is no loss. Fails the test if an output, a gradient or a buffer differs from
// PyTorch's in any bit.
void ExpectEqualsPyTorch(const LoadedProgram& loaded, const Tensors& expected);

Interpreter MakeInterpreter(const Form& form, InterpreterOptions options = {});

// The command that copies PyG's modules from the cache in the build folder, and exports the modules that the cache
// lacks.
inline constexpr char kExportModules[] = "cached_exports.py '" PERMAFROST_EXPORTS "'";

// Archives that a script of tests/program provides before the first test of a suite. ctest runs a whole suite as one
// test, so the script runs once per suite. The tests are skipped if there is no Python with PyG.
class WithExports : public testing::Test {
 protected:
  // Call it in SetUpTestSuite. `names` lists modules of the script; an empty string means all. A module that cannot
  // be exported fails the test.
  static void Export(const std::string& script, const std::string& names);
  static void TearDownTestSuite();
  void SetUp() override;
  static std::filesystem::path Archive(const std::string& name);
  static LoadedProgram Load(const std::string& name);
  static Tensors Expected(const std::string& name);
  static std::vector<std::string> Names();

 private:
  static std::unique_ptr<TempDir> dir_;
  static std::string absent_;
};

// The records of an archive by name, which a test changes and packs again.
using Records = std::map<std::string, std::string>;
Records ReadRecords(const std::filesystem::path& archive);
std::string Pack(const Records& records);

}  // namespace permafrost::program
