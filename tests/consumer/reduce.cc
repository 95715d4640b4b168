// Reduces one bucket among one worker: the mean of one gradient is that gradient.
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "elastiquant/exchange/gradient_reducer.h"
#include "elastiquant/net/communicator.h"

namespace {

elastiquant::Status Reduce(std::vector<float>* gradient) {
  EQ_ASSIGN_OR_RETURN(const auto comm, elastiquant::Communicator::Connect({}));
  EQ_ASSIGN_OR_RETURN(auto codec, elastiquant::MakeCodec("fp32"));
  std::vector<elastiquant::GradientBucket> buckets{{*gradient, std::move(codec), "all"}};
  EQ_ASSIGN_OR_RETURN(const auto reducer,
                      elastiquant::GradientReducer::Create(comm.get(), std::move(buckets), {}));
  EQ_RETURN_IF_ERROR(reducer->BeginStep(0));
  EQ_RETURN_IF_ERROR(reducer->MarkReady(0));
  EQ_ASSIGN_OR_RETURN(const auto outcome, reducer->Finish());
  if (outcome.skipped) return elastiquant::Internal(outcome.reason);
  return elastiquant::Status::Ok();
}

}  // namespace

int main() {
  std::vector<float> gradient{1, -2, 3.5f};
  const elastiquant::Status status = Reduce(&gradient);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  return status.ok() && gradient == std::vector<float>{1, -2, 3.5f} ? 0 : 1;
}
