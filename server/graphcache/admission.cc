#include "graphcache/admission.h"

namespace permafrost::graphcache {
namespace {

Action AdmitFrozenMiss(OnMiss on_miss, const Lookup& lookup) {
  switch (on_miss) {
    case OnMiss::kPad:
      return lookup.larger ? Action::kReplayPadded : Action::kRunEager;
    case OnMiss::kEager:
      return Action::kRunEager;
    case OnMiss::kTransient:
      return lookup.broken ? Action::kRunEager : Action::kCaptureDrop;
    case OnMiss::kReject:
      return Action::kReject;
  }
  return Action::kRunEager;
}

}  // namespace

Action Admit(const PolicyOptions& options, bool frozen, const Lookup& lookup) {
  switch (options.policy) {
    case Policy::kNever:
      return Action::kRunEager;
    case Policy::kClearPerStep:
      return lookup.broken ? Action::kRunEager : Action::kCaptureDrop;
    case Policy::kAlways:
    case Policy::kFreeze:
      if (lookup.exact) return Action::kReplay;
      if (frozen) return AdmitFrozenMiss(options.on_miss, lookup);
      if (lookup.full) return lookup.larger ? Action::kReplayPadded : Action::kRunEager;
      return lookup.broken ? Action::kRunEager : Action::kCaptureKeep;
  }
  return Action::kRunEager;
}

}  // namespace permafrost::graphcache
