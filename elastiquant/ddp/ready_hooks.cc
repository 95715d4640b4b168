#include "elastiquant/ddp/ready_hooks.h"

#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include <algorithm>
#include <utility>

namespace elastiquant {

ReadyHooks::ReadyHooks(const c10d::Reducer& reducer, const std::vector<at::Tensor>& parameters,
                       std::function<void(size_t, const at::Tensor&)> on_ready)
    : reducer_(reducer), on_ready_(std::move(on_ready)), marked_(reducer.get_backward_stats()) {
  const bool all_here =
      std::ranges::all_of(parameters, [](const at::Tensor& p) { return p.device().is_cpu(); });
  if (!all_here || marked_.size() != parameters.size()) return;
  for (size_t i = 0; i < parameters.size(); ++i) {
    // Where DDP has hooks as well, which were there first and so are called first.
    auto accumulator = torch::autograd::impl::grad_accumulator(parameters[i]);
    using torch::autograd::variable_list;
    const uintptr_t key =
        accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
            [this, i, p = parameters[i]](const variable_list& outputs, const variable_list&) {
              Fired(i, p);
              return outputs;
            }));
    hooks_.push_back({std::move(accumulator), key});
  }
}

ReadyHooks::~ReadyHooks() {
  for (const Hook& hook : hooks_) hook.accumulator->del_post_hook(hook.key);
}

void ReadyHooks::EndBackward() { marked_ = reducer_.get_backward_stats(); }

// DDP does not mark a parameter in a backward that it does not synchronise, nor before the last
// of several uses in a static graph.
void ReadyHooks::Fired(size_t index, const at::Tensor& parameter) {
  const int64_t marked = reducer_.get_backward_stats()[index];
  if (std::exchange(marked_[index], marked) == marked) return;
  const at::Tensor& gradient = parameter.grad();
  // DDP's bucket holds them as the parameter lies in memory.
  if (gradient.defined() && gradient.strides() == parameter.strides()) {
    on_ready_(index, gradient);
  }
}

}  // namespace elastiquant
