// The words of help texts about the server's defaults, from the server's own options: said once, there.
// Threads: everything here is pure.
#pragma once

#include <string>

namespace permafrost::client {

// "default 4; on one large graph 2; of node2vec 1", without what says nothing new. `set`, `graph`, `walks`: of a job on
// a set of graphs, on one large graph, and of node2vec, which say no more than their dataset and model.
std::string DefaultText(const std::string& set, const std::string& graph, const std::string& walks);

// A default by its name in the domain's table: "gine".
template <class Names, class E>
std::string NameOf(const Names& names, E value) {
  return std::string(names.Name(value));
}

}  // namespace permafrost::client
