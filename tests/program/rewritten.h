// Compares the results of a program of TypedWriter with those of its rewritten form.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "program/interpreter.h"
#include "program/typed_writer.h"

namespace permafrost::program {

// Returns success if both tensors are equal up to the rounding of sums of doubles.
inline testing::AssertionResult IsClose(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return testing::AssertionFailure() << "other sizes";
  if (!at::isFloatingType(a.scalar_type()) || a.numel() == 0) {
    return a.equal(b) ? testing::AssertionSuccess() : testing::AssertionFailure() << "not equal";
  }
  const double difference = (a - b).abs().max().item<double>(), scale = b.abs().max().item<double>();
  // Batch norms of few rows divide by small deviations, so rounding errors grow.
  if (difference <= 1e-12 * std::max(1.0, scale)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "differs by " << difference << " of " << scale;
}

inline int64_t Count(const Program& program, const std::string& op) {
  return std::ranges::count_if(program.graph.nodes,
                               [&](const Node& node) { return node.target == "torch.ops.aten." + op; });
}

// Returns the outputs, and the gradients of the float inputs.
inline std::vector<at::Tensor> RunWriter(const std::shared_ptr<const Program>& program, int64_t nodes, int64_t edges) {
  auto interpreter = Interpreter::Make(program, {});
  EXPECT_TRUE(interpreter.ok()) << interpreter.status();
  const std::vector<at::Tensor> tensors = TypedWriter::Batch(*program, nodes, edges);
  std::vector<at::Tensor> results;
  for (const c10::IValue& value : interpreter->Run({tensors.begin(), tensors.end()}))
    results.push_back(value.toTensor());
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (const at::Tensor& output : results) loss = loss + output.square().sum();
  if (loss.requires_grad()) torch::autograd::backward({loss}, {});
  for (const at::Tensor& tensor : tensors)
    if (at::isFloatingType(tensor.scalar_type())) results.push_back(tensor.grad());
  return results;
}

// Compares the results of two programs on batches of (nodes, edges).
inline void ExpectSameResults(const std::shared_ptr<const Program>& program,
                              const std::shared_ptr<const Program>& other,
                              const std::vector<std::pair<int64_t, int64_t>>& batches) {
  for (const auto& [nodes, edges] : batches) {
    SCOPED_TRACE(testing::Message() << nodes << " nodes, " << edges << " edges");
    const std::vector<at::Tensor> expected = RunWriter(program, nodes, edges), results = RunWriter(other, nodes, edges);
    EXPECT_EQ(results.size(), expected.size());
    for (size_t i = 0; i < std::min(results.size(), expected.size()); ++i) {
      EXPECT_EQ(results[i].defined(), expected[i].defined()) << i;
      if (!results[i].defined() || !expected[i].defined()) continue;
      EXPECT_TRUE(IsClose(results[i], expected[i])) << i;
    }
  }
}

// Rewrites the program and compares the results of both versions.
inline Program ExpectRewritten(std::optional<Program> (*rewrite)(const Program&),
                               const std::shared_ptr<const Program>& program) {
  auto rewritten = rewrite(*program);
  if (!rewritten) {
    ADD_FAILURE() << "nothing was rewritten";
    return *program;
  }
  ExpectSameResults(program, std::make_shared<const Program>(*rewritten), {{7, 19}, {1, 1}, {3, 0}});
  return *std::move(rewritten);
}

}  // namespace permafrost::program
