#include "elastiquant/models/flops.h"

#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/profiler/util.h>

#include <memory>

namespace elastiquant {
namespace {

thread_local double counted = 0;

std::unique_ptr<at::ObserverContext> Count(const at::RecordFunction& function) {
  counted += static_cast<double>(torch::profiler::impl::computeFlops(
      function.name(), torch::profiler::impl::saveExtraArgs(function)));
  return nullptr;
}

}  // namespace

double ForwardFlops(Model& model, const at::Tensor& inputs) {
  const bool was_training = model.is_training();
  model.eval();  // so that running statistics stay
  counted = 0;
  const c10::NoGradGuard no_grad;
  const at::CallbackHandle handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(Count).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  (void)model.Forward(inputs);
  at::removeCallback(handle);
  model.train(was_training);
  return counted;
}

}  // namespace elastiquant
