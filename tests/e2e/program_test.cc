// Tests a module exported by Python as a resource of the real daemon: imported, shown, kept over a restart and in a
// backup, and deleted. A refused upload leaves the existing program unchanged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "e2e/daemon.h"
#include "nlohmann/json.hpp"
#include "temp_dir.h"

namespace permafrost::e2e {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

std::string ReadAll(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class ProgramsTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(root_);
    fs::create_directories(exports_);
    if (!ExportModule("gine", exports_)) GTEST_SKIP() << "PERMAFROST_TEST_PYTHON has no torch_geometric";
  }
  static json Json(const Daemon& daemon, const std::string& verb) {
    const Output out = daemon.Client({"--output", "json", "program", verb, "gine"});
    EXPECT_EQ(out.code, 0) << out.err;
    return json::parse(out.out);
  }

  const TempDir dir_;
  const fs::path state_ = dir_.path() / "state", root_ = dir_.path() / "backups", exports_ = dir_.path() / "exports",
                 archive_ = exports_ / "gine.pt2";
};

TEST_F(ProgramsTest, AModuleIsKeptOverARestartAndInABackup) {
  json told;
  {
    Daemon daemon(state_, exports_, {"--backup-root", root_.string()});
    ASSERT_TRUE(daemon.ready());
    const Output imported = daemon.Client({"program", "import", "gine", archive_.string()});
    ASSERT_EQ(imported.code, 0) << imported.err;
    EXPECT_THAT(imported.out, HasSubstr("float32[G]"));
    EXPECT_THAT(imported.out, HasSubstr("aten.scatter_add_.default"));
    told = Json(daemon, "show");
    EXPECT_EQ(told.at("bytes"), absl::StrCat(fs::file_size(archive_)));
    ASSERT_EQ(told.at("forms").size(), 2U);
    const json& train = told.at("forms")[1];
    EXPECT_EQ(train.at("name"), "train");
    EXPECT_EQ(train.at("inputs")[1].at("type"), "int64[2, E]");
    EXPECT_EQ(told.at("tensors")[0].at("name"), "nodes.weight");
    EXPECT_EQ(told.at("tensors")[0].at("trained"), true);
    const Output again = daemon.Client({"program", "import", "gine", archive_.string()});
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_EQ(daemon.Client({"server", "backup", "one"}).code, 0);
    EXPECT_EQ(daemon.Stop(), 0);
  }
  EXPECT_EQ(ReadAll(root_ / "one/programs/gine/program.pt2"), ReadAll(archive_));
  fs::copy(root_ / "one", dir_.path() / "copy", fs::copy_options::recursive);
  for (const fs::path& state : {state_, dir_.path() / "copy"}) {
    Daemon daemon(state, exports_);
    ASSERT_TRUE(daemon.ready()) << state;
    EXPECT_EQ(Json(daemon, "show"), told) << state;
    EXPECT_EQ(daemon.Client({"program", "delete", "gine"}).code, 0);
    EXPECT_THAT(daemon.Client({"program", "list"}).out, HasSubstr("no programs"));
    EXPECT_EQ(daemon.Stop(), 0);
  }
}

TEST_F(ProgramsTest, WhatIsNoProgramIsRefusedInOneLineAndTheDaemonGoesOn) {
  const std::string whole = ReadAll(archive_);
  std::string damaged = whole;
  // The damage is inside the records, whose checksums the archive contains.
  for (size_t at = 0; at < damaged.size(); at += 997) damaged[at] = static_cast<char>(~damaged[at]);
  Daemon daemon(state_, exports_);
  ASSERT_TRUE(daemon.ready());
  for (const std::string& content : {std::string("no archive"), whole.substr(0, whole.size() / 2), damaged}) {
    const fs::path file = dir_.path() / "bad.pt2";
    std::ofstream(file, std::ios::binary) << content;
    const Output refused = daemon.Client({"program", "import", "bad", file.string()});
    EXPECT_NE(refused.code, 0);
    EXPECT_THAT(refused.err, HasSubstr("programs/bad: "));
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
    EXPECT_TRUE(fs::is_empty(state_ / "programs"));
  }
  EXPECT_EQ(daemon.Client({"program", "import", "gine", archive_.string()}).code, 0);
  const Output other = daemon.Client({"program", "show", "bad"});
  EXPECT_THAT(other.err, HasSubstr("NOT_FOUND"));
  EXPECT_EQ(daemon.Stop(), 0);
}

}  // namespace
}  // namespace permafrost::e2e
