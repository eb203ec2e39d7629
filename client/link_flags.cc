#include "client/link_flags.h"

#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "spec/train_options.h"

namespace permafrost::client {

void AddLinkOptions(CLI::App& command, LinkFlags& flags) {
  const spec::LinkOptions defaults;
  AddSwitch(command, "--link-prediction", flags.enabled,
            "Predict the links of one large graph, not the labels of its nodes; each flag of links says so too");
  AddEnumOption(
      command, "--link-split", flags.split, *v1::LinkPrediction::Split_descriptor(),
      "Links: the dataset's split and negatives, or one drawn of all edges (default dataset where it has one)");
  command
      .add_option("--link-valid", flags.valid_part,
                  absl::StrCat("Links: part that validates, with --temporal that before the test's (default ",
                               defaults.split.valid_part, ")"))
      ->type_name("P");
  command
      .add_option(
          "--link-test", flags.test_part,
          absl::StrCat("Links: part that tests, with --temporal the latest (default ", defaults.split.test_part, ")"))
      ->type_name("P");
  command
      .add_option("--link-seed", flags.split_seed,
                  "Links: which of them validate and test, and the negatives of evaluation (default 0)")
      ->check(NotNegative())
      ->type_name("N");
  command
      .add_option(
          "--negatives", flags.negatives,
          absl::StrCat("Links: pairs without an edge beside each in training, 1..1000; node2vec: walks of random\n"
                       "nodes beside each, 1..100 (default ",
                       defaults.negatives, ")"))
      ->type_name("N");
  command
      .add_option("--eval-negatives", flags.eval_negatives,
                  absl::StrCat("Links: the same in evaluation, 1..10000 (default ", defaults.eval_negatives, ")"))
      ->type_name("N");
  AddEnumOption(
      command, "--negative-sampling", flags.sampling, *v1::LinkPrediction::NegativeSampling_descriptor(),
      "Links: how targets without an edge are drawn: evenly, or as often as they have edges (default uniform)");
  AddEnumOption(command, "--decoder", flags.decoder, *v1::LinkPrediction::Decoder_descriptor(),
                "Links: dot product of two nodes, or an MLP of their product (default dot)");
}

void Override(const LinkFlags& flags, v1::LinkPrediction& links) {
  if (flags.split) {
    links.set_split(EnumOf<v1::LinkPrediction::Split>(*v1::LinkPrediction::Split_descriptor(), *flags.split));
  }
  if (flags.valid_part) links.set_valid_part(*flags.valid_part);
  if (flags.test_part) links.set_test_part(*flags.test_part);
  if (flags.split_seed) links.set_split_seed(*flags.split_seed);
  if (flags.negatives) links.set_negatives(*flags.negatives);
  if (flags.eval_negatives) links.set_eval_negatives(*flags.eval_negatives);
  if (flags.sampling) {
    links.set_negative_sampling(EnumOf<v1::LinkPrediction::NegativeSampling>(
        *v1::LinkPrediction::NegativeSampling_descriptor(), *flags.sampling));
  }
  if (flags.decoder)
    links.set_decoder(EnumOf<v1::LinkPrediction::Decoder>(*v1::LinkPrediction::Decoder_descriptor(), *flags.decoder));
}

}  // namespace permafrost::client
