#include "data/rows/row_caches.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/file.h"
#include "base/status.h"

namespace permafrost::data {
namespace {

// Shares of the memory limit. kReserve is kept free for everything else that grows. If less than kShort is left, the
// cache gives memory back. If more than kWorthTaking is spare, the cache grows.
constexpr double kReserve = 0.05, kShort = 0.025, kWorthTaking = 0.01;
// The part of the spare memory that the cache takes at once.
constexpr double kTaken = 0.75;
// The smallest useful budget. If less memory is left, the job's log says so.
constexpr uint64_t kLeastBudget = uint64_t{16} << 20;
// The first budget of a cache is 1/kFirstShare of the memory that is left. The budget grows later if the job takes
// less than the rest.
constexpr uint64_t kFirstShare = 2;
// Between jobs, 1/kIdleShare of the memory is kept free, since an import takes a quarter of the memory.
constexpr uint64_t kIdleShare = 3;
constexpr absl::Duration kLookEvery = absl::Milliseconds(100), kReturnEvery = absl::Seconds(1),
                         kGrowEvery = absl::Seconds(2);
// The bytes assumed to be left if the system does not tell.
constexpr uint64_t kUnknownLeft = uint64_t{1} << 30;

template <class Bytes>
std::string Mb(Bytes bytes) {
  return absl::StrFormat("%.0f MB", static_cast<double>(bytes) / 1e6);
}

std::optional<DiskReaderKind> KindOf(FeatureReader reader) {
  if (reader == FeatureReader::kUring) return DiskReaderKind::kUring;
  if (reader == FeatureReader::kPread) return DiskReaderKind::kPread;
  return std::nullopt;
}

// If the features can be read only through the mapping, returns the reason. Otherwise returns an empty string.
std::string_view MappedAlone(const Graph& graph) {
  if (std::holds_alternative<SparseFeatures>(graph.view().node_features)) return "they are sparse";
  const std::optional<StoredRows> table = graph.stored_features();
  if (!table) return "the store is of an older version; import it again";
  if (table->row_bytes + kPageBytes > DiskReader::kMaxReadBytes) return "their rows are too long";
  return "";
}

uint64_t Reserve(uint64_t limit) { return static_cast<uint64_t>(static_cast<double>(limit) * kReserve); }
uint64_t Less(uint64_t from, uint64_t bytes) { return from > bytes ? from - bytes : 0; }

}  // namespace

absl::StatusOr<RowCaches::Key> RowCaches::KeyOf(const StoredRows& table) {
  struct stat info {};
  if (stat(table.path.c_str(), &info) != 0) return SystemError(errno, table.path, "look at");
  return Key{.path = table.path, .modified = ModifiedNanoseconds(info), .bytes = static_cast<uint64_t>(info.st_size)};
}

void RowCaches::Forget() {
  kept_ = nullptr;
  key_ = std::nullopt;
}

absl::StatusOr<DiskRates> RowCaches::RatesOf(const StoredRows& table, std::optional<DiskReaderKind> kind) {
  if (options_.rates) return *options_.rates;
  const std::filesystem::path folder = table.path.parent_path();
  if (const auto it = rates_.find(folder); it != rates_.end()) return it->second;
  PF_ASSIGN_OR_RETURN(DiskRates rates, MeasureDisk(table.path, table.offset, table.bytes, {.kind = kind}));
  rates_[folder] = rates;
  return rates;
}

uint64_t RowCaches::LeftBeside(uint64_t job_bytes) {
  absl::MutexLock lock(&mu_);
  return Left(options_.memory_left(), job_bytes);
}

uint64_t RowCaches::Held() const { return kept_ == nullptr ? 0 : kept_->counters().used_bytes; }

uint64_t RowCaches::Left(const std::optional<MemoryLeft>& memory, uint64_t job_bytes) const {
  const uint64_t reserve = Reserve(memory ? memory->limit : kUnknownLeft);
  return Less((memory ? memory->left : kUnknownLeft) + Held(), job_bytes + reserve);
}

absl::StatusOr<RowCaches::Session> RowCaches::Open(const std::shared_ptr<const Graph>& graph, uint64_t job_bytes) {
  const auto mapped = [](std::string_view why) {
    return Session{.line = absl::StrCat("features: read through the mapping: ", std::string(why))};
  };
  if (const std::string_view why = MappedAlone(*graph); !why.empty()) return mapped(why);
  const StoredRows table = *graph->stored_features();
  const bool asked = options_.reader == FeatureReader::kMapped;
  const absl::StatusOr<Key> known = KeyOf(table);
  if (!known.ok()) return asked ? mapped("as asked for") : absl::StatusOr<Session>(known.status());
  const Key& key = *known;

  absl::MutexLock lock(&mu_);
  if (open_) return mapped("another job reads past it");
  // If the cache is for another dataset, its memory is freed first.
  if (key_ != key) Forget();
  const std::optional<MemoryLeft> memory = options_.memory_left();
  const uint64_t edges = graph->summary().adjacency_bytes, mapped_now = options_.mapped_bytes(table.path);
  // If more bytes are mapped than the file has beside the features, some of them are features. It is then unknown how
  // many bytes of the edges are mapped, so all edges count as unmapped.
  const uint64_t edges_to_map = mapped_now > Less(key.bytes, table.bytes) ? edges : Less(edges, mapped_now);
  const uint64_t left = Left(memory, job_bytes + edges_to_map);
  const bool measured = options_.budget_bytes == 0;
  if (asked || (options_.reader == FeatureReader::kAuto && measured && table.bytes <= left)) {
    Forget();
    Session session = mapped("as asked for");
    if (!asked) {
      session.line = absl::StrCat("features: ", Mb(table.bytes), " read through the mapping: memory has ", Mb(left),
                                  " left for them");
    }
    // Reads the whole file ahead if it fits into memory, else the features alone. The file may hold other large
    // sections besides features and edges, and a job may not need them.
    if (key.bytes <= left + edges_to_map) {
      session.ahead.push_back(std::make_unique<ReadAhead>(table.path, ReadAhead::Range{0, key.bytes}));
    } else if (table.bytes <= left) {
      const ReadAhead::Range features{table.offset, table.offset + table.bytes};
      session.ahead.push_back(std::make_unique<ReadAhead>(table.path, features));
    }
    return session;
  }
  const uint64_t held = Held();
  if (kept_ == nullptr) {
    PF_ASSIGN_OR_RETURN(kept_, RowCache::Create(table, 0));
    key_ = key;
  }
  const uint64_t most = kept_->MostBytes();
  const uint64_t first = std::max(kLeastBudget, std::min(std::max(held, left / kFirstShare), most));
  const uint64_t budget = measured ? first : options_.budget_bytes;
  kept_->SetBudget(budget);
  returned_ = false;
  edges_to_map_ = edges_to_map;
  mapped_before_ = memory ? memory->mapped : 0;
  since_change_.Restart();
  PF_ASSIGN_OR_RETURN(const DiskRates rates, RatesOf(table, KindOf(options_.reader)));
  PF_RETURN_IF_ERROR(kept_->Start(graph, {.kind = KindOf(options_.reader), .depth = rates.depth}, rates.gap_bytes()));
  const RowReaderState state = kept_->reader();
  const double share = std::min(1.0, static_cast<double>(budget) / static_cast<double>(most));
  Session session;
  session.line = absl::StrCat(
      "features: ", Mb(table.bytes), " read by ", state.kind, state.direct ? "" : " through the page cache", ", ",
      state.depth, " at once; a cache of ", Mb(budget), absl::StrFormat(" (%.0f %% of the rows)", 100 * share),
      measured ? absl::StrCat(" at first: memory has ", Mb(left), " left for them") : ", as asked for",
      measured && left < kLeastBudget ? ", which is too little" : "", state.fallback.empty() ? "" : "; ",
      state.fallback);
  // Reads ahead the edges and the other sections, which are small.
  if (graph->summary().adjacency_bytes <= left) {
    const uint64_t table_end = table.offset + table.bytes;
    session.ahead.push_back(std::make_unique<ReadAhead>(table.path, ReadAhead::Range{0, table.offset}));
    session.ahead.push_back(std::make_unique<ReadAhead>(table.path, ReadAhead::Range{table_end, key.bytes}));
  }
  // The session's end stops the reading, and the rows stay.
  open_ = true;
  session.cache = std::shared_ptr<RowCache>(kept_.get(), [this, kept = kept_](RowCache*) { EndSession(*kept); });
  return session;
}

void RowCaches::EndSession(RowCache& cache) {
  cache.Stop();
  absl::MutexLock lock(&mu_);
  open_ = false;
  const std::optional<MemoryLeft> memory = options_.memory_left();
  if (options_.budget_bytes > 0 || !memory) return;
  const uint64_t short_of = Less(memory->limit / kIdleShare, memory->left);
  cache.SetBudget(Less(cache.counters().used_bytes, short_of));
}

void RowCaches::Drop() {
  absl::MutexLock lock(&mu_);
  Forget();
}

double RowCaches::LeftBesideEdges(const MemoryLeft& memory) const {
  const uint64_t of_edges = Less(memory.mapped, mapped_before_);
  return static_cast<double>(memory.left + of_edges) - static_cast<double>(edges_to_map_);
}

void RowCaches::Adapt(RowCache& cache) {
  if (options_.budget_bytes > 0) return;
  absl::MutexLock lock(&mu_);
  if (since_look_.Elapsed() < kLookEvery) return;
  since_look_.Restart();
  std::optional<MemoryLeft> memory = options_.memory_left();
  if (!memory) return;
  const double limit = static_cast<double>(memory->limit);
  // Returns to the system the free heap memory that graph captures and file reads left behind. Does so once in a
  // session, and again when memory is short.
  const bool is_short = LeftBesideEdges(*memory) < kShort * limit;
  if (!returned_ || (is_short && since_return_.Elapsed() > kReturnEvery)) {
    // Delays the first growth, so that the memory that the first steps take is known by then.
    if (!std::exchange(returned_, true)) since_change_.Restart();
    since_return_.Restart();
    options_.return_free_heap();
    memory = options_.memory_left();
    if (!memory) return;
  }
  const RowCounters counters = cache.counters();
  const auto budget = static_cast<double>(counters.budget_bytes), left = LeftBesideEdges(*memory);
  const double least = static_cast<double>(std::max(kLeastBudget, cache.LeastBytes()));
  // The cache may still take the unused part of its budget, so that part is not spare.
  const double spare = left - kReserve * limit - std::max(0.0, budget - static_cast<double>(counters.used_bytes));
  double wanted = budget;
  if (left < kShort * limit) {
    wanted = std::max(least, budget + std::min(0.0, spare));
  } else if (spare > kWorthTaking * limit && since_change_.Elapsed() > kGrowEvery) {
    wanted = std::min(static_cast<double>(cache.MostBytes()), budget + spare * kTaken);
  }
  wanted = std::max(wanted, least);
  if (wanted == budget) return;
  since_change_.Restart();
  cache.SetBudget(static_cast<uint64_t>(wanted));
  options_.log(
      absl::StrCat("feature cache: ", Mb(wanted),
                   absl::StrFormat(" (%.0f %% of the rows)", 100 * wanted / static_cast<double>(cache.MostBytes())),
                   " from here on, ", Mb(budget), " before: memory has ", Mb(left), " left"));
}

namespace {

// ReadAhead asks for pieces of this size, and keeps two of them in flight.
constexpr uint64_t kPieceBytes = uint64_t{4} << 20;

void AskFor(const Descriptor& file, uint64_t begin, uint64_t end) {
  const auto offset = static_cast<off_t>(begin);
#ifdef __APPLE__
  radvisory advice{.ra_offset = offset, .ra_count = static_cast<int>(end - begin)};
  fcntl(file.get(), F_RDADVISE, &advice);
#else
  posix_fadvise(file.get(), offset, static_cast<off_t>(end - begin), POSIX_FADV_WILLNEED);
#endif
}

}  // namespace

ReadAhead::ReadAhead(std::filesystem::path path, Range range)
    : thread_([this, path = std::move(path), range] {
        Run(path, range);
        done_.Notify();
      }) {}

ReadAhead::~ReadAhead() {
  stop_.Notify();
  thread_.join();
}

void ReadAhead::Run(const std::filesystem::path& path, Range range) {
  const Descriptor file = OpenRetrying(path, O_RDONLY);
  if (!file.valid() || range.begin >= range.end) return;
    // AskFor asks for each piece explicitly. The small reads below must not start the kernel's own read-ahead.
#ifdef POSIX_FADV_RANDOM
  posix_fadvise(file.get(), 0, 0, POSIX_FADV_RANDOM);
#endif
  const auto piece_end = [&](uint64_t begin) { return std::min(range.end, begin + kPieceBytes); };
  AskFor(file, range.begin, piece_end(range.begin));
  for (uint64_t begin = range.begin; begin < range.end; begin += kPieceBytes) {
    const uint64_t end = piece_end(begin);
    if (end < range.end) AskFor(file, end, piece_end(end));
    // Waits for the piece, which is in memory once its last byte is.
    char last = 0;
    if (stop_.HasBeenNotified() || pread(file.get(), &last, 1, static_cast<off_t>(end - 1)) != 1) return;
  }
}

}  // namespace permafrost::data
