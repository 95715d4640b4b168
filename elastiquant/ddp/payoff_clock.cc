#include "elastiquant/ddp/payoff_clock.h"

#include <algorithm>
#include <utility>

namespace elastiquant {
namespace {

// Makes a time the slowest worker's.
Status AgreeOn(double* seconds, Communicator& comm) {
  EQ_ASSIGN_OR_RETURN(const auto all, comm.AllGather(static_cast<uint64_t>(*seconds * 1e9)));
  *seconds = static_cast<double>(*std::ranges::max_element(all)) * 1e-9;
  return {};
}

// The time for which the link would be busy with so many bytes, by what this step has sent.
double SecondsToSend(double bytes, const Traffic& before, const Traffic& after) {
  const auto sent = static_cast<double>(after.bytes_up - before.bytes_up);
  return (after.transmit_seconds - before.transmit_seconds) * bytes / std::max(1.0, sent);
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
        exact_seconds = SecondsToSend(sent_by_all_reduce, at_begin_, comm.traffic());
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
