#include "graphcache/census.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace permafrost::graphcache {
namespace {

// The part that is equal at every shape: types, ranks, arguments that are no integers. How a tensor is laid out is no
// part of a key.
std::string FormOf(const OpCall& call) {
  std::string form = call.op;
  for (const CallTensor& tensor : call.tensors) absl::StrAppend(&form, "|", tensor.type, tensor.sizes.size());
  absl::StrAppend(&form, "|", call.rest);
  return form;
}

std::vector<int64_t> IntegersOf(const OpCall& call) {
  std::vector<int64_t> integers;
  for (const CallTensor& tensor : call.tensors) {
    integers.insert(integers.end(), tensor.sizes.begin(), tensor.sizes.end());
  }
  integers.insert(integers.end(), call.integers.begin(), call.integers.end());
  return integers;
}

absl::Status Differs(const OpCall& call, const std::string& why) {
  return absl::FailedPreconditionError(absl::StrCat("no census of the step: ", call.op, " ", why));
}

// One call at every shape.
absl::StatusOr<SymbolicCall> FindCall(size_t place, std::span<const std::vector<OpCall>> streams,
                                      std::span<const std::vector<int64_t>> sizes) {
  const OpCall& first = streams.front()[place];
  SymbolicCall out{.op = first.op, .form = FormOf(first), .integers = {}};
  std::vector<std::vector<int64_t>> integers;
  for (const auto& stream : streams) {
    integers.push_back(IntegersOf(stream[place]));
    if (FormOf(stream[place]) != out.form || integers.back().size() != integers.front().size()) {
      return Differs(first,
                     absl::StrCat("is called as ", out.form, " and, at another shape, as ", FormOf(stream[place])));
    }
  }
  for (size_t i = 0; i < integers.front().size(); ++i) {
    std::vector<int64_t> values;
    values.reserve(integers.size());
    for (const auto& of_shape : integers) values.push_back(of_shape[i]);
    std::optional<SizeSum> sum = SizeSum{.terms = {}, .plus = values.front()};
    if (std::ranges::adjacent_find(values, std::not_equal_to()) != values.end()) {
      sum = FindSum(std::span(values).first(values.size() - 1), sizes.first(sizes.size() - 1));
    }
    if (!sum || sum->At(sizes.back()) != values.back()) {
      return Differs(first, absl::StrCat("is called with ", absl::StrJoin(values, ", "),
                                         " at as many shapes, which do not follow from the batch's sizes"));
    }
    out.integers.push_back(*std::move(sum));
  }
  return out;
}

}  // namespace

absl::StatusOr<SymbolicStep> FindCalls(std::span<const std::vector<OpCall>> streams,
                                       std::span<const std::vector<int64_t>> sizes, TorchRelease release) {
  SymbolicStep step;
  step.operators = std::ssize(streams.front());
  for (const auto& stream : streams) {
    if (std::ssize(stream) != step.operators) {
      return absl::FailedPreconditionError(absl::StrCat("no census of the step: it calls ", step.operators,
                                                        " operators, and ", stream.size(), " at another shape"));
    }
  }
  for (size_t place = 0; place < streams.front().size(); ++place) {
    const OpCall& call = streams.front()[place];
    const std::optional<int64_t> entries = EntriesOf(call, release);
    if (!entries && std::ranges::find(step.unknown, call.op) == step.unknown.end()) step.unknown.push_back(call.op);
    if (entries.value_or(0) == 0) continue;
    absl::StatusOr<SymbolicCall> symbolic = FindCall(place, streams, sizes);
    if (!symbolic.ok()) return symbolic.status();
    symbolic->entries = *entries;
    if (std::ranges::find(step.calls, *symbolic) == step.calls.end()) step.calls.push_back(*std::move(symbolic));
  }
  return step;
}

int64_t EntryCounter::Add(const SymbolicStep& step, std::span<const int64_t> sizes) {
  const int64_t before = total_;
  for (const SymbolicCall& call : step.calls) {
    std::vector<int64_t> integers;
    integers.reserve(call.integers.size());
    for (const SizeSum& integer : call.integers) integers.push_back(integer.At(sizes));
    if (!keys_.emplace(call.form, std::move(integers)).second) continue;
    by_op_[call.op] += call.entries;
    total_ += call.entries;
  }
  return total_ - before;
}

ModeCensus CountMode(const SymbolicStep& step, const SizedSchedule& schedule, const SizedShape& largest) {
  EntryCounter one, all;
  one.Add(step, largest.sizes);
  EntryCounter epoch;
  for (size_t i = 0; i < schedule.shapes.size(); ++i) {
    all.Add(step, schedule.shapes[i].sizes);
    if (std::cmp_less(i, schedule.first_epoch)) epoch.Add(step, schedule.shapes[i].sizes);
  }
  ModeCensus census{.operators = step.operators, .ops = {}, .all = {"", one.total(), epoch.total(), all.total()}};
  for (const auto& [op, count] : one.by_op()) census.ops.push_back({op, count, epoch.of(op), all.of(op)});
  return census;
}

CensusRow CountPolicy(const std::array<SymbolicStep, 2>& steps, const std::array<SizedSchedule, 2>& schedules,
                      bool empties) {
  CensusRow row{.train_shapes = std::ssize(schedules[0].shapes), .eval_shapes = std::ssize(schedules[1].shapes)};
  EntryCounter run, epoch;
  for (size_t mode = 0; mode < steps.size(); ++mode) {
    for (size_t i = 0; i < schedules[mode].shapes.size(); ++i) {
      const SizedShape& shape = schedules[mode].shapes[i];
      EntryCounter alone;
      const int64_t entries = alone.Add(steps[mode], shape.sizes);
      row.shape = std::max(row.shape, entries);
      row.compiled += entries * shape.batches;
      run.Add(steps[mode], shape.sizes);
      if (std::cmp_less(i, schedules[mode].first_epoch)) epoch.Add(steps[mode], shape.sizes);
    }
  }
  if (empties) return row;  // nothing outlives a step
  row.epoch = epoch.total();
  row.run = row.compiled = run.total();
  return row;
}

}  // namespace permafrost::graphcache
