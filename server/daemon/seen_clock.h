// SeenClock decides how far to trust the wall clock. A clock that was set wrong, or that is dead, must not make
// finished jobs look old enough to be deleted. SeenClock therefore compares the wall clock with the machine's time
// since boot, which nobody can set. SeenClock keeps its state in a file across restarts of the daemon. If the two
// clocks differ by more than kMostDrift, the wall clock has jumped. Nothing is then deleted because of its age until
// an operator confirms that the clock is right. After a reboot of the machine, the elapsed time is unknown. A
// difference of up to kMostDrift is then trusted, and a larger one is a jump.
// Threads: all methods are thread-safe. A thread of SeenClock reads the clocks once a second and saves once a minute.
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
  // Time since the machine's boot, including sleep. It does not depend on the wall clock.
  absl::Duration uptime;
  // Identifies the boot and the machine. Empty: the system does not provide it.
  std::string boot;
};
ClockReading ReadClocks();

// The state that SeenClock keeps on disk. All decisions follow from it.
struct SeenTime {
  ClockReading last;
  // The time that the wall clock would show if nobody had set it since it was last trusted.
  absl::Time expected;

  // Moves `last` to `now`, and adds the time between the two to `expected`, as far as that time is known.
  void Advance(const ClockReading& now);
  // Returns how far the wall clock is ahead of `expected`; negative: behind.
  absl::Duration drift() const { return last.wall - expected; }
};

class SeenClock {
 public:
  // A larger difference between the clocks, in either direction, is a jump.
  static constexpr absl::Duration kMostDrift = absl::Hours(24);

  struct Jump {
    absl::Duration by;   // how far the wall clock is ahead of the expected time; negative: behind
    absl::Time noticed;  // the wall clock's time when the jump was noticed
  };
  struct Options {
    std::filesystem::path file;
    std::function<ClockReading()> read = ReadClocks;
    absl::Duration look_every = absl::Seconds(1);
    absl::Duration save_every = absl::Minutes(1);
    std::function<void(std::string_view)> warn = [](std::string_view) {};
  };

  // Continues from the state in the file. If the file is missing or unreadable, the wall clock is trusted; an
  // unreadable file is reported to `warn`. Errors: those of reading the file, if the machine is at fault.
  static absl::StatusOr<std::unique_ptr<SeenClock>> Open(Options options);
  ~SeenClock();
  SeenClock(const SeenClock&) = delete;

  // Returns the time for computing ages: the wall clock or the expected time, whichever is earlier.
  absl::Time Now();
  // Returns the wall clock or the expected time, whichever is later. Use it for limits that must not be exceeded,
  // such as the end of a token.
  absl::Time Latest();
  // Returns the unconfirmed jump, if there is one. A jump also ends when the wall clock is set back to the expected
  // time.
  std::optional<Jump> jump();
  // Call it when an operator confirms that the wall clock is right. The wall clock is trusted from now on. Returns
  // the size of the jump, or zero if there was none. After Ok, the confirmation is on disk.
  absl::StatusOr<absl::Duration> Confirm();

 private:
  explicit SeenClock(Options options);
  void Look() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Save(const SeenTime& seen) const;
  void Run();

  const Options options_;
  mutable absl::Mutex mu_;
  SeenTime seen_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Time> noticed_ ABSL_GUARDED_BY(mu_);  // when the current jump was noticed
  absl::Mutex save_mu_;                                     // one write at a time; locked before mu_
  Event stopping_;
  std::thread thread_;  // declared last, because the thread uses all other members
};

}  // namespace permafrost
