#include "client/sample_caches.h"

namespace permafrost::client {
namespace {

// 2026-03-10 12:00:07 UTC.
constexpr int64_t kFrozenAt = 1'773'144'007;

void SetShape(int64_t nodes, int64_t edges, int64_t graphs, v1::BatchShape& shape) {
  shape.set_nodes(nodes);
  shape.set_edges(edges);
  shape.set_graphs(graphs);
}

}  // namespace

v1::GraphCache NewCache() {
  v1::GraphCache cache;
  cache.set_name("jobs/zinc-1/graphCache");
  cache.mutable_policy()->set_policy(v1::GraphCachePolicy::POLICY_FREEZE);
  cache.mutable_policy()->set_freeze_at(0);
  cache.mutable_policy()->set_on_miss(v1::GraphCachePolicy::ON_MISS_PAD);
  cache.set_armed(true);
  cache.add_statistics()->set_mode(v1::GRAPH_CACHE_MODE_TRAIN);
  cache.add_statistics()->set_mode(v1::GRAPH_CACHE_MODE_EVAL);
  return cache;
}

v1::GraphCache WarmingCache() {
  v1::GraphCache cache = NewCache();
  cache.set_freeze_at(97);
  cache.set_planned_train_shapes(2'830);
  SetShape(892, 1'931, 33, *cache.mutable_train_ceiling());
  SetShape(868, 1'879, 33, *cache.mutable_eval_ceiling());
  v1::GraphCacheStatistics& train = *cache.mutable_statistics(0);
  train.set_entries(41);
  train.set_entry_bytes(1'230'000);
  train.set_capacity(98);
  train.set_hits(1);
  train.set_misses(41);
  train.set_captures(41);
  train.set_capture_seconds(0.21);
  train.set_graphs(1'344);
  train.set_nodes(31'033);
  train.set_edges(66'730);
  train.set_padding_graphs(42);
  train.set_padding_nodes(42);
  cache.mutable_statistics(1)->set_capacity(32);
  cache.set_shared_bytes(9'100'000);
  cache.set_total_bytes(10'330'000);
  return cache;
}

v1::GraphCache FrozenCache() {
  v1::GraphCache cache = WarmingCache();
  cache.set_frozen(true);
  cache.set_freeze_step(106);
  cache.mutable_freeze_time()->set_seconds(kFrozenAt);
  v1::GraphCacheStatistics& train = *cache.mutable_statistics(0);
  train.set_entries(98);
  train.set_entry_bytes(2'940'000);
  train.set_capacity(98);
  train.set_hits(2'758);
  train.set_padded_hits(28'445);
  train.set_misses(97);
  train.set_captures(98);
  train.set_rejected_inserts(28'445);
  train.set_capture_seconds(0.49);
  train.set_graphs(1'000'000);
  train.set_nodes(23'090'000);
  train.set_edges(49'650'000);
  train.set_padding_graphs(31'300);
  train.set_padding_nodes(95'400);
  train.set_padding_edges(153'200);
  v1::GraphCacheStatistics& eval = *cache.mutable_statistics(1);
  eval.set_entries(32);
  eval.set_entry_bytes(416'000);
  eval.set_capacity(32);
  eval.set_hits(403);
  eval.set_padded_hits(2'765);
  eval.set_misses(32);
  eval.set_captures(32);
  eval.set_capture_seconds(0.08);
  eval.set_graphs(101'000);
  eval.set_nodes(2'330'000);
  eval.set_edges(5'010'000);
  eval.set_padding_graphs(3'200);
  eval.set_padding_nodes(17'000);
  eval.set_padding_edges(34'500);
  cache.set_shared_bytes(10'844'000);
  cache.set_total_bytes(14'200'000);
  return cache;
}

v1::GraphCache DynamicCache() {
  v1::GraphCache cache = FrozenCache();
  cache.mutable_policy()->set_shapes(v1::GraphCachePolicy::SHAPES_AUTO);
  cache.set_freeze_at(1);
  cache.set_freeze_step(0);
  for (v1::GraphCacheStatistics& s : *cache.mutable_statistics()) {
    s.set_dynamic(true);
    s.set_entries(1);
    s.set_entry_bytes(30'000);
    s.set_capacity(1);
    s.set_hits(s.hits() + s.padded_hits() + s.misses());
    s.set_padded_hits(0);
    s.set_misses(0);
    s.set_captures(1);
    s.set_rejected_inserts(0);
  }
  cache.set_total_bytes(10'904'000);
  return cache;
}

v1::ExplainGraphCacheResponse Explanation() {
  v1::ExplainGraphCacheResponse explanation;
  v1::GraphCache& cache = *explanation.mutable_cache();
  cache = DynamicCache();
  cache.mutable_policy()->set_audit_every(1'000);
  cache.mutable_statistics(0)->set_audits(31);
  cache.mutable_statistics(1)->set_audits(2);
  const auto count = [](v1::GraphCacheMode mode, v1::GraphCacheCause cause, int64_t times, v1::CauseCount& out) {
    out.set_mode(mode);
    out.set_cause(cause);
    out.set_count(times);
  };
  count(v1::GRAPH_CACHE_MODE_TRAIN, v1::GRAPH_CACHE_CAUSE_FIRST_STEP, 1, *cache.add_captures_by_cause());
  count(v1::GRAPH_CACHE_MODE_TRAIN, v1::GRAPH_CACHE_CAUSE_RESUME, 2, *cache.add_captures_by_cause());
  count(v1::GRAPH_CACHE_MODE_EVAL, v1::GRAPH_CACHE_CAUSE_FREEZE, 1, *cache.add_captures_by_cause());
  count(v1::GRAPH_CACHE_MODE_TRAIN, v1::GRAPH_CACHE_CAUSE_FIRST_STEP, 1, *cache.add_misses_by_cause());
  v1::StepProfile& profile = *explanation.add_profiles();
  profile.set_mode(v1::GRAPH_CACHE_MODE_TRAIN);
  profile.set_step(31'000);
  SetShape(757, 1'630, 33, *profile.mutable_shape());
  profile.set_replay_seconds(0.002);
  profile.set_eager_seconds(0.003);
  profile.set_product_seconds(0.001);
  const auto time = [](const char* op, int64_t calls, double seconds, bool product, v1::OperatorTime& out) {
    out.set_op(op);
    out.set_calls(calls);
    out.set_seconds(seconds);
    out.set_product(product);
  };
  time("permafrost::gine_layer", 4, 0.001, false, *profile.add_operators());
  time("aten::mm", 6, 0.0004, true, *profile.add_operators());
  time("aten::addmm", 1, 0.0001, true, *profile.add_operators());
  v1::LineTime& line = *profile.add_lines();
  line.set_line("net.py:12 in forward: h = conv(h)");
  line.set_forward_seconds(0.0001);
  line.set_backward_seconds(0.0002);
  v1::LineTime& without_gradient = *profile.add_lines();
  without_gradient.set_line("net.py:9 in forward: degree = count(edge_index)");
  without_gradient.set_forward_seconds(0.00004);
  return explanation;
}

std::vector<v1::GraphCacheEntry> SampleEntries() {
  v1::GraphCacheEntry used;
  used.set_mode(v1::GRAPH_CACHE_MODE_TRAIN);
  SetShape(757, 1'630, 33, *used.mutable_shape());
  used.set_bytes(29'800);
  used.set_hits(31);
  used.set_padded_hits(1'204);
  used.set_capture_seconds(0.0051);
  used.set_replay_seconds(0.00324);
  used.mutable_last_use_time()->set_seconds(kFrozenAt + 233);
  v1::GraphCacheEntry unused;
  unused.set_mode(v1::GRAPH_CACHE_MODE_EVAL);
  SetShape(868, 1'879, 33, *unused.mutable_shape());
  unused.set_bytes(13'000);
  unused.set_capture_seconds(0.0024);
  unused.set_created_step(106);
  unused.set_dynamic(true);
  return {used, unused};
}

}  // namespace permafrost::client
