#include "data/sort/sorted_runs.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace permafrost::data {

// A tournament of the runs' heads: each step replays one path from leaf to root.
template <class Record>
class SortedRuns<Record>::Merge {
 public:
  static absl::StatusOr<std::shared_ptr<Merge>> Begin(std::vector<Run> runs, uint64_t memory_bytes) {
    auto merge = std::shared_ptr<Merge>(new Merge(std::move(runs), memory_bytes));
    for (Head& head : merge->heads_) PF_RETURN_IF_ERROR(merge->Refill(head));
    merge->PlayAll();
    return merge;
  }

  absl::StatusOr<std::span<const Record>> Next() {
    size_t filled = 0;
    while (filled < out_.size() && !heads_[winner_].ended) {
      Head& head = heads_[winner_];
      out_[filled++] = head.buffer[head.at];
      if (++head.at == head.filled) PF_RETURN_IF_ERROR(Refill(head));
      Replay(winner_);
    }
    return std::span<const Record>(out_.data(), filled);
  }

 private:
  struct Head {
    const NamelessFile* file;
    std::vector<Record> buffer;
    size_t at = 0, filled = 0;
    uint64_t offset = 0;
    bool ended = false;
  };

  Merge(std::vector<Run> runs, uint64_t memory_bytes) : runs_(std::move(runs)) {
    // Beyond 4 MiB a larger buffer saves no seeks worth the name.
    constexpr uint64_t kMostBytes = uint64_t{4} << 20;
    const uint64_t bytes = std::min(kMostBytes, memory_bytes / (runs_.size() + 1));
    const auto records = static_cast<size_t>(std::max<uint64_t>(bytes / sizeof(Record), 64));
    out_.resize(records);
    for (const Run& run : runs_) heads_.push_back({&run.file, std::vector<Record>(records)});
    losers_.resize(heads_.size());
  }

  absl::Status Refill(Head& head) {
    const uint64_t left = (head.file->size() - head.offset) / sizeof(Record);
    head.filled = static_cast<size_t>(std::min<uint64_t>(left, head.buffer.size()));
    head.at = 0;
    head.ended = head.filled == 0;
    PF_RETURN_IF_ERROR(head.file->Read(head.offset, std::as_writable_bytes(std::span(head.buffer).first(head.filled))));
    head.offset += head.filled * sizeof(Record);
    return absl::OkStatus();
  }

  // True if head a's edge goes before head b's; of equal keys the earlier run's goes first.
  bool Wins(size_t a, size_t b) const {
    const Head &x = heads_[a], &y = heads_[b];
    if (x.ended || y.ended) return !x.ended || (y.ended && a < b);
    const EdgeKey left = x.buffer[x.at].key, right = y.buffer[y.at].key;
    return left != right ? left < right : a < b;
  }

  // Leaf i stands at heads_.size() + i of a tree whose inner nodes are 1..size-1; each keeps the loser of its match.
  void PlayAll() {
    const size_t k = heads_.size();
    std::vector<size_t> winners(2 * k);
    for (size_t i = 0; i < k; ++i) winners[k + i] = i;
    for (size_t node = k - 1; node >= 1; --node) {
      const size_t a = winners[2 * node], b = winners[2 * node + 1];
      const bool a_wins = Wins(a, b);
      winners[node] = a_wins ? a : b;
      losers_[node] = a_wins ? b : a;
    }
    winner_ = k == 1 ? 0 : winners[1];
  }
  void Replay(size_t head) {
    for (size_t node = (heads_.size() + head) / 2; node >= 1; node /= 2) {
      if (Wins(losers_[node], head)) std::swap(losers_[node], head);
    }
    winner_ = head;
  }

  const std::vector<Run> runs_;
  std::vector<Head> heads_;
  std::vector<size_t> losers_;
  size_t winner_ = 0;
  std::vector<Record> out_;
};

template <class Record>
size_t SortedRuns<Record>::fan_in() const {
  // Buffers below 256 KiB would make a disk seek more than it reads.
  constexpr uint64_t kLeastBytes = uint64_t{1} << 18;
  constexpr uint64_t kMostFiles = 128;
  return static_cast<size_t>(std::clamp<uint64_t>(memory_bytes_ / kLeastBytes, 4, kMostFiles));
}

template <class Record>
absl::Status SortedRuns<Record>::Write(std::span<const Record> sorted) {
  PF_ASSIGN_OR_RETURN(NamelessFile file, NamelessFile::Create(directory_));
  PF_RETURN_IF_ERROR(file.Append(std::as_bytes(sorted), stop_));
  runs_.push_back({std::move(file)});
  // Runs of one level have about one size, so that each edge is written once a level. Levels fall from the first run to
  // the last.
  while (runs_.size() >= fan_in() && runs_[runs_.size() - fan_in()].level == runs_.back().level) {
    PF_RETURN_IF_ERROR(MergeLast());
  }
  return absl::OkStatus();
}

template <class Record>
absl::Status SortedRuns<Record>::MergeLast() {
  const auto first = runs_.end() - static_cast<ptrdiff_t>(fan_in());
  const int level = first->level + 1;
  std::vector<Run> last(std::make_move_iterator(first), std::make_move_iterator(runs_.end()));
  runs_.erase(first, runs_.end());
  PF_ASSIGN_OR_RETURN(NamelessFile file, NamelessFile::Create(directory_));
  PF_ASSIGN_OR_RETURN(const auto merge, Merge::Begin(std::move(last), memory_bytes_));
  for (;;) {
    PF_ASSIGN_OR_RETURN(const std::span<const Record> edges, merge->Next());
    if (edges.empty()) break;
    PF_RETURN_IF_ERROR(file.Append(std::as_bytes(edges), stop_));
  }
  runs_.push_back({std::move(file), level});
  return absl::OkStatus();
}

template <class Record>
absl::StatusOr<std::span<const Record>> SortedRuns<Record>::Next() {
  PF_RETURN_IF_ERROR(CheckStop(stop_));
  if (merge_ == nullptr) {
    while (runs_.size() > fan_in()) PF_RETURN_IF_ERROR(MergeLast());
    PF_ASSIGN_OR_RETURN(merge_, Merge::Begin(std::exchange(runs_, {}), memory_bytes_));
  }
  return merge_->Next();
}

template class SortedRuns<PlainEdge>;
template class SortedRuns<WeightedEdge>;
template class SortedRuns<FullEdge>;

}  // namespace permafrost::data
