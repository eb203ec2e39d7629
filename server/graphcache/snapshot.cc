#include "graphcache/snapshot.h"

#include <type_traits>
#include <utility>

#include "base/json_fields.h"
#include "spec/field.h"

namespace permafrost::graphcache {
namespace {

struct SnapshotSchema {
  template <class A, class T>
  requires spec::HasFields<std::remove_const_t<T>>
  static void Fields(A& a, T& value) { spec::StoredFields(a, value); }

  template <class A>
  static void Fields(A& a, typename A::template Visited<FreezePoint>& p) {
    a("freeze_at", p.freeze_at);
    a("effective_size", p.effective_size);
    a("source", p.source, kFreezeSourceNames);
    a("no_op_reason", p.no_formula_reason);
  }

  template <class A>
  static void Fields(A& a, typename A::template Visited<BatchShape>& s) {
    a("nodes", s.nodes);
    a("edges", s.edges);
    a("graphs", s.graphs);
  }

  template <class A>
  static void Fields(A& a, typename A::template Visited<GraphBreak>& b) {
    a("mode", b.mode, kModeNames);
    a("op", b.op);
    a("why", b.why);
    a("count", b.count);
  }

  template <class A>
  static void Fields(A& a, typename A::template Visited<CauseCounts>& c) {
    for (const auto& [cause, name] : kCauseNames.rows) a(name.data(), c.counts[static_cast<size_t>(cause)]);
  }

  template <class A>
  static void Fields(A& a, typename A::template Visited<AuditFailure>& f) {
    a("mode", f.mode, kModeNames);
    a("shape", f.shape);
    a("step", f.step);
    a("op", f.op);
    a("why", f.why);
    a("count", f.count);
  }

  template <class A>
  static void Fields(A& a, typename A::template Visited<OperatorTime>& o) {
    a("op", o.op);
    a("calls", o.calls);
    a("seconds", o.seconds);
  }

  template <class A>
  static void Fields(A& a, typename A::template Visited<LineTime>& l) {
    a("line", l.line);
    a("forward_seconds", l.forward_seconds);
    a("backward_seconds", l.backward_seconds);
  }

  template <class A>
  static void Fields(A& a, typename A::template Visited<StepProfile>& p) {
    a("mode", p.mode, kModeNames);
    a("shape", p.shape);
    a("step", p.step);
    a("replay_seconds", p.replay_seconds);
    a("eager_seconds", p.eager_seconds);
    a("product_seconds", p.product_seconds);
    a("operators", p.operators);
    a("lines", p.lines);
  }

  static void Fields(JsonWriter<SnapshotSchema>& a, const StepProfiles& p) { a("list", p.list()); }
  static void Fields(JsonReader<SnapshotSchema>& a, StepProfiles& p) {
    std::vector<StepProfile> list;
    a("list", list);
    p.Assign(std::move(list));
  }

  template <class A>
  static void Fields(A& a, typename A::template Visited<Snapshot>& s) {
    a("options", s.options);
    a("freeze_point", s.freeze_point);
    a("frozen", s.frozen);
    a("armed", s.armed);
    a("freeze_step", s.freeze_step);
    a("freeze_time", s.freeze_time);
    a("train", s.of(Mode::kTrain));
    a("eval", s.of(Mode::kEval));
    a("shared_bytes", s.shared_bytes);
    a("train_ceiling", s.train_ceiling);
    a("eval_ceiling", s.eval_ceiling);
    a("planned_train_shapes", s.planned_train_shapes);
    a("planned_rungs", s.planned_rungs);
    a("of_seeds", s.of_seeds);
    a("graph_breaks", s.graph_breaks);
    a("audit_failures", s.audit_failures);
    a("eval_audit_step", s.eval_audit_step);
    a("profiles", s.profiles);
    a("command_sequence", s.command_sequence);
    a("command_step", s.command_step);
  }

  template <class A>
  static void Fields(A& a, typename A::template Visited<EntryInfo>& e) {
    a("mode", e.mode, kModeNames);
    a("shape", e.shape);
    a("dynamic", e.dynamic);
    a("withdrawn", e.withdrawn);
    a("bytes", e.bytes);
    a("hits", e.hits);
    a("padded_hits", e.padded_hits);
    a("replays", e.replays);
    a("replay_seconds", e.replay_seconds);
    a("capture_seconds", e.capture_seconds);
    a("created_step", e.created_step);
    a("last_use", e.last_use);
  }
};

}  // namespace

std::string ToJson(const Snapshot& snapshot) { return WriteJson<SnapshotSchema>(snapshot); }
std::string ToJson(const std::vector<EntryInfo>& entries) { return WriteJsonList<SnapshotSchema>(entries); }

absl::StatusOr<Snapshot> SnapshotFromJson(const std::string& text) {
  return ReadJson<SnapshotSchema, Snapshot>("graph cache", text);
}
absl::StatusOr<std::vector<EntryInfo>> EntriesFromJson(const std::string& text) {
  return ReadJsonList<SnapshotSchema, EntryInfo>("graph cache entries", text);
}

}  // namespace permafrost::graphcache
