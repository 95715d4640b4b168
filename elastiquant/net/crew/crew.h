// The workers of a job of which any may be lost, and may come back, while the others go on.
// They are in one group at a time, which has a communicator of its own. When it breaks, or when
// newcomers wait, those that are there meet in the store (muster.h) and form the next group.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/net/communicator.h"
#include "elastiquant/net/crew/muster.h"
#include "elastiquant/net/store.h"

namespace elastiquant {

struct CrewOptions {
  // The job's. `rank` is this worker's name, which stays, and `world_size` the number of all.
  // on_peer_lost is the crew's own. A world of one has no crew.
  CommunicatorOptions job;
  // Called from a thread of the crew if the store does not answer while the workers meet. It
  // must not return: the default prints the text to stderr and ends the process with exit
  // code 3.
  std::function<void(const std::string&)> on_stuck = nullptr;
  // Whether a worker that the others have given up may come back. If not, Regroup fails there,
  // and the others need not ask for newcomers.
  bool may_return = true;
};

// Not thread-safe, but for comm() as Communicator is.
class Crew {
 public:
  // Returns when all workers have connected; or at once if one of this name was there before:
  // it is then a newcomer, which must call Regroup. Fails as Communicator::Connect does, and
  // with InvalidArgument if the other one of its name still lives.
  static Result<std::unique_ptr<Crew>> Start(const CrewOptions& options);
  virtual ~Crew() = default;

  virtual int worker() const = 0;   // this one's name
  virtual int workers() const = 0;  // of the job, those that were lost among them
  // Returns the names of the workers of the group, by their rank in it. Those that have been in
  // it for longest are first.
  virtual const std::vector<int>& group() const = 0;
  // Returns the communicator of the group. It is the same object for good, whose rank and
  // world_size change with the group. Its waits end with Unavailable when the group breaks.
  virtual Communicator& comm() = 0;

  // Whether this worker has yet to take over what the group knows. Settle says that it has.
  virtual bool is_newcomer() const = 0;
  virtual void Settle() = 0;
  // Whether newcomers wait to be taken, as far as this worker has heard. The others may have
  // heard otherwise.
  virtual bool newcomers_wait() const = 0;
  // Fails with Unavailable if the group is broken. If this process did not run for a while, it
  // asks the store first whether the others have gone on without it.
  virtual Status Check() = 0;
  virtual bool is_broken() const = 0;

  // Leaves the group, whose transfers must have ended, and returns when this worker is in the
  // next one, or false if the run has ended well. `at_boundary` says that the whole group has
  // agreed to this, between two rounds. A worker that the others have given up becomes a
  // newcomer, if it may, and waits for as long as one of them lives. Fails with Unavailable if
  // the store or all others are lost, or if the run has ended with an error; also if this
  // worker cannot connect to the others again and again, who then go on without it.
  virtual Result<bool> Regroup(bool at_boundary) = 0;

  // Says that the run has come to its end, well or with an error on all workers: whoever still
  // waits to go on with it need not.
  virtual Status End(bool well) = 0;
};

// For a launcher, which starts lost workers again: how the run has ended that the crew of this
// store works on. `store` must be connected with the prefix of the crew's job.
enum class RunEnd : uint8_t { kNotYet, kWell, kFailed };
Result<RunEnd> HowTheRunEnded(Store& store);
Status EndTheRun(Store& store, bool well);  // what Crew::End does
std::string CrewPrefix(const std::string& job);

}  // namespace elastiquant
