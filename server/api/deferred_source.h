// A source that is opened on a thread that may wait, rather than in the handler.
// Threads: as StreamSource.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "api/server_stream.h"
#include "base/status.h"

namespace permafrost::api {

template <class Response>
class DeferredSource final : public StreamSource<Response> {
 public:
  using Open = std::function<absl::StatusOr<std::unique_ptr<StreamSource<Response>>>()>;

  // `open` is called once, by the first Next; its error ends the stream.
  explicit DeferredSource(Open open) : open_(std::move(open)) {}

  absl::StatusOr<Pull> Next(Response& response) override {
    if (!source_) {
      PF_ASSIGN_OR_RETURN(source_, open_());
      subscription_ = source_->Subscribe(std::move(listener_));
    }
    return source_->Next(response);
  }
  std::unique_ptr<ChangeHub::Subscription> Subscribe(ChangeHub::Listener listener) override {
    listener_ = std::move(listener);
    return std::make_unique<Handle>(*this);
  }

 private:
  // Ends that of the source, if it was opened: who holds it asks the source nothing any more.
  class Handle final : public ChangeHub::Subscription {
   public:
    explicit Handle(DeferredSource& owner) : owner_(owner) {}
    ~Handle() override { owner_.subscription_.reset(); }

   private:
    DeferredSource& owner_;
  };

  const Open open_;
  ChangeHub::Listener listener_;
  std::unique_ptr<StreamSource<Response>> source_;
  std::unique_ptr<ChangeHub::Subscription> subscription_;
};

}  // namespace permafrost::api
