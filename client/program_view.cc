#include "client/program_view.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "client/format.h"
#include "client/time_text.h"
#include "permafrost/v1/enum_text.h"

namespace permafrost::client {
namespace {

std::string IdOf(const v1::Program& program) { return OneLine(StripCollection("programs", program.name())); }

std::string FormsText(const v1::Program& program) {
  std::string text;
  for (const v1::Program::Form& form : program.forms()) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", OneLine(form.name()), " (", CountText(form.num_nodes()),
                    " nodes)");
  }
  return text.empty() ? kNothing : text;
}

using Values = google::protobuf::RepeatedPtrField<v1::Program::Value>;

bool AreEqual(const Values& a, const Values& b) {
  return std::ranges::equal(a, b, [](const v1::Program::Value& x, const v1::Program::Value& y) {
    return x.name() == y.name() && x.type() == y.type();
  });
}

// Told once where all forms have the same.
std::string RenderValues(const v1::Program& program, const char* header,
                         const Values& (v1::Program::Form::*values)() const, const RenderStyle& style) {
  const bool same = std::ranges::all_of(program.forms(), [&](const v1::Program::Form& form) {
    return AreEqual((form.*values)(), (program.forms(0).*values)());
  });
  std::vector<std::vector<Cell>> rows;
  for (const v1::Program::Form& form : program.forms()) {
    for (const v1::Program::Value& value : (form.*values)()) {
      rows.push_back({OneLine(value.name()), OneLine(value.type()), same ? "all" : OneLine(form.name())});
    }
    if (same) break;
  }
  return absl::StrCat("\n", RenderTable({{header}, {"TYPE"}, {"FORM"}}, rows, style));
}

std::string RenderTensors(const v1::Program& program, const RenderStyle& style) {
  if (program.tensors().empty()) return "";
  std::vector<std::vector<Cell>> rows;
  rows.reserve(static_cast<size_t>(program.tensors_size()));
  for (const v1::Program::Tensor& tensor : program.tensors()) {
    rows.push_back({OneLine(tensor.name()), EnumShortName(*v1::Program::Tensor::Kind_descriptor(), tensor.kind()),
                    OneLine(tensor.type()), tensor.trained() ? "yes" : "no", tensor.persistent() ? "yes" : "no"});
  }
  return absl::StrCat("\n", RenderTable({{"TENSOR"}, {"KIND"}, {"TYPE"}, {"TRAINED"}, {"SAVED"}}, rows, style));
}

// The operators of all forms, in lines no wider than the terminal.
std::string RenderOperators(const v1::Program& program, const RenderStyle& style) {
  std::set<std::string> operators;
  for (const v1::Program::Form& form : program.forms()) {
    for (const std::string& name : form.operators()) operators.insert(OneLine(name));
  }
  if (operators.empty()) return "";
  std::string text = absl::StrCat("\n", CountText(static_cast<int64_t>(operators.size())), " operators\n");
  std::string line = " ";
  for (const std::string& name : operators) {
    if (line.size() > 1 && static_cast<int>(line.size() + 1 + name.size()) >= style.width) {
      absl::StrAppend(&text, line, "\n");
      line = " ";
    }
    absl::StrAppend(&line, " ", name);
  }
  return absl::StrCat(text, line, "\n");
}

}  // namespace

std::string RenderProgramList(const std::vector<v1::Program>& programs, const ViewTime& time,
                              const RenderStyle& style) {
  std::vector<std::vector<Cell>> rows;
  rows.reserve(programs.size());
  for (const v1::Program& program : programs) {
    rows.push_back({IdOf(program), CountText(program.num_parameters()), BytesText(program.bytes()),
                    OneLine(program.torch_version()), AgeText(ToTime(program.create_time()), time.now, time.zone)});
  }
  return RenderTable(
      {{"PROGRAM"}, {"PARAMETERS", Align::kRight}, {"SIZE", Align::kRight}, {"TORCH"}, {"CREATED", Align::kRight}},
      rows, style);
}

std::string RenderProgram(const v1::Program& program, const ViewTime& time, const RenderStyle& style) {
  const std::vector<Field> fields{{"forms", FormsText(program)},
                                  {"parameters", CountText(program.num_parameters())},
                                  {"size", BytesText(program.bytes())},
                                  {"xxh3", OneLine(program.xxh3())},
                                  {"torch", OneLine(program.torch_version())},
                                  {"created", ClockText(ToTime(program.create_time()), time.zone)},
                                  {"etag", OneLine(program.etag())}};
  std::string text = absl::StrCat("program ", IdOf(program), "\n", RenderFields(fields, style));
  if (!program.forms().empty()) {
    absl::StrAppend(&text, RenderValues(program, "INPUT", &v1::Program::Form::inputs, style),
                    RenderValues(program, "OUTPUT", &v1::Program::Form::outputs, style));
  }
  return absl::StrCat(text, RenderTensors(program, style), RenderOperators(program, style));
}

}  // namespace permafrost::client
