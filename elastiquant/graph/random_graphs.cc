#include "elastiquant/graph/random_graphs.h"

#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "elastiquant/base/contains.h"
#include "elastiquant/base/random.h"

namespace elastiquant {
namespace {

constexpr int kDraws = 1000;

// A stream of random numbers in [0, n).
class Draw {
 public:
  explicit Draw(uint64_t seed) : state_(seed) {}
  size_t Below(size_t n) { return static_cast<size_t>(Next() % n); }
  double Share() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  void Shuffle(std::vector<size_t>* values) {
    for (size_t i = values->size(); i > 1; --i)
      std::swap((*values)[i - 1], (*values)[Below(i)]);
  }

 private:
  uint64_t Next() { return Mix64(state_++); }
  uint64_t state_;
};

// One trial of the pairing model: nothing if an edge is double or joins a worker to itself.
std::optional<std::vector<bool>> PairEnds(size_t workers, size_t degree, Draw* draw) {
  std::vector<size_t> ends;
  for (size_t i = 0; i < workers; ++i) ends.insert(ends.end(), degree, i);
  draw->Shuffle(&ends);
  std::vector<bool> linked(workers * workers, false);
  for (size_t e = 0; e + 1 < ends.size(); e += 2) {
    const size_t i = ends[e], j = ends[e + 1];
    if (i == j || linked[i * workers + j]) return std::nullopt;
    linked[i * workers + j] = linked[j * workers + i] = true;
  }
  return linked;
}

// A graph of few missing edges is drawn by those.
std::vector<bool> Complement(size_t workers, std::vector<bool> linked) {
  for (size_t i = 0; i < workers; ++i) {
    for (size_t j = 0; j < workers; ++j) {
      if (i != j) linked[i * workers + j] = !linked[i * workers + j];
    }
  }
  return linked;
}

}  // namespace

std::vector<bool> ReachedFrom(size_t first, size_t workers, const std::vector<bool>& linked) {
  std::vector<bool> seen(workers, false);
  std::vector<size_t> next = {first};
  seen[first] = true;
  while (!next.empty()) {
    const size_t i = next.back();
    next.pop_back();
    for (size_t j = 0; j < workers; ++j) {
      if (!linked[i * workers + j] || seen[j]) continue;
      seen[j] = true;
      next.push_back(j);
    }
  }
  return seen;
}

std::vector<bool> Transposed(const std::vector<bool>& links, size_t workers) {
  std::vector<bool> other(links.size());
  for (size_t i = 0; i < workers; ++i) {
    for (size_t j = 0; j < workers; ++j) other[j * workers + i] = links[i * workers + j];
  }
  return other;
}

bool IsConnected(size_t workers, const std::vector<bool>& linked) {
  const std::vector<bool> reached = ReachedFrom(0, workers, linked);
  return !Contains(reached, false);
}

Result<std::vector<bool>> RandomRegularLinks(size_t workers, size_t degree, uint64_t seed) {
  if (degree >= workers || workers * degree % 2 != 0 || degree == 0) {
    return InvalidArgument("there is no graph of " + std::to_string(workers) + " nodes with " +
                           std::to_string(degree) +
                           " neighbours each: the degree must be above 0 and below the number "
                           "of nodes, and one of the two must be even");
  }
  // Pairings of few ends are rarely double, so the sparser of a graph and its complement.
  const bool sparse = 2 * degree < workers;
  const size_t drawn = sparse ? degree : workers - 1 - degree;
  Draw draw(Mix64(seed));
  for (int trial = 0; trial < 100 * kDraws; ++trial) {
    std::optional<std::vector<bool>> linked = PairEnds(workers, drawn, &draw);
    if (!linked) continue;
    if (!sparse) linked = Complement(workers, *std::move(linked));
    if (IsConnected(workers, *linked)) return *std::move(linked);
  }
  return InvalidArgument("no connected graph of " + std::to_string(workers) + " nodes with " +
                         std::to_string(degree) + " neighbours each was found");
}

Result<std::vector<bool>> ErdosRenyiLinks(size_t workers, double p, uint64_t seed) {
  Draw draw(Mix64(seed));
  for (int trial = 0; trial < kDraws; ++trial) {
    std::vector<bool> linked(workers * workers, false);
    for (size_t i = 0; i < workers; ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (draw.Share() < p) linked[i * workers + j] = linked[j * workers + i] = true;
      }
    }
    if (IsConnected(workers, linked)) return linked;
  }
  return InvalidArgument("of " + std::to_string(kDraws) +
                         " random graphs none was connected: take a larger p");
}

Mixing RandomPairs(size_t workers, uint64_t seed, uint64_t step) {
  std::vector<size_t> order(workers);
  std::iota(order.begin(), order.end(), size_t{0});
  Draw(DeriveKey(seed, step, 0, 0).value).Shuffle(&order);
  Mixing mixing = IdentityMixing(workers);
  for (size_t e = 0; e + 1 < workers; e += 2) {
    const size_t i = order[e], j = order[e + 1];
    mixing(i, i) = mixing(j, j) = mixing(i, j) = mixing(j, i) = .5;
  }
  return mixing;
}

}  // namespace elastiquant
