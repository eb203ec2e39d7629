#include "daemon/watchdog.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "telemetry/log.h"

namespace permafrost {
namespace {

std::string ActivityText(const jobs::DeviceActivity& activity) {
  std::string phase = std::string(jobs::kDevicePhaseNames.Name(activity.phase));
  if (activity.job.empty()) return phase;
  return absl::StrCat("job ", activity.job.value(), ", ", phase, ", after step ", activity.step);
}

}  // namespace

void StallDetector::Look(const jobs::DeviceActivity& activity, absl::Duration now) {
  if (activity.phase == jobs::DevicePhase::kIdle) {
    since_.reset();
    moves_ = activity.moves;
    return;
  }
  if (!since_ || activity.moves != moves_) moved_ = now;
  moves_ = activity.moves;
  since_ = now - moved_;
}

Watchdog::Watchdog(Options options, telemetry::WatchdogMetrics& metrics)
    : options_(std::move(options)), metrics_(metrics), thread_([this] { Run(); }) {}

Watchdog::~Watchdog() {
  stopping_.Set();
  thread_.join();
}

void Watchdog::Run() {
  StallDetector detector(options_.limit);
  const Stopwatch clock;
  do {
    const jobs::DeviceActivity activity = options_.read();
    detector.Look(activity, clock.Elapsed());
    const bool healthy = !detector.stalled();
    metrics_.Set(!healthy, detector.since_progress());
    if (healthy == healthy_.load(std::memory_order_acquire)) continue;
    healthy_.store(healthy, std::memory_order_release);
    // Calls on_change before it logs, because writing to standard error may hang.
    options_.on_change(healthy);
    if (healthy) {
      telemetry::Log(telemetry::Severity::kInfo, absl::StrCat("the device thread gets on: ", ActivityText(activity)));
    } else {
      telemetry::Log(telemetry::Severity::kError,
                     absl::StrCat("the device thread has made no progress for ",
                                  absl::FormatDuration(absl::Floor(*detector.since_progress(), absl::Seconds(1))), ": ",
                                  ActivityText(activity), "; health is NOT_SERVING until it gets on"));
    }
  } while (!stopping_.WaitFor(options_.interval));
}

}  // namespace permafrost
