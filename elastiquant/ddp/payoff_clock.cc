#include "elastiquant/ddp/payoff_clock.h"

#include <algorithm>
#include <utility>

namespace elastiquant {
namespace {

// Replaces a time by that of the slowest worker.
Status AgreeOn(double* seconds, Communicator& comm) {
  EQ_ASSIGN_OR_RETURN(const auto all, comm.AllGather(static_cast<uint64_t>(*seconds * 1e9)));
  *seconds = static_cast<double>(*std::ranges::max_element(all)) * 1e-9;
  return {};
}

// Returns the time for which the link would be busy with so many bytes, if it took as long for
// each as for those that a step has sent.
double SecondsToSend(double bytes, const Traffic& step) {
  return step.transmit_seconds * bytes / std::max(1.0, static_cast<double>(step.bytes_up));
}

}  // namespace

PayoffClock::PayoffClock(Options options)
    : options_(std::move(options)), payoff_(options_.enabled) {}

Status PayoffClock::BeginStep(Communicator& comm, bool was_exact, double sent_by_all_reduce) {
  if (has_begun_) {
    double seconds =
        options_.step_seconds ? options_.step_seconds(was_exact) : since_begin_.Seconds();
    double exact_seconds = 0;
    if (payoff_.timing()) {
      if (options_.shares_link) {
        exact_seconds = SecondsToSend(sent_by_all_reduce, comm.traffic() - at_begin_);
      }
      EQ_RETURN_IF_ERROR(AgreeOn(&seconds, comm));
      EQ_RETURN_IF_ERROR(AgreeOn(&exact_seconds, comm));
    }
    payoff_.Add(seconds, exact_seconds);
  }
  has_begun_ = true;
  since_begin_ = Stopwatch();
  at_begin_ = comm.traffic();
  return {};
}

}  // namespace elastiquant
