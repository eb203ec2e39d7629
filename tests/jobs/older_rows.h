// Specs of jobs as older servers wrote them into the database, the oldest first.
#pragma once

#include <string>
#include <vector>

namespace permafrost::jobs {

struct OlderRow {
  std::string what;  // what this version of the row adds, or still lacks
  std::string text;
};

inline const std::vector<OlderRow> kOlderRows = {
    {"the first rows: no graph cache",
     R"({"batch_size":32,"checkpoint":{"every_steps":500,"keep":3},"dataset":"zinc","epochs":100,)"
     R"("loss":"l1","model":{"architecture":"gine","hidden_channels":128,"num_layers":4,"pooling":"sum"},)"
     R"("optimizer":{"algorithm":"adamw","learning_rate":0.001,"weight_decay":0.01},"priority":-5,)"
     R"("seed":18446744073709551615})"},
    {"a policy of its graph cache, dropout, a schedule",
     R"({"batch_size":32,"checkpoint":{"every_steps":200,"keep":2},"dataset":"zinc","epochs":20,)"
     R"("graph_cache":{"freeze_at":0,"on_miss":"transient","policy":"always"},"loss":"l1",)"
     R"("model":{"architecture":"gine","dropout":0.25,"hidden_channels":64,"num_layers":4,"pooling":"mean"},)"
     R"("optimizer":{"algorithm":"adam","learning_rate":0.001,"max_grad_norm":1.5,"schedule":"cosine",)"
     R"("warmup_steps":100,"weight_decay":0.0},"priority":0,"seed":0})"},
    {"one large graph, sampled; a set still says its fan-outs, which are none",
     R"({"batch_size":512,"checkpoint":{"every_steps":0,"keep":2},"class_weights":[0.5,2],"dataset":"arxiv",)"
     R"("epochs":20,"graph_cache":{"freeze_at":40,"on_miss":"eager","policy":"freeze"},)"
     R"("loss":"cross-entropy","model":{"architecture":"sage","dropout":0.0,"hidden_channels":64,)"
     R"("num_layers":2,"pooling":"mean"},"nodes":{"advise_pages":true,"eval_fan_outs":[20,20],)"
     R"("fan_outs":[15,10],"layer_wise_evaluation":false,"look_ahead":8,"replace":false,"weighted":true},)"
     R"("optimizer":{"algorithm":"adam","learning_rate":0.001,"max_grad_norm":0.0,"schedule":"constant",)"
     R"("warmup_steps":0,"weight_decay":0.0},"priority":0,"seed":3})"},
    {"a set, with the batches that were then sampled ahead",
     R"({"batch_size":32,"checkpoint":{"every_steps":0,"keep":2},"class_weights":[],"dataset":"zinc",)"
     R"("epochs":20,"graph_cache":{"freeze_at":40,"on_miss":"eager","policy":"never"},"loss":"l1",)"
     R"("model":{"architecture":"gine","dropout":0.0,"hidden_channels":64,"num_layers":4,"pooling":"mean"},)"
     R"("nodes":{"advise_pages":true,"eval_fan_outs":[],"fan_outs":[],"layer_wise_evaluation":false,)"
     R"("look_ahead":8,"replace":false,"weighted":false},"optimizer":{"algorithm":"adam",)"
     R"("learning_rate":0.001,"max_grad_norm":0.0,"schedule":"constant","warmup_steps":0,)"
     R"("weight_decay":0.0},"priority":0,"seed":0})"},
    {"checkpoints by time, one executable for every shape",
     R"({"batch_size":32,"checkpoint":{"every_seconds":0,"every_steps":1000,"keep":2},"class_weights":[],)"
     R"("dataset":"zinc","epochs":20,"graph_cache":{"freeze_at":12,"on_miss":"reject","policy":"freeze",)"
     R"("shapes":"dynamic"},"loss":"l1","model":{"architecture":"gine","dropout":0.0,"hidden_channels":64,)"
     R"("num_layers":4,"pooling":"mean"},"nodes":{"advise_pages":true,"eval_fan_outs":[],"fan_outs":[],)"
     R"("layer_wise_evaluation":false,"look_ahead":64,"replace":false,"weighted":false},)"
     R"("optimizer":{"algorithm":"adam","learning_rate":0.001,"max_grad_norm":0.0,"schedule":"constant",)"
     R"("warmup_steps":0,"weight_decay":0.0},"priority":0,"seed":0})"},
    {"a ladder, audits, strict, batches of a budget",
     R"({"batch_size":65536,"batching":{"kind":"budget","max_edges":2000,"max_nodes":900},)"
     R"("checkpoint":{"every_seconds":60,"every_steps":0,"keep":2},"class_weights":[],"dataset":"zinc",)"
     R"("epochs":20,"graph_cache":{"audit_every":50,"freeze_at":40,"max_executables":16,"on_miss":"eager",)"
     R"("policy":"freeze","rungs":6,"shapes":"ladder","strict":true},"loss":"l1",)"
     R"("model":{"architecture":"gine","dropout":0.0,"hidden_channels":64,"num_layers":4,"pooling":"mean"},)"
     R"("nodes":{"advise_pages":true,"eval_fan_outs":[],"fan_outs":[],"layer_wise_evaluation":false,)"
     R"("look_ahead":64,"replace":false,"weighted":false},"optimizer":{"algorithm":"adam",)"
     R"("learning_rate":0.001,"max_grad_norm":0.0,"schedule":"constant","warmup_steps":0,)"
     R"("weight_decay":0.0},"priority":0,"seed":0})"},
    {"levels, norms, metrics, folds, SGD",
     R"({"batch_size":64,"batching":{"kind":"balanced","max_edges":0,"max_nodes":0},)"
     R"("checkpoint":{"every_seconds":60,"every_steps":0,"keep":2},"class_weights":[],)"
     R"("cross_validation":{"fold":9,"folds":10,"seed":41},"dataset":"mutag","epochs":20,)"
     R"("graph_cache":{"audit_every":1000,"freeze_at":40,"max_executables":4096,"on_miss":"eager",)"
     R"("policy":"freeze","rungs":0,"shapes":"auto","strict":false},"loss":"cross-entropy",)"
     R"("metrics":["accuracy","f1_macro"],"model":{"architecture":"gin","dropout":0.0,"heads":1,)"
     R"("hidden_channels":64,"input_dropout":0.125,"jumping_knowledge":"max","level":"graph",)"
     R"("lowering":"plain","norm":"layer","normalize_features":false,"num_layers":4,"pooling":"mean",)"
     R"("residual":true,"virtual_node":true},"nodes":{"advise_pages":true,"eval_fan_outs":[],"fan_outs":[],)"
     R"("layer_wise_evaluation":false,"look_ahead":64,"replace":false,"weighted":false},)"
     R"("optimizer":{"algorithm":"sgd","decay_epochs":30,"decay_factor":0.1,"learning_rate":0.001,)"
     R"("max_grad_norm":0.0,"momentum":0.9,"nesterov":true,"schedule":"step","warmup_steps":0,)"
     R"("weight_decay":0.0},"priority":0,"seed":0})"},
    {"links, weights to begin with, degrees as inputs with columns of the graph's own",
     R"({"batch_size":1024,"batching":{"kind":"random","max_edges":0,"max_nodes":0},)"
     R"("checkpoint":{"every_seconds":60,"every_steps":0,"keep":2},"class_weights":[],)"
     R"("cross_validation":{"fold":0,"folds":0,"seed":0},"dataset":"cora","epochs":20,)"
     R"("fixed_parameters":["convs.0"],"graph_cache":{"audit_every":1000,"freeze_at":40,)"
     R"("max_executables":4096,"on_miss":"eager","policy":"freeze","rungs":0,"shapes":"auto",)"
     R"("strict":false},"init_from":{"by_name":true,"file":"","job":"first","weights":"last"},)"
     R"("links":{"enabled":true,"eval_negatives":50,"negatives":3,"sampling":"degree","score":"mlp",)"
     R"("split":{"seed":5,"test_part":0.2,"valid_part":0.1}},"loss":"bce","metrics":["mrr","hits_at_10"],)"
     R"("model":{"architecture":"gcn","dropout":0.0,"heads":1,"hidden_channels":32,"input_dropout":0.0,)"
     R"("jumping_knowledge":"last","level":"node","lowering":"auto","node_inputs":"degree","norm":"none",)"
     R"("normalize_features":false,"num_layers":2,"pooling":"mean","residual":false,"virtual_node":false},)"
     R"("nodes":{"advise_pages":true,"eval_fan_outs":[],"fan_outs":[],"layer_wise_evaluation":false,)"
     R"("look_ahead":64,"replace":false,"weighted":false},"optimizer":{"accumulate_steps":4,)"
     R"("algorithm":"adam","decay_epochs":0,"decay_factor":0.1,"ema_decay":0.99,"learning_rate":0.001,)"
     R"("max_grad_norm":0.0,"min_learning_rate":1e-06,"momentum":0.0,"nesterov":false,"plateau_patience":4,)"
     R"("plateau_threshold":0.001,"schedule":"plateau","warmup_steps":0,"weight_decay":0.0005,)"
     R"("weight_decay_of":"matrices"},"patience":7,"priority":0,"seed":0})"},
    {"draws by time, limits, what is not finite; a model of one graph that reads no features of edges",
     R"({"batch_size":1024,"batching":{"kind":"random","max_edges":0,"max_nodes":0},)"
     R"("checkpoint":{"every_seconds":60,"every_steps":0,"keep":2},"class_weights":[],)"
     R"("cross_validation":{"fold":0,"folds":0,"seed":0},"dataset":"git",)"
     R"("deadline":"2033-05-18T03:33:20+00:00","epochs":20,"fixed_parameters":[],)"
     R"("graph_cache":{"audit_every":1000,"freeze_at":40,"max_executables":4096,"on_miss":"eager",)"
     R"("policy":"freeze","rungs":0,"shapes":"auto","strict":false},"init_from":{"by_name":false,"file":"",)"
     R"("job":"","weights":"best"},"links":{"enabled":false,"eval_negatives":100,"negatives":1,)"
     R"("sampling":"uniform","score":"dot","split":{"seed":0,"test_part":0.1,"valid_part":0.05}},)"
     R"("loss":"cross-entropy","max_retries":3,"max_runtime":"2h0m0.000000007s","metrics":[],)"
     R"("model":{"aggregation":"mean","architecture":"gatv2","dropout":0.0,"heads":8,"hidden_channels":64,)"
     R"("input_dropout":0.0,"jumping_knowledge":"last","level":"node","lowering":"auto",)"
     R"("node_inputs":"auto","norm":"none","normalize_features":false,"num_layers":2,"pooling":"mean",)"
     R"("residual":false,"virtual_node":false},"nodes":{"advise_pages":true,"disjoint":true,)"
     R"("eval_fan_outs":[],"fan_outs":[5,5],"layer_wise_evaluation":false,"look_ahead":64,"replace":false,)"
     R"("sampler":"neighbor","seed_time":-9,"temporal":"uniform","weighted":false},"non_finite":"rewind",)"
     R"("optimizer":{"accumulate_steps":1,"algorithm":"adam","decay_epochs":0,"decay_factor":0.1,)"
     R"("ema_decay":0.0,"learning_rate":0.001,"max_grad_norm":0.0,"min_learning_rate":0.0,"momentum":0.0,)"
     R"("nesterov":false,"plateau_patience":10,"plateau_threshold":0.0001,"schedule":"constant",)"
     R"("warmup_steps":0,"weight_decay":0.0,"weight_decay_of":"all"},"patience":0,"priority":0,"seed":0})"},
    {"features of edges, links that the dataset divides",
     R"({"batch_size":1024,"batching":{"kind":"random","max_edges":0,"max_nodes":0},)"
     R"("checkpoint":{"every_seconds":60,"every_steps":0,"keep":2},"class_weights":[],)"
     R"("cross_validation":{"fold":0,"folds":0,"seed":0},"dataset":"collab","deadline":"infinite-future",)"
     R"("epochs":20,"fixed_parameters":[],"graph_cache":{"audit_every":1000,"freeze_at":40,)"
     R"("max_executables":4096,"on_miss":"eager","policy":"freeze","rungs":0,"shapes":"auto",)"
     R"("strict":false},"init_from":{"by_name":false,"file":"","job":"","weights":"best"},)"
     R"("links":{"enabled":true,"eval_negatives":100,"given":true,"negatives":1,"sampling":"uniform",)"
     R"("score":"dot","split":{"seed":0,"test_part":0.1,"valid_part":0.05}},"loss":"bce","max_retries":0,)"
     R"("max_runtime":"inf","metrics":[],"model":{"aggregation":"mean","architecture":"gatv2","dropout":0.0,)"
     R"("edge_inputs":"weights","heads":4,"hidden_channels":64,"input_dropout":0.0,)"
     R"("jumping_knowledge":"last","level":"node","lowering":"auto","node_inputs":"auto","norm":"none",)"
     R"("normalize_features":false,"num_layers":2,"pooling":"mean","precision":"float32","residual":false,)"
     R"("virtual_node":false},"nodes":{"advise_pages":true,"disjoint":false,"eval_fan_outs":[],)"
     R"("fan_outs":[],"layer_wise_evaluation":false,"look_ahead":64,"replace":false,"sampler":"neighbor",)"
     R"("temporal":"none","weighted":false},"non_finite":"fail","optimizer":{"accumulate_steps":1,)"
     R"("algorithm":"adam","decay_epochs":0,"decay_factor":0.1,"ema_decay":0.0,"learning_rate":0.001,)"
     R"("max_grad_norm":0.0,"min_learning_rate":0.0,"momentum":0.0,"nesterov":false,"plateau_patience":10,)"
     R"("plateau_threshold":0.0001,"schedule":"constant","warmup_steps":0,"weight_decay":0.0,)"
     R"("weight_decay_of":"all"},"patience":0,"priority":0,"seed":0})"},
    {"node2vec, and which dataset it was",
     R"({"batch_size":128,"batching":{"kind":"random","max_edges":0,"max_nodes":0},)"
     R"("checkpoint":{"every_seconds":60,"every_steps":0,"keep":2},"class_weights":[],)"
     R"("cross_validation":{"fold":0,"folds":0,"seed":0},"dataset":"cora","dataset_uid":"7f3c",)"
     R"("deadline":"infinite-future","epochs":20,"fixed_parameters":[],"graph_cache":{"audit_every":1000,)"
     R"("freeze_at":40,"max_executables":4096,"on_miss":"eager","policy":"freeze","rungs":0,"shapes":"auto",)"
     R"("strict":false},"init_from":{"by_name":false,"file":"","job":"","weights":"best"},)"
     R"("links":{"enabled":false,"eval_negatives":100,"given":false,"negatives":1,"sampling":"uniform",)"
     R"("score":"dot","split":{"seed":0,"test_part":0.1,"valid_part":0.05}},"loss":"bce","max_retries":0,)"
     R"("max_runtime":"inf","metrics":[],"model":{"aggregation":"mean","architecture":"node2vec",)"
     R"("dropout":0.0,"edge_inputs":"auto","heads":1,"hidden_channels":64,"input_dropout":0.0,)"
     R"("jumping_knowledge":"last","level":"node","lowering":"auto","node_inputs":"auto","norm":"none",)"
     R"("normalize_features":false,"num_layers":1,"pooling":"mean","precision":"float32","residual":false,)"
     R"("virtual_node":false},"node2vec":{"context_size":20,"num_negative_samples":5,"p":0.25,"q":4,)"
     R"("walk_length":40,"walks_per_node":2},"nodes":{"advise_pages":true,"disjoint":false,)"
     R"("eval_fan_outs":[],"fan_outs":[],"layer_wise_evaluation":false,"look_ahead":64,"replace":false,)"
     R"("sampler":"neighbor","temporal":"none","weighted":false},"non_finite":"fail",)"
     R"("optimizer":{"accumulate_steps":1,"algorithm":"adam","decay_epochs":0,"decay_factor":0.1,)"
     R"("ema_decay":0.0,"learning_rate":0.01,"max_grad_norm":0.0,"min_learning_rate":0.0,"momentum":0.0,)"
     R"("nesterov":false,"plateau_patience":10,"plateau_threshold":0.0001,"schedule":"constant",)"
     R"("warmup_steps":0,"weight_decay":0.0,"weight_decay_of":"all"},"patience":0,"priority":0,"seed":0})"},
    {"degrees as inputs with the same columns on every graph; no notes",
     R"({"batch_size":1024,"batching":{"kind":"random","max_edges":0,"max_nodes":0},)"
     R"("checkpoint":{"every_seconds":60,"every_steps":0,"keep":2},"class_weights":[],)"
     R"("cross_validation":{"fold":0,"folds":0,"seed":0},"dataset":"arxiv","dataset_uid":"7f3c",)"
     R"("deadline":"infinite-future","epochs":20,"fixed_parameters":[],"graph_cache":{"audit_every":1000,)"
     R"("freeze_at":40,"max_executables":4096,"on_miss":"eager","policy":"freeze","rungs":0,"shapes":"auto",)"
     R"("strict":false},"init_from":{"by_name":false,"file":"","job":"","weights":"best"},)"
     R"("links":{"enabled":false,"eval_negatives":100,"given":false,"negatives":1,"sampling":"uniform",)"
     R"("score":"dot","split":{"seed":0,"test_part":0.1,"valid_part":0.05}},"loss":"cross-entropy",)"
     R"("max_retries":0,"max_runtime":"inf","metrics":[],"model":{"aggregation":"mean",)"
     R"("architecture":"sage","dropout":0.0,"edge_inputs":"auto","heads":1,"hidden_channels":64,)"
     R"("input_dropout":0.0,"jumping_knowledge":"last","level":"node","lowering":"auto",)"
     R"("node_inputs":"degree","norm":"none","normalize_features":false,"num_layers":2,)"
     R"("own_degree_columns":false,"pooling":"mean","precision":"bfloat16","residual":false,)"
     R"("virtual_node":false},"node2vec":{"context_size":10,"num_negative_samples":1,"p":1.0,"q":1.0,)"
     R"("walk_length":20,"walks_per_node":10},"nodes":{"advise_pages":true,"disjoint":false,)"
     R"("eval_fan_outs":[],"fan_outs":[5,5],"layer_wise_evaluation":false,"look_ahead":64,"replace":false,)"
     R"("sampler":"neighbor","temporal":"none","weighted":false},"non_finite":"fail",)"
     R"("optimizer":{"accumulate_steps":1,"algorithm":"adam","decay_epochs":0,"decay_factor":0.1,)"
     R"("ema_decay":0.0,"learning_rate":0.001,"max_grad_norm":0.0,"min_learning_rate":0.0,"momentum":0.0,)"
     R"("nesterov":false,"plateau_patience":10,"plateau_threshold":0.0001,"schedule":"constant",)"
     R"("warmup_steps":0,"weight_decay":0.0,"weight_decay_of":"all"},"patience":0,"priority":0,"seed":0})"},
};

}  // namespace permafrost::jobs
