// The results of an operator, forward and backward, by name: to hold one way of running it to another.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace permafrost::nn {

using OpOutcome = std::vector<std::pair<std::string, at::Tensor>>;

// tolerance: of each value, and of the largest of its tensor.
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

// run(): an OpOutcome, whose bits must not depend on the number of threads.
template <class Run>
void ExpectEqualByThreads(const Run& run, const std::string& why) {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const OpOutcome one = run();
  at::set_num_threads(4);
  const OpOutcome four = run();
  at::set_num_threads(threads);
  ASSERT_EQ(one.size(), four.size());
  for (size_t i = 0; i < one.size(); ++i) {
    EXPECT_TRUE(at::equal(one[i].second, four[i].second)) << why << ": " << one[i].first;
  }
}

}  // namespace permafrost::nn
