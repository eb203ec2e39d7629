// The named results of an operator, forward and backward, for comparing two ways of running it.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/operators.h"

namespace permafrost::nn {

using OpOutcome = std::vector<std::pair<std::string, at::Tensor>>;

// `tolerance` is relative to each value, plus the same share of the largest value of its tensor.
inline void ExpectClose(const OpOutcome& a, const OpOutcome& b, double tolerance, const std::string& why) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const at::Tensor &p = a[i].second, &q = b[i].second;
    ASSERT_TRUE(p.defined() && q.defined()) << why << ": " << a[i].first;
    const double scale = 1 + (q.numel() > 0 ? q.abs().max().item<double>() : 0);
    EXPECT_TRUE(at::allclose(p, q, tolerance, tolerance * scale))
        << why << ": " << a[i].first << " differs by " << (p - q).abs().max();
  }
}

// Checks that the bits of the OpOutcome that run() returns do not depend on the number of threads. Either libtorch's
// operators or only Permafrost's own use several threads.
template <class Run>
void ExpectEqualByThreads(const Run& run, const std::string& why) {
  const int threads = at::get_num_threads();
  const auto run_on = [&](int of_torch, int own) {
    at::set_num_threads(of_torch);
    SetOperatorThreads(own);
    return run();
  };
  const OpOutcome one = run_on(1, 0);
  for (const auto& [of_torch, own] : {std::pair(4, 0), std::pair(1, 4)}) {
    const OpOutcome several = run_on(of_torch, own);
    EXPECT_EQ(one.size(), several.size()) << why;
    for (size_t i = 0; i < std::min(one.size(), several.size()); ++i) {
      EXPECT_TRUE(at::equal(one[i].second, several[i].second))
          << why << ": " << one[i].first << " on " << of_torch << " threads of libtorch and " << own << " of its own";
    }
  }
  SetOperatorThreads(0);
  at::set_num_threads(threads);
}

}  // namespace permafrost::nn
