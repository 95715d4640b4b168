#include "elastiquant/c10d/backend_transport.h"

#include <ATen/ops/from_blob.h>

#include <exception>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "elastiquant/c10d/torch_error.h"

namespace elastiquant {
namespace {

// Waits end by the message, a broken connection, or Abort: a slow link may need long.
constexpr std::chrono::hours kForever{24 * 365};

at::Tensor Wrap(std::span<const uint8_t> bytes) {
  // c10d takes mutable tensors only; a send reads.
  return at::from_blob(const_cast<uint8_t*>(bytes.data()), {static_cast<int64_t>(bytes.size())},
                       at::kByte);
}

class WorkPosting final : public Posting {
 public:
  explicit WorkPosting(c10::intrusive_ptr<c10d::Work> work) : work_(std::move(work)) {}

  Status Wait() override {
    try {
      if (!work_->wait(kForever)) return Unavailable("aborted");
    } catch (const std::exception& e) {
      return Unavailable(Words(e));
    }
    return {};
  }
  void Abort() override { work_->abort(); }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
};

class BackendTransport final : public Transport {
 public:
  explicit BackendTransport(c10::intrusive_ptr<c10d::Backend> group)
      : group_(std::move(group)) {}

  Result<std::unique_ptr<Posting>> Send(int to, uint32_t tag,
                                        std::span<const uint8_t> bytes) override {
    return Post(
        [&](std::vector<at::Tensor>& tensors) {
          return group_->send(tensors, to, static_cast<int>(tag));
        },
        bytes);
  }
  Result<std::unique_ptr<Posting>> Receive(int from, uint32_t tag,
                                           std::span<uint8_t> bytes) override {
    return Post(
        [&](std::vector<at::Tensor>& tensors) {
          return group_->recv(tensors, from, static_cast<int>(tag));
        },
        bytes);
  }

 private:
  static Result<std::unique_ptr<Posting>> Post(const auto& post,
                                               std::span<const uint8_t> bytes) {
    try {
      std::vector<at::Tensor> tensors{Wrap(bytes)};
      return std::unique_ptr<Posting>(std::make_unique<WorkPosting>(post(tensors)));
    } catch (const std::exception& e) {
      return Unavailable(Words(e));
    }
  }

  c10::intrusive_ptr<c10d::Backend> group_;
};

}  // namespace

std::unique_ptr<Transport> MakeBackendTransport(c10::intrusive_ptr<c10d::Backend> gloo) {
  return std::make_unique<BackendTransport>(std::move(gloo));
}

}  // namespace elastiquant
