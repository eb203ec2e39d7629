#include "device/torch_version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/headeronly/version.h>

#include <string>

namespace permafrost::device {
namespace {

using testing::HasSubstr;

TEST(TorchVersion, TheLibraryThatIsLoadedSaysItsOwn) {
  EXPECT_EQ(LoadedTorchVersion(), TORCH_VERSION) << "these tests are built and run with one and the same";
  EXPECT_EQ(CheckTorchVersion(), absl::OkStatus());
}

TEST(TorchVersion, OtherLibrariesAndUntestedOnesAreRefusedInOneLine) {
  const struct {
    const char* why;
    const char *headers, *library;
    const char* says;  // nullptr stands for an accepted library
  } kCases[] = {
      {"tested", "2.13.0", "2.13.0", nullptr},
      {"a build suffix says nothing of the version", "2.13.0+cpu", "2.13.0", nullptr},
      {"a newer library at run time", "2.13.0", "2.14.0", "libtorch 2.14.0 is loaded, but"},
      {"an older library at run time", "2.13.0", "2.12.1", "the headers of 2.13.0"},
      {"both alike, but never tested", "2.14.0", "2.14.0", "was tested with 2.13.0"},
  };
  for (const auto& c : kCases) {
    const absl::Status status = CheckTorchVersions(c.headers, c.library);
    EXPECT_EQ(status.ok(), c.says == nullptr) << c.why << status;
    if (c.says == nullptr) continue;
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << c.why;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.says)) << c.why;
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << c.why;
  }
}

}  // namespace
}  // namespace permafrost::device
