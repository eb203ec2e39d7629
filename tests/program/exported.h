// Archives that Python's torch.export wrote, and what PyTorch computed with their modules.
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

// By name: see tests/program/export_modules.py.
using Tensors = std::map<std::string, at::Tensor>;
Tensors ReadTensors(const std::filesystem::path& stem);

// Returns those of the tensors `in.NAME` that the program takes.
std::vector<c10::IValue> InputsOf(const Program& program, const Tensors& tensors);

bool EqualBits(const at::Tensor& a, const at::Tensor& b);

// Runs both forms, the eval form first, and a backward of the train form: of its loss, or else of the sum of its
// squared output. Fails the test where an output, a gradient or a buffer has other bits than PyTorch's.
void ExpectEqualsPyTorch(const LoadedProgram& loaded, const Tensors& expected);

Interpreter MakeInterpreter(const Form& form, InterpreterOptions options = {});

// The command that copies PyG's modules from the cache in the build folder, and exports those that it lacks.
inline constexpr char kExportModules[] = "cached_exports.py '" PERMAFROST_EXPORTS "'";

// Archives that a script of tests/program provides before the suite's first test. A suite is one ctest test, so that
// the script runs once for it. Tests are skipped where there is no Python, or one without PyG.
class WithExports : public testing::Test {
 protected:
  // For SetUpTestSuite. names: of the script's modules; empty: all. A module that cannot be exported fails the test.
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

// The records of an archive, to be changed and packed again.
using Records = std::map<std::string, std::string>;
Records ReadRecords(const std::filesystem::path& archive);
std::string Pack(const Records& records);

}  // namespace permafrost::program
