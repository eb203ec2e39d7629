#include "client/walk_flags.h"

#include "absl/strings/str_cat.h"
#include "spec/train_options.h"

namespace permafrost::client {

void AddWalkOptions(CLI::App& command, WalkFlags& flags) {
  const spec::Node2VecOptions defaults;
  command
      .add_option("--walk-length", flags.walk_length,
                  absl::StrCat("node2vec: nodes of a walk, 2..1000 (default ", defaults.walk_length, ")"))
      ->type_name("N");
  command
      .add_option("--context-size", flags.context_size,
                  absl::StrCat("node2vec: nodes of a window, 2..walk length (default ", defaults.context_size, ")"))
      ->type_name("N");
  command
      .add_option(
          "--walks-per-node", flags.walks_per_node,
          absl::StrCat("node2vec: walks from each node an epoch, 1..1000 (default ", defaults.walks_per_node, ")"))
      ->type_name("N");
  command
      .add_option("--p", flags.p, absl::StrCat("node2vec: a walk goes back with weight 1/p (default ", defaults.p, ")"))
      ->type_name("X");
  command
      .add_option("--q", flags.q,
                  absl::StrCat("node2vec: a walk goes farther with weight 1/q (default ", defaults.q, ")"))
      ->type_name("X");
}

void Override(const WalkFlags& flags, v1::Node2Vec& walks) {
  if (flags.walk_length) walks.set_walk_length(*flags.walk_length);
  if (flags.context_size) walks.set_context_size(*flags.context_size);
  if (flags.walks_per_node) walks.set_walks_per_node(*flags.walks_per_node);
  if (flags.p) walks.set_p(*flags.p);
  if (flags.q) walks.set_q(*flags.q);
}

}  // namespace permafrost::client
