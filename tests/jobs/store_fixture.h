// A job store in a directory of its own.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "jobs/job_store.h"
#include "temp_dir.h"

namespace permafrost::jobs {

class JobStoreTest : public testing::Test {
 protected:
  std::unique_ptr<JobStore> Open() {
    auto store = JobStore::Open(path_);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  static Job NewJob(const std::string& id, const std::string& request_id = "") {
    Job job;
    job.id = JobId(id);
    job.request_id = request_id;
    job.spec.train.dataset = DatasetId("zinc");
    job.create_time = absl::Now();
    return job;
  }
  static std::vector<std::string> Ids(const absl::StatusOr<std::vector<Job>>& jobs) {
    EXPECT_TRUE(jobs.ok()) << jobs.status();
    std::vector<std::string> ids;
    for (const Job& job : *jobs) ids.push_back(job.id.value());
    return ids;
  }

  const TempDir dir_;
  const std::filesystem::path path_ = dir_.path() / "permafrost.db";
};

}  // namespace permafrost::jobs
