#include "e2e/daemon.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <regex>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace permafrost::e2e {

Daemon::Daemon(const std::filesystem::path& state_dir, const std::filesystem::path& import_root,
               const std::vector<std::string>& more_flags) {
  std::vector<std::string> argv = {PERMAFROSTD,
                                   "--metrics",
                                   "127.0.0.1:0",
                                   "--state-dir",
                                   state_dir.string(),
                                   "--import-root",
                                   import_root.string(),
                                   "--device",
                                   "cpu",
                                   "--threads",
                                   "2"};
  argv.insert(argv.end(), more_flags.begin(), more_flags.end());
  if (!absl::c_linear_search(more_flags, "--listen")) argv.insert(argv.end(), {"--listen", "127.0.0.1:0"});
  process_ = std::make_unique<Process>(argv, state_dir.string() + ".stderr");
  const std::string line = process_->ReadLine(absl::Seconds(60));
  std::smatch found;
  if (!std::regex_search(line, found, std::regex("ready: grpc ([^ ,]+), metrics https?://([^/]+)/metrics"))) {
    ADD_FAILURE() << "no ready line but: " << line;
    return;
  }
  grpc_ = found[1];
  metrics_ = found[2];
  channel_ = grpc::CreateChannel(grpc_, grpc::InsecureChannelCredentials());
  jobs_ = v1::JobService::NewStub(channel_);
  datasets_ = v1::DatasetService::NewStub(channel_);
  server_ = v1::ServerService::NewStub(channel_);
}

Output Daemon::Client(const std::vector<std::string>& arguments) const {
  std::vector<std::string> argv = {PERMAFROST, "--server", grpc_};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  return RunCommand(argv, absl::Minutes(5));
}

v1::Dataset Daemon::Import(const std::string& name, const std::filesystem::path& source) {
  v1::Dataset dataset;
  grpc::ClientContext import_context, watch_context;
  v1::ImportDatasetRequest request;
  request.set_dataset_id(name);
  request.mutable_options()->set_source_path(source.string());
  const grpc::Status status = datasets_->ImportDataset(&import_context, request, &dataset);
  EXPECT_TRUE(status.ok()) << status.error_message();
  v1::WatchDatasetRequest watch;
  watch.set_name("datasets/" + name);
  const auto reader = datasets_->WatchDataset(&watch_context, watch);
  while (reader->Read(&dataset)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(dataset.state(), v1::Dataset::STATE_READY) << dataset.error();
  return dataset;
}

v1::Job Daemon::Get(const std::string& job) {
  grpc::ClientContext context;
  v1::GetJobRequest request;
  request.set_name("jobs/" + job);
  v1::Job answer;
  const grpc::Status status = jobs_->GetJob(&context, request, &answer);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return answer;
}

v1::Job Daemon::AwaitEnd(const std::string& job) {
  grpc::ClientContext context;
  v1::WatchJobRequest request;
  request.set_name("jobs/" + job);
  v1::Job last;
  const auto reader = jobs_->WatchJob(&context, request);
  while (reader->Read(&last)) {
  }
  const grpc::Status status = reader->Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  return last;
}

void Daemon::AwaitStep(const std::string& job, int64_t step) {
  ASSERT_TRUE(WaitUntil(absl::Seconds(120), [&] { return Get(job).progress().step() >= step; })) << job << ", " << step;
}

void Daemon::AwaitEpoch(const std::string& job, int64_t epoch) {
  v1::Job seen;
  ASSERT_TRUE(WaitUntil(absl::Seconds(120),
                        [&] {
                          seen = Get(job);
                          return seen.progress().epoch() >= epoch;
                        }))
      << job << ", " << epoch;
  ASSERT_EQ(seen.state(), v1::Job::STATE_RUNNING) << job << " ended too soon";
}

v1::GraphCache Daemon::Cache(const std::string& job) {
  const auto stub = v1::GraphCacheService::NewStub(channel_);
  grpc::ClientContext context;
  v1::GetGraphCacheRequest request;
  request.set_name("jobs/" + job + "/graphCache");
  v1::GraphCache cache;
  const grpc::Status status = stub->GetGraphCache(&context, request, &cache);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return cache;
}

std::string Daemon::LastWeights(const std::string& job, const std::filesystem::path& to) const {
  const Output out = Client({"job", "export", job, "--artifact", "last-weights", "--to", to.string()});
  EXPECT_EQ(out.code, 0) << out.err;
  std::ifstream in(to, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

int Daemon::Stop() {
  process_->Signal(SIGTERM);
  return process_->Wait(absl::Seconds(60));
}

void CopyState(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::filesystem::create_directory(to);
  for (const auto& entry : std::filesystem::directory_iterator(from)) {
    if (entry.is_socket()) continue;
    std::filesystem::copy(entry.path(), to / entry.path().filename(), std::filesystem::copy_options::recursive);
  }
}

void KillAndRestart(std::unique_ptr<Daemon>& daemon, const std::filesystem::path& state_dir,
                    const std::filesystem::path& import_root, const std::vector<std::string>& more_flags) {
  daemon->process().Signal(SIGKILL);
  ASSERT_EQ(daemon->process().Wait(absl::Seconds(30)), 128 + SIGKILL);
  daemon.reset();
  daemon = std::make_unique<Daemon>(state_dir, import_root, more_flags);
  ASSERT_TRUE(daemon->ready());
}

std::string HttpGet(const std::string& address, const std::string& path) {
  const size_t colon = address.rfind(':');
  int port = 0;
  if (!absl::SimpleAtoi(address.substr(colon + 1), &port)) return "";
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  // A caller that polls will retry, so a hanging server must not block this call.
  const timeval limit{.tv_sec = 30, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0) {
    const std::string request = absl::StrCat("GET ", path, " HTTP/1.0\r\nHost: ", address, "\r\n\r\n");
    if (send(fd, request.data(), request.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(request.size())) {
      char piece[65536];
      ssize_t got = 0;
      while ((got = recv(fd, piece, sizeof(piece), 0)) > 0) answer.append(piece, static_cast<size_t>(got));
      if (got < 0) answer.clear();  // discards a partial answer
    }
  }
  close(fd);
  const size_t body = answer.find("\r\n\r\n");
  const bool ok = answer.substr(0, 20).find(" 200 ") != std::string::npos;
  return ok && body != std::string::npos ? answer.substr(body + 4) : "";
}

double Metric(const std::string& page, const std::string& series) {
  for (const absl::string_view line : absl::StrSplit(page, '\n')) {
    if (absl::StartsWith(line, series + " ")) return std::stod(std::string(line.substr(series.size() + 1)));
  }
  return -1;
}

std::filesystem::path ShippedSample() { return std::filesystem::path(PERMAFROST_SOURCE_DIR) / "deploy/sample/zinc"; }

bool ExportModule(const std::string& name, const std::filesystem::path& out) {
  constexpr int kPartsAreAbsent = 77;
  const std::string python = PERMAFROST_TEST_PYTHON;
  if (python.empty()) return false;
  const std::string command =
      absl::StrCat(python, " " PERMAFROST_SOURCE_DIR "/tests/program/cached_exports.py '" PERMAFROST_EXPORTS "' ",
                   out.string(), " ", name);
  const int status = std::system(command.c_str());
  if (WIFEXITED(status) && WEXITSTATUS(status) == kPartsAreAbsent) return false;
  EXPECT_EQ(status, 0) << command;
  return true;
}

}  // namespace permafrost::e2e
