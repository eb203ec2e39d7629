#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/monotonic.h"
#include "client/commands.h"
#include "client/follow.h"
#include "client/format.h"
#include "client/progress.h"
#include "permafrost/v1/dataset.grpc.pb.h"

namespace permafrost::client {
namespace {

struct VerifyFlags {
  std::string name;
  double reconnect_seconds = kDefaultReconnectSeconds;
};

ExitCode Verify(Session& session, const VerifyFlags& flags) {
  const auto stub = v1::DatasetService::NewStub(session.channel());
  v1::VerifyDatasetRequest request;
  request.set_name(WithCollection("datasets", flags.name));
  v1::VerifyDatasetResponse last;
  Stopwatch watch;
  const FollowResult result = Follow<v1::VerifyDatasetResponse>(
      session, absl::Seconds(flags.reconnect_seconds),
      [&](grpc::ClientContext* context) {
        watch.Restart();
        return stub->VerifyDataset(context, request);
      },
      [&](const v1::VerifyDatasetResponse& progress) {
        last = progress;
        if (session.json()) {
          session.PrintJson(progress);
        } else {
          const auto eta = EstimateRemaining(progress.bytes_done(), progress.bytes_total(), watch.Elapsed());
          session.terminal().Live(
              RenderVerifyProgress(progress.bytes_done(), progress.bytes_total(), eta, session.terminal().style()));
        }
        // Only the stream's end says that all is well.
        return false;
      },
      /*ok_is_end=*/true);
  session.terminal().ClearLive();
  if (result.end == FollowEnd::kInterrupted) return session.Interrupted("");
  if (result.end == FollowEnd::kFailed) return session.Fail(result.failure);
  if (!session.json()) {
    session.Print(absl::StrCat("dataset ", OneLine(StripCollection("datasets", flags.name)), " is whole: ",
                               BytesText(last.bytes_total()), " verified in ", DurationText(watch.Elapsed()), "\n"));
  }
  return ExitCode::kOk;
}

}  // namespace

void AddDatasetVerify(CLI::App& dataset, Command& chosen) {
  CLI::App* verify = dataset.add_subcommand("verify", "Read a whole dataset and check every checksum");
  const auto flags = std::make_shared<VerifyFlags>();
  verify->add_option("NAME", flags->name, "Name of the dataset")->type_name("")->required();
  AddReconnectOption(*verify, flags->reconnect_seconds);
  verify->callback([flags, &chosen] { chosen = [flags](Session& session) { return Verify(session, *flags); }; });
}

}  // namespace permafrost::client
