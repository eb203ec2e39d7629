// Tests states, labels and etags of jobs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/status.h"
#include "jobs/job.h"

namespace permafrost::jobs {
namespace {

TEST(JobStateTest, OnlyTheseArrowsExist) {
  using enum JobState;
  const struct {
    const char* why;
    JobState from, to;
  } kArrows[] = {
      {"the device takes it", kQueued, kPreparing},
      {"the device takes it after an interruption", kQueued, kRecovering},
      {"its deadline passed while it waited", kQueued, kFailed},
      {"captures come before its first step", kPreparing, kWarmingUp},
      {"a step without captures", kPreparing, kRunning},
      {"its first step", kWarmingUp, kRunning},
      {"its first new step", kRecovering, kRunning},
      {"cancelled before it began", kQueued, kCancelled},
      {"a cancel waits for the step boundary", kRunning, kCancelling},
      {"trained to the end", kRunning, kSucceeded},
      {"an error", kRunning, kFailed},
      {"a drain, or the recovery from a crash", kRunning, kQueued},
      {"the run stopped", kCancelling, kCancelled},
      {"the last step was done before the cancel was seen", kCancelling, kSucceeded},
      {"an error before the cancel was seen", kCancelling, kFailed},
      {"paused before it began", kQueued, kPaused},
      {"a pause, at the step boundary", kRunning, kPaused},
      {"resumed", kPaused, kQueued},
      {"cancelled while it was paused", kPaused, kCancelled},
      {"its deadline passed while it was paused", kPaused, kFailed},
      {"a retry", kFailed, kQueued},
      {"a retry", kCancelled, kQueued},
  };
  std::set<std::pair<JobState, JobState>> allowed;
  // A run in any of these states may end like a running one.
  for (const JobState from : {kPreparing, kWarmingUp, kRecovering}) {
    for (const JobState to : {kCancelling, kSucceeded, kFailed, kQueued, kPaused}) allowed.emplace(from, to);
  }
  for (const auto& arrow : kArrows) {
    EXPECT_TRUE(CanMove(arrow.from, arrow.to)) << arrow.why;
    allowed.emplace(arrow.from, arrow.to);
  }
  for (const auto& [from, from_name] : kJobStateNames.rows) {
    for (const auto& [to, to_name] : kJobStateNames.rows) {
      EXPECT_EQ(CanMove(from, to), allowed.contains({from, to})) << from_name << " -> " << to_name;
      EXPECT_FALSE(CanMove(from, to) && IsOnDevice(to) && !IsOnDevice(from) && from != kQueued)
          << to_name << " comes from the queue";
      EXPECT_EQ(IsTerminal(to) + IsOnDevice(to) + IsWaiting(to), 1) << to_name;
      EXPECT_FALSE(IsTerminal(from) && CanMove(from, to) && to != kQueued) << from_name << " ends but for a retry";
    }
  }
}

// Returns the texts between backticks, in order.
std::vector<std::string> Quoted(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '`');
  std::vector<std::string> quoted;
  for (size_t i = 1; i < parts.size(); i += 2) quoted.push_back(parts[i]);
  return quoted;
}

// Reads rows of server/REFERENCE.md such as "| `QUEUED` -> `PREPARING`, ... | what it means |". If several states
// stand before the arrow, the row applies to each. "or as `RUNNING`" adds the next states of RUNNING.
TEST(JobStateTest, TheReferencesTableHasTheseArrowsAndNoOthers) {
  const auto reference = ReadFile(std::filesystem::path(PERMAFROST_SOURCE_DIR) / "server" / "REFERENCE.md");
  ASSERT_TRUE(reference.ok()) << reference.status();
  const auto state_of = [](const std::string& word) {
    const auto state = kJobStateNames.Parse(absl::StrReplaceAll(absl::AsciiStrToLower(word), {{"_", "-"}}));
    EXPECT_TRUE(state.has_value()) << word;
    return state.value_or(JobState::kQueued);
  };
  std::map<JobState, std::set<JobState>> arrows;
  std::vector<std::pair<JobState, JobState>> as;
  bool in_table = false;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(*reference, '\n'))) {
    if (line.starts_with("| state, and the next ones")) in_table = true;
    if (line.empty()) in_table = false;
    if (!in_table || !line.starts_with("| `")) continue;
    const std::vector<std::string> cells = absl::StrSplit(line, '|');
    const std::vector<std::string> sides = absl::StrSplit(cells[1], " -> ");
    const size_t or_as = sides.size() > 1 ? sides[1].find("or as ") : std::string::npos;
    for (const std::string& from : Quoted(sides[0])) {
      std::set<JobState>& next = arrows[state_of(from)];
      if (sides.size() == 1) continue;
      for (const std::string& to : Quoted(sides[1].substr(0, or_as))) next.insert(state_of(to));
      if (or_as == std::string::npos) continue;
      for (const std::string& like : Quoted(sides[1].substr(or_as))) as.emplace_back(state_of(from), state_of(like));
    }
  }
  for (const auto& [from, like] : as) arrows[from].insert(arrows[like].begin(), arrows[like].end());
  EXPECT_EQ(arrows.size(), kJobStateNames.rows.size()) << "each state has a row";
  for (const auto& [from, from_name] : kJobStateNames.rows) {
    for (const auto& [to, to_name] : kJobStateNames.rows) {
      EXPECT_EQ(CanMove(from, to), arrows[from].contains(to)) << from_name << " -> " << to_name;
    }
  }
}

TEST(JobLabelsTest, KeysAndValuesHaveTheirBounds) {
  const std::string most(63, 'x');
  Labels many;
  for (size_t i = 0; i < kMaxLabels; ++i) many[absl::StrCat("k", i)] = "v";
  Labels too_many = many;
  too_many["one-more"] = "";
  const struct {
    const char* why;
    Labels labels;
    std::vector<std::string> bad;
  } kCases[] = {
      {"none", {}, {}},
      {"as many as may be", many, {}},
      {"one more", too_many, {"labels"}},
      {"the longest", {{most, most}}, {}},
      {"an empty value", {{"team", ""}}, {}},
      {"all printable", {{"a_b-9", " \"~=,"}}, {}},
      {"no key", {{"", "v"}}, {"labels."}},
      {"a capital", {{"Team", "v"}}, {"labels.Team"}},
      {"a digit first", {{"9a", "v"}}, {"labels.9a"}},
      {"a key too long", {{most + "x", "v"}}, {"labels." + most}},
      {"a value too long", {{"team", most + "x"}}, {"labels.team"}},
      {"a line's end", {{"team", "a\nb"}}, {"labels.team"}},
      {"no ASCII", {{"team", "\xc3\xa4"}}, {"labels.team"}},
  };
  for (const auto& c : kCases) {
    Violations violations;
    Validate(c.labels, "labels", violations);
    std::vector<std::string> bad;
    for (const FieldViolation& v : GetViolations(violations.ToStatus())) bad.push_back(v.field);
    EXPECT_EQ(bad, c.bad) << c.why;
  }
}

TEST(JobEtagTest, ChangesWithLabelsAndPriorityAlone) {
  Job job;
  job.id = JobId("a");
  job.labels = {{"a", "b c"}};
  const std::string etag = EtagOf(job);
  Job other = job;
  other.state = JobState::kRunning;
  other.progress.step = 9;
  EXPECT_EQ(EtagOf(other), etag) << "a job that trains keeps it";
  other.spec.priority = 1;
  EXPECT_NE(EtagOf(other), etag);
  for (const Labels& labels : {Labels{}, Labels{{"a", "b"}}, Labels{{"a", "b c"}, {"d", ""}}}) {
    other = job;
    other.labels = labels;
    EXPECT_NE(EtagOf(other), etag);
  }
}

}  // namespace
}  // namespace permafrost::jobs
