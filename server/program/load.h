// A program's archive, read and checked whole: what an upload is accepted by, and what a job runs.
// Threads: pure functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "program/decode.h"
#include "program/program.h"

namespace permafrost::program {

struct Form {
  std::shared_ptr<const Program> program;
  // The tensors of program->state, in its order, on the CPU. Forms of one archive share parameters and buffers.
  std::vector<at::Tensor> state;
};

struct LoadedProgram {
  std::vector<Form> forms;  // by name: "eval" and "train", or "model" alone
  // The form of the mode, or the only one.
  const Form& train() const { return forms.back(); }
  const Form& eval() const { return forms.front(); }
};

// Every operator is one that programs may use, with arguments that its schema takes, and every tensor has its bytes.
// Errors: InvalidArgument or DataLoss in one line that names the form, node or tensor; NotFound where no file is;
// ResourceExhausted where memory is too small.
absl::StatusOr<LoadedProgram> LoadProgram(const std::filesystem::path& path, const Limits& limits = {});
absl::StatusOr<LoadedProgram> LoadProgramFromBytes(std::string_view archive, const Limits& limits = {});

}  // namespace permafrost::program
