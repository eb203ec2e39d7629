#include "client/cache_view.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/string_view.h"
#include "client/explain_view.h"
#include "client/format.h"
#include "client/style.h"
#include "permafrost/v1/enum_text.h"

namespace permafrost::client {
namespace {

using Statistics = v1::GraphCacheStatistics;
using Policy = v1::GraphCachePolicy;

std::string ModeName(v1::GraphCacheMode mode) { return EnumShortName(*v1::GraphCacheMode_descriptor(), mode); }

std::string Plural(int64_t count, std::string_view noun) {
  return absl::StrCat(CountText(count), " ", AbslView(noun), count == 1 ? "" : "s");
}

int64_t Steps(const Statistics& s) { return s.hits() + s.padded_hits() + s.misses(); }

// Returns the number of steps whose captured executable was kept.
int64_t KeptSteps(const Statistics& s) {
  return std::max<int64_t>(0, s.misses() - s.eager_steps() - s.transient_steps());
}

int64_t Sum(const v1::GraphCache& cache, int64_t (*of)(const Statistics&)) {
  int64_t sum = 0;
  for (const Statistics& s : cache.statistics()) sum += of(s);
  return sum;
}

int64_t Entries(const Statistics& s) { return s.entries(); }
int64_t FrozenCaptures(const Statistics& s) { return s.frozen_captures(); }
int64_t Recaptures(const Statistics& s) { return s.recaptures(); }

int64_t KeptTrainingShapes(const v1::GraphCache& cache) {
  for (const Statistics& s : cache.statistics())
    if (s.mode() == v1::GRAPH_CACHE_MODE_TRAIN) return s.entries();
  return 0;
}

// Returns whether everything that training needs is captured before a step runs.
bool IsPlanned(const v1::GraphCache& cache) {
  return std::ranges::any_of(cache.statistics(), [](const Statistics& s) {
    return s.mode() == v1::GRAPH_CACHE_MODE_TRAIN && (s.dynamic() || s.rungs() > 0);
  });
}

std::string KindText(const Statistics& s) {
  if (s.dynamic()) return "dynamic";
  return s.rungs() > 0 ? absl::StrCat("a ladder of ", s.rungs()) : "exact";
}

std::string ShapesText(const v1::GraphCache& cache) {
  const auto all = [&cache](bool (*is)(const Statistics&)) { return std::ranges::all_of(cache.statistics(), is); };
  if (all([](const Statistics& s) { return s.dynamic(); })) {
    return "dynamic: one executable for training and one for evaluation serve every shape";
  }
  if (all([](const Statistics& s) { return !s.dynamic() && s.rungs() == 0; })) return "exact: one executable a shape";
  std::vector<std::string> kinds;
  for (const Statistics& s : cache.statistics()) {
    kinds.push_back(
        absl::StrCat(KindText(s), " in ", s.mode() == v1::GRAPH_CACHE_MODE_TRAIN ? "training" : "evaluation"));
  }
  return absl::StrJoin(kinds, ", ");
}

Cell FrozenCell(const v1::GraphCache& cache, const ViewTime& time) {
  std::string text = absl::StrCat("frozen since step ", CountText(cache.freeze_step()));
  if (cache.has_freeze_time()) absl::StrAppend(&text, ", ", WhenText(cache.freeze_time(), time));
  const int64_t compiled = Sum(cache, FrozenCaptures);
  const int64_t again = Sum(cache, Recaptures);
  if (compiled == 0 && again == 0) return {absl::StrCat(text, "; no step compiled anything since"), Tone::kGood};
  if (compiled == 0) {
    return {absl::StrCat(text, "; no step compiled a new shape since, ", CountText(again), " again after a resume"),
            Tone::kGood};
  }
  return {absl::StrCat(text, "; ", CountText(compiled), " steps compiled something since"), Tone::kWarn};
}

Cell StateCell(const v1::GraphCache& cache, const ViewTime& time) {
  if (cache.frozen()) return FrozenCell(cache, time);
  switch (cache.policy().policy()) {
    case Policy::POLICY_ALWAYS:
      return "open: every new shape is kept";
    case Policy::POLICY_NEVER:
      return "keeps nothing: every step runs eager";
    case Policy::POLICY_CLEAR_PER_STEP:
      return "keeps nothing: each step is captured, replayed and dropped";
    default:
      break;
  }
  if (!cache.armed()) return {"thawed: every new shape is kept, and it does not freeze by itself", Tone::kWarn};
  if (!cache.no_op_reason().empty()) return {absl::StrCat("never freezes: ", cache.no_op_reason()), Tone::kWarn};
  if (IsPlanned(cache)) return "open: freezes before the next step";
  const int64_t freeze_at = cache.freeze_at() > 0 ? cache.freeze_at() : cache.policy().freeze_at();
  if (freeze_at == 0) return "open: where it freezes is known from the first step on";
  return absl::StrCat("freezes after ", Plural(freeze_at, "training shape"), ": ", CountText(KeptTrainingShapes(cache)),
                      " kept so far");
}

std::string MemoryText(const v1::GraphCache& cache) {
  return absl::StrCat(BytesText(cache.total_bytes()), ": ", Plural(Sum(cache, Entries), "executable"), ", ",
                      BytesText(cache.shared_bytes()), " of it shared");
}

Cell BreaksCell(const v1::GraphCache& cache) {
  if (cache.graph_breaks().empty()) return "none";
  const char* then = "each shape of that mode is captured for itself";
  if (Sum(cache, [](const Statistics& s) { return s.rungs(); }) > 0)
    then = "batches of that mode are rounded up to a ladder";
  if (Sum(cache, [](const Statistics& s) { return s.eager_steps(); }) > 0) then = "steps of that mode run eager";
  return {absl::StrCat(cache.graph_breaks_size(), ", see below; ", then), Tone::kWarn};
}

bool HasAudits(const v1::GraphCache& cache) {
  return cache.policy().audit_every() > 0 || Sum(cache, [](const Statistics& s) { return s.audits(); }) > 0;
}

std::string CapacityText(const Statistics& s) {
  return s.capacity() <= 0 ? CountText(s.entries())
                           : absl::StrCat(CountText(s.entries()), " of ", CountText(s.capacity()));
}

// A table with two columns for each mode: one for values, and one for shares.
class ModeTable {
 public:
  explicit ModeTable(const v1::GraphCache& cache) : cache_(cache), columns_{{""}} {
    for (const Statistics& s : cache.statistics()) {
      columns_.push_back({absl::AsciiStrToUpper(ModeName(s.mode())), Align::kRight});
      columns_.push_back({"", Align::kRight});
    }
  }
  void Add(const char* name, const std::function<std::string(const Statistics&)>& value) {
    rows_.push_back({name});
    for (const Statistics& s : cache_.statistics()) {
      rows_.back().emplace_back(value(s));
      rows_.back().emplace_back("");
    }
  }
  // Adds a line that counts steps of each mode and gives their share of all steps.
  void AddSteps(const char* name, int64_t (*count)(const Statistics&)) {
    rows_.push_back({name});
    for (const Statistics& s : cache_.statistics()) {
      rows_.back().emplace_back(CountText(count(s)));
      rows_.back().emplace_back(Steps(s) == 0 ? "" : ShareText(count(s), Steps(s)));
    }
  }
  std::string Render(const RenderStyle& style) const { return RenderTable(columns_, rows_, style); }

 private:
  const v1::GraphCache& cache_;
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

std::string RenderModes(const v1::GraphCache& cache, const RenderStyle& style) {
  ModeTable table(cache);
  table.Add("steps", [](const Statistics& s) { return CountText(Steps(s)); });
  table.AddSteps("  replayed at their shape", [](const Statistics& s) { return s.hits(); });
  table.AddSteps("  replayed padded", [](const Statistics& s) { return s.padded_hits(); });
  table.AddSteps("  compiled and kept", KeptSteps);
  table.AddSteps("  eager", [](const Statistics& s) { return s.eager_steps(); });
  table.AddSteps("  transient", [](const Statistics& s) { return s.transient_steps(); });
  if (Sum(cache, [](const Statistics& s) { return s.oversize_steps(); }) > 0) {
    table.AddSteps("  too large for the arena", [](const Statistics& s) { return s.oversize_steps(); });
  }
  table.Add("rows added by padding", [](const Statistics& s) {
    return ShareText(s.padding_nodes() + s.padding_edges(), s.nodes() + s.edges());
  });
  table.Add("executables", CapacityText);
  table.Add("  memory of their own", [](const Statistics& s) { return BytesText(s.entry_bytes()); });
  table.Add("compilations", [](const Statistics& s) { return CountText(s.captures()); });
  table.Add("  while frozen", [](const Statistics& s) { return CountText(s.frozen_captures()); });
  if (Sum(cache, Recaptures) > 0) {
    table.Add("  again after a resume", [](const Statistics& s) { return CountText(s.recaptures()); });
  }
  table.Add("  time", [](const Statistics& s) { return DurationText(absl::Seconds(s.capture_seconds())); });
  return table.Render(style);
}

}  // namespace

std::string PolicyText(const v1::GraphCachePolicy& policy, int64_t derived_freeze_at) {
  std::string text = EnumShortName(*Policy::Policy_descriptor(), policy.policy());
  if (policy.policy() == Policy::POLICY_NEVER || policy.policy() == Policy::POLICY_CLEAR_PER_STEP) return text;
  const bool counts_shapes = policy.shapes() == Policy::SHAPES_EXACT || policy.shapes() == Policy::SHAPES_UNSPECIFIED;
  if (policy.policy() == Policy::POLICY_FREEZE && !counts_shapes) {
    absl::StrAppend(&text, " before the first step");
  } else if (policy.policy() == Policy::POLICY_FREEZE && policy.freeze_at() > 0) {
    absl::StrAppend(&text, " after ", Plural(policy.freeze_at(), "training shape"));
  } else if (policy.policy() == Policy::POLICY_FREEZE && derived_freeze_at > 0) {
    absl::StrAppend(&text, " after ", Plural(derived_freeze_at, "training shape"), " (derived from the dataset)");
  } else if (policy.policy() == Policy::POLICY_FREEZE) {
    absl::StrAppend(&text, " after a number of training shapes derived from the dataset");
  }
  const std::string on_miss = EnumShortName(*Policy::OnMiss_descriptor(), policy.on_miss());
  absl::StrAppend(&text,
                  policy.policy() == Policy::POLICY_FREEZE ? ", on a miss: " : ", on a miss once frozen: ", on_miss);
  if (policy.shapes() != Policy::SHAPES_AUTO && policy.shapes() != Policy::SHAPES_UNSPECIFIED) {
    absl::StrAppend(&text, ", shapes: ", EnumShortName(*Policy::Shapes_descriptor(), policy.shapes()));
  }
  if (policy.shapes() == Policy::SHAPES_LADDER && policy.rungs() > 0) {
    absl::StrAppend(&text, " of ", Plural(policy.rungs(), "rung"));
  }
  if (policy.strict()) absl::StrAppend(&text, ", strict");
  return text;
}

std::string CacheSizeText(const v1::GraphCache& cache) {
  return absl::StrCat(Plural(Sum(cache, Entries), "executable"), ", ", BytesText(cache.total_bytes()));
}

CacheSnapshot ToSnapshot(const v1::GraphCache& cache) {
  CacheSnapshot snapshot;
  const bool freezes = cache.policy().policy() == Policy::POLICY_FREEZE;
  if (!freezes) {
    snapshot.state = EnumShortName(*Policy::Policy_descriptor(), cache.policy().policy());
  } else if (!cache.armed()) {
    snapshot.state = "thawed";
  } else {
    snapshot.state = cache.no_op_reason().empty() ? "waits for the first step" : "never freezes";
  }
  snapshot.frozen = cache.frozen();
  snapshot.freeze_step = cache.freeze_step();
  snapshot.kept_shapes = KeptTrainingShapes(cache);
  if (freezes && cache.armed()) snapshot.freeze_at = cache.freeze_at();
  snapshot.executables = Sum(cache, Entries);
  snapshot.bytes = cache.total_bytes();
  snapshot.steps = Sum(cache, Steps);
  snapshot.hits = Sum(cache, [](const Statistics& s) { return s.hits(); });
  snapshot.padded_hits = Sum(cache, [](const Statistics& s) { return s.padded_hits(); });
  snapshot.frozen_captures = Sum(cache, FrozenCaptures);
  return snapshot;
}

std::string RenderCache(const v1::GraphCache& cache, const ViewTime& time, const RenderStyle& style) {
  std::vector<Field> fields{{"policy", PolicyText(cache.policy(), cache.freeze_at())},
                            {"state", StateCell(cache, time)}};
  if (cache.policy().strict()) {
    fields.push_back(
        {"strict", "a graph break or a failed audit fails the job, and, once frozen, a capture or an eager step"});
  }
  std::string out = absl::StrCat("graph cache of job ", OneLine(CacheJob(cache.name())), "\n");
  // Before the job's first step there is nothing else to show.
  const bool has_run = Sum(cache, Steps) > 0 || Sum(cache, Entries) > 0;
  if (has_run) {
    fields.push_back({"shapes", ShapesText(cache)});
    fields.push_back({"memory", MemoryText(cache)});
    if (const int64_t cut = Sum(cache, [](const Statistics& s) { return s.cut_executables(); }); cut > 0) {
      fields.push_back({"limit",
                        {absl::StrCat("max_executables ", CountText(cache.policy().max_executables()),
                                      " left no room for ", Plural(cut, "planned executable")),
                         Tone::kWarn}});
    }
    if (cache.planned_rungs() > 1) {
      fields.push_back({"schedule", absl::StrCat("sampled: training batches are rounded up to ",
                                                 CountText(cache.planned_rungs()), " rungs")});
    } else if (cache.planned_train_shapes() > 0) {
      fields.push_back({"schedule", Plural(cache.planned_train_shapes(), "distinct training shape")});
    }
    if (cache.has_train_ceiling())
      fields.push_back({"train ceiling", ShapeText(cache.train_ceiling(), cache.of_seeds())});
    if (cache.has_eval_ceiling()) fields.push_back({"eval ceiling", ShapeText(cache.eval_ceiling(), cache.of_seeds())});
    fields.push_back({"graph breaks", BreaksCell(cache)});
    if (HasAudits(cache)) fields.push_back({"audits", AuditsCell(cache)});
  }
  absl::StrAppend(&out, RenderFields(fields, style));
  if (has_run) absl::StrAppend(&out, "\n", RenderModes(cache, style));
  for (const std::string& part :
       {RenderGraphBreaks(cache, style), RenderAuditFailures(cache, style), RenderCauses(cache, style)}) {
    if (!part.empty()) absl::StrAppend(&out, "\n", part);
  }
  return out;
}

std::string RenderCacheEntries(const std::vector<v1::GraphCacheEntry>& entries, const ViewTime& time,
                               const RenderStyle& style) {
  std::vector<std::vector<Cell>> rows;
  rows.reserve(entries.size());
  for (const v1::GraphCacheEntry& entry : entries) {
    rows.push_back(
        {ModeName(entry.mode()), entry.dynamic() ? "every" : "one", CountText(entry.shape().nodes()),
         CountText(entry.shape().edges()), CountText(entry.shape().graphs()), BytesText(entry.bytes()),
         CountText(entry.hits()), CountText(entry.padded_hits()),
         absl::StrFormat("%.1f ms", entry.capture_seconds() * 1e3),
         entry.replay_seconds() > 0 ? absl::StrFormat("%.2f ms", entry.replay_seconds() * 1e3) : kNothing,
         CountText(entry.created_step()),
         entry.has_last_use_time() ? AgeText(ToTime(entry.last_use_time()), time.now, time.zone) : kNothing});
  }
  return RenderTable({{"MODE"},
                      {"SHAPES"},
                      {"NODES", Align::kRight},
                      {"EDGES", Align::kRight},
                      {"GRAPHS", Align::kRight},
                      {"MEMORY", Align::kRight},
                      {"EXACT", Align::kRight},
                      {"PADDED", Align::kRight},
                      {"COMPILED IN", Align::kRight},
                      {"A REPLAY", Align::kRight},
                      {"AT STEP", Align::kRight},
                      {"LAST USED", Align::kRight}},
                     rows, style);
}

}  // namespace permafrost::client
