// Runs the ranks of one group on threads of this process, over real sockets.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "collective/tcp_group.h"

namespace permafrost::collective {

// Calls `rank` on one thread for each of `size` ranks, and waits for all of them.
inline void RunRanks(int64_t size, const std::function<void(Group&)>& rank, TcpOptions options = {}) {
  const auto rendezvous = Rendezvous::Serve();
  ASSERT_TRUE(rendezvous.ok()) << rendezvous.status();
  options.size = size;
  options.token = (*rendezvous)->token();
  std::vector<std::thread> threads;
  for (int64_t r = 0; r < size; ++r) {
    threads.emplace_back([&, r, own = options]() mutable {
      own.rank = r;
      const auto group = r == 0 ? LeadTcp(**rendezvous, own) : JoinTcp("127.0.0.1", (*rendezvous)->port(), own);
      ASSERT_TRUE(group.ok()) << group.status();
      rank(**group);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace permafrost::collective
