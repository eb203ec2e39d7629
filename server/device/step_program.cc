#include "device/step_program.h"

#include "device/cpu/tape.h"

namespace permafrost::device {
namespace {

thread_local bool silent = false;

}  // namespace

void MarkPhase(int phase, const std::function<void(int)>& on_phase) {
  if (!Tape::NoteMark(phase) && !silent && on_phase) on_phase(phase);
}

SilentPhases::SilentPhases() : outer_(silent) { silent = true; }

SilentPhases::~SilentPhases() { silent = outer_; }

}  // namespace permafrost::device
