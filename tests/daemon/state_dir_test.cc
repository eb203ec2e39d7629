#include "daemon/state_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <utility>

#include "backup/backup.h"
#include "backup/manifest.h"
#include "base/file.h"
#include "jobs/manager_fixture.h"
#include "temp_dir.h"

namespace permafrost {
namespace {

using jobs::JobState;

TEST(Restored, AJobWaitsWhoseDatasetIsNotReady) {
  const TempDir dir;
  jobs::Server server(dir.path() / "state");
  const struct {
    const char* id;
    std::function<void(jobs::FakeCatalog&)> found;  // sets the state in which the next daemon finds the job's dataset
    JobState want;
  } kCases[] = {
      {"there", [](jobs::FakeCatalog&) {}, JobState::kQueued},
      {"not-there", [](jobs::FakeCatalog& catalog) { catalog.Remove("not-there"); }, JobState::kPaused},
      {"imported-anew",
       [](jobs::FakeCatalog& catalog) { catalog.Put("imported-anew", data::DatasetState::kImporting); },
       JobState::kPaused},
      {"failed-since",
       [](jobs::FakeCatalog& catalog) { catalog.Put("failed-since", data::DatasetState::kFailed, "?"); },
       JobState::kPaused},
  };
  for (const auto& c : kCases) {
    server.catalog().Put(c.id);
    jobs::CreateRequest create = jobs::Server::Request(c.id);
    create.spec.train.dataset = DatasetId(c.id);
    ASSERT_TRUE(server->Create(create).ok()) << c.id;
  }
  for (const auto& c : kCases) c.found(server.catalog());
  backup::Manifest manifest;
  manifest.version = "1";
  manifest.jobs_anew = {JobId("there")};
  ASSERT_TRUE(backup::WriteManifest(server.state_dir(), manifest).ok());
  std::filesystem::rename(server.state_dir() / "backup.json", server.state_dir() / backup::kRestoringFile);
  ASSERT_TRUE(TakeUpRestored(server.state_dir(), server.catalog(), *server.operator->()).ok());
  for (const auto& c : kCases) EXPECT_EQ(server.Get(c.id).state, c.want) << c.id;
  EXPECT_TRUE(ReadRestored(server.state_dir()).has_value()) << "it is done once";
  // A paused job resumes once its dataset is ready.
  server.catalog().Put("imported-anew");
  EXPECT_EQ(server->Resume(JobId("imported-anew"))->state, JobState::kQueued);
}

TEST(EndpointFile, IsThereAsLongAsItsOwner) {
  const TempDir dir;
  const auto path = dir.path() / "endpoint.json";
  std::optional<EndpointFile> owner;
  {
    absl::StatusOr<EndpointFile> written =
        EndpointFile::Write(dir.path(), {.grpc = "127.0.0.1:1", .metrics = "127.0.0.1:2"});
    ASSERT_TRUE(written.ok()) << written.status();
    owner.emplace(*std::move(written));
  }
  EXPECT_THAT(ReadFile(path).value(), testing::HasSubstr("\"grpc\":\"127.0.0.1:1\",\"metrics\":\"127.0.0.1:2\""));
  owner.reset();
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace permafrost
