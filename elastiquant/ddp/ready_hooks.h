// Tells of each parameter's gradient as soon as DDP has taken it, well before DDP's bucket of 1
// to 25 MiB is full.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace elastiquant {

// DdpHook has one. It hooks into autograd's accumulators of gradients.
class ReadyHooks {
 public:
  // on_ready(index, gradient) is called by the thread that calls DDP's communication hook, in
  // backwards that DDP synchronises. It is called before that hook is for the parameter's
  // bucket, except for the parameter that fills the bucket. Some gradients may be left out; all
  // are unless all parameters are on the CPU. `parameters` are those of the reducer, in its
  // order. The reducer must outlive this.
  ReadyHooks(const c10d::Reducer& reducer, const std::vector<at::Tensor>& parameters,
             std::function<void(size_t index, const at::Tensor& gradient)> on_ready);
  ~ReadyHooks();
  ReadyHooks(const ReadyHooks&) = delete;
  ReadyHooks& operator=(const ReadyHooks&) = delete;

  // Says that DDP has filled its last bucket: what it has marked so far is of a backward that
  // is over.
  void EndBackward();

 private:
  // The type depends on PyTorch's version.
  using Accumulator =
      decltype(torch::autograd::impl::grad_accumulator(std::declval<at::Tensor>()));
  struct Hook {
    Accumulator accumulator;
    uintptr_t key;
  };

  void Fired(size_t index, const at::Tensor& parameter);

  const c10d::Reducer& reducer_;
  const std::function<void(size_t, const at::Tensor&)> on_ready_;
  // When DDP marked each parameter, as it was last seen: DDP notes this for its statistics.
  std::vector<int64_t> marked_;
  std::vector<Hook> hooks_;
};

}  // namespace elastiquant
