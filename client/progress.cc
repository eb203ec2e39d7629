#include "client/progress.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/format.h"

namespace permafrost::client {
namespace {

constexpr int kMinBar = 10;
constexpr int kMaxBar = 40;
constexpr int kGap = 2;

// One part of the line. If the line is too long, the part with the highest rank is dropped first. Parts of rank 0
// stay.
struct Part {
  std::string text;
  int rank = 0;
};

std::string Bar(double fraction, int cells, const RenderStyle& style) {
  const int full = std::clamp(static_cast<int>(std::floor(fraction * cells)), 0, cells);
  std::string done, rest;
  for (int i = 0; i < full; ++i) done += style.unicode ? "━" : "#";
  for (int i = full; i < cells; ++i) rest += style.unicode ? "─" : "-";
  return Paint(done, Tone::kGood, style) + Paint(rest, Tone::kDim, style);
}

int TotalWidth(const std::vector<Part>& parts) {
  int width = 0;
  for (const Part& part : parts) width += DisplayWidth(part.text) + kGap;
  return parts.empty() ? 0 : width - kGap;
}

std::string Truncate(std::string text, int width) {
  size_t end = 0;
  for (int columns = 0; end < text.size(); ++end) {
    if ((static_cast<unsigned char>(text[end]) & 0xc0) != 0x80 && columns++ == width) break;
  }
  text.resize(end);
  return text;
}

// Drops the least important part. Returns false if only parts of rank 0 are left.
bool DropLeast(std::vector<Part>& parts) {
  const auto least =
      std::max_element(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.rank < b.rank; });
  if (least == parts.end() || least->rank == 0) return false;
  parts.erase(least);
  return true;
}

// Makes a line of at most `style.width - 1` columns from the head, the bar and the other parts.
std::string Compose(std::string head, double fraction, std::vector<Part> parts, const RenderStyle& style) {
  const int width = std::max(1, style.width - 1);
  parts.insert(parts.begin(), {absl::StrFormat("%3d%%", static_cast<int>(std::floor(fraction * 100))), 0});
  const auto room = [&] { return width - DisplayWidth(head) - TotalWidth(parts) - 2 * kGap; };
  while (room() < kMinBar && DropLeast(parts)) {
  }
  const std::string gap(kGap, ' ');
  std::vector<std::string> texts{OneLine(head)};
  if (room() >= kMinBar) texts.push_back(Bar(fraction, std::min(room(), kMaxBar), style));
  const bool has_bar = texts.size() == 2;
  for (const Part& part : parts) texts.push_back(part.text);
  std::string line = absl::StrJoin(texts, gap);
  // Only a line without a bar can be too long. Such a line has no colours, so the cut cannot fall within a colour.
  return has_bar ? line : Truncate(std::move(line), width);
}

// Makes a line of the parts alone. If they do not fit, the least important ones are dropped.
std::string ComposeWithoutBar(std::vector<Part> parts, const RenderStyle& style) {
  const int width = std::max(1, style.width - 1);
  while (TotalWidth(parts) > width && DropLeast(parts)) {
  }
  std::vector<std::string> texts;
  texts.reserve(parts.size());
  for (const Part& part : parts) texts.push_back(part.text);
  return Truncate(absl::StrJoin(texts, std::string(kGap, ' ')), width);
}

double Fraction(int64_t done, int64_t total) {
  return total <= 0 ? 0 : std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
}

int EpochWidth(int64_t epochs) { return std::max(5, static_cast<int>(absl::StrCat(epochs).size()) * 2 + 1); }

int MoreWidth(const std::string& metric) { return std::max(8, DisplayWidth(metric)); }

std::string MetricHeader(const EpochTable& table) { return absl::StrCat("valid ", table.metric); }

}  // namespace

std::string RenderJobProgress(const JobSnapshot& job, const RenderStyle& style) {
  if (job.warm_up_total > 0) {
    std::vector<Part> parts;
    if (job.state != "running" && job.state != "warming-up") parts.push_back({job.state, 0});
    return Compose(absl::StrCat("warming up ", job.warm_up_done, "/", job.warm_up_total),
                   Fraction(job.warm_up_done, job.warm_up_total), std::move(parts), style);
  }
  if (job.epoch == 0 || job.steps_total == 0) return Truncate(OneLine(job.state), std::max(1, style.width - 1));
  std::vector<Part> parts;
  if (job.loss) parts.push_back({absl::StrCat("loss ", MetricText(*job.loss)), 2});
  if (job.valid_metric) parts.push_back({absl::StrCat("valid ", job.metric, " ", MetricText(*job.valid_metric)), 1});
  if (job.units_per_second > 0)
    parts.push_back({absl::StrCat(ShortText(job.units_per_second), " ", job.unit, "/s"), 3});
  if (job.state != "running") {
    parts.push_back({job.state, 0});
  } else if (job.eta) {
    parts.push_back({absl::StrCat("ETA ", EtaText(*job.eta)), 0});
  }
  return Compose(absl::StrCat("epoch ", job.epoch, "/", job.epochs), Fraction(job.step, job.steps_total),
                 std::move(parts), style);
}

std::string RenderCacheProgress(const CacheSnapshot& cache, const RenderStyle& style) {
  std::vector<Part> parts;
  if (cache.steps > 0) {
    parts.push_back({absl::StrCat(ShareText(cache.hits, cache.steps), " exact"), 2});
    parts.push_back({absl::StrCat(ShareText(cache.padded_hits, cache.steps), " padded"), 1});
  }
  parts.push_back({absl::StrCat(CountText(cache.executables), " executables"), 4});
  parts.push_back({BytesText(cache.bytes), 3});
  if (!cache.frozen && cache.freeze_at > 0) {
    return Compose(absl::StrCat(CountText(cache.kept_shapes), " of ", CountText(cache.freeze_at), " shapes"),
                   Fraction(cache.kept_shapes, cache.freeze_at), std::move(parts), style);
  }
  if (cache.frozen) parts.push_back({absl::StrCat(CountText(cache.frozen_captures), " compiled while frozen"), 2});
  const std::string head = cache.frozen ? absl::StrCat("frozen at step ", CountText(cache.freeze_step)) : cache.state;
  parts.insert(parts.begin(), {{head, 0}, {absl::StrCat(CountText(cache.steps), " steps"), 1}});
  return ComposeWithoutBar(std::move(parts), style);
}

std::string RenderImportProgress(const ImportSnapshot& import, const RenderStyle& style) {
  std::vector<Part> parts;
  parts.push_back({absl::StrCat(BytesText(import.bytes_read), " of ", BytesText(import.bytes_total)), 1});
  if (import.eta) parts.push_back({absl::StrCat("ETA ", EtaText(*import.eta)), 0});
  if (!import.file.empty()) parts.push_back({OneLine(import.file), 2});
  return Compose("importing", Fraction(import.bytes_read, import.bytes_total), std::move(parts), style);
}

namespace {

std::string RenderBytes(std::string_view doing, int64_t bytes_done, int64_t bytes_total,
                        std::optional<absl::Duration> eta, const RenderStyle& style) {
  std::vector<Part> parts;
  parts.push_back({absl::StrCat(BytesText(bytes_done), " of ", BytesText(bytes_total)), 1});
  if (eta) parts.push_back({absl::StrCat("ETA ", EtaText(*eta)), 0});
  return Compose(std::string(doing), Fraction(bytes_done, bytes_total), std::move(parts), style);
}

}  // namespace

std::string RenderVerifyProgress(int64_t bytes_done, int64_t bytes_total, std::optional<absl::Duration> eta,
                                 const RenderStyle& style) {
  return RenderBytes("verifying", bytes_done, bytes_total, eta, style);
}

std::string RenderUploadProgress(int64_t bytes_done, int64_t bytes_total, std::optional<absl::Duration> eta,
                                 const RenderStyle& style) {
  return RenderBytes("uploading", bytes_done, bytes_total, eta, style);
}

std::string RenderBackupProgress(int64_t bytes_done, int64_t bytes_total, std::optional<absl::Duration> eta,
                                 const RenderStyle& style) {
  return RenderBytes("copying", bytes_done, bytes_total, eta, style);
}

std::string RenderEvaluationProgress(int64_t rows_done, int64_t rows_total, std::optional<absl::Duration> eta,
                                     const RenderStyle& style) {
  if (rows_total == 0) return "evaluating";
  std::vector<Part> parts;
  parts.push_back({absl::StrCat(CountText(rows_done), " of ", CountText(rows_total), " rows"), 1});
  if (eta) parts.push_back({absl::StrCat("ETA ", EtaText(*eta)), 0});
  return Compose("evaluating", Fraction(rows_done, rows_total), std::move(parts), style);
}

std::optional<absl::Duration> EstimateRemaining(int64_t done, int64_t total, absl::Duration elapsed) {
  if (done <= 0 || total < done || elapsed <= absl::ZeroDuration()) return std::nullopt;
  return elapsed * (static_cast<double>(total - done) / static_cast<double>(done));
}

std::string RenderEpochHeader(const EpochTable& table, const RenderStyle& style) {
  const std::string metric = MetricHeader(table);
  std::string more;
  for (const std::string& other : table.more_metrics) absl::StrAppendFormat(&more, "  %*s", MoreWidth(other), other);
  return Paint(
      absl::StrFormat("%*s  %10s  %10s  %*s%s  %8s  %7s", EpochWidth(table.epochs), "epoch", "train loss", "valid loss",
                      DisplayWidth(metric), metric, more, absl::StrCat(table.unit, "/s"), "time"),
      Tone::kBold, style);
}

std::string RenderEpochRow(const EpochRow& row, const EpochTable& table) {
  std::string more;
  for (size_t i = 0; i < std::min(table.more_metrics.size(), row.more_metrics.size()); ++i) {
    absl::StrAppendFormat(&more, "  %*s", MoreWidth(table.more_metrics[i]), MetricText(row.more_metrics[i]));
  }
  return absl::StrFormat("%*s  %10s  %10s  %*s%s  %8s  %7s", EpochWidth(table.epochs),
                         absl::StrCat(row.epoch, "/", table.epochs), MetricText(row.train_loss),
                         MetricText(row.valid_loss), DisplayWidth(MetricHeader(table)), MetricText(row.valid_metric),
                         more, ShortText(row.units_per_second), DurationText(row.time));
}

}  // namespace permafrost::client
