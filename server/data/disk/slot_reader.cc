#include "data/disk/slot_reader.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace permafrost {

SlotReader::SlotReader(std::shared_ptr<const DiskFile> file, Options options, std::string fallback, DiskPages buffer)
    : file_(std::move(file)),
      options_(std::move(options)),
      fallback_(std::move(fallback)),
      buffer_(std::move(buffer)),
      slots_(static_cast<size_t>(options_.depth)) {
  for (int slot = options_.depth - 1; slot >= 0; --slot) free_.push_back(slot);
}

absl::Status SlotReader::Start(const DiskRead& read) {
  PF_RETURN_IF_ERROR(file_->Check(read, options_.max_read_bytes));
  if (free_.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(file_->path.string(), ": ", options_.depth, " reads are in flight, as many as may be"));
  }
  const int slot = free_.back();
  slots_[static_cast<size_t>(slot)] = {.read = PartialRead(read, file_->bytes), .status = absl::OkStatus()};
  PF_RETURN_IF_ERROR(StartSlot(slot));
  free_.pop_back();
  return absl::OkStatus();
}

bool SlotReader::Answered(int slot, int64_t result) {
  Slot& s = slots_[static_cast<size_t>(slot)];
  if (options_.alter) result = options_.alter(s.read.offset(), s.read.bytes(), result);
  const absl::StatusOr<PartialRead::Next> next = s.read.Take(*file_, result);
  s.status = next.status();
  return !next.ok() || *next == PartialRead::Next::kDone;
}

void SlotReader::HandOver(int slot, Done done) {
  const Slot& s = slots_[static_cast<size_t>(slot)];
  const std::byte* bytes = pages() + static_cast<size_t>(slot) * options_.max_read_bytes;
  if (s.status.ok()) {
    done(s.read.read(), std::span<const std::byte>(bytes, s.read.wanted()));
  } else {
    done(s.read.read(), s.status);
  }
  free_.push_back(slot);
}

}  // namespace permafrost
