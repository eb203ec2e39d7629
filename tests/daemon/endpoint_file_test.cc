#include "daemon/state_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "base/file.h"
#include "temp_dir.h"

namespace permafrost {
namespace {

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
