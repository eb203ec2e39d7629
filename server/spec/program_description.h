// Describes a program's archive to users: its inputs and outputs, its tensors, its operators.
// train::Runner::DescribeProgram creates the description. The wire and the record on disk follow the rows.
// Threads: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/enum_names.h"
#include "spec/field.h"

namespace permafrost::spec {

// An input or an output. Its type is, for example, "float32[N, 9]" or "int". N, E and G are a batch's nodes, edges
// and graphs.
struct ProgramValue {
  std::string name, type;
  bool operator==(const ProgramValue&) const = default;
};

template <class F>
void VisitFields(Options<ProgramValue>, F&& f) {
  using V = ProgramValue;
  f({.name = "name"}, &V::name);
  f({.name = "type"}, &V::type);
}

struct ProgramForm {
  std::string name;  // "train" and "eval", or "model"
  std::vector<ProgramValue> inputs, outputs;
  int64_t num_nodes = 0;               // nodes of the exported graph, including those in nested regions
  std::vector<std::string> operators;  // such as "aten.add.Tensor"; sorted and distinct
  bool operator==(const ProgramForm&) const = default;
};

template <class F>
void VisitFields(Options<ProgramForm>, F&& f) {
  using P = ProgramForm;
  f({.name = "name"}, &P::name);
  f({.name = "inputs"}, &P::inputs);
  f({.name = "outputs"}, &P::outputs);
  f({.name = "num_nodes"}, &P::num_nodes);
  f({.name = "operators"}, &P::operators);
}

enum class ProgramTensorKind { kParameter, kBuffer, kConstant };
inline constexpr EnumNames<ProgramTensorKind, 3> kProgramTensorKindNames{
    {{{ProgramTensorKind::kParameter, "parameter"},
      {ProgramTensorKind::kBuffer, "buffer"},
      {ProgramTensorKind::kConstant, "constant"}}}};

struct ProgramTensor {
  std::string name;  // the name in the user's module: "convs.0.nn.0.weight"
  ProgramTensorKind kind = ProgramTensorKind::kParameter;
  std::string type;         // "float32[64, 9]"
  bool trained = false;     // the tensor is a parameter that receives a gradient
  bool persistent = false;  // the tensor is part of the module's state_dict
  bool operator==(const ProgramTensor&) const = default;
};

template <class F>
void VisitFields(Options<ProgramTensor>, F&& f) {
  using T = ProgramTensor;
  f({.name = "name"}, &T::name);
  f({.name = "kind"}, &T::kind, kProgramTensorKindNames);
  f({.name = "type"}, &T::type);
  f({.name = "trained"}, &T::trained);
  f({.name = "persistent"}, &T::persistent);
}

struct ProgramDescription {
  std::string torch_version;  // the version that exported the program
  std::vector<ProgramForm> forms;
  // The tensors of all forms, without duplicates: parameters, then buffers, then constants.
  std::vector<ProgramTensor> tensors;
  int64_t num_parameters = 0;  // total number of elements; tied parameters count once
  bool operator==(const ProgramDescription&) const = default;
};

template <class F>
void VisitFields(Options<ProgramDescription>, F&& f) {
  using D = ProgramDescription;
  f({.name = "torch_version"}, &D::torch_version);
  f({.name = "forms"}, &D::forms);
  f({.name = "tensors"}, &D::tensors);
  f({.name = "num_parameters"}, &D::num_parameters);
}

}  // namespace permafrost::spec
