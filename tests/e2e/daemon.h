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
  // Imports `source` as `name` and waits for READY; returns it.
  v1::Dataset Import(const std::string& name, const std::filesystem::path& source);
  v1::Job Get(const std::string& job);
  // Watches until the terminal state and returns it.
  v1::Job AwaitEnd(const std::string& job);
  void AwaitStep(const std::string& job, int64_t step);
  // Until it is in this epoch or a later one. A job that has ended by then is a failure: no kill could meet it.
  void AwaitEpoch(const std::string& job, int64_t epoch);
  v1::GraphCache Cache(const std::string& job);
  // The bytes of its last weights, which are exported to a file of this name.
  std::string LastWeights(const std::string& job, const std::filesystem::path& to) const;
  // SIGTERM; the exit code.
  int Stop();

 private:
  std::unique_ptr<Process> process_;
  std::string grpc_, metrics_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::unique_ptr<v1::DatasetService::Stub> datasets_;
  std::unique_ptr<v1::ServerService::Stub> server_;
};

// A copy of a state directory, whose daemon may run: all but its socket.
void CopyState(const std::filesystem::path& from, const std::filesystem::path& to);

// Kills the server with -9 and starts another on its state, which then is `daemon`.
void KillAndRestart(std::unique_ptr<Daemon>& daemon, const std::filesystem::path& state_dir,
                    const std::filesystem::path& import_root, const std::vector<std::string>& more_flags = {});

// The body of http://ADDRESS/PATH; empty when the server does not answer 200, or says nothing for 30 s.
std::string HttpGet(const std::string& address, const std::string& path);
// The value of one series of a /metrics page; -1 where it is absent.
double Metric(const std::string& page, const std::string& series);

// The dataset that the project ships.
std::filesystem::path ShippedSample();

// Exports a module of tests/program/modules.py as `out`/NAME.pt2. Returns false if there is no Python for tests, or
// it has no PyG; other errors fail the test.
bool ExportModule(const std::string& name, const std::filesystem::path& out);

}  // namespace permafrost::e2e
