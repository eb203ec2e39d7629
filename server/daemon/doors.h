// The addresses of the daemon: who may call, how callers identify themselves, and where metrics are served.
// Threads: one, while the daemon starts.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "access/audit_log.h"
#include "access/gate.h"
#include "access/tls.h"
#include "access/token_store.h"
#include "base/resources.h"
#include "daemon/options.h"
#include "daemon/seen_clock.h"
#include "data/catalog/catalog.h"
#include "data/catalog/upload_store.h"
#include "telemetry/exposer.h"
#include "telemetry/job_metrics.h"
#include "telemetry/server_metrics.h"
#include "train/peers.h"

namespace prometheus {
class Registry;
}

namespace permafrost {

// The objects that control access to one daemon.
struct Access {
  std::unique_ptr<access::TokenStore> tokens;
  std::unique_ptr<access::AuditLog> audit;
  std::unique_ptr<access::CertificateFiles> certificates;  // null: the daemon uses plain text
  std::unique_ptr<access::Gate> gate;
  std::filesystem::path socket;  // empty: there is no socket
};

// Borrows `clock`, which decides when tokens expire.
absl::StatusOr<Access> OpenAccess(const Options& options, const std::filesystem::path& state_dir, SeenClock& clock);

// Reads the credentials that the daemon presents to its peers. `instance` is explained in api::PeerOptions. Returns
// null if the daemon has no peers.
absl::StatusOr<std::unique_ptr<train::Peers>> MakePeers(const Options& options, std::string instance);

// Serves /metrics, over HTTPS if there are certificates. Borrows `access`. `before_scrape` is explained in
// telemetry::Exposer.
absl::StatusOr<std::unique_ptr<telemetry::Exposer>> StartExposer(const Options& options, const Access& access,
                                                                 std::shared_ptr<prometheus::Registry> registry,
                                                                 std::function<void()> before_scrape);

// Logs what an operator who starts the daemon should know about its addresses.
void TellAccess(const Options& options, const Access& access);

// Copies the state of `catalog`, `uploads` and `disk` into the metrics, because they do not report it themselves.
// Called for each scrape of /metrics. Threads: one call at a time; other threads may use the objects meanwhile.
void RefreshMetrics(const data::Catalog& catalog, const data::UploadStore& uploads, const DiskReserve& disk,
                    telemetry::JobMetrics& job_metrics, telemetry::ServerMetrics& server_metrics);

}  // namespace permafrost
