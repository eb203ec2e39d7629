// A DiskReader that wraps another one and makes its reads fail, arrive late or arrive out of order. It is for tests
// of code that reads from a disk.
// Threads: same as the wrapped reader. The plan is set in the constructor.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/status.h"
#include "data/disk/disk_reader.h"

namespace permafrost {

class InjectingReader final : public DiskReader {
 public:
  struct Plan {
    // Returns the error that replaces the bytes of a read, or Ok to hand the bytes over.
    std::function<absl::Status(const DiskRead&)> fail = [](const DiskRead&) { return absl::OkStatus(); };
    // Alters the bytes of a read before they are handed over.
    std::function<void(const DiskRead&, std::vector<std::byte>&)> alter = [](const DiskRead&, auto&) {};
    // If set, Wait holds back some of the finished reads and hands them over later, in another order.
    std::optional<uint64_t> reorder_seed;
  };

  InjectingReader(std::unique_ptr<DiskReader> inner, Plan plan)
      : inner_(std::move(inner)), plan_(std::move(plan)), random_(plan_.reorder_seed.value_or(0), 0) {}

  DiskReaderKind kind() const override { return inner_->kind(); }
  bool direct() const override { return inner_->direct(); }
  const std::string& fallback() const override { return inner_->fallback(); }
  int depth() const override { return inner_->depth(); }
  int in_flight() const override { return inner_->in_flight() + static_cast<int>(kept_.size()) + handing_; }
  uint64_t file_bytes() const override { return inner_->file_bytes(); }
  absl::Status Start(const DiskRead& read) override {
    if (in_flight() >= depth()) return absl::FailedPreconditionError("at full depth");
    return inner_->Start(read);
  }
  absl::Status Flush() override { return inner_->Flush(); }

  absl::StatusOr<int> Await() override {
    return inner_->in_flight() > 0 ? inner_->Await() : static_cast<int>(kept_.size());
  }

  absl::Status Wait(Done done) override {
    if (in_flight() == 0) return absl::OkStatus();
    if (inner_->in_flight() > 0) {
      PF_RETURN_IF_ERROR(inner_->Wait([this](const DiskRead& read, const auto& bytes) { Keep(read, bytes); }));
    }
    size_t hand_over = kept_.size();
    if (plan_.reorder_seed) {
      Shuffle(std::span(kept_), random_);
      // Each call hands over at least one read, so that all reads arrive in the end.
      hand_over = 1 + random_.Below(kept_.size());
    }
    std::vector<Kept> now(std::make_move_iterator(kept_.begin()),
                          std::make_move_iterator(kept_.begin() + static_cast<std::ptrdiff_t>(hand_over)));
    kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(hand_over));
    handing_ = static_cast<int>(now.size());
    for (Kept& kept : now) {
      if (kept.status.ok()) {
        done(kept.read, std::span<const std::byte>(kept.bytes));
      } else {
        done(kept.read, kept.status);
      }
      --handing_;
    }
    return absl::OkStatus();
  }

 private:
  struct Kept {
    DiskRead read;
    absl::Status status;
    std::vector<std::byte> bytes;
  };

  void Keep(const DiskRead& read, const absl::StatusOr<std::span<const std::byte>>& bytes) {
    Kept kept{read, plan_.fail(read), {}};
    if (kept.status.ok()) kept.status = bytes.status();
    if (kept.status.ok()) {
      kept.bytes.assign(bytes->begin(), bytes->end());
      plan_.alter(read, kept.bytes);
    }
    kept_.push_back(std::move(kept));
  }

  const std::unique_ptr<DiskReader> inner_;
  const Plan plan_;
  SplitMix64 random_;
  std::vector<Kept> kept_;
  int handing_ = 0;
};

}  // namespace permafrost
