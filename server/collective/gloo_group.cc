#include "collective/gloo_group.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"

#ifdef PERMAFROST_GLOO
#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#endif

namespace permafrost::collective {

absl::StatusOr<std::string> OwnAddressTowards(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  // Any port will do: a datagram socket that is connected sends nothing.
  if (const int error = getaddrinfo(host.c_str(), "9", &hints, &found); error != 0) {
    return absl::UnavailableError(absl::StrCat("cannot find the address of ", host, ": ", gai_strerror(error)));
  }
  const absl::Cleanup free_found = [found] { freeaddrinfo(found); };
  int failed = 0;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    const int fd = socket(a->ai_family, SOCK_DGRAM, 0);
    if (fd < 0) continue;
    const absl::Cleanup close_fd = [fd] { close(fd); };
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    std::array<char, NI_MAXHOST> name{};
    if (connect(fd, a->ai_addr, a->ai_addrlen) == 0 &&
        getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&own), size, name.data(), name.size(), nullptr, 0, NI_NUMERICHOST) ==
            0) {
      return std::string(name.data());
    }
    failed = errno;
  }
  return absl::UnavailableError(
      absl::StrCat("this machine has no address that reaches ", host, ": ", std::strerror(failed)));
}

#ifdef PERMAFROST_GLOO

namespace {

std::chrono::milliseconds Milliseconds(absl::Duration d) {
  return std::chrono::milliseconds(absl::ToInt64Milliseconds(d));
}

// The first line of what c10d or Gloo throw; frames of the stack follow it.
std::string FirstLine(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

class TcpRendezvous final : public Rendezvous {
 public:
  explicit TcpRendezvous(c10::intrusive_ptr<c10d::TCPStore> store) : store_(std::move(store)) {}
  int port() const override { return store_->getPort(); }

 private:
  const c10::intrusive_ptr<c10d::TCPStore> store_;
};

class GlooGroup final : public Group {
 public:
  GlooGroup(const GlooOptions& options, c10::intrusive_ptr<c10d::Store> store,
            c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo)
      : Group(options.rank, options.size),
        meet_timeout_(Milliseconds(options.meet_timeout)),
        store_(std::move(store)),
        gloo_(std::move(gloo)) {}

  void Meet() override {
    Guard([&] {
      const int64_t meeting = ++meetings_;
      const auto key = [&](int64_t of) { return absl::StrCat("meet/", meeting, "/", of); };
      store_->set(key(rank()), std::vector<uint8_t>{1});
      std::vector<std::string> keys;
      for (int64_t r = 0; r < size(); ++r) keys.push_back(key(r));
      store_->wait(keys, meet_timeout_);
    });
  }

  void AllReduceSum(at::Tensor& x) override {
    Guard([&] {
      std::vector<at::Tensor> tensors{x};
      gloo_->allreduce(tensors)->wait();
    });
  }

  void AllGather(const at::Tensor& x, at::Tensor& all) override {
    Guard([&] {
      at::Tensor from = x.view({-1}), to = all.view({-1});
      gloo_->_allgather_base(to, from)->wait();
    });
  }

  void Broadcast(at::Tensor& x) override {
    if (x.numel() == 0) return;
    Guard([&] {
      std::vector<at::Tensor> tensors{x};
      gloo_->broadcast(tensors)->wait();
    });
  }

  absl::Status failure() const override { return failure_; }

 private:
  template <class F>
  void Guard(const F& exchange) {
    TORCH_CHECK(failure_.ok(), failure_.message());
    try {
      exchange();
    } catch (const std::exception& error) {
      failure_ = absl::UnavailableError(FirstLine(error));
      throw;
    }
  }

  const std::chrono::milliseconds meet_timeout_;
  const c10::intrusive_ptr<c10d::Store> store_;
  const c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_;
  int64_t meetings_ = 0;
  absl::Status failure_;
};

}  // namespace

std::string NoGlooReason() { return {}; }

absl::StatusOr<std::unique_ptr<Rendezvous>> Rendezvous::Serve() {
  try {
    c10d::TCPStoreOptions options;
    options.port = 0;
    options.isServer = true;
    options.waitWorkers = false;
    return std::make_unique<TcpRendezvous>(c10::make_intrusive<c10d::TCPStore>("localhost", options));
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("cannot serve a rendezvous: ", FirstLine(error)));
  }
}

absl::StatusOr<std::unique_ptr<Group>> JoinGloo(const GlooOptions& options) {
  try {
    c10d::TCPStoreOptions store_options;
    store_options.port = static_cast<uint16_t>(options.store_port);
    store_options.waitWorkers = false;
    store_options.timeout = Milliseconds(options.connect_timeout);
    auto store = c10::make_intrusive<c10d::TCPStore>(options.store_host, store_options);
    auto gloo_options = c10d::ProcessGroupGloo::Options::create(Milliseconds(options.connect_timeout));
    gloo_options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(options.own_host));
    // Collectives come one after the other.
    gloo_options->threads = 1;
    auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(
        c10::make_intrusive<c10d::PrefixStore>("gloo", store), static_cast<int>(options.rank),
        static_cast<int>(options.size), gloo_options);
    gloo->setTimeout(Milliseconds(options.step_timeout));
    return std::make_unique<GlooGroup>(options, std::move(store), std::move(gloo));
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("the daemons did not find each other: ", FirstLine(error)));
  }
}

#else

std::string NoGlooReason() { return "this build has no Gloo, which several daemons train by: its headers were missing"; }

absl::StatusOr<std::unique_ptr<Rendezvous>> Rendezvous::Serve() {
  return absl::FailedPreconditionError(NoGlooReason());
}

absl::StatusOr<std::unique_ptr<Group>> JoinGloo(const GlooOptions& /*options*/) {
  return absl::FailedPreconditionError(NoGlooReason());
}

#endif

}  // namespace permafrost::collective
