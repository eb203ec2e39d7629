#include "jobs/job_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "temp_dir.h"

namespace permafrost::jobs {
namespace {

TEST(LogPieces, IsReadOnceForAllWhoAreAtOnePlace) {
  const TempDir dir;
  const JobFiles files(dir.path());
  LogPieces pieces(files);
  const JobId id("job-a"), other("job-b");
  std::filesystem::create_directory(files.Directory(id));
  std::ofstream(files.Log(id)) << "one\n";
  const auto read = [&](const JobId& job, int64_t offset, int64_t most) {
    const auto piece = pieces.Read(job, offset, most);
    return piece.ok() ? piece->data : piece.status().ToString();
  };
  EXPECT_EQ(read(id, 0, 100), "one\n");
  EXPECT_EQ(read(id, 4, 100), "");
  // A change that nobody told of shows what is read anew.
  std::ofstream(files.Log(id), std::ios::app) << "two\n";
  EXPECT_EQ(read(id, 0, 100), "one\n");
  EXPECT_EQ(read(id, 4, 100), "") << "asked in turn, as each stream does";
  EXPECT_EQ(read(id, 0, 2), "on") << "another piece";
  EXPECT_EQ(read(id, 0, 101), "one\ntwo\n");
  EXPECT_EQ(read(other, 0, 100), "") << "another job";
  pieces.Forget();
  EXPECT_EQ(read(id, 0, 100), "one\ntwo\n");
  EXPECT_EQ(read(id, 4, 100), "two\n");
  EXPECT_EQ(read(id, -4, 100), "two\n");
  // An error is nothing to keep.
  EXPECT_EQ(pieces.Read(id, 9, 100).status().code(), absl::StatusCode::kOutOfRange);
  std::ofstream(files.Log(id), std::ios::app) << "three\n";
  EXPECT_EQ(read(id, 9, 100), "hree\n");
}

}  // namespace
}  // namespace permafrost::jobs
