#include "client/cache_policy_flags.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "permafrost/v1/enum_text.h"

namespace permafrost::client {

void AddCachePolicyOptions(CLI::App& command, const std::string& policy_flag, const std::string& absent,
                           const std::string& no_freeze_at, CachePolicyFlags& flags) {
  const std::string otherwise = absl::StrCat(" (", absent, ")");
  AddEnumOption(command, policy_flag, flags.policy, *v1::GraphCachePolicy::Policy_descriptor(),
                absl::StrCat("When the graph cache keeps an executable", otherwise));
  command
      .add_option(
          "--freeze-at", flags.freeze_at,
          absl::StrCat("With exact shapes: training shapes kept before policy freeze freezes (", no_freeze_at, ")"))
      ->transform(CLI::Transformer(std::map<std::string, int64_t>{{"derived", 0}}).description(""))
      ->type_name("N|derived");
  AddEnumOption(command, "--on-miss", flags.on_miss, *v1::GraphCachePolicy::OnMiss_descriptor(),
                absl::StrCat("What a frozen cache does with a shape that it does not hold", otherwise));
  AddEnumOption(command, "--shapes", flags.shapes, *v1::GraphCachePolicy::Shapes_descriptor(),
                absl::StrCat("One executable for every shape, for each of a few planned ones, or for each that comes; "
                             "auto: dynamic or else ladder under policy freeze",
                             otherwise));
  command
      .add_option(
          "--rungs", flags.rungs,
          absl::StrCat("Most shapes of a ladder, 1..64; of sampled blocks at most as many as there are planned rungs",
                       otherwise))
      ->type_name("N");
  command
      .add_option("--audit-every", flags.audit_every,
                  absl::StrCat("Training steps from one audited replay to the next; 0: none", otherwise))
      ->type_name("N");
  AddSwitch(command, "--strict,!--no-strict", flags.strict,
            absl::StrCat("Fail the job at a graph break, a failed audit, or, once the cache is frozen, a capture "
                         "or an eager step",
                         otherwise));
  command
      .add_option(
          "--max-executables", flags.max_executables,
          absl::StrCat("Executables of training and evaluation that the cache holds at most: ladders are cut to "
                       "it, batches padded into what is held, or run eager; 0: no limit",
                       otherwise))
      ->type_name("N");
}

void Override(const CachePolicyFlags& flags, v1::GraphCachePolicy& policy) {
  if (flags.policy) {
    policy.set_policy(EnumOf<v1::GraphCachePolicy::Policy>(*v1::GraphCachePolicy::Policy_descriptor(), *flags.policy));
  }
  if (flags.freeze_at) policy.set_freeze_at(*flags.freeze_at);
  if (flags.on_miss) {
    policy.set_on_miss(
        EnumOf<v1::GraphCachePolicy::OnMiss>(*v1::GraphCachePolicy::OnMiss_descriptor(), *flags.on_miss));
  }
  if (flags.rungs) policy.set_rungs(*flags.rungs);
  if (flags.audit_every) policy.set_audit_every(*flags.audit_every);
  if (flags.strict) policy.set_strict(*flags.strict);
  if (flags.max_executables) policy.set_max_executables(*flags.max_executables);
  if (flags.shapes) {
    policy.set_shapes(EnumOf<v1::GraphCachePolicy::Shapes>(*v1::GraphCachePolicy::Shapes_descriptor(), *flags.shapes));
  }
}

}  // namespace permafrost::client
