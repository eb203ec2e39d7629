// Archives that Python's torch.export writes while a test runs, and what PyTorch computed with their modules.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "program/load.h"

namespace permafrost::program {

// Exports the modules of tests/program/modules.py, all where `names` is empty, to `out`. Returns why they are not
// there: no Python, or one without PyG. Empty where all is well. A module that cannot be exported fails the test.
std::string ExportModules(const std::filesystem::path& out, const std::string& names);

// By name: see tests/program/export_modules.py.
using Tensors = std::map<std::string, at::Tensor>;
Tensors ReadTensors(const std::filesystem::path& stem);

// Returns those of the tensors `in.NAME` that the program takes.
std::vector<c10::IValue> InputsOf(const Program& program, const Tensors& tensors);

bool EqualBits(const at::Tensor& a, const at::Tensor& b);

// The records of an archive, to be changed and packed again.
using Records = std::map<std::string, std::string>;
Records ReadRecords(const std::filesystem::path& archive);
std::string Pack(const Records& records);

}  // namespace permafrost::program
