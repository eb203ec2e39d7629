#include "data/sort/edge_sorter.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "base/parallel.h"
#include "base/status.h"

namespace permafrost::data {

// A tournament (loser tree) over the next edge of each run. Each step replays one path from leaf to root.
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
    // A buffer larger than 4 MiB would save hardly any more seeks.
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

  // Returns true if the next edge of run a comes before the next edge of run b. If the keys are equal, the edge of
  // the earlier run comes first.
  bool Wins(size_t a, size_t b) const {
    const Head &x = heads_[a], &y = heads_[b];
    if (x.ended || y.ended) return !x.ended || (y.ended && a < b);
    const EdgeKey left = x.buffer[x.at].key, right = y.buffer[y.at].key;
    return left != right ? left < right : a < b;
  }

  // In the tree, leaf i is node heads_.size() + i, and the inner nodes are 1..heads_.size() - 1. Each inner node
  // keeps the loser of its match.
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
  // With a buffer below 256 KiB, a disk would seek longer than it reads.
  constexpr uint64_t kLeastBytes = uint64_t{1} << 18;
  constexpr uint64_t kMostFiles = 128;
  return static_cast<size_t>(std::clamp<uint64_t>(memory_bytes_ / kLeastBytes, 4, kMostFiles));
}

template <class Record>
absl::Status SortedRuns<Record>::Write(std::span<const Record> sorted) {
  PF_ASSIGN_OR_RETURN(NamelessFile file, NamelessFile::Create(directory_));
  PF_RETURN_IF_ERROR(file.Append(std::as_bytes(sorted), stop_));
  runs_.push_back({std::move(file)});
  // Runs of one level have about the same size, so each edge is written once per level. From the first run to the
  // last, levels never rise.
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

namespace {

// The most buckets. Edges are first distributed to buckets of adjacent rows, so that the sort of a bucket stays
// within a CPU cache. With more buckets, the distribution would write to more places at once than a processor handles
// well.
constexpr uint64_t kMostBuckets = 512;

inline void SetOrder(PlainEdge&, uint64_t) {}
inline void SetOrder(WeightedEdge& edge, uint64_t order) { edge.order = static_cast<uint32_t>(order); }
inline void SetOrder(FullEdge&, uint64_t) {}

template <class Record>
void SortByComparing(std::span<Record> edges) {
  std::sort(edges.begin(), edges.end(), [](const Record& a, const Record& b) { return Before(a, b); });
}

// Sorts a bucket that covers `rows` rows from `first_row`. A counting sort distributes the edges to their rows; then
// each row is sorted by itself.
template <class Record>
void SortBucket(std::span<Record> edges, uint64_t first_row, uint64_t rows, std::vector<uint32_t>& counts,
                std::vector<Record>& scratch, uint64_t scratch_edges) {
  // A counting sort gains nothing if rows have few edges. A bucket too large for the scratch consists of a few huge
  // rows.
  if (edges.size() < rows / 2 || edges.size() > scratch_edges || edges.size() < 32) return SortByComparing(edges);
  counts.assign(rows + 1, 0);
  for (const Record& edge : edges) ++counts[MajorOf(edge.key) - first_row + 1];
  for (uint64_t r = 0; r < rows; ++r) counts[r + 1] += counts[r];
  scratch.resize(std::max<uint64_t>(scratch.size(), edges.size()));
  for (const Record& edge : edges) scratch[counts[MajorOf(edge.key) - first_row]++] = edge;
  // After the distribution, counts[r] is the end of row r.
  uint32_t begin = 0;
  for (uint64_t r = 0; r < rows; ++r) {
    const uint32_t end = std::exchange(begin, counts[r]);
    SortByComparing(std::span(scratch).subspan(end, counts[r] - end));
  }
  std::copy_n(scratch.begin(), edges.size(), edges.begin());
}

// The core of the sort, in memory. Writes the edges of `in` to `out`, sorted, with inverses if asked for. Edges with
// equal keys keep the order of `in`. `scratch_bytes` bounds the memory that the sort allocates itself.
template <class Record>
void SortEdges(std::span<const std::span<const Record>> in, bool add_inverses, int threads, uint64_t scratch_bytes,
               std::span<Record> out) {
  if (out.empty()) return;
  struct Range {
    NodeId least = std::numeric_limits<NodeId>::max(), most = 0;
  };
  const auto pieces = static_cast<int64_t>(in.size());
  std::vector<Range> ranges(in.size());
  ParallelFor(threads, pieces, 1, [&](int64_t piece, int64_t, int) {
    Range range;
    const auto take = [&range](NodeId row) {
      range.least = std::min(range.least, row);
      range.most = std::max(range.most, row);
    };
    for (const Record& edge : in[static_cast<size_t>(piece)]) {
      take(MajorOf(edge.key));
      if (add_inverses) take(MinorOf(edge.key));
    }
    ranges[static_cast<size_t>(piece)] = range;
  });
  Range all;
  for (const Range& range : ranges) {
    all.least = std::min(all.least, range.least);
    all.most = std::max(all.most, range.most);
  }

  // A bucket covers 2^shift rows.
  const uint64_t wanted = std::clamp<uint64_t>(out.size() / 4096, 1, kMostBuckets);
  int shift = 0;
  while (((uint64_t{all.most} - all.least) >> shift) >= wanted) ++shift;
  const uint64_t buckets = ((uint64_t{all.most} - all.least) >> shift) + 1;
  const auto bucket_of = [&](NodeId row) { return (row - all.least) >> shift; };

  // next[piece][bucket] is the place in `out` for the piece's next edge of the bucket. The places of earlier pieces
  // come first, which keeps the order of equal keys.
  std::vector<std::vector<uint64_t>> next(in.size());
  ParallelFor(threads, pieces, 1, [&](int64_t piece, int64_t, int) {
    std::vector<uint64_t> counts(buckets);
    for (const Record& edge : in[static_cast<size_t>(piece)]) {
      const NodeId major = MajorOf(edge.key), minor = MinorOf(edge.key);
      ++counts[bucket_of(major)];
      if (add_inverses && major != minor) ++counts[bucket_of(minor)];
    }
    next[static_cast<size_t>(piece)] = std::move(counts);
  });
  std::vector<uint64_t> begins(buckets + 1);
  uint64_t sum = 0;
  for (uint64_t b = 0; b < buckets; ++b) {
    begins[b] = sum;
    for (auto& counts : next) sum += std::exchange(counts[b], sum);
  }
  begins[buckets] = sum;
  std::vector<uint64_t> orders(in.size());
  for (size_t p = 1; p < in.size(); ++p) orders[p] = orders[p - 1] + in[p - 1].size();
  ParallelFor(threads, pieces, 1, [&](int64_t piece, int64_t, int) {
    const auto p = static_cast<size_t>(piece);
    auto& places = next[p];
    uint64_t order = orders[p];
    for (const Record& edge : in[p]) {
      Record stored = edge;
      SetOrder(stored, order++);
      const NodeId major = MajorOf(edge.key), minor = MinorOf(edge.key);
      out[places[bucket_of(major)]++] = stored;
      if (!add_inverses || major == minor) continue;
      stored.key = SwapEnds(stored.key);
      out[places[bucket_of(minor)]++] = stored;
    }
  });

  struct Scratch {
    std::vector<uint32_t> counts;
    std::vector<Record> edges;
  };
  std::vector<Scratch> scratch(static_cast<size_t>(threads));
  const uint64_t rows = uint64_t{1} << shift;
  const uint64_t bytes_each = scratch_bytes / static_cast<uint64_t>(threads);
  const uint64_t count_bytes = rows * sizeof(uint32_t);
  const uint64_t scratch_edges = bytes_each > count_bytes ? (bytes_each - count_bytes) / sizeof(Record) : 0;
  ParallelFor(threads, static_cast<int64_t>(buckets), 1, [&](int64_t bucket, int64_t, int worker) {
    const auto b = static_cast<uint64_t>(bucket);
    Scratch& own = scratch[static_cast<size_t>(worker)];
    SortBucket(out.subspan(begins[b], begins[b + 1] - begins[b]), all.least + (b << shift), rows, own.counts, own.edges,
               std::min<uint64_t>(scratch_edges, std::numeric_limits<uint32_t>::max()));
  });
}

// The scratch of the sort and the buffers of the runs get an eighth of the memory each. The rest holds the edges
// twice: as they came, and sorted.
constexpr uint64_t kScratchShare = 8, kRunsShare = 8;

template <class Record>
uint64_t CapacityOf(const EdgeSorterOptions& options) {
  const uint64_t bytes =
      options.memory_bytes - options.memory_bytes / kScratchShare - options.memory_bytes / kRunsShare;
  // At most 2^32 - 1 edges, since WeightedEdge numbers them in 32 bits.
  return std::clamp<uint64_t>(bytes / (sizeof(Record) * (options.add_inverses ? 3 : 2)), 1024,
                              std::numeric_limits<uint32_t>::max());
}

}  // namespace

template <class Record>
EdgeSorter<Record>::EdgeSorter(EdgeSorterOptions options, std::stop_token stop)
    : options_(std::move(options)),
      stop_(std::move(stop)),
      capacity_(CapacityOf<Record>(options_)),
      chunk_(std::clamp<uint64_t>(capacity_ / 32, 1024, uint64_t{1} << 20)),
      runs_(options_.directory, options_.memory_bytes / kRunsShare, stop_) {}

template <class Record>
absl::Status EdgeSorter<Record>::Add(std::span<const Record> edges) {
  while (!edges.empty()) {
    if (buffered_ == capacity_) PF_RETURN_IF_ERROR(Spill());
    const uint64_t chunk = buffered_ / chunk_, at = buffered_ % chunk_;
    if (chunk == chunks_.size()) chunks_.push_back(std::make_unique_for_overwrite<Record[]>(chunk_));
    const auto n = static_cast<size_t>(std::min({uint64_t{edges.size()}, chunk_ - at, capacity_ - buffered_}));
    Record* to = chunks_[chunk].get() + at;
    NodeId most = 0;
    for (const Record& edge : edges.first(n)) {
      const NodeId major = MajorOf(edge.key), minor = MinorOf(edge.key);
      most = std::max({most, major, minor});
      self_loops_ += major == minor;
      *to++ = edge;
    }
    rows_seen_ = std::max(rows_seen_, uint64_t{most} + 1);
    buffered_ += n;
    edges = edges.subspan(n);
  }
  return absl::OkStatus();
}

template <class Record>
void EdgeSorter<Record>::SortBuffered() {
  std::vector<std::span<const Record>> pieces;
  for (uint64_t at = 0; at < buffered_; at += chunk_) {
    pieces.emplace_back(chunks_[at / chunk_].get(), static_cast<size_t>(std::min(chunk_, buffered_ - at)));
  }
  sorted_size_ = options_.add_inverses ? 2 * buffered_ - self_loops_ : buffered_;
  if (sorted_size_ > sorted_capacity_) {
    sorted_.reset();
    sorted_ = std::make_unique_for_overwrite<Record[]>(sorted_size_);
    sorted_capacity_ = sorted_size_;
  }
  SortEdges<Record>(pieces, options_.add_inverses, options_.threads, options_.memory_bytes / kScratchShare,
                    std::span(sorted_.get(), sorted_size_));
}

template <class Record>
absl::Status EdgeSorter<Record>::Spill() {
  SortBuffered();
  PF_RETURN_IF_ERROR(CheckStop(stop_));
  PF_RETURN_IF_ERROR(runs_.Write(std::span<const Record>(sorted_.get(), sorted_size_)));
  ++runs_written_;
  buffered_ = self_loops_ = 0;
  return absl::OkStatus();
}

template <class Record>
absl::Status EdgeSorter<Record>::Finish() {
  PF_RETURN_IF_ERROR(CheckStop(stop_));
  if (runs_written_ == 0) {
    SortBuffered();
  } else {
    if (buffered_ > 0) PF_RETURN_IF_ERROR(Spill());
    sorted_.reset();
  }
  chunks_.clear();
  return absl::OkStatus();
}

template <class Record>
absl::StatusOr<std::span<const Record>> EdgeSorter<Record>::Next() {
  if (runs_written_ > 0) return runs_.Next();
  PF_RETURN_IF_ERROR(CheckStop(stop_));
  constexpr uint64_t kAtOnce = uint64_t{1} << 16;
  const uint64_t n = std::min(kAtOnce, sorted_size_ - given_);
  return std::span<const Record>(sorted_.get() + std::exchange(given_, given_ + n), n);
}

template class EdgeSorter<PlainEdge>;
template class EdgeSorter<WeightedEdge>;
template class EdgeSorter<FullEdge>;

}  // namespace permafrost::data
