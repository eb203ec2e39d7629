// Checks everything that a job records about its run. Each field of the database's columns must reach the wire and be
// stored again, and each field of the wire must come from a column. A field that the conversion or the column drops
// fails here by its name.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "api/wire/convert_job.h"
#include "job_requests.h"
#include "jobs/job_row.h"
#include "message_leaves.h"

namespace permafrost::api {
namespace {

using Wire = google::protobuf::Message;

// Returns another value of the same type. Times and durations are texts in Abseil's format.
nlohmann::json Other(const nlohmann::json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value == "0") return "7ns";
  if (value == "infinite-past") return "2033-05-18T03:33:20+00:00";
  if (value.is_string()) return value.get<std::string>() + "x";
  if (value.is_number_integer()) return value.get<int64_t>() + 7;
  return value.get<double>() + 0.375;
}

// Changes the fields of a column one by one. `stored` takes a column's text through the domain and back, and `told`
// takes it to the wire. `unsaid` lists the column's fields that the wire lacks. `not_stored` lists the wire's fields
// that the column lacks.
void ExpectEachIsTold(const std::string& column, const google::protobuf::Descriptor& type,
                      const std::function<std::string(const std::string&)>& stored,
                      const std::function<std::unique_ptr<Wire>(const std::string&)>& told,
                      const std::set<std::string>& unsaid, const std::set<std::string>& not_stored) {
  const nlohmann::json base = nlohmann::json::parse(column);
  const std::unique_ptr<Wire> base_wire = told(column);
  std::set<std::string> reached, silent;
  const nlohmann::json values = base.flatten();
  for (const auto& [pointer, value] : values.items()) {
    if (!value.is_primitive() || value.is_null()) continue;
    nlohmann::json changed = base;
    changed[nlohmann::json::json_pointer(pointer)] = Other(value);
    EXPECT_EQ(nlohmann::json::parse(stored(changed.dump())), changed) << pointer;
    const std::unique_ptr<Wire> wire = told(changed.dump());
    std::set<std::string> fields;
    for (const Leaf& leaf : LeavesOf(&type)) {
      if (leaf.Text(*wire) != leaf.Text(*base_wire)) fields.insert(leaf.name);
    }
    if (fields.empty()) silent.insert(pointer);
    reached.merge(fields);
  }
  EXPECT_EQ(silent, unsaid);
  std::set<std::string> missing;
  for (const Leaf& leaf : LeavesOf(&type)) {
    if (!reached.contains(leaf.name)) missing.insert(leaf.name);
  }
  EXPECT_EQ(missing, not_stored);
}

v1::Job WireOf(const std::function<void(jobs::Job&)>& change) {
  jobs::Job job = MakeJob("a", jobs::JobState::kSucceeded);
  change(job);
  return JobToWire(job);
}

TEST(ToldFields, OfProgress) {
  jobs::ProgressColumn column;
  column.progress.look_ahead = train::LookAhead{.rows = data::RowReading()};
  column.progress.exchange = train::Exchange{.ranks = {train::RankProgress()}};
  const auto read = [](const std::string& text) {
    const auto progress = jobs::ProgressFromJson(text);
    EXPECT_TRUE(progress.ok()) << progress.status();
    return *progress;
  };
  ExpectEachIsTold(
      jobs::ToJson(column), *v1::Progress::descriptor(),
      [&](const std::string& text) { return jobs::ToJson(read(text)); },
      [&](const std::string& text) {
        return std::make_unique<v1::Progress>(
            WireOf([&](jobs::Job& job) { job.progress = read(text).progress; }).progress());
      },
      {"/crashes/count", "/crashes/step", "/crashes/checkpoint_step", "/trouble/error", "/trouble/runs",
       "/trouble/retry_time", "/pausing", "/interrupted", "/device_time"},
      // These count the captures of one process, and are not stored.
      {"warm_up_done", "warm_up_total"});
}

TEST(ToldFields, OfAnEpoch) {
  ExpectEachIsTold(
      jobs::ToJson(train::EpochMetrics{.valid_metrics = {0.5}}), *v1::EpochMetrics::descriptor(),
      [](const std::string& text) { return jobs::ToJson(*jobs::EpochFromJson(text)); },
      [](const std::string& text) {
        return std::make_unique<v1::EpochMetrics>(
            WireOf([&](jobs::Job& job) { job.epochs = {*jobs::EpochFromJson(text)}; }).epochs(0));
      },
      {}, {"metric"});
}

TEST(ToldFields, OfAResult) {
  ExpectEachIsTold(
      jobs::ToJson(
          train::RunResult{.best_valid_metrics = {0.5}, .best_test_metrics = {0.5}, .final_test_metrics = {0.5}}),
      *v1::JobResult::descriptor(), [](const std::string& text) { return jobs::ToJson(*jobs::ResultFromJson(text)); },
      [](const std::string& text) {
        return std::make_unique<v1::JobResult>(
            WireOf([&](jobs::Job& job) { job.result = *jobs::ResultFromJson(text); }).result());
      },
      {}, {"metric"});
}

}  // namespace
}  // namespace permafrost::api
