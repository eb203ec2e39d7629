// Reads and checks a program's archive as a whole, for uploads and for jobs.
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
  // The tensors of program->state, in its order, on the CPU. The forms of one archive share parameters and buffers.
  std::vector<at::Tensor> state;
};

struct LoadedProgram {
  std::vector<Form> forms;  // sorted by name: "eval" and "train", or "model" alone
  // Return the form for training and the form for evaluation. If the archive has one form, both return it.
  const Form& train() const { return forms.back(); }
  const Form& eval() const { return forms.front(); }
};

// Reads an archive. Checks that every operator is allowed, that its arguments fit its schema, and that every tensor
// has its bytes. Errors: InvalidArgument or DataLoss, in one line that names the form, node or tensor; NotFound if
// the file does not exist; ResourceExhausted if memory does not suffice.
absl::StatusOr<LoadedProgram> LoadProgram(const std::filesystem::path& path, const Limits& limits = {});
absl::StatusOr<LoadedProgram> LoadProgramFromBytes(std::string_view archive, const Limits& limits = {});

}  // namespace permafrost::program
