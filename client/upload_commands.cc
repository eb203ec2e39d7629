// `permafrost upload`: sends files to a server that cannot see them.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
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
#include "permafrost/v1/dataset.grpc.pb.h"
#include "permafrost/v1/dataset.pb.h"

namespace permafrost::client {
namespace {

// The files of a source, in the form in which UploadDataset declares and sends them.
class UploadFiles {
 public:
  // Takes one file, or all files of a folder by their relative paths. Leaves out names that begin with a dot. Reads
  // each file once for its checksum. If `id` is empty, it is made from names and checksums. Errors: NotFound,
  // InvalidArgument for a folder without files, and the errors of reading a file.
  static absl::StatusOr<UploadFiles> Find(const std::filesystem::path& source, const std::string& id);

  // Returns the start message, including its request_id.
  const v1::UploadStart& start() const { return start_; }
  int64_t bytes() const { return bytes_; }
  // Calls `send` with each chunk that `received` lacks, in order, until `send` returns false. Errors: the errors of
  // reading a file.
  absl::Status ReadRest(const v1::Upload& received, const std::function<bool(const v1::UploadChunk&)>& send) const;

 private:
  std::vector<std::filesystem::path> paths_;  // in the order of the start message
  v1::UploadStart start_;
  int64_t bytes_ = 0;
};

namespace fs = std::filesystem;

// For each file, its path in the upload and its path on this machine.
using Named = std::vector<std::pair<std::string, fs::path>>;

absl::StatusOr<Named> FindFiles(const fs::path& source) {
  std::error_code error;
  if (fs::is_regular_file(source, error)) return Named{{source.filename().string(), source}};
  if (!fs::is_directory(source, error)) return absl::NotFoundError(absl::StrCat(source.string(), ": not found"));
  Named found;
  auto at = fs::recursive_directory_iterator(source, fs::directory_options::follow_directory_symlink, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    const bool hidden = at->path().filename().string().front() == '.';
    std::error_code ignored;
    if (hidden && at->is_directory(ignored)) at.disable_recursion_pending();
    // Hidden files, such as .DS_Store, are traces of file managers. The server refuses their names.
    if (hidden || !at->is_regular_file(ignored)) continue;
    found.emplace_back(at->path().lexically_relative(source).generic_string(), at->path());
  }
  if (error) return absl::UnavailableError(absl::StrCat(source.string(), ": ", error.message()));
  if (found.empty()) return absl::InvalidArgumentError(absl::StrCat(source.string(), ": holds no files"));
  std::sort(found.begin(), found.end());
  return found;
}

absl::StatusOr<UploadFiles> UploadFiles::Find(const fs::path& source, const std::string& id) {
  PF_ASSIGN_OR_RETURN(const Named found, FindFiles(source));
  UploadFiles files;
  StreamHash all;
  for (const auto& [name, path] : found) {
    StreamHash hash;
    int64_t bytes = 0;
    PF_RETURN_IF_ERROR(ReadPieces(path, 0, [&](std::string_view piece) {
      hash.Update(piece.data(), piece.size());
      bytes += static_cast<int64_t>(piece.size());
      return true;
    }));
    v1::UploadStart::File& file = *files.start_.add_files();
    file.set_path(name);
    file.set_bytes(bytes);
    file.set_xxh3(HashHex(hash.Digest()));
    const std::string line = absl::StrCat(name, "\n", bytes, " ", file.xxh3(), "\n");
    all.Update(line.data(), line.size());
    files.bytes_ += bytes;
    files.paths_.push_back(path);
  }
  constexpr std::string_view kCollection = "uploads/";
  const std::string name = id.empty() ? absl::StrCat("upload-", HashHex(all.Digest())) : id;
  files.start_.set_name(name.starts_with(kCollection) ? name : std::string(kCollection) + name);
  files.start_.set_request_id(MakeUuid());
  return files;
}

absl::Status UploadFiles::ReadRest(const v1::Upload& received,
                                   const std::function<bool(const v1::UploadChunk&)>& send) const {
  bool goes_on = true;
  for (int i = 0; i < start_.files_size() && goes_on; ++i) {
    int64_t offset = i < received.files_size() ? received.files(i).received_bytes() : 0;
    if (offset >= start_.files(i).bytes()) continue;
    PF_RETURN_IF_ERROR(ReadPieces(paths_[static_cast<size_t>(i)], offset, [&](std::string_view piece) {
      v1::UploadChunk chunk;
      chunk.set_file(i);
      chunk.set_offset(offset);
      chunk.set_data(piece.data(), piece.size());
      chunk.set_xxh3(Hash64(piece));
      offset += static_cast<int64_t>(piece.size());
      goes_on = send(chunk);
      return goes_on;
    }));
  }
  return absl::OkStatus();
}

constexpr char kUploads[] = "uploads";

struct SendFlags {
  std::string path, id;
  double reconnect_seconds = kDefaultReconnectSeconds;
};

std::string UploadState(const v1::Upload& upload) {
  if (upload.complete()) return "complete";
  return upload.sending() ? "sending" : "partial";
}

std::string RenderUploads(const v1::ListUploadsResponse& all, const ViewTime& time, const RenderStyle& style) {
  std::vector<std::vector<Cell>> rows;
  for (const v1::Upload& upload : all.uploads()) {
    rows.push_back({OneLine(StripCollection(kUploads, upload.name())), UploadState(upload),
                    CountText(upload.num_files()), BytesText(upload.received_bytes()), BytesText(upload.bytes()),
                    BytesText(upload.counted_bytes()), WhenText(upload.last_use_time(), time)});
  }
  return absl::StrCat(RenderTable({{"UPLOAD"},
                                   {"STATE"},
                                   {"FILES", Align::kRight},
                                   {"RECEIVED", Align::kRight},
                                   {"OF", Align::kRight},
                                   {"COUNTED", Align::kRight},
                                   {"LAST USED"}},
                                  rows, style),
                      BytesText(all.counted_bytes()), " of ", BytesText(all.max_bytes()), " are taken\n");
}

ExitCode ListUploads(Session& session) {
  const auto stub = v1::DatasetService::NewStub(session.channel());
  v1::ListUploadsRequest request;
  v1::ListUploadsResponse all;
  do {
    v1::ListUploadsResponse page;
    const grpc::Status status =
        session.Unary([&](grpc::ClientContext* context) { return stub->ListUploads(context, request, &page); });
    if (!status.ok()) return session.Fail(status);
    all.mutable_uploads()->MergeFrom(page.uploads());
    all.set_counted_bytes(page.counted_bytes());
    all.set_max_bytes(page.max_bytes());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  if (session.json()) {
    session.PrintJson(all);
  } else if (all.max_bytes() == 0) {
    session.Print("this server takes no uploads (--max-upload 0)\n");
  } else if (all.uploads().empty()) {
    session.Print(absl::StrCat("no uploads; send one with: ", session.CommandLine("upload send PATH"), "\n"));
  } else {
    session.Print(RenderUploads(all, ViewTime::Now(), session.terminal().style()));
  }
  return ExitCode::kOk;
}

ExitCode DeleteUpload(Session& session, const std::string& id) {
  const auto stub = v1::DatasetService::NewStub(session.channel());
  v1::DeleteUploadRequest request;
  request.set_name(WithCollection(kUploads, id));
  request.set_request_id(MakeUuid());
  google::protobuf::Empty empty;
  const grpc::Status status = CallPatiently(
      session, [&](grpc::ClientContext* context) { return stub->DeleteUpload(context, request, &empty); });
  if (!status.ok()) return session.Fail(status);
  if (session.json()) {
    session.PrintJson(empty);
  } else {
    session.Print(absl::StrCat("deleted upload ", OneLine(StripCollection(kUploads, id)), "\n"));
  }
  return ExitCode::kOk;
}

// Makes one call that sends the start message and, if `with_chunks`, all bytes that `upload` lists as missing. If the
// status is OK, `upload` then has the server's answer. If the files cannot be read, `local` has the error.
grpc::Status SendOnce(Session& session, v1::DatasetService::Stub& stub, const UploadFiles& files, bool with_chunks,
                      v1::Upload& upload, absl::Status& local) {
  grpc::ClientContext context;
  const Interrupt::Scope cancel(session.interrupt(), &context);
  const v1::Upload before = upload;
  upload.Clear();
  const auto writer = stub.UploadDataset(&context, &upload);
  v1::UploadDatasetRequest request;
  *request.mutable_start() = files.start();
  bool goes_on = writer->Write(request);
  if (with_chunks) {
    const Stopwatch watch;
    int64_t sent = before.received_bytes();
    local = files.ReadRest(before, [&](const v1::UploadChunk& chunk) {
      *request.mutable_chunk() = chunk;
      goes_on = goes_on && writer->Write(request);
      sent += static_cast<int64_t>(chunk.data().size());
      if (!session.json()) {
        const auto eta =
            EstimateRemaining(sent - before.received_bytes(), files.bytes() - before.received_bytes(), watch.Elapsed());
        session.terminal().Live(RenderUploadProgress(sent, files.bytes(), eta, session.terminal().style()));
      }
      return goes_on;
    });
    if (!local.ok()) context.TryCancel();
  }
  writer->WritesDone();
  return writer->Finish();
}

// Returns the number of received bytes of all files.
int64_t ReceivedOf(const v1::Upload& upload) {
  int64_t received = 0;
  for (const v1::Upload::File& file : upload.files()) received += file.received_bytes();
  return received;
}

ExitCode Send(Session& session, const SendFlags& flags) {
  const Interrupt::Scope keep_running(session.interrupt(), nullptr);
  absl::StatusOr<UploadFiles> files = UploadFiles::Find(flags.path, flags.id);
  if (!files.ok()) return session.Fail(FileFailure(files.status()));
  const std::string id = std::string(StripCollection(kUploads, files->start().name()));
  const std::string come_back = session.CommandLine(absl::StrCat("upload send ", flags.path, " --id ", id));
  if (!session.Connect()) {
    if (session.interrupt().requested()) return session.Interrupted("");
    return session.Fail(UnreachableFailure(session.options().server, session.options().credentials.tls));
  }
  const auto stub = v1::DatasetService::NewStub(session.channel());
  Reconnect reconnect(session, absl::Seconds(flags.reconnect_seconds));
  int64_t best = -1;
  v1::Upload upload;
  while (true) {
    // A call with the start alone learns what the server has received.
    absl::Status local;
    grpc::Status status = SendOnce(session, *stub, *files, /*with_chunks=*/false, upload, local);
    if (status.ok()) {
      upload.set_received_bytes(ReceivedOf(upload));
      // If the server has more bytes than at any earlier loss, it counts as alive.
      if (upload.received_bytes() > best) reconnect.Alive();
      best = std::max(best, upload.received_bytes());
      if (!upload.complete()) status = SendOnce(session, *stub, *files, /*with_chunks=*/true, upload, local);
    }
    session.terminal().ClearLive();
    if (!local.ok()) return session.Fail(FileFailure(local));
    if (status.ok() && upload.complete()) break;
    if (status.ok()) status = grpc::Status(grpc::StatusCode::UNAVAILABLE, "not all bytes have come");
    const auto result = reconnect.Ended(status);
    if (!result) continue;
    if (result->end == FollowEnd::kInterrupted) {
      return session.Interrupted(absl::StrCat("what was received stays for a day; go on with: ", come_back));
    }
    return session.Fail(result->failure);
  }
  if (session.json()) {
    session.PrintJson(upload);
    return ExitCode::kOk;
  }
  session.Print(absl::StrCat(
      "upload ", id, " is complete: ", CountText(upload.files_size()), " files, ", BytesText(files->bytes()),
      "; import it with: ", session.CommandLine(absl::StrCat("dataset import NAME --upload ", id)), "\n"));
  return ExitCode::kOk;
}

}  // namespace

void AddUploadCommands(CLI::App& app, Command& chosen) {
  CLI::App* upload =
      app.add_subcommand("upload", "Files sent to a server that does not see them")->require_subcommand(1);
  CLI::App* send = upload->add_subcommand("send", "Send a file or folder, or go on with one that was cut short");
  const auto flags = std::make_shared<SendFlags>();
  send->add_option("PATH", flags->path, "File or folder to send; names that begin with a dot are left out")
      ->type_name("")
      ->required();
  send->add_option("--id", flags->id,
                   "Name of the upload: 1..63 characters of [a-z0-9-], a letter first (default: made from names and "
                   "content, so that the same files go on where they were)")
      ->type_name("ID");
  AddReconnectOption(*send, flags->reconnect_seconds);
  send->callback([flags, &chosen] { chosen = [flags](Session& session) { return Send(session, *flags); }; });
  upload->add_subcommand("list", "All uploads that the server keeps, and what they take of its --max-upload")
      ->callback([&chosen] { chosen = ListUploads; });
  CLI::App* remove = upload->add_subcommand("delete", "Delete an upload's files from the server");
  const auto id = std::make_shared<std::string>();
  remove->add_option("ID", *id, "Name of the upload")->type_name("")->required();
  remove->callback([id, &chosen] { chosen = [id](Session& session) { return DeleteUpload(session, *id); }; });
}

}  // namespace permafrost::client
