// Limits how many calls of one kind are served at once, and how many connections one client may use for calls. No
// client can thus take all memory, threads or open files from the jobs.
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

// The remote end of a connection: an IPv6 address (or an IPv4 address mapped into IPv6) and a port.
using PeerAddress = std::array<uint8_t, 18>;

// Parses gRPC's name for a peer ("ipv4:10.0.0.7:41234", "ipv6:%5Bfd00::7%5D:41234"). Returns nullopt if the peer has
// no address, as on a unix socket. Connections of a unix socket thus cannot be distinguished.
std::optional<PeerAddress> ParsePeer(std::string_view peer);
// Returns the peers of all open sockets of this process; nullopt if the system does not provide them.
std::optional<std::set<PeerAddress>> OpenPeers();

// Limits how many connections each client may use for calls at the same time. gRPC reports neither connections
// without calls nor the end of a connection. This class therefore counts a connection if the client has called on it
// and its socket is still open in this process.
// Threads: all methods are thread-safe and never wait for a disk.
class ConnectionLimit {
 public:
  // Returns the client whose limit a call counts against (credentials.h). Empty: no client, and so no limit.
  using Namer = std::function<std::string(const grpc::CallbackServerContext& context)>;

  // `most` is the limit of one client. 0: no limit.
  ConnectionLimit(int64_t most, Namer client_of,
                  std::function<std::optional<std::set<PeerAddress>>()> open_peers = OpenPeers)
      : most_(most), client_of_(std::move(client_of)), open_peers_(std::move(open_peers)) {}

  // Returns the client whose limit the call counts against. If the call is refused, its connection stays open,
  // because handlers cannot close it. gRPC closes the connection once it is idle (CallLimitOptions::idle).
  // Errors: ResourceExhausted (reason TOO_MANY_CONNECTIONS, metadata `client` and `limit`) if the client already
  // calls on as many other connections as the limit allows.
  absl::StatusOr<std::string> Admit(const grpc::CallbackServerContext& context);
  absl::Status Count(const std::string& client, std::string_view peer);

 private:
  void ForgetClosed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t most_;
  const Namer client_of_;
  const std::function<std::optional<std::set<PeerAddress>>()> open_peers_;
  absl::Mutex mu_;
  std::map<std::string, std::set<PeerAddress>> by_client_ ABSL_GUARDED_BY(mu_);  // no set is empty
  size_t counted_ ABSL_GUARDED_BY(mu_) = 0;                                      // in all sets together
  size_t forget_at_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<Stopwatch> forgot_ ABSL_GUARDED_BY(mu_);  // time since ForgetClosed last ended
  absl::Duration forgetting_took_ ABSL_GUARDED_BY(mu_);
};

// The most calls of each kind at once. Further calls are refused at once with RESOURCE_EXHAUSTED, reason
// TOO_MANY_CALLS, and a hint when to retry.
struct CallLimitOptions {
  // WatchJob, WatchGraphCache, WatchDataset and WatchServer together. Each call holds the last response that it sent.
  int watches = 4096;
  // StreamJobLogs. Each call holds a piece of the log.
  int log_streams = 1024;
  // ExportJob. Each call holds an open file and a piece of it.
  int exports = 64;
  // Commands to graph caches that wait for the job's next step. A command counts even after its client has gone.
  int cache_commands = 256;
  // VerifyDataset, SampleDataset and PlanDataset together. Each call takes a thread, a core, and all the disk
  // bandwidth that a training job leaves.
  int dataset_reads = 4;
  // PlanGraphCache and CensusGraphCache together. Each call takes a thread and the memory of a job's schedule. If the
  // device is idle, the call may also use the device and wait for it.
  int plans = 4;
  // EvaluateJob. Each call needs the memory of a model and its batches, and uses every core beside the training job.
  int evaluations = 2;
  // RunRank. Each call takes a thread. Only one call has the device; the server refuses every other call at once.
  int ranks = 4;
  // Health/Watch. Each call holds gRPC's state of a call. A refused call gets only a code, without details.
  int health_watches = 256;
  // UploadDataset and UploadProgram together. Each call takes a thread and a message of at most 1 MiB.
  int uploads = 16;
  // ListCheckpoints. Each call takes a thread while it reads files, which may be large.
  int checkpoint_lists = 8;
  // DeleteDataset, DeleteUpload and DeleteProgram together. Each call takes a thread while it removes files, which
  // may be large.
  int deletions = 16;
  // CreateToken and RevokeToken together. Each call takes a thread while it waits for the disk.
  int token_changes = 8;
  // Backup. A call takes a thread and the disk. Only one call at a time makes a backup. The second place is for a
  // repeated call, which is told to wait for the first one.
  int backups = 2;
  // Calls that wait for a thread of a pool; each holds its request in memory. The pools serve calls that need the
  // lock of the jobs or of the catalog, which is held during disk writes. So gRPC's own threads, which also answer
  // health checks, never wait for the disk.
  int waiting = 1024;
  int threads = 16;
  int submitting_threads = 2;
  // Open calls of any kind on one connection. No other limit counts calls whose request has not arrived yet. gRPC's
  // client queues further calls; a client that sends them anyway loses the connection. This number is larger than the
  // sum of the calls that the limits above allow one client.
  int calls_of_a_connection = 8192;
  // A stream ends if its client reads nothing for this long while there is something to read. A client process that
  // was stopped for longer must open a new stream.
  absl::Duration unread = absl::Minutes(5);
  // The most connections on which one client calls at once. 0: no limit. Each connection takes an open file.
  int64_t connections_of_a_client = 64;
  // A connection without calls for this long is closed. gRPC's clients reconnect by themselves.
  absl::Duration idle = absl::Minutes(10);
};

// Returns the client whose limit a call counts against (credentials.h). Empty: no client. If it returns an error, the
// call is refused.
using ClientNamer = std::function<absl::StatusOr<std::string>(const grpc::CallbackServerContext& context)>;

// Limits the calls of one kind. Threads: all methods are thread-safe. Slots may outlive the limit.
class CallLimit {
 public:
  // A place for one call. It becomes free when the last copy of the slot is destroyed.
  using Slot = std::shared_ptr<const void>;

  // `calls` names the calls in errors, in the plural. One client can hold at most three quarters of the slots, so
  // that it cannot shut out all other clients.
  CallLimit(std::string_view calls, int most, ClientNamer client_of = nullptr)
      : calls_(calls), most_(most), client_of_(std::move(client_of)) {}

  // Takes a slot. Errors: ResourceExhausted (reason TOO_MANY_CALLS, metadata `calls` and `limit`) if all slots are
  // taken, or if the client holds as many slots as one client may (then also metadata `client`); also the errors of
  // the namer.
  absl::StatusOr<Slot> Take(const grpc::CallbackServerContext& context);
  // Takes a slot that counts against no client.
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

// Returns the error of a call that is refused because `limit` calls of this kind are open. `calls` is in the plural.
absl::Status TooManyCalls(std::string_view calls, int64_t limit);

// Threads for calls that may wait (unary.h). Calls beyond the client's connection limit are refused.
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

  // All limits below except health_watches also check this limit.
  ConnectionLimit connections;
  const ClientNamer client_of;
  CallLimit watches, log_streams, exports, cache_commands, dataset_reads, plans, evaluations, ranks, health_watches,
      uploads, checkpoint_lists, deletions, token_changes, backups;
  CallPool workers;
  // Threads of CreateJob, RetryJob and DeleteJob. These calls take long (a plan of a whole set, a tree of files) and
  // run one after the other. The pool is separate from `workers`, so that no other call waits for them.
  CallPool submitters;
};

// Limits the watches of gRPC's own health service, whose calls reach none of our handlers. If all slots of `watches`
// are taken, ends a Health/Watch with RESOURCE_EXHAUSTED, without details, because an interceptor cannot add them.
// Borrows the limit.
// Threads: thread-safe.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeHealthLimit(CallLimit& watches);

}  // namespace permafrost::api
