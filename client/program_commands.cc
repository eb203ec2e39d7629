// `permafrost program`: users' own modules, exported by torch.export.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/monotonic.h"
#include "base/status.h"
#include "client/commands.h"
#include "client/follow.h"
#include "client/format.h"
#include "client/job_view.h"
#include "client/progress.h"
#include "client/requests.h"
#include "client/style.h"
#include "permafrost/v1/enum_text.h"
#include "permafrost/v1/program.grpc.pb.h"
#include "permafrost/v1/program.pb.h"

namespace permafrost::client {
namespace {

constexpr char kPrograms[] = "programs";

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

// Makes a table of the inputs or outputs of all forms. If these are equal in all forms, each is listed once, for
// "all".
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

// Lists the operators of all forms, in lines that fit the terminal.
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

// Shows what the program takes and returns, its tensors with their types, and its operators.
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

struct ImportFlags {
  std::string name, path;
  double reconnect_seconds = kDefaultReconnectSeconds;
};

// Reads the whole file for its size and checksum.
absl::StatusOr<v1::ProgramStart> StartOf(const ImportFlags& flags) {
  v1::ProgramStart start;
  StreamHash hash;
  int64_t bytes = 0;
  PF_RETURN_IF_ERROR(ReadPieces(flags.path, 0, [&](std::string_view piece) {
    hash.Update(piece.data(), piece.size());
    bytes += static_cast<int64_t>(piece.size());
    return true;
  }));
  if (bytes == 0) return absl::InvalidArgumentError(absl::StrCat(flags.path, ": is empty"));
  start.set_name(WithCollection(kPrograms, flags.name));
  start.set_bytes(bytes);
  start.set_xxh3(HashHex(hash.Digest()));
  start.set_request_id(MakeUuid());
  return start;
}

// Makes one call that sends the start and the whole file. If the status is OK, `program` has the server's answer. If
// the file cannot be read, `local` has the error.
grpc::Status SendOnce(Session& session, v1::ProgramService::Stub& stub, const v1::ProgramStart& start,
                      const std::string& path, v1::Program& program, absl::Status& local) {
  grpc::ClientContext context;
  const Interrupt::Scope cancel(session.interrupt(), &context);
  const auto writer = stub.UploadProgram(&context, &program);
  v1::UploadProgramRequest request;
  *request.mutable_start() = start;
  // False: the server has ended the call early, because it has the archive already or refuses it.
  bool goes_on = writer->Write(request);
  const Stopwatch watch;
  int64_t sent = 0;
  const auto send = [&](std::string_view piece) {
    request.set_data(piece.data(), piece.size());
    goes_on = goes_on && writer->Write(request);
    sent += static_cast<int64_t>(piece.size());
    if (!session.json()) {
      session.terminal().Live(RenderUploadProgress(
          sent, start.bytes(), EstimateRemaining(sent, start.bytes(), watch.Elapsed()), session.terminal().style()));
    }
    return goes_on;
  };
  if (goes_on) local = ReadPieces(path, 0, send);
  if (!local.ok()) context.TryCancel();
  writer->WritesDone();
  return writer->Finish();
}

void Show(Session& session, const v1::Program& program) {
  if (session.json()) {
    session.PrintJson(program);
  } else {
    session.Print(RenderProgram(program, ViewTime::Now(), session.terminal().style()));
  }
}

ExitCode Import(Session& session, const ImportFlags& flags) {
  const Interrupt::Scope keep_running(session.interrupt(), nullptr);
  const absl::StatusOr<v1::ProgramStart> start = StartOf(flags);
  if (!start.ok()) return session.Fail(FileFailure(start.status()));
  if (!session.Connect()) {
    if (session.interrupt().requested()) return session.Interrupted("");
    return session.Fail(UnreachableFailure(session.options().server, session.options().credentials.tls));
  }
  const auto stub = v1::ProgramService::NewStub(session.channel());
  Reconnect reconnect(session, absl::Seconds(flags.reconnect_seconds));
  while (true) {
    v1::Program program;
    absl::Status local;
    const grpc::Status status = SendOnce(session, *stub, *start, flags.path, program, local);
    session.terminal().ClearLive();
    if (!local.ok()) return session.Fail(FileFailure(local));
    if (status.ok()) {
      Show(session, program);
      return ExitCode::kOk;
    }
    const auto result = reconnect.Ended(status);
    if (!result) continue;
    if (result->end == FollowEnd::kInterrupted) return session.Interrupted("nothing of the program was kept");
    return session.Fail(result->failure);
  }
}

ExitCode ListPrograms(Session& session) {
  const auto stub = v1::ProgramService::NewStub(session.channel());
  v1::ListProgramsRequest request;
  v1::ListProgramsResponse all;
  do {
    v1::ListProgramsResponse page;
    const grpc::Status status =
        session.Unary([&](grpc::ClientContext* context) { return stub->ListPrograms(context, request, &page); });
    if (!status.ok()) return session.Fail(status);
    all.mutable_programs()->MergeFrom(page.programs());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  if (session.json()) {
    session.PrintJson(all);
  } else if (all.programs().empty()) {
    session.Print(
        absl::StrCat("no programs; import one with: ", session.CommandLine("program import NAME FILE.pt2"), "\n"));
  } else {
    session.Print(
        RenderProgramList({all.programs().begin(), all.programs().end()}, ViewTime::Now(), session.terminal().style()));
  }
  return ExitCode::kOk;
}

ExitCode ShowOne(Session& session, const std::string& name) {
  const auto stub = v1::ProgramService::NewStub(session.channel());
  v1::GetProgramRequest request;
  request.set_name(WithCollection(kPrograms, name));
  v1::Program program;
  const grpc::Status status =
      session.Unary([&](grpc::ClientContext* context) { return stub->GetProgram(context, request, &program); });
  if (!status.ok()) return session.Fail(status);
  Show(session, program);
  return ExitCode::kOk;
}

ExitCode DeleteProgram(Session& session, const std::string& name, const std::string& etag) {
  const auto stub = v1::ProgramService::NewStub(session.channel());
  v1::DeleteProgramRequest request;
  request.set_name(WithCollection(kPrograms, name));
  request.set_etag(etag);
  request.set_request_id(MakeUuid());
  google::protobuf::Empty empty;
  const grpc::Status status = CallPatiently(
      session, [&](grpc::ClientContext* context) { return stub->DeleteProgram(context, request, &empty); });
  if (!status.ok()) return session.Fail(status);
  if (session.json()) {
    session.PrintJson(empty);
  } else {
    session.Print(absl::StrCat("deleted program ", OneLine(StripCollection(kPrograms, name)), "\n"));
  }
  return ExitCode::kOk;
}

}  // namespace

void AddProgramCommands(CLI::App& app, Command& chosen) {
  CLI::App* program =
      app.add_subcommand("program", "Modules of your own, exported by torch.export")->require_subcommand(1);
  CLI::App* upload = program->add_subcommand("import", "Send an archive; an equal one under its name is left as it is");
  const auto flags = std::make_shared<ImportFlags>();
  upload->add_option("NAME", flags->name, "Name of the program: 1..63 characters of [a-z0-9-], a letter first")
      ->type_name("")
      ->required();
  upload->add_option("FILE", flags->path, "Archive of torch.export (.pt2), on this machine")->type_name("")->required();
  AddReconnectOption(*upload, flags->reconnect_seconds);
  upload->callback([flags, &chosen] { chosen = [flags](Session& session) { return Import(session, *flags); }; });
  program->add_subcommand("list", "All programs")->callback([&chosen] { chosen = ListPrograms; });
  CLI::App* show = program->add_subcommand("show", "One program: inputs, outputs, tensors, operators");
  const auto shown = std::make_shared<std::string>();
  show->add_option("NAME", *shown, "Name of the program")->type_name("")->required();
  show->callback([shown, &chosen] { chosen = [shown](Session& session) { return ShowOne(session, *shown); }; });
  CLI::App* remove = program->add_subcommand("delete", "Delete a program; jobs keep copies of their own");
  const auto name = std::make_shared<std::string>(), etag = std::make_shared<std::string>();
  remove->add_option("NAME", *name, "Name of the program")->type_name("")->required();
  remove->add_option("--etag", *etag, "Delete only where this is its etag still, as `program show` tells it")
      ->type_name("ETAG");
  remove->callback([name, etag, &chosen] {
    chosen = [name, etag](Session& session) { return DeleteProgram(session, *name, *etag); };
  });
}

}  // namespace permafrost::client
