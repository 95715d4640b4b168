// Random graphs, as links between workers: row after row, symmetric, with an empty diagonal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/graph/mixing.h"

namespace elastiquant {

// Returns, by worker, which ones can be reached from the worker `first` along links of which
// that in row i and column j leads from i to j.
std::vector<bool> ReachedFrom(size_t first, size_t workers, const std::vector<bool>& linked);
// Returns the links the other way.
std::vector<bool> Transposed(const std::vector<bool>& links, size_t workers);
// Whether each worker can be reached from each other one. `linked` is as in MetropolisMixing.
bool IsConnected(size_t workers, const std::vector<bool>& linked);

// Returns a connected graph in which each worker has `degree` neighbours, drawn by pairing ends
// of edges until none is double. Fails with kInvalidArgument if there is none.
Result<std::vector<bool>> RandomRegularLinks(size_t workers, size_t degree, uint64_t seed);
// Returns a connected graph that has each edge with probability p, drawn again until it is
// connected. Fails with kInvalidArgument if 1000 draws were not.
Result<std::vector<bool>> ErdosRenyiLinks(size_t workers, double p, uint64_t seed);

// Returns the mixing of a step in which workers average in pairs, drawn from the seed and the
// step. If there is an odd number of workers, one has no partner.
Mixing RandomPairs(size_t workers, uint64_t seed, uint64_t step);

}  // namespace elastiquant
