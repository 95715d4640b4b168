// Who gives its weights to whom in which round, on a graph some of whose workers may be away.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "elastiquant/graph/graph.h"

namespace elastiquant {

// Seen from the worker `rank`, which says who leaves and returns.
class Attendance {
 public:
  Attendance(std::shared_ptr<const Graph> graph, int rank);

  // Another worker takes part in no round from this one on, until it returns. Has no effect on
  // one that is away already.
  void Leave(int peer, uint64_t round);
  // Has no effect on a worker that has not left.
  void Return(int peer, uint64_t round);
  bool is_present(int peer, uint64_t round) const;

  // The part of a peer's weights that this worker takes in a round, and of its own that it
  // gives: 0 where there is no edge, or the peer is away.
  double TakesFrom(int peer, uint64_t round) const;
  double GivesTo(int peer, uint64_t round) const;
  // The peers with which these are above 0.
  std::vector<int> SendersIn(uint64_t round) const;
  std::vector<int> ReceiversIn(uint64_t round) const;

  // Returns the factor by which this worker must multiply the weights that it gives in a round,
  // so that it gives as much as it takes. The factor is 1 if it does so anyway, as on a
  // balanced graph of which nobody is away. On a directed graph that has lost a worker another
  // one may take and give different amounts, and without the factor its model would grow or
  // shrink in each round. The factor is 0 for a worker that has nobody to give to, which must
  // take nothing either.
  double PartGiven(uint64_t round) const;

 private:
  // Rounds in which a worker is away.
  struct Absence {
    uint64_t from = 0, until = 0;
  };

  const Mixing& MixingAt(uint64_t round) const;

  std::shared_ptr<const Graph> graph_;
  int rank_;
  std::map<int, std::vector<Absence>> absent_;
  mutable std::map<uint64_t, Mixing> mixings_;  // of a graph that changes: the last ones asked
};

}  // namespace elastiquant
