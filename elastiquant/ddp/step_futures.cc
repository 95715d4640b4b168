#include "elastiquant/ddp/step_futures.h"

#include <c10/util/Exception.h>

#include <exception>
#include <string>
#include <utility>

namespace elastiquant {
namespace {

std::exception_ptr ToException(const Status& status) {
  const std::string words = "elastiquant: " + status.message();
  try {
    if (status.code() == StatusCode::kUnavailable) C10_THROW_ERROR(DistBackendError, words);
    C10_THROW_ERROR(Error, words);
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace

Future MakeFuture(const at::Tensor& gradients) {
  std::vector<c10::Device> devices;
  if (!gradients.device().is_cpu()) devices.push_back(gradients.device());
  return c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get(), devices);
}

void SetError(const Future& future, const Status& status) {
  if (future && !future->completed()) future->setErrorIfNeeded(ToException(status));
}

Status StepFutures::Begin() {
  const std::lock_guard lock(mutex_);
  EQ_RETURN_IF_ERROR(error_);
  if (in_step_) return Internal("a backward began before the last one had ended");
  arrivals_.clear();
  ahead_.clear();
  in_step_ = true;
  return {};
}

Status StepFutures::Add(size_t index, Future future) {
  const std::lock_guard lock(mutex_);
  EQ_RETURN_IF_ERROR(error_);
  if (index != arrivals_.size() || !in_step_) {
    return Internal("DDP filled bucket " + std::to_string(index) + " after " +
                    std::to_string(arrivals_.size()) + " others");
  }
  arrivals_.push_back({.future = std::move(future)});
  return {};
}

Result<std::vector<Reduced>> StepFutures::Arrive(size_t index, size_t parts) {
  const std::lock_guard lock(mutex_);
  EQ_RETURN_IF_ERROR(error_);
  arrivals_[index].is_here = true;
  arrivals_[index].parts_left = parts;
  std::vector<Reduced> ahead;
  std::erase_if(ahead_, [&](const Ahead& a) {
    if (a.index == index) ahead.push_back(a.part);
    return a.index == index;
  });
  return ahead;
}

bool StepFutures::HasArrived(size_t index, Reduced part) {
  const std::lock_guard lock(mutex_);
  if (index < arrivals_.size() && arrivals_[index].is_here) return true;
  ahead_.push_back({index, part});
  return false;
}

bool StepFutures::CountReturned(size_t index) {
  const std::lock_guard lock(mutex_);
  return error_.ok() && --arrivals_[index].parts_left == 0;
}

Future StepFutures::Release(size_t index) {
  const std::lock_guard lock(mutex_);
  return error_.ok() ? std::exchange(arrivals_[index].future, nullptr) : nullptr;
}

Result<std::vector<Future>> StepFutures::End(size_t count) {
  const std::lock_guard lock(mutex_);
  EQ_RETURN_IF_ERROR(error_);
  std::vector<Future> last;
  for (size_t i = arrivals_.size() - count; i < arrivals_.size(); ++i) {
    last.push_back(std::move(arrivals_[i].future));
  }
  arrivals_.clear();  // whose tensors DDP may free when it rebuilds its buckets
  in_step_ = false;
  return last;
}

std::vector<Future> StepFutures::Fail(const Status& error) {
  const std::lock_guard lock(mutex_);
  if (error_.ok()) error_ = error;
  std::vector<Future> futures;
  for (Arrival& arrival : arrivals_) futures.push_back(std::move(arrival.future));
  arrivals_.clear();
  in_step_ = false;
  return futures;
}

Status StepFutures::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

bool StepFutures::in_step() const {
  const std::lock_guard lock(mutex_);
  return in_step_;
}

}  // namespace elastiquant
