// The real daemon on free ports, with real gRPC stubs and the real client program.
#pragma once

#include <grpcpp/grpcpp.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "e2e/process.h"
#include "permafrost/v1/dataset.grpc.pb.h"
#include "permafrost/v1/graph_cache.grpc.pb.h"
#include "permafrost/v1/job.grpc.pb.h"
#include "permafrost/v1/server.grpc.pb.h"

namespace permafrost::e2e {

namespace v1 = ::permafrost::v1;

class Daemon {
 public:
  // Starts permafrostd and waits for its ready line. Imports may read `import_root`.
  Daemon(const std::filesystem::path& state_dir, const std::filesystem::path& import_root,
         const std::vector<std::string>& more_flags = {});

  bool ready() const { return !grpc_.empty(); }
  const std::string& grpc() const { return grpc_; }
  const std::string& metrics() const { return metrics_; }
  Process& process() { return *process_; }
  v1::JobService::Stub& jobs() { return *jobs_; }
  v1::DatasetService::Stub& datasets() { return *datasets_; }
  v1::ServerService::Stub& server() { return *server_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

  // Runs `permafrost --server ... ARGS`.
  Output Client(const std::vector<std::string>& arguments) const;
  // Imports `source` as `name`, waits until it is READY, and returns the dataset.
  v1::Dataset Import(const std::string& name, const std::filesystem::path& source);
  v1::Job Get(const std::string& job);
  // Watches the job until it ends, and returns it in its terminal state.
  v1::Job AwaitEnd(const std::string& job);
  void AwaitStep(const std::string& job, int64_t step);
  // Waits until the job is in epoch `epoch` or a later one. Fails the test if the job has ended by then, because a
  // kill could no longer hit it.
  void AwaitEpoch(const std::string& job, int64_t epoch);
  v1::GraphCache Cache(const std::string& job);
  // Exports the job's last weights to the file `to`, and returns its bytes.
  std::string LastWeights(const std::string& job, const std::filesystem::path& to) const;
  // Sends SIGTERM and returns the exit code.
  int Stop();

 private:
  std::unique_ptr<Process> process_;
  std::string grpc_, metrics_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::unique_ptr<v1::DatasetService::Stub> datasets_;
  std::unique_ptr<v1::ServerService::Stub> server_;
};

// Copies a state directory, except for its socket. Its daemon may be running.
void CopyState(const std::filesystem::path& from, const std::filesystem::path& to);

// Kills the daemon with SIGKILL and starts another one on its state. `daemon` then holds the new one.
void KillAndRestart(std::unique_ptr<Daemon>& daemon, const std::filesystem::path& state_dir,
                    const std::filesystem::path& import_root, const std::vector<std::string>& more_flags = {});

// Returns the body of http://ADDRESS/PATH. Empty if the server does not answer 200, or sends nothing for 30 s.
std::string HttpGet(const std::string& address, const std::string& path);
// Returns the value of one series of a /metrics page, or -1 if it is absent.
double Metric(const std::string& page, const std::string& series);

// The dataset that the project ships.
std::filesystem::path ShippedSample();

// Exports a module of tests/program/modules.py as `out`/NAME.pt2. Returns false if there is no Python for tests, or
// if that Python has no PyG. Other errors fail the test.
bool ExportModule(const std::string& name, const std::filesystem::path& out);

}  // namespace permafrost::e2e
