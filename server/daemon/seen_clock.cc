#include "daemon/seen_clock.h"

#include <time.h>

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/file.h"
#include "base/json_fields.h"
#include "base/resources.h"
#include "base/status.h"

namespace permafrost {
namespace {

constexpr char kKind[] = "permafrost clock 1";

// The record in the clock's file.
struct ClockRecord {
  std::string kind;
  absl::Time wall, expected;
  absl::Duration uptime;
  std::string boot;
};

struct ClockSchema {
  template <class A>
  static void Fields(A& a, typename A::template Visited<ClockRecord>& r) {
    a("kind", r.kind);
    a("wall", r.wall);
    a("expected", r.expected);
    a("uptime", r.uptime);
    a("boot", r.boot);
  }
};

absl::Duration Uptime() {
#ifdef __linux__
  // Reads the kernel's value. A library that fakes the clock of this process (LD_PRELOAD) does not change it.
  if (const absl::StatusOr<std::string> text = ReadFile("/proc/uptime"); text.ok()) {
    const std::string first(*absl::StrSplit(*text, absl::MaxSplits(' ', 1)).begin());
    double seconds = 0;
    if (absl::SimpleAtod(first, &seconds)) return absl::Seconds(seconds);
  }
  constexpr clockid_t kClock = CLOCK_BOOTTIME;
#else
  // On macOS CLOCK_MONOTONIC includes sleep.
  constexpr clockid_t kClock = CLOCK_MONOTONIC;
#endif
  timespec now{};
  clock_gettime(kClock, &now);
  return absl::DurationFromTimespec(now);
}

bool IsJump(absl::Duration drift) { return drift > SeenClock::kMostDrift || drift < -SeenClock::kMostDrift; }

std::string DriftText(absl::Duration drift) {
  const absl::Duration size = absl::Trunc(drift < absl::ZeroDuration() ? -drift : drift, absl::Seconds(1));
  return absl::StrCat(absl::FormatDuration(size), drift < absl::ZeroDuration() ? " behind" : " ahead of");
}

absl::StatusOr<std::optional<SeenTime>> ReadSeen(const std::filesystem::path& file,
                                                 const std::function<void(std::string_view)>& warn) {
  const absl::StatusOr<std::string> text = ReadFile(file);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  PF_RETURN_IF_ERROR(text.status());
  const absl::StatusOr<ClockRecord> record = ReadJson<ClockSchema, ClockRecord>(file.c_str(), *text);
  if (!record.ok() || record->kind != kKind) {
    warn(absl::StrCat(file.string(), ": cannot be read, so that the wall clock is believed as it is",
                      record.ok() ? "" : ": ", record.ok() ? "" : record.status().message()));
    return std::nullopt;
  }
  return SeenTime{.last = {.wall = record->wall, .uptime = record->uptime, .boot = record->boot},
                  .expected = record->expected};
}

}  // namespace

ClockReading ReadClocks() {
  static const std::string boot = BootId();
  return {.wall = absl::Now(), .uptime = Uptime(), .boot = boot};
}

void SeenTime::Advance(const ClockReading& now) {
  const absl::Duration by_uptime = now.uptime - last.uptime, by_wall = now.wall - last.wall;
  if (!now.boot.empty() && now.boot == last.boot && by_uptime >= absl::ZeroDuration()) {
    expected += by_uptime;
  } else if (by_wall >= absl::ZeroDuration() && by_wall <= SeenClock::kMostDrift) {
    // The machine has booted again, so the elapsed time is unknown. A difference of at most kMostDrift does no harm.
    expected += by_wall;
  }
  last = now;
}

SeenClock::SeenClock(Options options) : options_(std::move(options)) {}

absl::StatusOr<std::unique_ptr<SeenClock>> SeenClock::Open(Options options) {
  std::unique_ptr<SeenClock> clock(new SeenClock(std::move(options)));
  PF_ASSIGN_OR_RETURN(const std::optional<SeenTime> before, ReadSeen(clock->options_.file, clock->options_.warn));
  SeenTime seen;
  {
    const absl::MutexLock lock(&clock->mu_);
    const ClockReading now = clock->options_.read();
    clock->seen_ = before.value_or(SeenTime{.last = now, .expected = now.wall});
    clock->Look();
    seen = clock->seen_;
  }
  if (const absl::Status saved = clock->Save(seen); !saved.ok()) clock->options_.warn(std::string(saved.message()));
  clock->thread_ = std::thread([clock = clock.get()] { clock->Run(); });
  return clock;
}

SeenClock::~SeenClock() {
  stopping_.Set();
  if (thread_.joinable()) thread_.join();
}

void SeenClock::Run() {
  Stopwatch since_save;
  bool told = false;
  while (true) {
    const bool stops = stopping_.WaitFor(options_.look_every);
    if (!stops && since_save.Elapsed() < options_.save_every) {
      const absl::MutexLock lock(&mu_);
      Look();
      continue;
    }
    const absl::MutexLock saving(&save_mu_);
    SeenTime seen;
    {
      const absl::MutexLock lock(&mu_);
      Look();
      seen = seen_;
    }
    const absl::Status saved = Save(seen);
    if (!saved.ok() && !std::exchange(told, true)) options_.warn(std::string(saved.message()));
    if (saved.ok()) told = false;
    since_save.Restart();
    if (stops) return;
  }
}

void SeenClock::Look() {
  seen_.Advance(options_.read());
  const bool jumped = IsJump(seen_.drift());
  if (jumped == noticed_.has_value()) return;
  if (jumped) {
    noticed_ = seen_.last.wall;
    options_.warn(absl::StrCat("the wall clock is ", DriftText(seen_.drift()),
                               " the time that was seen to pass: no job and no upload is deleted for its age until "
                               "`permafrost server confirm-clock` says that the clock is right"));
  } else {
    noticed_.reset();
    options_.warn("the wall clock is again what was seen to pass");
  }
}

absl::Status SeenClock::Save(const SeenTime& seen) const {
  return WriteFileAtomic(options_.file, WriteJson<ClockSchema>(ClockRecord{.kind = kKind,
                                                                           .wall = seen.last.wall,
                                                                           .expected = seen.expected,
                                                                           .uptime = seen.last.uptime,
                                                                           .boot = seen.last.boot}));
}

absl::Time SeenClock::Now() {
  const absl::MutexLock lock(&mu_);
  Look();
  return std::min(seen_.last.wall, seen_.expected);
}

absl::Time SeenClock::Latest() {
  const absl::MutexLock lock(&mu_);
  Look();
  return std::max(seen_.last.wall, seen_.expected);
}

std::optional<SeenClock::Jump> SeenClock::jump() {
  const absl::MutexLock lock(&mu_);
  Look();
  if (!noticed_) return std::nullopt;
  return Jump{.by = seen_.drift(), .noticed = *noticed_};
}

absl::StatusOr<absl::Duration> SeenClock::Confirm() {
  const absl::MutexLock saving(&save_mu_);
  SeenTime confirmed;
  absl::Duration by;
  {
    const absl::MutexLock lock(&mu_);
    Look();
    confirmed = seen_;
    by = noticed_ ? seen_.drift() : absl::ZeroDuration();
  }
  confirmed.expected = confirmed.last.wall;
  // Saves the confirmation before it takes effect, because later deletions rely on it.
  PF_RETURN_IF_ERROR(Save(confirmed));
  const absl::MutexLock lock(&mu_);
  seen_ = confirmed;
  noticed_.reset();
  return by;
}

}  // namespace permafrost
