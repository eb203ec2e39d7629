// Tests `permafrost job export` against a scripted server: the file appears complete and verified, or not at all.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/hash.h"
#include "client/fake_server.h"
#include "client/program.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "temp_dir.h"

namespace permafrost::client {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ExportTest : public testing::Test {
 protected:
  void SetUp() override {
    fake_.jobs.export_job = [this](const v1::ExportJobRequest& request,
                                   grpc::ServerWriter<v1::ExportJobResponse>& writer, grpc::ServerContext&) {
      requests_.Add(request);
      for (const auto& piece : pieces_) writer.Write(piece);
      return status_;
    };
    fake_.Start();
  }

  // Serves the content in two pieces.
  void Serve(const std::string& content, const std::string& xxh3) {
    pieces_.resize(2);
    pieces_[0].set_data(content.substr(0, content.size() / 2));
    pieces_[1].set_data(content.substr(content.size() / 2));
    for (auto& piece : pieces_) piece.set_total_bytes(static_cast<int64_t>(content.size()));
    pieces_[1].set_xxh3(xxh3);
  }
  ProgramResult Export(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--server", fake_.address(), "job", "export", "zinc-1"});
    return RunProgram(arguments);
  }
  std::string Path(const std::string& name) const { return (directory_.path() / name).string(); }
  bool Empty() const { return fs::is_empty(directory_.path()); }

  TempDir directory_;
  std::vector<v1::ExportJobResponse> pieces_;
  grpc::Status status_ = grpc::Status::OK;
  Recorder<v1::ExportJobRequest> requests_;
  FakeServer fake_;
};

TEST_F(ExportTest, WritesTheFile) {
  const std::string content(100'000, 'w');
  const std::string hash = HashHex(Hash64(content));
  Serve(content, hash);
  const ProgramResult result = Export({"--to", Path("w.safetensors")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "wrote " + Path("w.safetensors") + " (100 kB)\n");
  std::ostringstream written;
  written << std::ifstream(Path("w.safetensors")).rdbuf();
  EXPECT_EQ(written.str(), content);
  EXPECT_EQ(requests_.seen()[0].artifact(), v1::ExportJobRequest::ARTIFACT_BEST_WEIGHTS);

  const ProgramResult as_json = Export({"--to", Path("p.csv"), "--artifact", "test-predictions", "--output", "json"});
  const auto object = nlohmann::json::parse(as_json.out);
  EXPECT_EQ(object["file"], Path("p.csv"));
  EXPECT_EQ(object["totalBytes"], "100000") << "64-bit numbers are strings, as in protobuf's mapping";
  EXPECT_EQ(object["xxh3"], hash);
  EXPECT_EQ(requests_.seen()[1].artifact(), v1::ExportJobRequest::ARTIFACT_TEST_PREDICTIONS);
}

TEST_F(ExportTest, StandardOutputIsTheFilesAlone) {
  Serve("content", HashHex(Hash64("content")));
  // A link to standard output counts as standard output, and stays a link.
  fs::create_symlink("/proc/self/fd/1", Path("link"));
  for (const std::string& to : {std::string("-"), Path("link")}) {
    const ProgramResult result = Export({"--to", to});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, "content");
    EXPECT_EQ(result.err, "wrote to standard output (7 B)\n");
  }
  EXPECT_TRUE(fs::is_symlink(Path("link")));
  EXPECT_EQ(nlohmann::json::parse(Export({"--to", "-", "--output", "json"}).err)["totalBytes"], "7");
  pieces_.erase(pieces_.begin());
  const ProgramResult short_one = Export({"--to", "-"});
  EXPECT_EQ(short_one.exit_code, 5);
  EXPECT_EQ(short_one.out, "");
}

TEST_F(ExportTest, WeightsAreNotWrittenToATerminal) {
  Serve("content", HashHex(Hash64("content")));
  TerminalProgram weights({"--server", fake_.address(), "job", "export", "zinc-1", "--to", "-"});
  EXPECT_EQ(weights.Wait(), 2);
  EXPECT_THAT(weights.output(), HasSubstr("is a terminal, and weights are no text"));
  EXPECT_TRUE(requests_.seen().empty());
  TerminalProgram table(
      {"--server", fake_.address(), "job", "export", "zinc-1", "--artifact", "test-predictions", "--to", "-"});
  EXPECT_EQ(table.Wait(), 0);
  EXPECT_THAT(table.output(), HasSubstr("content"));
}

TEST_F(ExportTest, NamesTheFileAfterTheJob) {
  Serve("x", HashHex(Hash64("x")));
  const fs::path before = fs::current_path();
  fs::current_path(directory_.path());
  const ProgramResult weights = Export({});
  const ProgramResult predictions = Export({"--artifact", "test-predictions"});
  fs::current_path(before);
  EXPECT_EQ(weights.out, "wrote zinc-1.safetensors (1 B)\n") << weights.err;
  EXPECT_EQ(predictions.out, "wrote zinc-1.csv (1 B)\n") << predictions.err;
  EXPECT_TRUE(fs::exists(Path("zinc-1.safetensors")));
}

TEST_F(ExportTest, AnotherChecksumLeavesNothing) {
  Serve("content", HashHex(Hash64("other")));
  const ProgramResult result = Export({"--to", Path("w")});
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_EQ(result.err, "permafrost: " + Path("w") + ": received bytes have the checksum " +
                            HashHex(Hash64("content")) + ", the server's is '" + HashHex(Hash64("other")) +
                            "'; nothing was written\n");
  EXPECT_TRUE(Empty());
}

TEST_F(ExportTest, AMissingPieceLeavesNothing) {
  Serve("content", HashHex(Hash64("content")));
  pieces_.erase(pieces_.begin());
  const ProgramResult result = Export({"--to", Path("w")});
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(result.err, HasSubstr("received 4 bytes of 7"));
  EXPECT_TRUE(Empty());
}

TEST_F(ExportTest, ARefusalLeavesNothing) {
  status_ = {grpc::StatusCode::FAILED_PRECONDITION, "job zinc-1 has no weights yet"};
  const ProgramResult result = Export({"--to", Path("w")});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_EQ(result.err, "permafrost: FAILED_PRECONDITION: job zinc-1 has no weights yet\n");
  EXPECT_TRUE(Empty());
}

TEST_F(ExportTest, AServerThatGoesAwayHalfWayLeavesNothing) {
  Serve("content", HashHex(Hash64("content")));
  pieces_.pop_back();
  status_ = {grpc::StatusCode::UNAVAILABLE, "draining"};
  EXPECT_EQ(Export({"--to", Path("w")}).exit_code, 3);
  EXPECT_TRUE(Empty());
}

// This happens if the client was suspended for minutes: the server is still there, and says why it ended the stream.
TEST_F(ExportTest, AStreamThatTheServerEndsSaysWhy) {
  Serve("content", HashHex(Hash64("content")));
  pieces_.pop_back();
  status_ = {grpc::StatusCode::ABORTED, "ended by the server: its client read nothing for 5m"};
  const ProgramResult result = Export({"--to", Path("w")});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_EQ(result.err, "permafrost: ABORTED: ended by the server: its client read nothing for 5m\n");
  EXPECT_TRUE(Empty());
}

TEST_F(ExportTest, NoDirectoryIsALocalError) {
  Serve("x", HashHex(Hash64("x")));
  const ProgramResult result = Export({"--to", Path("no/w")});
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(result.err, HasSubstr("No such file or directory"));
}

}  // namespace
}  // namespace permafrost::client
