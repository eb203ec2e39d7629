#include "device/step_program.h"

#include "device/cpu/tape.h"

namespace permafrost::device {

void MarkPhase(int phase, const std::function<void(int)>& on_phase) {
  if (!Tape::NoteMark(phase) && on_phase) on_phase(phase);
}

}  // namespace permafrost::device
