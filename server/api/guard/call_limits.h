// Bounds how many calls of one kind are served at once, and on how many connections one client calls, so that no client
// takes all the memory, threads or open files there are from the jobs.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_interceptor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/monotonic.h"
#include "base/work_pool.h"

namespace permafrost::api {

// The far end of a connection: an address of IPv6, those of IPv4 mapped into it, and a port.
using PeerAddress = std::array<uint8_t, 18>;

// Parses what gRPC calls a peer ("ipv4:10.0.0.7:41234", "ipv6:%5Bfd00::7%5D:41234"). nullopt: it has no address, as the
// peer of a unix socket, whose connections are not told apart.
std::optional<PeerAddress> ParsePeer(std::string_view peer);
// The peers of all sockets that this process has open; nullopt: the system does not say.
std::optional<std::set<PeerAddress>> OpenPeers();

// Bounds how many connections one client calls on at once. gRPC tells a server neither of a connection that nobody
// calls on nor of the end of one: counted are those that a client has called on and whose socket this process still has
// open.
// Threads: all methods are safe anywhere, and wait for no disk.
class ConnectionLimit {
 public:
  // Returns the client that a call counts against (credentials.h); empty: none, and then there is no limit.
  using Namer = std::function<std::string(const grpc::CallbackServerContext& context)>;

  // `most`: of one client; 0: any number.
  ConnectionLimit(int64_t most, Namer client_of,
                  std::function<std::optional<std::set<PeerAddress>>()> open_peers = OpenPeers)
      : most_(most), client_of_(std::move(client_of)), open_peers_(std::move(open_peers)) {}

  // Whom the call is counted to. ResourceExhausted (reason TOO_MANY_CONNECTIONS, metadata `client` and `limit`) where
  // it comes on one connection more than its client may have. The connection itself stays open: a server cannot close
  // it, and does once nothing is called on it (CallLimitOptions::idle).
  absl::StatusOr<std::string> Admit(const grpc::CallbackServerContext& context);
  absl::Status Count(const std::string& client, std::string_view peer);

 private:
  void ForgetClosed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t most_;
  const Namer client_of_;
  const std::function<std::optional<std::set<PeerAddress>>()> open_peers_;
  absl::Mutex mu_;
  std::map<std::string, std::set<PeerAddress>> by_client_ ABSL_GUARDED_BY(mu_);  // no set is empty
  size_t counted_ ABSL_GUARDED_BY(mu_) = 0;                                      // in all of them
  size_t forget_at_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<Stopwatch> forgot_ ABSL_GUARDED_BY(mu_);  // since it ended
  absl::Duration forgetting_took_ ABSL_GUARDED_BY(mu_);
};

// The most calls of each kind; one more is refused at once with RESOURCE_EXHAUSTED, reason TOO_MANY_CALLS, and a hint
// when to ask again.
struct CallLimitOptions {
  // WatchJob, WatchGraphCache, WatchDataset and WatchServer together. Each holds its last response.
  int watches = 4096;
  // StreamJobLogs. Each holds a piece of the log.
  int log_streams = 1024;
  // ExportJob. Each holds an open file and a piece of it.
  int exports = 64;
  // Commands to graph caches whose answer waits for the job's next step, their clients gone or not.
  int cache_commands = 256;
  // VerifyDataset, SampleDataset and PlanDataset together. Each takes a thread, a core, and as much of the disk as it
  // can get from a job that trains.
  int dataset_reads = 4;
  // PlanGraphCache and CensusGraphCache. Each takes a thread and the memory of a job's schedule, and waits for the
  // device where it is idle.
  int plans = 4;
  // EvaluateJob. Each takes the memory of a model and its batches, and time of every core from the job that trains.
  int evaluations = 2;
  // RunRank. Each takes a thread; one has the device, and another is refused at once.
  int ranks = 4;
  // Health/Watch. Each holds gRPC's state of a call; its refusal says no more than the code.
  int health_watches = 256;
  // UploadDataset and UploadProgram. Each takes a thread and a message of 1 MiB at most.
  int uploads = 16;
  // ListCheckpoints. Each takes a thread while it reads files, which may be large.
  int checkpoint_lists = 8;
  // DeleteDataset, DeleteUpload and DeleteProgram. Each takes a thread while it removes files, which may be large.
  int deletions = 16;
  // CreateToken and RevokeToken. Each takes a thread while it waits for the disk.
  int token_changes = 8;
  // Backup. It takes a thread and the disk. One at a time makes anything; a repeat is told to wait for it.
  int backups = 2;
  // Calls that wait for a thread: each is a request in memory. Calls that wait for the disk under the jobs' or the
  // catalog's lock have a few threads of their own, so that gRPC's, which health is asked on, never wait.
  int waiting = 1024;
  int threads = 16;
  int submitting_threads = 2;
  // Calls of any kind that one connection has open, those whose request has not come yet among them, which no other row
  // counts. gRPC's client lets one more wait; who sends it nevertheless loses the connection. More than all that the
  // rows above leave to one client.
  int calls_of_a_connection = 8192;
  // A stream is ended when its client has read nothing for so long while there was something to read. A client that is
  // stopped for longer must begin anew.
  absl::Duration unread = absl::Minutes(5);
  // Connections that one client calls on at once; 0: any number. Each takes an open file.
  int64_t connections_of_a_client = 64;
  // A connection is closed on which nothing has been called for so long; gRPC's clients then connect anew by
  // themselves.
  absl::Duration idle = absl::Minutes(10);
};

// Returns the client that a call counts against (credentials.h); empty: none. An error refuses the call.
using ClientNamer = std::function<absl::StatusOr<std::string>(const grpc::CallbackServerContext& context)>;

// Threads: all methods are safe anywhere. Slots may outlive it.
class CallLimit {
 public:
  // Given back when its last copy is destroyed.
  using Slot = std::shared_ptr<const void>;

  // `calls`: what is limited, in the plural, for the error. One client has at most three quarters of them, so that it
  // keeps nobody else out.
  CallLimit(std::string_view calls, int most, ClientNamer client_of = nullptr)
      : calls_(calls), most_(most), client_of_(std::move(client_of)) {}

  // ResourceExhausted (reason TOO_MANY_CALLS, metadata `calls` and `limit`) while all are taken, or all that one client
  // may have (`client` too). Passes on the namer's errors.
  absl::StatusOr<Slot> Take(const grpc::CallbackServerContext& context);
  // Counted to nobody.
  absl::StatusOr<Slot> Take() { return TakeFor(""); }

 private:
  struct Taken {
    absl::Mutex mu;
    int all ABSL_GUARDED_BY(mu) = 0;
    std::map<std::string, int> by_client ABSL_GUARDED_BY(mu);
  };
  absl::StatusOr<Slot> TakeFor(const std::string& client);

  const std::string calls_;
  const int most_;
  const ClientNamer client_of_;
  const std::shared_ptr<Taken> taken_ = std::make_shared<Taken>();
};

// The error of a call that finds `limit` of `calls` (in the plural).
absl::Status TooManyCalls(std::string_view calls, int64_t limit);

// Threads for calls that may wait (unary.h), of clients that have no connection too many.
class CallPool : public WorkPool {
 public:
  CallPool(int threads, int waiting, ConnectionLimit& connections)
      : WorkPool(threads, static_cast<size_t>(waiting)), connections_(connections) {}
  ConnectionLimit& connections() { return connections_; }

 private:
  ConnectionLimit& connections_;
};

// The limits of one server.
struct CallLimits {
  CallLimits(const CallLimitOptions& options, ConnectionLimit::Namer namer)
      : connections(options.connections_of_a_client, std::move(namer)),
        client_of([this](const grpc::CallbackServerContext& context) { return connections.Admit(context); }),
        watches("watches", options.watches, client_of),
        log_streams("log streams", options.log_streams, client_of),
        exports("exports", options.exports, client_of),
        cache_commands("graph cache commands", options.cache_commands, client_of),
        dataset_reads("verifications, samples and plans", options.dataset_reads, client_of),
        plans("plans", options.plans, client_of),
        evaluations("evaluations", options.evaluations, client_of),
        ranks("ranks", options.ranks, client_of),
        health_watches("health watches", options.health_watches),
        uploads("uploads", options.uploads, client_of),
        checkpoint_lists("lists of checkpoints", options.checkpoint_lists, client_of),
        deletions("deletions", options.deletions, client_of),
        token_changes("changes of tokens", options.token_changes, client_of),
        backups("backups", options.backups, client_of),
        workers(options.threads, options.waiting, connections),
        submitters(options.submitting_threads, options.waiting, connections) {}

  // Asked by all that is below but health.
  ConnectionLimit connections;
  const ClientNamer client_of;
  CallLimit watches, log_streams, exports, cache_commands, dataset_reads, plans, evaluations, ranks, health_watches,
      uploads, checkpoint_lists, deletions, token_changes, backups;
  CallPool workers;
  // The threads of CreateJob, RetryJob and DeleteJob, which take their time one after the other (a plan of a whole set,
  // a tree of files): apart, so that they keep nobody else waiting.
  CallPool submitters;
};

// Bounds the watches of gRPC's own health service, whose calls no handler of ours sees: ends a Health/Watch that finds
// all of `watches` taken with RESOURCE_EXHAUSTED; an interceptor has no details to give. Borrows the limit. Threads:
// safe anywhere.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeHealthLimit(CallLimit& watches);

}  // namespace permafrost::api
