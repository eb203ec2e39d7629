#include "collective/tcp_group.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/host_port.h"
#include "base/monotonic.h"
#include "base/status.h"

namespace permafrost::collective {
namespace {

// Tensors up to this size, in bytes, are sent whole to every rank. One exchange of the whole tensor then takes less
// time than two exchanges of parts.
constexpr size_t kWhole = 64 << 10;
constexpr absl::string_view kLeadersHost = "-";
// The time within which a connecting rank must send its Hello.
constexpr absl::Duration kHelloTime = absl::Milliseconds(500);
// The time within which the ranks other than the leader must connect to each other, after all have reached the
// leader.
constexpr absl::Duration kOthersTime = absl::Seconds(20);

template <class T>
std::span<const char> BytesOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
template <class T>
std::span<char> BytesOf(T& value) {
  return {reinterpret_cast<char*>(&value), sizeof value};
}

class TcpGroup final : public Group {
 public:
  // `connections` is indexed by rank. This rank's own entry is not open.
  TcpGroup(const TcpOptions& options, std::vector<Connection> connections)
      : Group(options.rank, options.size),
        step_timeout_(options.step_timeout),
        meet_timeout_(options.meet_timeout),
        keep_going_(options.keep_going),
        connections_(std::move(connections)) {}

  void Meet() override {
    const char own = 1;
    std::vector<char> all(static_cast<size_t>(size()));
    Gather(BytesOf(own), all, meet_timeout_);
  }

  void AllReduceSum(at::Tensor& x) override {
    CheckDense(x);
    std::span<char> bytes(static_cast<char*>(x.mutable_data_ptr()), x.nbytes());
    if (bytes.empty()) return;
    if (bytes.size() <= kWhole) {
      parts_.resize(bytes.size() * static_cast<size_t>(size()));
      Gather(bytes, parts_, step_timeout_);
      return Add(x.scalar_type(), parts_, bytes);
    }
    // Each rank adds up one part of the tensor, and sends the sum to the others.
    const auto part = [&](int64_t rank) {
      const auto at = [&](int64_t r) { return static_cast<size_t>(x.numel() * r / size()) * x.element_size(); };
      return bytes.subspan(at(rank), at(rank + 1) - at(rank));
    };
    const std::span<char> own = part(rank());
    parts_.resize(own.size() * static_cast<size_t>(size()));
    const auto slot = [&](int64_t r) {
      return std::span(parts_).subspan(own.size() * static_cast<size_t>(r), own.size());
    };
    Run([&](int64_t r) { return Transfer{.out = part(r), .in = slot(r)}; }, step_timeout_);
    std::ranges::copy(own, slot(rank()).begin());
    Add(x.scalar_type(), parts_, own);
    Run([&](int64_t r) { return Transfer{.out = own, .in = part(r)}; }, step_timeout_);
  }

  void AllGather(const at::Tensor& x, at::Tensor& all) override {
    CheckDense(x);
    CheckDense(all);
    TORCH_CHECK(all.nbytes() == x.nbytes() * static_cast<size_t>(size()), "AllGather: ", all.nbytes(), " bytes for ",
                size(), " times ", x.nbytes());
    Gather({static_cast<const char*>(x.const_data_ptr()), x.nbytes()},
           {static_cast<char*>(all.mutable_data_ptr()), all.nbytes()}, step_timeout_);
  }

  void ShareRows(at::Tensor& x, std::span<const int64_t> firsts) override {
    CheckDense(x);
    TORCH_CHECK(std::ssize(firsts) == size() + 1 && firsts.back() == x.size(0), "ShareRows: ", x.size(0), " rows");
    if (x.numel() == 0) return;
    const std::span<char> bytes(static_cast<char*>(x.mutable_data_ptr()), x.nbytes());
    const size_t row = x.nbytes() / static_cast<size_t>(x.size(0));
    const auto part = [&](int64_t r) {
      const auto first = static_cast<size_t>(firsts[static_cast<size_t>(r)]);
      return bytes.subspan(first * row, (static_cast<size_t>(firsts[static_cast<size_t>(r + 1)]) - first) * row);
    };
    Run([&](int64_t r) { return Transfer{.out = part(rank()), .in = part(r)}; }, step_timeout_);
  }

  void Broadcast(at::Tensor& x) override {
    CheckDense(x);
    const std::span<char> bytes(static_cast<char*>(x.mutable_data_ptr()), x.nbytes());
    Run(
        [&](int64_t r) {
          if (leads()) return Transfer{.out = bytes};
          return Transfer{.in = r == 0 ? bytes : std::span<char>()};
        },
        step_timeout_);
  }

  absl::Status failure() const override { return failure_; }
  Traffic traffic() const override { return traffic_; }

 private:
  static void CheckDense(const at::Tensor& x) {
    TORCH_CHECK(x.is_cpu() && x.is_contiguous(), "ranks exchange dense tensors of the CPU");
  }

  void Gather(std::span<const char> own, std::span<char> all, absl::Duration timeout) {
    const auto slot = [&](int64_t r) { return all.subspan(own.size() * static_cast<size_t>(r), own.size()); };
    Run([&](int64_t r) { return Transfer{.out = own, .in = slot(r)}; }, timeout);
    std::ranges::copy(own, slot(rank()).begin());
  }

  // Performs transfer_of(r) for every other rank r, all in one exchange.
  template <class TransferOf>
  void Run(const TransferOf& transfer_of, absl::Duration timeout) {
    if (failure_.ok()) {
      transfers_.clear();
      for (int64_t r = 0; r < size(); ++r) {
        if (r == rank()) continue;
        const Connection& connection = connections_[static_cast<size_t>(r)];
        Transfer& transfer = transfers_.emplace_back(transfer_of(r));
        transfer.connection = &connection;
        transfer.rank = r;
        traffic_.sent_bytes += std::ssize(transfer.out);
      }
      const Stopwatch watch;
      failure_ = Exchange(transfers_, ++number_, {.idle = timeout, .keep_going = keep_going_});
      traffic_.time += watch.Elapsed();
      ++traffic_.exchanges;
    }
    if (!failure_.ok()) throw std::runtime_error(std::string(failure_.message()));
  }

  // Sets `to` to the sum of the parts of all ranks, added in the order of ranks.
  void Add(at::ScalarType type, std::span<const char> parts, std::span<char> to) {
    if (type == at::kBFloat16) {
      const auto* const from = reinterpret_cast<const at::BFloat16*>(parts.data());
      auto* const rounded = reinterpret_cast<at::BFloat16*>(to.data());
      sums_.resize(to.size() / sizeof(at::BFloat16));
      AddInOrder(from, std::span(sums_));
      std::ranges::copy(sums_, rounded);
      return;
    }
    AT_DISPATCH_ALL_TYPES(type, "AllReduceSum", [&] {
      AddInOrder(reinterpret_cast<const scalar_t*>(parts.data()),
                 std::span(reinterpret_cast<scalar_t*>(to.data()), to.size() / sizeof(scalar_t)));
    });
  }
  template <class From, class To>
  void AddInOrder(const From* parts, std::span<To> sums) const {
    std::copy_n(parts, sums.size(), sums.begin());
    for (int64_t r = 1; r < size(); ++r) {
      const From* const part = parts + static_cast<size_t>(r) * sums.size();
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<To>(part[i]);
    }
  }

  const absl::Duration step_timeout_, meet_timeout_;
  const std::function<bool()> keep_going_;
  const std::vector<Connection> connections_;
  std::vector<Transfer> transfers_;
  std::vector<char> parts_;
  std::vector<float> sums_;
  uint64_t number_ = 0;  // the number of the exchange
  Traffic traffic_;
  absl::Status failure_;
};

// The first message that each rank sends on every connection.
struct Hello {
  // A peer that is another program, has another version of Hello or another byte order sends a different value.
  uint64_t magic = 0x5046'7261'6e6b'0001;
  char token[32] = {};
  int64_t rank = 0;
  int64_t port = 0;  // the port on which the rank listens; 0: none
};

absl::Status Send(const Connection& to, std::span<const char> bytes, const Deadline& deadline) {
  Transfer transfer{.connection = &to, .out = bytes};
  return Exchange({&transfer, 1}, /*number=*/0,
                  {.idle = deadline.left(), .total = deadline.left(), .keep_going = [&deadline] {
                     return deadline.left() > absl::ZeroDuration();
                   }});
}

absl::Status Receive(const Connection& from, std::span<char> bytes, const Deadline& deadline) {
  Transfer transfer{.connection = &from, .in = bytes};
  return Exchange({&transfer, 1}, /*number=*/0,
                  {.idle = deadline.left(), .total = deadline.left(), .keep_going = [&deadline] {
                     return deadline.left() > absl::ZeroDuration();
                   }});
}

Hello HelloOf(const TcpOptions& options, int64_t port) {
  Hello hello{.rank = options.rank, .port = port};
  std::ranges::copy(options.token.substr(0, sizeof hello.token), hello.token);
  return hello;
}

// Accepts connections of ranks `first` to options.size - 1, and returns their Hello by rank. Closes connections of
// peers that do not send the token.
absl::StatusOr<std::vector<Hello>> AcceptRanks(const Socket& listening, const TcpOptions& options, int64_t first,
                                               const Deadline& deadline, std::vector<Connection>& connections) {
  std::vector<Hello> hellos(static_cast<size_t>(options.size));
  const Hello own = HelloOf(options, 0);
  for (int64_t missing = options.size - first; missing > 0;) {
    PF_ASSIGN_OR_RETURN(Connection connection, Accept(listening, deadline));
    Hello hello;
    if (!Receive(connection, BytesOf(hello), deadline.Within(kHelloTime)).ok()) continue;
    if (hello.magic != own.magic || std::memcmp(hello.token, own.token, sizeof own.token) != 0) continue;
    if (hello.rank < first || hello.rank >= options.size) continue;
    Connection& place = connections[static_cast<size_t>(hello.rank)];
    if (place.socket.open()) continue;
    place = std::move(connection);
    hellos[static_cast<size_t>(hello.rank)] = hello;
    --missing;
  }
  return hellos;
}

// Turns the error of AcceptRanks into the error that the caller returns. After a timeout, the returned error names
// the first rank from `first` on that has not connected to `port` of this machine within `waited`.
absl::Status MissingRank(const absl::Status& failed, const TcpOptions& options,
                         const std::vector<Connection>& connections, int64_t first, int port, absl::Duration waited) {
  const bool asked_to_end = options.keep_connecting && !options.keep_connecting();
  if (asked_to_end || !absl::IsDeadlineExceeded(failed)) return absl::UnavailableError(failed.message());
  const auto missing = std::find_if(connections.begin() + first, connections.end(),
                                    [](const Connection& c) { return !c.socket.open(); });
  const std::string rank = absl::StrCat(missing - connections.begin());
  return WithReason(absl::UnavailableError(absl::StrCat("rank ", rank, " has not connected to port ", port,
                                                        " of this machine within ", absl::FormatDuration(waited),
                                                        ": does a firewall block it?")),
                    "RANK_MISSING", {{"rank", rank}});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Rendezvous>> Rendezvous::Serve() {
  auto made = std::make_unique<Rendezvous>();
  PF_ASSIGN_OR_RETURN(made->socket_, Listen());
  PF_ASSIGN_OR_RETURN(made->port_, PortOf(made->socket_));
  std::random_device random;
  while (made->token_.size() < sizeof Hello::token)
    absl::StrAppend(&made->token_, absl::Hex(random(), absl::kZeroPad8));
  return made;
}

absl::StatusOr<std::unique_ptr<Group>> LeadTcp(const Rendezvous& rendezvous, TcpOptions options) {
  options.rank = 0;
  options.token = rendezvous.token();
  const Deadline deadline(options.connect_timeout, options.keep_connecting);
  std::vector<Connection> connections(static_cast<size_t>(options.size));
  const absl::StatusOr<std::vector<Hello>> accepted =
      AcceptRanks(rendezvous.socket(), options, /*first=*/1, deadline, connections);
  if (!accepted.ok()) {
    return MissingRank(accepted.status(), options, connections, /*first=*/1, rendezvous.port(),
                       options.connect_timeout);
  }
  const std::vector<Hello>& hellos = *accepted;
  // The addresses on which the ranks listen, one line "host port" per rank. The leader sends this table to each rank.
  std::string table;
  for (size_t r = 1; r < connections.size(); ++r) {
    const std::string& host = connections[r].host;
    // If a rank is on the leader's machine, the others reach it at the address at which they reach the leader.
    const bool is_here = IsLoopback({.host = host});
    absl::StrAppend(&table, is_here ? kLeadersHost : absl::string_view(host), " ", hellos[r].port, "\n");
  }
  const uint64_t bytes = table.size();
  for (size_t r = 1; r < connections.size(); ++r) {
    PF_RETURN_IF_ERROR(Send(connections[r], BytesOf(bytes), deadline));
    PF_RETURN_IF_ERROR(Send(connections[r], table, deadline));
  }
  return std::make_unique<TcpGroup>(options, std::move(connections));
}

absl::StatusOr<std::unique_ptr<Group>> JoinTcp(const std::string& host, int port, TcpOptions options) {
  constexpr uint64_t kMostTable = 1 << 20;
  const Deadline deadline(options.connect_timeout, options.keep_connecting);
  PF_ASSIGN_OR_RETURN(const Socket listening, Listen());
  PF_ASSIGN_OR_RETURN(const int own_port, PortOf(listening));
  const Hello hello = HelloOf(options, own_port);
  PF_ASSIGN_OR_RETURN(Connection leader, Connect(host, port, deadline));
  PF_RETURN_IF_ERROR(Send(leader, BytesOf(hello), deadline));
  uint64_t bytes = 0;
  PF_RETURN_IF_ERROR(Receive(leader, BytesOf(bytes), deadline));
  if (bytes > kMostTable) return absl::UnavailableError(absl::StrCat(host, ":", port, " is no rendezvous"));
  std::string table(bytes, '\0');
  PF_RETURN_IF_ERROR(Receive(leader, table, deadline));
  const std::vector<std::string> lines = absl::StrSplit(table, '\n', absl::SkipEmpty());
  options.size = std::ssize(lines) + 1;
  if (options.rank >= options.size) {
    return absl::UnavailableError(
        absl::StrCat("the leader has ", options.size, " ranks, and this one is rank ", options.rank));
  }
  std::vector<Connection> connections(static_cast<size_t>(options.size));
  connections[0] = std::move(leader);
  const Deadline others = deadline.Within(kOthersTime);
  for (int64_t r = 1; r < options.rank; ++r) {
    const std::pair<std::string, std::string> where = absl::StrSplit(lines[static_cast<size_t>(r - 1)], ' ');
    int other = 0;
    if (!absl::SimpleAtoi(where.second, &other)) return absl::UnavailableError("the rendezvous told no port");
    absl::StatusOr<Connection> connection = Connect(where.first == kLeadersHost ? host : where.first, other, others);
    const absl::Status said = connection.ok() ? Send(*connection, BytesOf(hello), others) : connection.status();
    if (!said.ok()) {
      return absl::UnavailableError(absl::StrCat("rank ", options.rank, " cannot connect to rank ", r, " (",
                                                 said.message(), "): does a firewall block it?"));
    }
    connections[static_cast<size_t>(r)] = *std::move(connection);
  }
  const auto accepted = AcceptRanks(listening, options, options.rank + 1, others, connections);
  if (!accepted.ok()) {
    return MissingRank(accepted.status(), options, connections, options.rank + 1, own_port, kOthersTime);
  }
  return std::make_unique<TcpGroup>(options, std::move(connections));
}

}  // namespace permafrost::collective
