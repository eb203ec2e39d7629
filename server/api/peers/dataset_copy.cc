#include "api/peers/dataset_copy.h"

#include <grpcpp/client_context.h>
#include <sys/stat.h>

#include <cerrno>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "api/services/unary.h"
#include "api/wire/resource_name.h"
#include "api/wire/status.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/id.h"
#include "base/monotonic.h"
#include "base/status.h"
#include "data/catalog/imports.h"
#include "permafrost/v1/dataset.grpc.pb.h"

namespace permafrost::api {
namespace {

// Deadline of a call that the peer answers at once.
constexpr absl::Duration kCopyCallTimeout = absl::Seconds(30);
constexpr absl::Duration kCopyLookInterval = absl::Milliseconds(100);
// A copy may be without progress for this long, because another server sends the same dataset, or because the peer
// imports another dataset. After that, the job goes back to the queue, where it holds no device.
constexpr absl::Duration kBusyPatience = absl::Seconds(10);

std::string SizeText(int64_t bytes) {
  constexpr double kMega = 1e6, kGiga = 1e9;
  const auto size = static_cast<double>(bytes);
  return size < kGiga ? absl::StrFormat("%.3g MB", size / kMega) : absl::StrFormat("%.4g GB", size / kGiga);
}

// Returns true if the peer is reachable and a later call may succeed. UNAVAILABLE without details comes from gRPC
// itself and means that the connection is lost.
bool MayPass(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
      return !status.error_details().empty();
    // Between two calls, another server may have imported the dataset, deleted the shared upload, or sent data to the
    // upload.
    case grpc::StatusCode::ALREADY_EXISTS:
    case grpc::StatusCode::NOT_FOUND:
    case grpc::StatusCode::FAILED_PRECONDITION:
      return true;
    default:
      return false;
  }
}

}  // namespace

// One copy. Borrows all arguments. Threads: Run runs on its own thread; Stop and TakeLines are thread-safe.
class DatasetCopier::Transfer {
 public:
  Transfer(DatasetCopier& copier, const train::RecruitRequest& request, const std::string& address,
           const std::shared_ptr<grpc::Channel>& channel)
      : copier_(copier), request_(request), address_(address), stub_(v1::DatasetService::NewStub(channel)) {}

  absl::Status Run() {
    const Stopwatch took;
    absl::Status copied = CopyUntilReady();
    if (stop_.is_set()) return absl::CancelledError("stopped while a dataset was copied");
    if (!copied.ok()) {
      // The peer ended the call, although the job was not stopped.
      if (absl::IsCancelled(copied)) copied = absl::UnavailableError(copied.message());
      return Annotate(copied, absl::StrCat("dataset ", id(), " is not there, and cannot be copied"));
    }
    if (told_) {
      AddLine(
          absl::StrFormat("copied dataset %s to %s in %.1f s", id(), address_, absl::ToDoubleSeconds(took.Elapsed())));
    }
    return absl::OkStatus();
  }
  void Stop() {
    stop_.Set();
    const absl::MutexLock lock(&mu_);
    if (running_ != nullptr) running_->TryCancel();
  }
  // Returns the lines for the job's log that were added since the last call.
  std::vector<std::string> TakeLines() {
    const absl::MutexLock lock(&mu_);
    return std::exchange(lines_, {});
  }

 private:
  // A call that Stop can cancel.
  class Call {
   public:
    explicit Call(Transfer& transfer) : transfer_(transfer) {
      const std::string& token = transfer.copier_.token_;
      if (!token.empty()) context.AddMetadata("authorization", absl::StrCat("Bearer ", token));
      const absl::MutexLock lock(&transfer_.mu_);
      transfer_.running_ = &context;
      if (transfer_.stop_.is_set()) context.TryCancel();
    }
    Call(const Call&) = delete;
    ~Call() {
      const absl::MutexLock lock(&transfer_.mu_);
      transfer_.running_ = nullptr;
    }
    grpc::ClientContext context;

   private:
    Transfer& transfer_;
  };

  const std::string& id() const { return request_.options.dataset.value(); }
  void AddLine(std::string line) {
    const absl::MutexLock lock(&mu_);
    lines_.push_back(std::move(line));
  }
  template <class F>
  grpc::Status Ask(const F& ask) {
    Call call(*this);
    call.context.set_deadline(absl::ToChronoTime(absl::Now() + kCopyCallTimeout));
    return ask(&call.context);
  }

  absl::Status CopyUntilReady() {
    int64_t read = -1;  // bytes that the peer's import has read
    for (; !stop_.is_set(); stop_.WaitFor(kCopyLookInterval)) {
      v1::GetDatasetRequest get;
      get.set_name(FormatDatasetName(request_.options.dataset));
      v1::Dataset dataset;
      grpc::Status status =
          Ask([&](grpc::ClientContext* context) { return stub_->GetDataset(context, get, &dataset); });
      if (status.ok() && dataset.state() != v1::Dataset::STATE_IMPORTING) return End(dataset);
      if (status.ok()) {
        if (!dataset.last_error().empty()) {
          return absl::UnavailableError(absl::StrCat("its import waits: ", dataset.last_error()));
        }
        if (dataset.import_progress().bytes_read() != std::exchange(read, dataset.import_progress().bytes_read())) {
          unmoved_.Restart();
        }
        if (unmoved_.Elapsed() < kBusyPatience) continue;
        return absl::UnavailableError("it is being imported there, and does not move on");
      } else if (status.error_code() == grpc::StatusCode::NOT_FOUND) {
        PF_RETURN_IF_ERROR(DeclareFile());
        status = Upload();
        if (status.ok()) status = Import();
        if (status.ok()) continue;
      }
      if (!MayPass(status) || unmoved_.Elapsed() >= kBusyPatience) return FromGrpcStatus(status);
    }
    return absl::CancelledError();
  }

  // Checks the result of an import that has ended.
  absl::Status End(const v1::Dataset& dataset) {
    if (dataset.state() != v1::Dataset::STATE_READY) {
      return absl::FailedPreconditionError(absl::StrCat("its import failed: ", dataset.error()));
    }
    if (dataset.content_checksum() != request_.dataset_checksum) {
      return absl::FailedPreconditionError("other data has taken its name meanwhile");
    }
    if (!start_.name().empty()) {
      // Without this call, the peer would keep the upload for a day.
      v1::DeleteUploadRequest remove;
      remove.set_name(start_.name());
      google::protobuf::Empty none;
      Ask([&](grpc::ClientContext* context) { return stub_->DeleteUpload(context, remove, &none); });
    }
    return absl::OkStatus();
  }

  // Reads the whole file for its checksum. The upload is named by the checksum, so that servers that send equal files
  // share one upload.
  absl::Status DeclareFile() {
    if (!start_.name().empty()) return absl::OkStatus();
    struct stat info {};
    if (stat(request_.dataset_file.c_str(), &info) != 0) return SystemError(errno, request_.dataset_file, "look at");
    HashedFile file{.path = request_.dataset_file, .bytes = info.st_size, .modified = ModifiedNanoseconds(info)};
    file.xxh3 = copier_.Recall(file);
    if (file.xxh3.empty()) {
      StreamHash hash;
      PF_RETURN_IF_ERROR(ReadPieces(file.path, 0, [&](std::string_view piece) {
        hash.Update(piece.data(), piece.size());
        return !stop_.is_set();
      }));
      if (stop_.is_set()) return absl::CancelledError();
      file.xxh3 = HashHex(hash.Digest());
      copier_.Remember(file);
    }
    v1::UploadStart::File& declared = *start_.add_files();
    declared.set_path(file.path.filename().string());
    declared.set_bytes(file.bytes);
    declared.set_xxh3(file.xxh3);
    start_.set_name(FormatUploadName(UploadId(absl::StrCat("copy-", file.xxh3))));
    unmoved_.Restart();
    return absl::OkStatus();
  }

  grpc::Status Upload() {
    v1::Upload upload;
    // A call that sends only the start returns how many bytes the peer has.
    grpc::Status status = Send(std::nullopt, upload);
    if (!status.ok() || upload.complete()) return status;
    const int64_t received = upload.files_size() == 1 ? upload.files(0).received_bytes() : 0;
    if (!std::exchange(told_, true)) {
      AddLine(absl::StrCat("copies dataset ", id(), " (", SizeText(start_.files(0).bytes()), ") to ", address_,
                           received > 0 ? absl::StrCat(", which has ", SizeText(received), " of it") : ""));
    }
    status = Send(received, upload);
    if (!status.ok() || upload.complete()) return status;
    return {grpc::StatusCode::FAILED_PRECONDITION, "not all of its bytes have come"};
  }

  // Sends the start. If `received` is given, also sends all bytes from that offset on.
  grpc::Status Send(std::optional<int64_t> received, v1::Upload& upload) {
    upload.Clear();
    Call call(*this);
    const auto writer = stub_->UploadDataset(&call.context, &upload);
    v1::UploadDatasetRequest message;
    *message.mutable_start() = start_;
    bool goes_on = writer->Write(message);
    absl::Status read;
    if (received && goes_on) {
      int64_t offset = *received;
      read = ReadPieces(request_.dataset_file, offset, [&](std::string_view piece) {
        v1::UploadChunk& chunk = *message.mutable_chunk();
        chunk.set_offset(offset);
        chunk.set_data(piece.data(), piece.size());
        chunk.set_xxh3(Hash64(piece));
        offset += static_cast<int64_t>(piece.size());
        goes_on = writer->Write(message);
        unmoved_.Restart();
        return goes_on;
      });
      if (!read.ok()) call.context.TryCancel();
    }
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    // A call with only a start is no sign of progress, because the peer always answers it.
    if (status.ok() && received) unmoved_.Restart();
    return read.ok() ? status : ToGrpcStatus(absl::InternalError(read.message()));
  }

  grpc::Status Import() {
    v1::ImportDatasetRequest import;
    import.set_dataset_id(id());
    import.mutable_options()->set_format(v1::ImportOptions::FORMAT_STORE);
    import.set_upload(start_.name());
    import.set_request_id(data::MakeDatasetUid());
    v1::Dataset dataset;
    grpc::Status status =
        Ask([&](grpc::ClientContext* context) { return stub_->ImportDataset(context, import, &dataset); });
    if (status.ok()) unmoved_.Restart();
    return status;
  }

  DatasetCopier& copier_;
  const train::RecruitRequest& request_;
  const std::string& address_;
  const std::unique_ptr<v1::DatasetService::Stub> stub_;
  v1::UploadStart start_;  // its name is empty until the file was read
  bool told_ = false;      // true: the log says that bytes are sent
  Stopwatch unmoved_;      // time since the peer last made progress
  Event stop_;
  absl::Mutex mu_;
  grpc::ClientContext* running_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mu_);
};

std::string DatasetCopier::Recall(const HashedFile& file) {
  const absl::MutexLock lock(&mu_);
  const bool is_last = last_.path == file.path && last_.bytes == file.bytes && last_.modified == file.modified;
  return is_last ? last_.xxh3 : "";
}

void DatasetCopier::Remember(const HashedFile& file) {
  const absl::MutexLock lock(&mu_);
  last_ = file;
}

absl::Status DatasetCopier::Copy(const train::RecruitRequest& request, const std::string& address,
                                 const std::shared_ptr<grpc::Channel>& channel) {
  Transfer transfer(*this, request, address, channel);
  absl::Status copied;
  Event ended;
  PF_ASSIGN_OR_RETURN(std::thread thread, StartThread("the copy of a dataset", [&] {
                        copied = WithoutThrowing("the copy", [&] { return transfer.Run(); });
                        ended.Set();
                      }));
  const auto log = [&] {
    for (const std::string& line : transfer.TakeLines()) request.log(line);
  };
  while (!ended.WaitFor(kCopyLookInterval)) {
    log();
    if (!request.keep_going()) transfer.Stop();
  }
  thread.join();
  log();
  return copied;
}

}  // namespace permafrost::api
