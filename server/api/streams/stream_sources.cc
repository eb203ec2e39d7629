#include "api/streams/stream_sources.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "api/wire/convert_dataset.h"
#include "api/wire/convert_graph_cache.h"
#include "api/wire/convert_job.h"
#include "base/file.h"
#include "base/status.h"

namespace permafrost::api {

absl::StatusOr<Pull> JobWatch::Next(v1::Job& response) {
  PF_ASSIGN_OR_RETURN(jobs::Job job, jobs_.Get(id_, sent_epoch_));
  // A response holds only a piece of a long history. Clients stop at the terminal state, so the response with that
  // state gets all remaining epochs.
  if (jobs::IsTerminal(job.state) && job.epochs.size() == jobs::kMostEpochs) {
    PF_ASSIGN_OR_RETURN(
        job, jobs::GetInPieces(sent_epoch_, [this](int64_t after_epoch) { return jobs_.Get(id_, after_epoch); }));
  }
  response = JobToWire(job);
  google::protobuf::RepeatedPtrField<v1::EpochMetrics> epochs;
  epochs.Swap(response.mutable_epochs());
  // The device time changes all the time. A change of only the device time causes no response, but each response has
  // the current device time.
  google::protobuf::Duration device_time;
  const bool has_device_time = response.has_device_time();
  if (has_device_time) device_time.Swap(response.mutable_device_time());
  response.clear_device_time();
  std::string state = response.SerializeAsString();
  if (has_device_time) device_time.Swap(response.mutable_device_time());
  if (epochs.empty() && state == sent_state_) return Pull::kWait;
  sent_state_ = std::move(state);
  if (!epochs.empty()) sent_epoch_ = epochs.rbegin()->epoch();
  epochs.Swap(response.mutable_epochs());
  return jobs::IsTerminal(job.state) ? Pull::kLast : Pull::kMore;
}

std::unique_ptr<ChangeHub::Subscription> JobWatch::Subscribe(ChangeHub::Listener listener) {
  return jobs_.Subscribe(id_, std::move(listener));
}

absl::StatusOr<Pull> GraphCacheWatch::Next(v1::GraphCache& response) {
  // Reads the job before its cache. If the job has ended, the cache read after it is the final one.
  PF_ASSIGN_OR_RETURN(const jobs::Job job, jobs_.Get(id_, jobs::kNoEpochs));
  PF_ASSIGN_OR_RETURN(const graphcache::Snapshot snapshot, jobs_.GetGraphCache(id_));
  const bool ended = jobs::IsTerminal(job.state);
  response = GraphCacheToWire(id_, snapshot);
  std::string bytes = response.SerializeAsString();
  if (bytes == sent_) return ended ? Pull::kEnd : Pull::kWait;
  sent_ = std::move(bytes);
  return ended ? Pull::kLast : Pull::kMore;
}

std::unique_ptr<ChangeHub::Subscription> GraphCacheWatch::Subscribe(ChangeHub::Listener listener) {
  return jobs_.Subscribe(id_, std::move(listener));
}

absl::StatusOr<Pull> DatasetWatch::Next(v1::Dataset& response) {
  PF_ASSIGN_OR_RETURN(const data::Dataset dataset, catalog_.Get(id_));
  response = DatasetToWire(dataset);
  std::string bytes = response.SerializeAsString();
  if (bytes == sent_) return Pull::kWait;
  sent_ = std::move(bytes);
  return dataset.state == data::DatasetState::kImporting ? Pull::kMore : Pull::kLast;
}

std::unique_ptr<ChangeHub::Subscription> DatasetWatch::Subscribe(ChangeHub::Listener listener) {
  return catalog_.Subscribe(id_, std::move(listener));
}

namespace {

constexpr int64_t kLogPieceBytes = 64 << 10;

}  // namespace

absl::StatusOr<Pull> LogSource::Next(v1::StreamJobLogsResponse& response) {
  PF_ASSIGN_OR_RETURN(jobs::LogChunk chunk, jobs_.ReadLog(id_, offset_, kLogPieceBytes));
  offset_ = chunk.next_offset;
  const bool over = chunk.complete || (!follow_ && chunk.at_end);
  if (chunk.data.empty()) return over ? Pull::kEnd : Pull::kWait;
  response.set_data(std::move(chunk.data));
  response.set_next_offset(offset_);
  return over ? Pull::kLast : Pull::kMore;
}

std::unique_ptr<ChangeHub::Subscription> LogSource::Subscribe(ChangeHub::Listener listener) {
  return follow_ ? jobs_.SubscribeLog(id_, std::move(listener)) : nullptr;
}

namespace {

constexpr uint64_t kExportPieceBytes = 64 << 10;

}  // namespace

absl::StatusOr<std::unique_ptr<ExportSource>> ExportSource::Open(const std::filesystem::path& path) {
  Descriptor file = OpenRetrying(path, O_RDONLY);
  if (!file.valid()) return SystemError(errno, path, "open");
  struct stat info;
  if (fstat(file.get(), &info) != 0) return SystemError(errno, path, "stat");
  if (!S_ISREG(info.st_mode)) return absl::InternalError(absl::StrCat(path.string(), ": not a regular file"));
  return std::unique_ptr<ExportSource>(
      new ExportSource(path, std::move(file), static_cast<uint64_t>(info.st_size), ModifiedNanoseconds(info)));
}

absl::Status ExportSource::CheckUnchanged() const {
  struct stat info;
  if (fstat(file_.get(), &info) != 0) return SystemError(errno, path_, "stat");
  if (static_cast<uint64_t>(info.st_size) == size_ && ModifiedNanoseconds(info) == modified_) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path_.string(), ": was written to while it was exported"));
}

// Fills `piece` from offset_ on. The size of `piece` is the number of bytes to read.
absl::Status ExportSource::Read(std::string& piece) const {
  size_t done = 0;
  while (done < piece.size()) {
    const ssize_t got =
        pread(file_.get(), piece.data() + done, piece.size() - done, static_cast<off_t>(offset_ + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return SystemError(errno, path_, "read");
    // The file has become shorter since Open. CheckUnchanged reports this.
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return CheckUnchanged();
}

absl::StatusOr<Pull> ExportSource::Next(v1::ExportJobResponse& response) {
  const uint64_t bytes = std::min(kExportPieceBytes, size_ - offset_);
  std::string& piece = *response.mutable_data();
  piece.resize(bytes);
  if (bytes > 0) PF_RETURN_IF_ERROR(Read(piece));
  hash_.Update(piece.data(), piece.size());
  offset_ += bytes;
  response.set_total_bytes(static_cast<int64_t>(size_));
  if (offset_ < size_) return Pull::kMore;
  response.set_xxh3(HashHex(hash_.Digest()));
  return Pull::kLast;
}

}  // namespace permafrost::api
