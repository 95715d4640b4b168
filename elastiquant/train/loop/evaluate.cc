#include "elastiquant/train/loop/evaluate.h"

#include <ATen/core/grad_mode.h>

#include <bit>
#include <utility>

#include "elastiquant/train/prediction.h"

namespace elastiquant {
namespace {

struct Sums {
  int64_t samples = 0;
  int64_t correct = 0;
  double loss = 0;
};

Status AddBatches(Model& model, TestLoader& loader, Sums* sums) {
  const at::NoGradGuard no_grad;
  loader.Rewind();
  while (true) {
    EQ_ASSIGN_OR_RETURN(const std::optional<Batch> batch, loader.Next());
    if (!batch) return Status::Ok();
    const Prediction prediction = Predict(model, *batch);
    sums->samples += prediction.targets;
    sums->correct += prediction.correct;
    sums->loss += prediction.loss.item<double>() * static_cast<double>(prediction.targets);
  }
}

}  // namespace

Result<Evaluation> Evaluate(Replica& replica, TestLoader& loader, Communicator& comm,
                            Agreement& agreement) {
  Sums own;
  replica.model().eval();
  const Status status = AddBatches(replica.model(), loader, &own);
  replica.model().train();
  EQ_RETURN_IF_ERROR(agreement.Agree(status));
  EQ_ASSIGN_OR_RETURN(const auto samples, comm.AllGather(static_cast<uint64_t>(own.samples)));
  EQ_ASSIGN_OR_RETURN(const auto correct, comm.AllGather(static_cast<uint64_t>(own.correct)));
  EQ_ASSIGN_OR_RETURN(const auto losses, comm.AllGather(std::bit_cast<uint64_t>(own.loss)));
  double n = 0, hits = 0, loss = 0;
  std::vector<double> by_worker;
  for (size_t rank = 0; rank < samples.size(); ++rank) {
    n += static_cast<double>(samples[rank]);
    hits += static_cast<double>(correct[rank]);
    loss += std::bit_cast<double>(losses[rank]);
    by_worker.push_back(100.0 * static_cast<double>(correct[rank]) /
                        static_cast<double>(samples[rank]));
  }
  return Evaluation{
      .accuracy = 100.0 * hits / n, .loss = loss / n, .by_worker = std::move(by_worker)};
}

}  // namespace elastiquant
