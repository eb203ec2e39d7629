#include "data/source/source_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/status.h"
#include "data/ogb_folder.h"
#include "no_descriptors.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;

// What is the machine's passes by itself, and an import waits for it; what is the source's does not.
TEST(OpenSource, TellsTheMachinesErrorsFromTheSources) {
  const TempDir dir;
  const ImportObserver observer;
  const ImportLimits limits;
  const ImportMonitor monitor(0, observer, std::stop_token(), limits);
  const fs::path path = dir.path() / "edge.csv", loop = dir.path() / "loop";
  WriteText(path, "0,1\n");
  fs::create_symlink("loop", loop);
  const auto open = [&](const fs::path& file) {
    return OpenSource({.path = file, .name = "raw/edge.csv", .packing = Packing::kPlain}, monitor).status();
  };
  EXPECT_TRUE(open(path).ok());

  EXPECT_EQ(open(dir.path() / "nothing").code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(IsTransient(open(dir.path() / "nothing")));
  EXPECT_EQ(open(loop).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(IsTransient(open(loop)));

  absl::Status none_left;
  {
    const NoDescriptors none;
    none_left = open(path);
  }
  EXPECT_EQ(none_left.code(), absl::StatusCode::kResourceExhausted) << none_left;
  EXPECT_TRUE(IsTransient(none_left));
  EXPECT_THAT(std::string(none_left.message()), testing::StartsWith("raw/edge.csv: cannot open: "));
}

}  // namespace
}  // namespace permafrost::data
