// The state of a job's graph cache, as clients see it and as a checkpoint keeps it.
// Threads: values.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/step.h"
#include "graphcache/findings.h"
#include "graphcache/shape_plan.h"
#include "spec/field.h"
#include "spec/policy.h"

namespace permafrost::graphcache {

// The counters of one mode. They begin at the job's first step and survive resumes. Each step of the mode is exactly
// one of: a hit, a padded hit, an eager step, a transient capture, or a capture whose executable was kept.
struct ModeStats {
  int64_t entries = 0;
  int64_t entry_bytes = 0;
  // The most executables that the policy may keep; -1 if there is no maximum.
  int64_t capacity = 0;
  int64_t hits = 0;         // steps replayed at their own shape
  int64_t padded_hits = 0;  // steps replayed at a larger shape
  int64_t misses = 0;       // steps that were neither hits nor padded hits
  int64_t captures = 0;     // executables made, including those of ceilings and rungs
  // The part of `captures` that repeats earlier captures, after a resume or after the device's caches were emptied.
  int64_t recaptures = 0;
  // The part of `captures` that a frozen cache made for shapes that it did not hold (on_miss transient).
  int64_t frozen_captures = 0;
  // Steps whose shape would have been captured and kept if the cache had been neither frozen nor full
  // (max_executables).
  int64_t rejected_inserts = 0;
  bool broken = false;  // a capture found a graph break; no capture is tried again until a clear or a new policy
  // Captures that failed because the step cannot be captured, at its shape or for every shape.
  int64_t graph_breaks = 0;
  bool dynamic = false;         // one executable serves every shape
  int64_t rungs = 0;            // rungs of the ladder that batches are rounded up to; 0 if there is no ladder
  int64_t cut_executables = 0;  // planned executables for which max_executables left no room
  int64_t oversize_steps = 0;   // the part of `hits` whose batch exceeds the dynamic executable's storage
  int64_t eager_steps = 0;
  int64_t transient_steps = 0;
  int64_t audits = 0;                              // replays that were compared with an eager step from the same state
  int64_t audit_failures = 0;                      // the part of `audits` that found a difference
  CauseCounts captures_by_cause, misses_by_cause;  // each capture and each miss is counted under one cause
  double capture_seconds = 0;
  // Entries that must be captured again: a resume took them over, or the device forgot their compiled form.
  // entry_bytes counts the sizes that they had before.
  int64_t awaiting_recapture = 0;
  // Rows of the batches of all steps of the mode, without padding.
  int64_t graphs = 0, nodes = 0, edges = 0;
  // Rows that padding added to these batches.
  int64_t padding_graphs = 0, padding_nodes = 0, padding_edges = 0;
  bool operator==(const ModeStats&) const = default;
};

template <class F>
void VisitFields(spec::Options<ModeStats>, F&& f) {
  using M = ModeStats;
  f({.name = "entries"}, &M::entries);
  f({.name = "entry_bytes"}, &M::entry_bytes);
  f({.name = "capacity"}, &M::capacity);
  f({.name = "hits", .counter = {"permafrost_graph_cache_hits_total", "Steps replayed at their own shape."}}, &M::hits);
  f({.name = "padded_hits",
     .counter = {"permafrost_graph_cache_padded_hits_total", "Steps replayed in a larger shape."}},
    &M::padded_hits);
  f({.name = "misses",
     .counter = {"permafrost_graph_cache_misses_total", "Steps that no executable made before them could run."}},
    &M::misses);
  f({.name = "captures", .counter = {"permafrost_graph_cache_captures_total", "Executables made."}}, &M::captures);
  f({.name = "recaptures"}, &M::recaptures);
  f({.name = "frozen_captures"}, &M::frozen_captures);
  f({.name = "rejected_inserts",
     .counter = {"permafrost_graph_cache_rejected_inserts_total",
                 "Steps whose shape would have been kept had the graph cache not been frozen."}},
    &M::rejected_inserts);
  f({.name = "broken", .only_stored = true}, &M::broken);
  f({.name = "graph_breaks",
     .counter = {"permafrost_graph_cache_graph_breaks_total",
                 "Captures that found the step not capturable, or not for every shape."}},
    &M::graph_breaks);
  f({.name = "dynamic"}, &M::dynamic);
  f({.name = "rungs"}, &M::rungs);
  f({.name = "cut_executables"}, &M::cut_executables);
  f({.name = "oversize_steps",
     .counter = {"permafrost_graph_cache_oversize_steps_total",
                 "Of hits, steps of batches larger than what a dynamic executable has room for."}},
    &M::oversize_steps);
  f({.name = "eager_steps", .counter = {"permafrost_graph_cache_eager_steps_total", "Steps that ran uncaptured."}},
    &M::eager_steps);
  f({.name = "transient_steps",
     .counter = {"permafrost_graph_cache_transient_steps_total", "Steps whose executable was dropped at their end."}},
    &M::transient_steps);
  f({.name = "audits",
     .counter = {"permafrost_graph_cache_audits_total",
                 "Replays that were run again eagerly from the same state, and compared bit for bit.", "result",
                 "equal"}},
    &M::audits);
  f({.name = "audit_failures",
     .counter = {"permafrost_graph_cache_audits_total",
                 "Replays that were run again eagerly from the same state, and compared bit for bit.", "result",
                 "different"}},
    &M::audit_failures);
  f({.name = "captures_by_cause", .only_stored = true}, &M::captures_by_cause);
  f({.name = "misses_by_cause", .only_stored = true}, &M::misses_by_cause);
  f({.name = "capture_seconds", .counter = {"permafrost_graph_cache_capture_seconds_total", "Time spent on captures."}},
    &M::capture_seconds);
  f({.name = "awaiting_recapture"}, &M::awaiting_recapture);
  f({.name = "graphs"}, &M::graphs);
  f({.name = "nodes",
     .counter = {"permafrost_graph_cache_rows_total", "Rows of the batches of steps, padding apart.", "kind", "nodes"}},
    &M::nodes);
  f({.name = "edges",
     .counter = {"permafrost_graph_cache_rows_total", "Rows of the batches of steps, padding apart.", "kind", "edges"}},
    &M::edges);
  f({.name = "padding_graphs"}, &M::padding_graphs);
  f({.name = "padding_nodes",
     .counter = {"permafrost_graph_cache_padding_rows_total", "Rows that padding added to steps.", "kind", "nodes"}},
    &M::padding_nodes);
  f({.name = "padding_edges",
     .counter = {"permafrost_graph_cache_padding_rows_total", "Rows that padding added to steps.", "kind", "edges"}},
    &M::padding_edges);
}

struct GraphBreak {
  Mode mode = Mode::kTrain;
  std::string op;   // schema name; empty if no single operator is to blame
  std::string why;  // one line
  int64_t count = 0;
  bool operator==(const GraphBreak&) const = default;
};

struct Snapshot {
  spec::PolicyOptions options;
  FreezePoint freeze_point;
  bool frozen = false;
  // True if the cache will freeze at its freeze point. A thaw sets this to false.
  bool armed = true;
  int64_t freeze_step = 0;                        // optimizer steps done when the cache last froze
  absl::Time freeze_time = absl::InfinitePast();  // InfinitePast if it never froze
  std::array<ModeStats, 2> modes;                 // indexed by Mode
  int64_t shared_bytes = 0;                       // size of the arena that all executables of the job share
  BatchShape train_ceiling, eval_ceiling;         // padded
  int64_t planned_train_shapes = 0;  // distinct shapes of the whole schedule; 0 if it was not walked to its end
  // The number of planned shapes to which training batches are rounded up before they reach the cache; 0 if there are
  // none.
  int64_t planned_rungs = 0;
  bool of_seeds = false;                     // true if BatchShape::graphs counts a batch's seed nodes, not graphs
  std::vector<GraphBreak> graph_breaks;      // at most kMaxGraphBreaks distinct ones
  std::vector<AuditFailure> audit_failures;  // at most kMaxAuditFailures distinct ones
  int64_t eval_audit_step = 0;               // optimizer steps done before the newest audited evaluation step
  StepProfiles profiles;
  int64_t command_sequence = 0;  // sequence number of the newest command that took effect; 0 if none did
  int64_t command_step = 0;      // optimizer steps done before that command took effect

  const ModeStats& of(Mode mode) const { return modes[static_cast<size_t>(mode)]; }
  ModeStats& of(Mode mode) { return modes[static_cast<size_t>(mode)]; }
  bool operator==(const Snapshot&) const = default;
};
inline constexpr size_t kMaxGraphBreaks = 16;
inline constexpr size_t kMaxAuditFailures = 16;

struct EntryInfo {
  Mode mode = Mode::kTrain;
  BatchShape shape;  // the padded shape; for a dynamic executable, the largest shape for which it has storage
  int64_t bytes = 0;
  int64_t hits = 0, padded_hits = 0;
  int64_t replays = 0;  // replays without an audit
  // The total time of these replays; on an asynchronous device, the time to enqueue them. Divided by `replays`, it is
  // the cost of a step of this shape.
  double replay_seconds = 0;
  double capture_seconds = 0;
  int64_t created_step = 0;                    // optimizer steps done when the executable was first captured
  absl::Time last_use = absl::InfinitePast();  // InfinitePast if it was not used yet
  bool dynamic = false;                        // serves every shape
  bool withdrawn = false;                      // withdrawn by an audit: its steps run eager, at the shape that they had
  bool operator==(const EntryInfo&) const = default;
};

// Converts to and from JSON, for the job store and for checkpoints. Errors: DataLoss.
std::string ToJson(const Snapshot& snapshot);
std::string ToJson(const std::vector<EntryInfo>& entries);
absl::StatusOr<Snapshot> SnapshotFromJson(const std::string& text);
absl::StatusOr<std::vector<EntryInfo>> EntriesFromJson(const std::string& text);

}  // namespace permafrost::graphcache
