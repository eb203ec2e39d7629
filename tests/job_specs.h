// Job specs in protobuf's text format, for tests that visit every field by reflection.
#pragma once

#include <string>
#include <vector>

namespace permafrost {

// Each field applies to at least one of these specs. Specs for sets of graphs come first, then those for one large
// graph.
inline const std::vector<std::string> kJobSpecs = {
    R"(dataset: "datasets/set")",
    R"(dataset: "datasets/set" optimizer { algorithm: ALGORITHM_SGD learning_rate: 3 weight_decay: 1 momentum: 0.5 schedule: SCHEDULE_PLATEAU })",
    R"(dataset: "datasets/set" optimizer { schedule: SCHEDULE_STEP decay_epochs: 3 } replicas: 9)",
    R"(dataset: "datasets/set" batching { kind: KIND_BUDGET max_nodes: 90000 max_edges: 90000 } cross_validation { folds: 5 })",
    R"(dataset: "datasets/set" model { architecture: ARCHITECTURE_PROGRAM program: "programs/mine" })",
    R"(dataset: "datasets/set" init_from { job: "jobs/first" })",
    R"(dataset: "datasets/set" init_from { file: "/data/first.safetensors" })",
    R"(dataset: "datasets/large" model { architecture: ARCHITECTURE_SAGE } neighbor_sampling { fan_outs: [5, 5] })",
    R"(dataset: "datasets/large" model { architecture: ARCHITECTURE_SAGE } neighbor_sampling { fan_outs: [5, 5] eval_fan_outs: [7, 7] })",
    R"(dataset: "datasets/large" model { architecture: ARCHITECTURE_SAGE } neighbor_sampling { fan_outs: [5, 5] } batching { kind: KIND_BUDGET max_nodes: 90000 })",
    R"(dataset: "datasets/large" model { architecture: ARCHITECTURE_GATV2 } neighbor_sampling { fan_outs: [5, 5] temporal: TEMPORAL_SAMPLING_LAST seed_time: 7 disjoint: true })",
    R"(dataset: "datasets/large" model { architecture: ARCHITECTURE_GCN } link_prediction { })",
    R"(dataset: "datasets/linked" model { architecture: ARCHITECTURE_GCN } link_prediction { })",
    R"(dataset: "datasets/large" model { architecture: ARCHITECTURE_NODE2VEC } node2vec { })",
};

}  // namespace permafrost
