#include "elastiquant/ddp/virtual_workers.h"

#include <chrono>
#include <exception>
#include <functional>
#include <numeric>
#include <thread>
#include <utility>

namespace elastiquant {
namespace {

// Calls `body` for all workers at once, since what they do waits for all. Returns the first
// error, by worker.
Status ForEachWorker(size_t workers, const std::function<Status(size_t worker)>& body) {
  std::vector<Status> statuses(workers);
  {
    std::vector<std::jthread> threads;
    for (size_t w = 1; w < workers; ++w) {
      threads.emplace_back([&, w] { statuses[w] = body(w); });
    }
    statuses[0] = body(0);
  }
  for (Status& status : statuses) EQ_RETURN_IF_ERROR(std::move(status));
  return {};
}

Status Await(const Future& future) {
  future->wait();
  if (!future->hasError()) return {};
  try {
    std::rethrow_exception(future->exception_ptr());
  } catch (const std::exception& error) {
    return Internal(error.what());
  }
}

}  // namespace

Result<std::unique_ptr<VirtualWorkers>> VirtualWorkers::Create(
    int workers, std::vector<DdpParameter> parameters, const DdpOptions& options) {
  if (workers < 1 || workers > kMostVirtualWorkers) {
    return InvalidArgument("there may be 1 to " + std::to_string(kMostVirtualWorkers) +
                           " virtual workers, not " + std::to_string(workers));
  }
  std::unique_ptr<VirtualWorkers> made(new VirtualWorkers);
  made->order_.resize(parameters.size());
  std::iota(made->order_.rbegin(), made->order_.rend(), size_t{0});
  made->offsets_.resize(parameters.size());
  for (const size_t p : made->order_) {
    made->offsets_[p] = made->elements_;
    made->elements_ += parameters[p].shape.elements;
  }
  made->engines_.resize(static_cast<size_t>(workers));
  // The usual time-out is kept: a shorter one would end the workers sooner, which takes a
  // heartbeat, but a busy machine might keep a thread silent for as long, and it would count as
  // lost.
  CommunicatorOptions meeting;
  meeting.world_size = workers;
  meeting.network = made->network_.At();
  meeting.store_port = 1;
  meeting.stall_timeout = std::chrono::milliseconds(0);
  meeting.connect_timeout = std::chrono::minutes(10);
  EQ_RETURN_IF_ERROR(ForEachWorker(made->engines_.size(), [&](size_t w) -> Status {
    CommunicatorOptions mine = meeting;
    mine.rank = static_cast<int>(w);
    EQ_ASSIGN_OR_RETURN(made->engines_[w], DdpEngine::Create(mine, parameters, options));
    return {};
  }));
  return made;
}

// Each waits for the others until they have left.
VirtualWorkers::~VirtualWorkers() {
  (void)ForEachWorker(engines_.size(), [&](size_t w) {
    engines_[w].reset();
    return Status();
  });
}

Status VirtualWorkers::AllReduce(const at::Tensor& gradients) {
  if (gradients.dim() != 2 || gradients.size(0) != size() ||
      gradients.size(1) != static_cast<int64_t>(elements_)) {
    return InvalidArgument("the gradients must be one row of " + std::to_string(elements_) +
                           " values for each of " + std::to_string(size()) + " workers");
  }
  if (gradients.scalar_type() != at::kFloat || !gradients.is_contiguous() ||
      !gradients.is_cpu()) {
    return InvalidArgument("the gradients must be contiguous fp32 on the host");
  }
  return ForEachWorker(engines_.size(), [&](size_t w) {
    const at::Tensor row = gradients[static_cast<int64_t>(w)];
    return Await(engines_[w]->Reduce(0, /*last=*/true, row, order_));
  });
}

Status VirtualWorkers::SetEpoch(int epoch) {
  for (const auto& engine : engines_) EQ_RETURN_IF_ERROR(engine->SetEpoch(epoch));
  return {};
}

std::vector<Sections> VirtualWorkers::SaveState() {
  std::vector<Sections> states;
  for (const auto& engine : engines_) states.push_back(engine->SaveState());
  return states;
}

Status VirtualWorkers::LoadState(const std::vector<Sections>& states) {
  if (states.size() != engines_.size()) {
    return InvalidArgument("the state is of " + std::to_string(states.size()) +
                           " workers, and there are " + std::to_string(engines_.size()));
  }
  // If only some took up their state, the workers would be in different steps.
  for (size_t w = 0; w < engines_.size(); ++w) {
    EQ_RETURN_IF_ERROR(engines_[w]->CheckState(states[w]));
  }
  for (size_t w = 0; w < engines_.size(); ++w) {
    EQ_RETURN_IF_ERROR(engines_[w]->LoadState(states[w]));
  }
  return {};
}

const std::map<std::string, std::string>& VirtualWorkers::exchanges() const {
  return engines_[0]->exchanges();
}
DdpStats VirtualWorkers::stats() const { return engines_[0]->stats(); }
void VirtualWorkers::ResetStats() { engines_[0]->ResetStats(); }
std::vector<nlohmann::json> VirtualWorkers::Layers() { return engines_[0]->Layers(); }

}  // namespace elastiquant
