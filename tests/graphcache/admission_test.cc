#include "graphcache/graph_cache.h"

#include <gtest/gtest.h>

namespace permafrost::graphcache {

std::ostream& operator<<(std::ostream& out, Action action) { return out << static_cast<int>(action); }

namespace {

constexpr bool kFrozen = true, kOpen = false;
constexpr Lookup kNothing{}, kExact{.exact = true}, kLarger{.larger = true}, kBroken{.broken = true};
constexpr Lookup kFull{.full = true}, kFullLarger{.larger = true, .full = true},
    kFullExact{.exact = true, .full = true};
constexpr Lookup kBrokenLarger{.larger = true, .broken = true}, kBrokenExact{.exact = true, .broken = true};

constexpr spec::PolicyOptions Always(spec::OnMiss on_miss) {
  return {.policy = spec::Policy::kAlways, .on_miss = on_miss};
}
constexpr spec::PolicyOptions Freeze(spec::OnMiss on_miss) {
  return {.policy = spec::Policy::kFreeze, .on_miss = on_miss};
}
constexpr spec::PolicyOptions kNever{.policy = spec::Policy::kNever},
    kClearPerStep{.policy = spec::Policy::kClearPerStep};

TEST(AdmissionTest, EachPolicyAtItsLetter) {
  const struct {
    const char* why;
    spec::PolicyOptions options;
    bool frozen;
    Lookup lookup;
    Action want;
  } kCases[] = {
      {"never runs eager", kNever, kOpen, kNothing, Action::kRunEager},
      {"never serves nothing, even what is held", kNever, kOpen, kExact, Action::kRunEager},
      {"never captures nothing, broken or not", kNever, kOpen, kBroken, Action::kRunEager},
      {"never does not freeze", kNever, kFrozen, kLarger, Action::kRunEager},
      {"clear-per-step captures and drops", kClearPerStep, kOpen, kNothing, Action::kCaptureDrop},
      {"clear-per-step serves nothing", kClearPerStep, kOpen, kExact, Action::kCaptureDrop},
      {"clear-per-step cannot capture a broken step", kClearPerStep, kOpen, kBroken, Action::kRunEager},
      {"clear-per-step does not freeze", kClearPerStep, kFrozen, kLarger, Action::kCaptureDrop},

      {"open, exact hit", Always(spec::OnMiss::kPad), kOpen, kExact, Action::kReplay},
      {"open, miss: a larger one is no reason not to capture", Always(spec::OnMiss::kPad), kOpen, kLarger,
       Action::kCaptureKeep},
      {"open, miss of a broken step", Always(spec::OnMiss::kPad), kOpen, kBroken, Action::kRunEager},
      {"open, on_miss is of frozen caches", Always(spec::OnMiss::kReject), kOpen, kNothing, Action::kCaptureKeep},
      {"open, exact hit of a mode that broke later", Always(spec::OnMiss::kPad), kOpen, kBrokenExact, Action::kReplay},
      {"freeze before its point is as always: hit", Freeze(spec::OnMiss::kPad), kOpen, kExact, Action::kReplay},
      {"freeze before its point is as always: miss", Freeze(spec::OnMiss::kPad), kOpen, kLarger, Action::kCaptureKeep},
      {"freeze before its point, broken", Freeze(spec::OnMiss::kPad), kOpen, kBroken, Action::kRunEager},

      {"full, exact hit", Always(spec::OnMiss::kReject), kOpen, kFullExact, Action::kReplay},
      {"full, pads whatever on_miss says", Always(spec::OnMiss::kReject), kOpen, kFullLarger, Action::kReplayPadded},
      {"full, nothing holds it", Always(spec::OnMiss::kPad), kOpen, kFull, Action::kRunEager},
      {"full and frozen, as on_miss says", Freeze(spec::OnMiss::kEager), kFrozen, kFullLarger, Action::kRunEager},
      {"clear-per-step is never full", kClearPerStep, kOpen, kFull, Action::kCaptureDrop},

      {"frozen, exact hit, pad", Freeze(spec::OnMiss::kPad), kFrozen, kExact, Action::kReplay},
      {"frozen, exact hit, eager", Freeze(spec::OnMiss::kEager), kFrozen, kExact, Action::kReplay},
      {"frozen, exact hit, transient", Freeze(spec::OnMiss::kTransient), kFrozen, kExact, Action::kReplay},
      {"frozen, exact hit, reject", Freeze(spec::OnMiss::kReject), kFrozen, kExact, Action::kReplay},
      {"frozen, pads into a larger one", Freeze(spec::OnMiss::kPad), kFrozen, kLarger, Action::kReplayPadded},
      {"frozen, pad, nothing holds it", Freeze(spec::OnMiss::kPad), kFrozen, kNothing, Action::kRunEager},
      {"frozen, pads into a larger one made before the break", Freeze(spec::OnMiss::kPad), kFrozen, kBrokenLarger,
       Action::kReplayPadded},
      {"frozen, eager although it would fit", Freeze(spec::OnMiss::kEager), kFrozen, kLarger, Action::kRunEager},
      {"frozen, transient although it would fit", Freeze(spec::OnMiss::kTransient), kFrozen, kLarger,
       Action::kCaptureDrop},
      {"frozen, transient, broken", Freeze(spec::OnMiss::kTransient), kFrozen, kBroken, Action::kRunEager},
      {"frozen, reject although it would fit", Freeze(spec::OnMiss::kReject), kFrozen, kLarger, Action::kReject},
      {"frozen, reject stays for a broken step", Freeze(spec::OnMiss::kReject), kFrozen, kBroken, Action::kReject},
      {"always, frozen by command: hit", Always(spec::OnMiss::kPad), kFrozen, kExact, Action::kReplay},
      {"always, frozen by command: pad", Always(spec::OnMiss::kPad), kFrozen, kLarger, Action::kReplayPadded},
      {"always, frozen by command: eager", Always(spec::OnMiss::kEager), kFrozen, kLarger, Action::kRunEager},
      {"always, frozen by command: transient", Always(spec::OnMiss::kTransient), kFrozen, kNothing,
       Action::kCaptureDrop},
      {"always, frozen by command: reject", Always(spec::OnMiss::kReject), kFrozen, kNothing, Action::kReject},
  };
  for (const auto& c : kCases) EXPECT_EQ(Admit(c.options, c.frozen, c.lookup), c.want) << c.why;
}

TEST(AdmissionTest, AFrozenCacheNeverInserts) {
  for (const auto& [policy, policy_name] : spec::kPolicyNames.rows) {
    for (const auto& [on_miss, name] : spec::kOnMissNames.rows) {
      for (int bits = 0; bits < 8; ++bits) {
        const Lookup lookup{.exact = (bits & 1) != 0, .larger = (bits & 2) != 0, .broken = (bits & 4) != 0};
        EXPECT_NE(Admit({.policy = policy, .on_miss = on_miss}, kFrozen, lookup), Action::kCaptureKeep)
            << policy_name << " " << name << " " << bits;
      }
    }
  }
}

}  // namespace
}  // namespace permafrost::graphcache
