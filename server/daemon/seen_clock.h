// SeenClock decides how far the wall clock can be believed. A clock that someone set wrong, or that is dead, must not
// make finished jobs look old enough to be deleted. So SeenClock follows the time that the machine itself counts since
// its boot, which nobody sets. It does so across restarts of the daemon too (FILE). Where the two differ by more than
// kMostDrift, the clock has jumped. Then nothing is deleted for its age until an operator confirms that the clock is
// right. A daemon that starts after a boot of the machine does not know how much time passed. It believes up to
// kMostDrift; more is a jump.
// Threads: all methods are safe anywhere; a thread of its own looks once a second and saves once a minute.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/monotonic.h"

namespace permafrost {

struct ClockReading {
  absl::Time wall;
  // Since the machine's boot, sleep included, whatever the wall clock is set to.
  absl::Duration uptime;
  // Names the boot and the machine; empty: the system does not say.
  std::string boot;
};
ClockReading ReadClocks();

// The state that SeenClock keeps on disk, and all that it decides by.
struct SeenTime {
  ClockReading last;
  // The wall clock would show this time if nobody had set it since it was last believed.
  absl::Time expected;

  // The time that passed until `now`, as far as that is known.
  void Advance(const ClockReading& now);
  // Returns how far the wall clock is ahead of what was seen; negative: behind.
  absl::Duration drift() const { return last.wall - expected; }
};

class SeenClock {
 public:
  // If the clocks differ by more, in either direction, the clock has jumped.
  static constexpr absl::Duration kMostDrift = absl::Hours(24);

  struct Jump {
    absl::Duration by;   // ahead of what was seen; negative: behind
    absl::Time noticed;  // by the wall clock
  };
  struct Options {
    std::filesystem::path file;
    std::function<ClockReading()> read = ReadClocks;
    absl::Duration look_every = absl::Seconds(1);
    absl::Duration save_every = absl::Minutes(1);
    std::function<void(std::string_view)> warn = [](std::string_view) {};
  };

  // Goes on from what the file says. If the file is missing or unreadable, the clock is believed as it is; an
  // unreadable file is reported to `warn`. Errors: those of reading it, where the machine is to blame.
  static absl::StatusOr<std::unique_ptr<SeenClock>> Open(Options options);
  ~SeenClock();
  SeenClock(const SeenClock&) = delete;

  // For ages: the wall clock, but no later than what was seen to pass allows.
  absl::Time Now();
  // Returns the later of the two, for anything that must not last longer than it should.
  absl::Time Latest();
  // The jump that nobody has confirmed, if there is one. A clock that is set back to where it was has not jumped.
  std::optional<Jump> jump();
  // The wall clock is right, and all that it says has passed: it is believed from now on. Returns what it had jumped
  // by; zero where nothing was to confirm. On disk when Ok.
  absl::StatusOr<absl::Duration> Confirm();

 private:
  explicit SeenClock(Options options);
  void Look() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Save(const SeenTime& seen) const;
  void Run();

  const Options options_;
  mutable absl::Mutex mu_;
  SeenTime seen_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Time> noticed_ ABSL_GUARDED_BY(mu_);  // of a jump
  absl::Mutex save_mu_;                                     // one write at a time; before mu_
  Event stopping_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace permafrost
