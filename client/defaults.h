// The words of help texts about the server's defaults, from the server's own options: said once, there.
// Threads: everything here is pure.
#pragma once

#include <functional>
#include <string>

#include "spec/train_options.h"

namespace permafrost::client {

// "default 4; on one large graph 2": what `show` makes of a job that says no more than its dataset.
std::string JobDefault(const std::function<std::string(const spec::TrainOptions&)>& show);

// A default by its name in the domain's table: "gine".
template <class Names, class E>
std::string NameOf(const Names& names, E value) {
  return std::string(names.Name(value));
}

}  // namespace permafrost::client
