#include "program/load.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/text.h"
#include "program/archive.h"
#include "program/check.h"
#include "program/decode.h"
#include "program/interpreter.h"
#include "program/torch_errors.h"
#include "program/weights.h"

namespace permafrost::program {
namespace {

std::string TypeOf(const Input& input) {
  if (input.kind != ValueKind::kTensor) return std::string(kValueKindNames.Name(input.kind));
  return absl::StrCat(AbslView(kDTypeNames.Name(input.type.dtype)), " of ", input.type.sizes.size(), " dimensions");
}

// One batch serves both forms.
absl::Status CheckEqualInputs(const Program& a, const Program& b) {
  const auto text = [](const Program& program) {
    std::string names;
    for (const Input& input : program.inputs)
      absl::StrAppend(&names, names.empty() ? "" : ", ", TypeOf(input), " ", Shorten(input.name));
    return names;
  };
  if (text(a) == text(b)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      CutMessage(absl::StrCat("forms: ", a.form, " takes ", text(a), ", and ", b.form, " takes ", text(b)), 600));
}

absl::StatusOr<LoadedProgram> Load(const Archive& archive, const Limits& limits) {
  std::vector<Program> programs;
  programs.reserve(archive.forms().size());
  for (const std::string& form : archive.forms()) {
    PF_ASSIGN_OR_RETURN(const std::string text, archive.ReadText(absl::StrCat("models/", form, ".json")));
    PF_ASSIGN_OR_RETURN(Program program, DecodeProgram(form, text, limits));
    if (absl::Status status = CheckOperators(program); !status.ok()) return Annotate(status, form);
    programs.push_back(std::move(program));
  }
  if (programs.size() == 2) PF_RETURN_IF_ERROR(CheckEqualInputs(programs[0], programs[1]));
  PF_ASSIGN_OR_RETURN(std::vector<std::vector<at::Tensor>> state, ReadWeights(archive, programs, limits));
  LoadedProgram loaded;
  for (size_t i = 0; i < programs.size(); ++i) {
    Form& form = loaded.forms.emplace_back();
    form.program = std::make_shared<const Program>(std::move(programs[i]));
    form.state = std::move(state[i]);
    const auto bound = Interpreter::Make(form.program, form.state);
    if (!bound.ok()) return Annotate(bound.status(), form.program->form);
  }
  return loaded;
}

// CatchTorch of a function that returns a program.
template <class Open>
absl::StatusOr<LoadedProgram> Guarded(const Open& open, const Limits& limits) {
  LoadedProgram loaded;
  PF_RETURN_IF_ERROR(CatchTorch("program", [&]() -> absl::Status {
    PF_ASSIGN_OR_RETURN(const Archive archive, open());
    PF_ASSIGN_OR_RETURN(loaded, Load(archive, limits));
    return absl::OkStatus();
  }));
  return loaded;
}

}  // namespace

absl::StatusOr<LoadedProgram> LoadProgram(const std::filesystem::path& path, const Limits& limits) {
  return Guarded([&] { return Archive::Open(path, limits); }, limits);
}

absl::StatusOr<LoadedProgram> LoadProgramFromBytes(std::string_view archive, const Limits& limits) {
  return Guarded([&] { return Archive::OfBytes(archive, limits); }, limits);
}

}  // namespace permafrost::program
