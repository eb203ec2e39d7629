// Calls to freeze and to clear libtorch's cache of compiled MPS graphs, should its hooks have them one day: 2.13 and
// 2.15 have none (pytorch#182648 never landed). Found when this is compiled, by either of their likely names.
// Threads: the device thread.
#pragma once

namespace permafrost::device {

// Hooks: at::MPSHooksInterface.
template <class Hooks>
struct GraphCacheCalls {
  static constexpr bool kFreezes = requires(const Hooks& h) { h.freeze_graph_cache(); }
  || requires(const Hooks& h) { h.freezeGraphCache(); };
  static constexpr bool kThaws = requires(const Hooks& h) { h.unfreeze_graph_cache(); }
  || requires(const Hooks& h) { h.unfreezeGraphCache(); };
  static constexpr bool kClears = requires(const Hooks& h) { h.clear_graph_cache(); }
  || requires(const Hooks& h) { h.clearGraphCache(); };

  // From here on it takes no new graph. A cache that could not be thawed is never frozen.
  static void Freeze(const Hooks& hooks) {
    if constexpr (!kThaws) return;
    if constexpr (requires { hooks.freeze_graph_cache(); }) {
      hooks.freeze_graph_cache();
    } else if constexpr (requires { hooks.freezeGraphCache(); }) {
      hooks.freezeGraphCache();
    }
  }
  static void Thaw(const Hooks& hooks) {
    if constexpr (!kFreezes) return;
    if constexpr (requires { hooks.unfreeze_graph_cache(); }) {
      hooks.unfreeze_graph_cache();
    } else if constexpr (requires { hooks.unfreezeGraphCache(); }) {
      hooks.unfreezeGraphCache();
    }
  }
  // Returns whether there was a call that drops the graphs, and only them.
  static bool Clear(const Hooks& hooks) {
    if constexpr (requires { hooks.clear_graph_cache(); }) {
      hooks.clear_graph_cache();
    } else if constexpr (requires { hooks.clearGraphCache(); }) {
      hooks.clearGraphCache();
    }
    return kClears;
  }
};

}  // namespace permafrost::device
