#include "client/explain_view.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/format.h"
#include "permafrost/v1/enum_text.h"

namespace permafrost::client {
namespace {

std::string NameOfMode(v1::GraphCacheMode mode) { return EnumShortName(*v1::GraphCacheMode_descriptor(), mode); }

std::string OpName(const std::string& op) { return op.empty() ? kNothing : OneLine(op); }

std::string MillisecondsText(double seconds) { return absl::StrFormat("%.3f ms", 1e3 * seconds); }

// Returns the share in percent with one decimal, which is about the precision of the measured times.
std::string SecondsShare(double part, double whole) {
  return whole > 0 ? absl::StrFormat("%.1f %%", 100 * part / whole) : kNothing;
}

int64_t CountOf(const google::protobuf::RepeatedPtrField<v1::CauseCount>& counts, v1::GraphCacheMode mode,
                v1::GraphCacheCause cause) {
  int64_t count = 0;
  for (const v1::CauseCount& c : counts) count += c.mode() == mode && c.cause() == cause ? c.count() : 0;
  return count;
}

// Renders a table of the 20 lines of the module that take the most time.
std::string RenderLines(const v1::StepProfile& profile, const RenderStyle& style) {
  constexpr int kMostLines = 20;
  std::vector<std::vector<Cell>> rows;
  double others = 0;
  for (int i = 0; i < profile.lines_size(); ++i) {
    const v1::LineTime& time = profile.lines(i);
    const double forward = time.forward_seconds(), backward = time.backward_seconds();
    if (i >= kMostLines) {
      others += forward + backward;
      continue;
    }
    rows.push_back({MillisecondsText(forward), backward > 0 ? MillisecondsText(backward) : kNothing,
                    SecondsShare(forward + backward, profile.replay_seconds()), OneLine(time.line())});
  }
  if (const int left = profile.lines_size() - kMostLines; left > 0) {
    rows.push_back({"", "", SecondsShare(others, profile.replay_seconds()), "other lines"});
  }
  return RenderTable(
      {{"FORWARD", Align::kRight}, {"BACKWARD", Align::kRight}, {"SHARE", Align::kRight}, {"LINE OF THE MODULE"}}, rows,
      style);
}

std::string RenderProfile(const v1::StepProfile& profile, bool of_seeds, const RenderStyle& style) {
  const double whole = profile.replay_seconds();
  double operators = 0;
  std::vector<std::vector<Cell>> rows;
  for (const v1::OperatorTime& time : profile.operators()) {
    operators += time.seconds();
    rows.push_back({OpName(time.op()), CountText(time.calls()), MillisecondsText(time.seconds()),
                    SecondsShare(time.seconds(), whole), time.product() ? "product" : ""});
  }
  rows.push_back({"between operators", "", MillisecondsText(std::max(0.0, whole - operators)),
                  SecondsShare(std::max(0.0, whole - operators), whole), ""});
  rows.push_back({"the replay", "", MillisecondsText(whole), SecondsShare(whole, whole), ""});
  rows.push_back({"its matrix products alone", "", MillisecondsText(profile.product_seconds()),
                  SecondsShare(profile.product_seconds(), whole), ""});
  rows.push_back({"the step run eagerly", "", MillisecondsText(profile.eager_seconds()),
                  SecondsShare(profile.eager_seconds(), whole), ""});
  std::string text = absl::StrCat(
      "the ", profile.mode() == v1::GRAPH_CACHE_MODE_TRAIN ? "training" : "evaluation",
      " step audited last, after step ", CountText(profile.step()), ": ", ShapeText(profile.shape(), of_seeds), "\n",
      RenderTable({{"OPERATOR"}, {"CALLS", Align::kRight}, {"TIME", Align::kRight}, {"SHARE", Align::kRight}, {""}},
                  rows, style));
  if (!profile.lines().empty()) absl::StrAppend(&text, "\n", RenderLines(profile, style));
  return text;
}

}  // namespace

std::string ShapeText(const v1::BatchShape& shape, bool of_seeds) {
  return absl::StrCat(CountText(shape.nodes()), " nodes, ", CountText(shape.edges()), " edges, ",
                      CountText(shape.graphs()), of_seeds ? " seed" : " graph", shape.graphs() == 1 ? "" : "s");
}

Cell AuditsCell(const v1::GraphCache& cache) {
  int64_t audits = 0, failures = 0;
  for (const v1::GraphCacheStatistics& s : cache.statistics()) {
    audits += s.audits();
    failures += s.audit_failures();
  }
  const int64_t every = cache.policy().audit_every();
  const std::string interval = every == 0 ? "off" : absl::StrCat("every ", CountText(every), " steps");
  if (audits == 0) return absl::StrCat("none yet, ", interval);
  if (failures == 0) return {absl::StrCat(CountText(audits), ", all equal to the bit, ", interval), Tone::kGood};
  return {absl::StrCat(CountText(failures), " of ", CountText(audits), " found a difference, see below"), Tone::kBad};
}

std::string RenderCauses(const v1::GraphCache& cache, const RenderStyle& style) {
  std::vector<std::vector<Cell>> rows;
  for (const auto mode : {v1::GRAPH_CACHE_MODE_TRAIN, v1::GRAPH_CACHE_MODE_EVAL}) {
    for (int cause = v1::GraphCacheCause_MIN; cause <= v1::GraphCacheCause_MAX; ++cause) {
      const auto value = static_cast<v1::GraphCacheCause>(cause);
      const int64_t captures = CountOf(cache.captures_by_cause(), mode, value);
      const int64_t misses = CountOf(cache.misses_by_cause(), mode, value);
      if (captures == 0 && misses == 0) continue;
      rows.push_back({EnumShortName(*v1::GraphCacheCause_descriptor(), value), NameOfMode(mode), CountText(captures),
                      CountText(misses)});
    }
  }
  if (rows.empty()) return "";
  return RenderTable({{"CAUSE"}, {"MODE"}, {"CAPTURES", Align::kRight}, {"MISSES", Align::kRight}}, rows, style);
}

std::string RenderAuditFailures(const v1::GraphCache& cache, const RenderStyle& style) {
  if (cache.audit_failures().empty()) return "";
  std::vector<std::vector<Cell>> rows;
  for (const v1::AuditFailure& f : cache.audit_failures()) {
    rows.push_back({OpName(f.op()), NameOfMode(f.mode()), CountText(f.count()), CountText(f.step()),
                    ShapeText(f.shape(), cache.of_seeds()), OneLine(f.why())});
  }
  return RenderTable(
      {{"FAILED AUDIT"}, {"MODE"}, {"TIMES", Align::kRight}, {"AFTER STEP", Align::kRight}, {"SHAPE"}, {"WHY"}}, rows,
      style);
}

std::string RenderGraphBreaks(const v1::GraphCache& cache, const RenderStyle& style) {
  if (cache.graph_breaks().empty()) return "";
  std::vector<std::vector<Cell>> rows;
  for (const v1::GraphBreak& b : cache.graph_breaks()) {
    rows.push_back({OpName(b.op()), NameOfMode(b.mode()), CountText(b.count()), b.why()});
  }
  return RenderTable({{"GRAPH BREAK"}, {"MODE"}, {"TIMES", Align::kRight}, {"WHY"}}, rows, style);
}

std::string RenderExplanation(const v1::ExplainGraphCacheResponse& explanation, const RenderStyle& style) {
  const v1::GraphCache& cache = explanation.cache();
  std::string out = absl::StrCat("graph cache of job ", OneLine(CacheJob(cache.name())), "\n");
  const std::string breaks = RenderGraphBreaks(cache, style);
  absl::StrAppend(
      &out,
      RenderFields({{"graph breaks", breaks.empty() ? "none" : "see below"}, {"audits", AuditsCell(cache)}}, style));
  for (const std::string& part : {breaks, RenderAuditFailures(cache, style), RenderCauses(cache, style)}) {
    if (!part.empty()) absl::StrAppend(&out, "\n", part);
  }
  for (const v1::StepProfile& profile : explanation.profiles()) {
    absl::StrAppend(&out, "\n", RenderProfile(profile, cache.of_seeds(), style));
  }
  if (explanation.profiles().empty()) {
    absl::StrAppend(&out, "\nno step was audited yet, so that no operator was timed\n");
    return out;
  }
  const auto has_layers = [](const v1::StepProfile& profile) {
    return std::ranges::any_of(profile.operators(),
                               [](const v1::OperatorTime& time) { return time.op().starts_with("permafrost::"); });
  };
  if (std::ranges::any_of(explanation.profiles(), has_layers)) {
    absl::StrAppend(&out,
                    "\noperators named permafrost:: hold the matrix products of their layer; alone they were run by "
                    "aten::mm on tensors of the same sizes, and a layer may multiply faster\n");
  }
  return out;
}

}  // namespace permafrost::client
