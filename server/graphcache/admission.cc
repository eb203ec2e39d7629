#include "graphcache/admission.h"

namespace permafrost::graphcache {
namespace {

Action AdmitFrozenMiss(spec::OnMiss on_miss, const Lookup& lookup) {
  switch (on_miss) {
    case spec::OnMiss::kPad:
      return lookup.larger ? Action::kReplayPadded : Action::kRunEager;
    case spec::OnMiss::kEager:
      return Action::kRunEager;
    case spec::OnMiss::kTransient:
      return lookup.broken ? Action::kRunEager : Action::kCaptureDrop;
    case spec::OnMiss::kReject:
      return Action::kReject;
  }
  return Action::kRunEager;
}

}  // namespace

Action Admit(const spec::PolicyOptions& options, bool frozen, const Lookup& lookup) {
  switch (options.policy) {
    case spec::Policy::kNever:
      return Action::kRunEager;
    case spec::Policy::kClearPerStep:
      return lookup.broken ? Action::kRunEager : Action::kCaptureDrop;
    case spec::Policy::kAlways:
    case spec::Policy::kFreeze:
      if (lookup.exact) return Action::kReplay;
      if (frozen) return AdmitFrozenMiss(options.on_miss, lookup);
      if (lookup.full) return lookup.larger ? Action::kReplayPadded : Action::kRunEager;
      return lookup.broken ? Action::kRunEager : Action::kCaptureKeep;
  }
  return Action::kRunEager;
}

}  // namespace permafrost::graphcache
