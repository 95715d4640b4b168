#include "elastiquant/train/trainer.h"

#include <memory>

#include "elastiquant/c10d/tcp_store.h"
#include "elastiquant/net/crew/crew.h"
#include "elastiquant/train/loop/training_run.h"

namespace elastiquant {
namespace {

Status TrainInGroup(const TrainOptions& options, const RunInfo& info, Communicator* comm,
                    Crew* crew) {
  comm->SetFarewell("its part of the run is done");
  TrainingRun run(options, info, comm, crew);
  Status status = run.Train();
  // What all know of already needs no telling; any other trouble the others would only notice
  // as silence.
  if (!status.ok() && !run.agreement().on_error()) comm->Abort(status);
  if (crew && run.agreement().on_error()) (void)crew->End(/*well=*/false);
  return status;
}

}  // namespace

Status TrainAsWorker(const TrainOptions& options, const CommunicatorOptions& where,
                     const RunInfo& info) {
  KeepTorchQuiet();
  if (options.on_loss == "stop" || where.world_size == 1) {
    EQ_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> comm, Communicator::Connect(where));
    return TrainInGroup(options, info, comm.get(), nullptr);
  }
  EQ_ASSIGN_OR_RETURN(const std::unique_ptr<Crew> crew, Crew::Start({where, nullptr}));
  TrainOptions mine = options;
  if (crew->is_newcomer()) mine.inject.clear();  // what was to strike it has
  return TrainInGroup(mine, info, &crew->comm(), crew.get());
}

}  // namespace elastiquant
