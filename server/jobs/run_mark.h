// Keeps how far a run is so that it survives the death of the process but costs no fsync: a small file that is written
// over at each step. It tells the next server at which step this one died.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/file.h"
#include "jobs/job.h"

namespace permafrost::jobs {

// Names the present boot of the machine; empty where the system does not say.
std::string BootId();

// Threads: one thread.
class RunMark {
 public:
  static constexpr int64_t kBeforeFirstStep = -1;

  struct Content {
    std::string boot_id;
    int64_t step = kBeforeFirstStep;
    bool operator==(const Content&) const = default;
  };

  // Replaces the mark of an earlier run with one of this boot, before the first step. Errors: transient.
  static absl::StatusOr<RunMark> Begin(const std::filesystem::path& path);
  // `step`: optimizer steps done. A write that fails is passed over: the mark then says less than it could.
  void SetStep(int64_t step);
  // nullopt: there is none that can be read.
  static std::optional<Content> Read(const std::filesystem::path& path);

 private:
  RunMark(Descriptor file, std::size_t step_offset) : file_(std::move(file)), step_offset_(step_offset) {}
  Descriptor file_;
  std::size_t step_offset_;
};

// Deaths at one place of a job before the job is held to be their cause: it would take every later server down too.
inline constexpr int32_t kMostDeaths = 5;

// "before its first step", "after step 12".
std::string PlaceText(const Deaths& deaths);

// `before` with one death more. It counts on where the place is the one of the deaths before: the same step, or again
// none, with no checkpoint made since. It does not count where the machine was booted anew since, or where `mark` does
// not say: the run is then no likelier a cause than anything else.
Deaths CountDeath(const Deaths& before, const std::optional<RunMark::Content>& mark, const std::string& boot_id,
                  int64_t checkpoint_step);

// The same for a device that failed. A device tells of a fault steps after its cause, and not always equally many: so
// it is the same place too where no checkpoint was made since the one before.
Deaths CountDeviceFault(const Deaths& before, const std::optional<RunMark::Content>& mark, const std::string& boot_id,
                        int64_t checkpoint_step);

}  // namespace permafrost::jobs
