// The policy of a job's graph cache: when the cache keeps executables, and what a step without an executable does.
// Source of the policies and of their names: pyg-team/pytorch_geometric#10689. Threads: plain values and pure
// functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/enum_names.h"
#include "base/status.h"
#include "base/step.h"
#include "spec/field.h"

namespace permafrost::spec {

enum class Policy {
  kAlways,        // captures and keeps an executable for each new shape
  kNever,         // runs every step eager and keeps nothing
  kClearPerStep,  // captures, replays and drops an executable in each step
  kFreeze,        // acts as kAlways until it keeps freeze_at training shapes, then freezes
};
inline constexpr EnumNames<Policy, 4> kPolicyNames{{{{Policy::kAlways, "always"},
                                                     {Policy::kNever, "never"},
                                                     {Policy::kClearPerStep, "clear-per-step"},
                                                     {Policy::kFreeze, "freeze"}}}};

// The reaction of a frozen cache to a shape that it does not hold.
enum class OnMiss {
  kPad,        // pads the batch to the held shape with the fewest rows that fits; if none fits, runs the step eager
  kEager,      // runs the step uncaptured
  kTransient,  // captures, replays and drops an executable, as #10689 does
  kReject,     // fails the job instead of running the step; for tests and audits
};
inline constexpr EnumNames<OnMiss, 4> kOnMissNames{{{{OnMiss::kPad, "pad"},
                                                     {OnMiss::kEager, "eager"},
                                                     {OnMiss::kTransient, "transient"},
                                                     {OnMiss::kReject, "reject"}}}};

// The shapes that one executable serves.
enum class Shapes {
  kAuto,  // kDynamic under Policy::kFreeze, else kExact
  // One executable for all shapes of a mode. Becomes kLadder if the step, the job or the device does not support it.
  kDynamic,
  kExact,   // one executable for each shape
  kLadder,  // one executable for each of a few planned shapes, to which batches are padded
};
inline constexpr EnumNames<Shapes, 4> kShapesNames{
    {{{Shapes::kAuto, "auto"}, {Shapes::kDynamic, "dynamic"}, {Shapes::kExact, "exact"}, {Shapes::kLadder, "ladder"}}}};

inline constexpr int64_t kMaxFreezeAt = 100'000;
inline constexpr int64_t kDefaultRungs = 8, kMaxRungs = 64;
inline constexpr int64_t kMaxAuditEvery = 1'000'000'000;
inline constexpr int64_t kMaxExecutables = 1'000'000;

struct PolicyOptions {  // NOLINT(clang-analyzer-optin.performance.Padding): in the order of its meaning
  Policy policy = Policy::kFreeze;
  // The number of distinct training shapes at which the cache freezes, 1..kMaxFreezeAt. 0: derived from the dataset
  // (graphcache/shape_plan.h). A larger number means fewer padded steps and more memory.
  int64_t freeze_at = 0;
  OnMiss on_miss = OnMiss::kPad;
  Shapes shapes = Shapes::kAuto;
  // The most shapes in a ladder, 1..kMaxRungs. 0: kDefaultRungs. A larger number means less padding, a longer warm-up
  // and more memory.
  int64_t rungs = 0;
  // The number of training steps from one audited replay to the next (graphcache/findings.h), 0..kMaxAuditEvery. 0:
  // no audits. A smaller number finds a difference earlier, but an audited step takes two to three times as long.
  int64_t audit_every = 1'000;
  // True: the job fails at a graph break or a failed audit. Once the cache is frozen, the job also fails at an eager
  // step and at a capture, unless a resume or a command caused the capture.
  bool strict = false;
  // The most executables that the cache holds for both modes together, 1..kMaxExecutables. 0: no limit. The plan of
  // shapes is cut to this number (shape_plan.h). A step whose shape is not held is padded to a held shape or runs
  // eager.
  int64_t max_executables = 4'096;
  bool operator==(const PolicyOptions&) const = default;
};

// A change of a policy. Absent fields keep their values.
struct PolicyUpdate {
  std::optional<Policy> policy;
  std::optional<int64_t> freeze_at;
  std::optional<OnMiss> on_miss;
  std::optional<Shapes> shapes;
  std::optional<int64_t> rungs;
  std::optional<int64_t> audit_every;
  std::optional<bool> strict;
  std::optional<int64_t> max_executables;
  bool operator==(const PolicyUpdate&) const = default;
};

// Each row serves both structs. `f` is called as f(row, member of PolicyOptions, member of PolicyUpdate, names...).
template <class F>
void VisitPolicy(F&& f) {
  using P = PolicyOptions;
  using U = PolicyUpdate;
  f({.name = "policy", .flag = "--policy", .help = "When the graph cache keeps an executable ({})"}, &P::policy,
    &U::policy, kPolicyNames);
  f({.name = "freeze_at",
     .accepts = UpToOr0(kMaxFreezeAt, "to derive it"),
     .flag = "--freeze-at",
     .help = "With exact shapes: training shapes kept before policy freeze freezes ({})",
     .value = "N|derived"},
    &P::freeze_at, &U::freeze_at);
  f({.name = "on_miss",
     .flag = "--on-miss",
     .help = "What a frozen cache does with a shape that it does not hold ({})"},
    &P::on_miss, &U::on_miss, kOnMissNames);
  f({.name = "shapes",
     .flag = "--shapes",
     .help = "One executable for every shape, for each of a few planned ones, or for each that comes; auto: dynamic or "
             "else ladder under policy freeze ({})"},
    &P::shapes, &U::shapes, kShapesNames);
  f({.name = "rungs",
     .accepts = UpToOr0(kMaxRungs, "for 8"),
     .flag = "--rungs",
     .help = "Most shapes of a ladder, 1..64; of sampled blocks at most as many as there are planned rungs ({})"},
    &P::rungs, &U::rungs);
  f({.name = "audit_every",
     .accepts = UpToOr0(kMaxAuditEvery, "for no audits"),
     .flag = "--audit-every",
     .help = "Training steps from one audited replay to the next; 0: none ({})"},
    &P::audit_every, &U::audit_every);
  f({.name = "strict",
     .flag = "--strict,!--no-strict",
     .help = "Fail the job at a graph break, a failed audit, or, once the cache is frozen, a capture or an eager step "
             "({})"},
    &P::strict, &U::strict);
  f({.name = "max_executables",
     .accepts = UpToOr0(kMaxExecutables, "for no limit"),
     .flag = "--max-executables",
     .help =
         "Executables of training and evaluation that the cache holds at most: ladders are cut to it, batches padded "
         "into what is held, or run eager; 0: no limit ({})"},
    &P::max_executables, &U::max_executables);
}

template <class F>
void VisitFields(Options<PolicyOptions>, F&& f) {
  VisitPolicy(
      [&](const Field& field, auto option, auto /*update*/, const auto&... names) { f(field, option, names...); });
}
template <class F>
void VisitFields(Options<PolicyUpdate>, F&& f) {
  VisitPolicy(
      [&](const Field& field, auto /*option*/, auto update, const auto&... names) { f(field, update, names...); });
}

// Returns `options` with the update applied.
inline PolicyOptions Updated(PolicyOptions options, const PolicyUpdate& update) {
  VisitPolicy([&](const Field& /*field*/, auto option, auto change, const auto&... /*names*/) {
    if (update.*change) options.*option = *(update.*change);
  });
  return options;
}

// Returns `options` changed for batches that must not be padded: without a ladder, and a miss runs eager.
inline PolicyOptions WithoutPadding(PolicyOptions options) {
  if (options.on_miss == OnMiss::kPad) options.on_miss = OnMiss::kEager;
  if (options.shapes == Shapes::kLadder) options.shapes = Shapes::kExact;
  return options;
}

inline bool KeepsNothing(Policy policy) { return policy == Policy::kNever || policy == Policy::kClearPerStep; }

// Returns whether a cache under `options` should serve every shape of a mode with one executable. False for a policy
// that keeps no executables.
inline bool WantsDynamic(const PolicyOptions& options) {
  if (KeepsNothing(options.policy)) return false;
  return options.shapes == Shapes::kDynamic || (options.shapes == Shapes::kAuto && options.policy == Policy::kFreeze);
}

// Returns whether a cache under `options` should pad batches to a ladder in a mode without a dynamic executable.
inline bool WantsLadder(const PolicyOptions& options) {
  return WantsDynamic(options) || (options.shapes == Shapes::kLadder && !KeepsNothing(options.policy));
}

inline int64_t RungsOf(const PolicyOptions& options) { return options.rungs > 0 ? options.rungs : kDefaultRungs; }

// Adds a violation for each value out of range. Fields are named as on the wire, after `prefix`
// ("spec.graph_cache.").
void Validate(const PolicyOptions& options, std::string_view prefix, Violations& violations);
// Checks a rule that rows cannot express: `strict` needs a policy that keeps executables.
void CheckStrict(const PolicyOptions& options, std::string_view prefix, Violations& violations);

}  // namespace permafrost::spec
