// The graph of a decentralised run: who averages with whom in which step, by which weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/graph/mixing.h"

namespace elastiquant {

// Immutable; it may be shared by threads.
class Graph {
 public:
  // Makes the graph of `nodes` workers, 1 to 1024, that `spec` names:
  //   ring, complete, star, hypercube (of 2^k nodes), torus[:rows=R] (near-square without R),
  //   random-regular[:degree=3], erdos-renyi[:p=0.5] (drawn until it is connected), with
  //     Metropolis weights;
  //   exponential: i takes from i + 2^t for all t, with equal weights (directed);
  //   one-peer-exponential: i takes half from i + 2^(t mod h) in step t (directed);
  //   random-pairs: in each step all workers are paired at random, and each averages with its
  //     partner; if there is an odd number of them, one stays alone;
  //   or a file of edges (edge_file.h), for a text that has a dot or a slash in it.
  // With `lazy=1` it is (I + W) / 2. Random graphs and pairs are drawn from `seed`. Fails with
  // kInvalidArgument for any other text, and for a number of nodes that the graph cannot have,
  // and with kNotFound for a file that cannot be read.
  static Result<std::shared_ptr<const Graph>> Parse(std::string_view spec, size_t nodes,
                                                    uint64_t seed);
  // Makes a static graph of a mixing whose columns add up to 1: what workers give away is what
  // others take.
  static Result<std::shared_ptr<const Graph>> Of(Mixing mixing, std::string spec);

  const std::string& spec() const { return spec_; }
  size_t nodes() const { return nodes_; }
  // The steps after which mixings repeat: 1 if they never change, 0 if they never repeat.
  size_t period() const { return period_; }
  bool is_static() const { return period_ == 1; }
  bool is_symmetric() const { return symmetric_; }  // in each step
  // Whether rows add up to 1, too. If not, only push-sum averages on it.
  bool is_balanced() const { return balanced_; }

  // The mixing of a step. AtFirst is that of step 0, and of all steps if the graph is static.
  const Mixing& AtFirst() const { return first_; }
  Mixing At(uint64_t step) const { return is_static() ? first_ : at_(step); }

  // All whom worker i gives to, or takes from, in any step; ascending, without itself.
  const std::vector<int>& receivers(int i) const { return receivers_[static_cast<size_t>(i)]; }
  const std::vector<int>& senders(int i) const { return senders_[static_cast<size_t>(i)]; }

  // Of the mixing of one step if it is static; otherwise of a typical step: the contraction is
  // the geometric mean over a period, or of pairs, the root of the expected contraction of
  // squared differences. 0 stands for exact averaging within a period.
  MixingFactors Factors() const;

  // Returns a number that tells the weights between workers, in all steps of a period, from
  // those of other graphs: the same on all machines, whatever the spec and the order of edges
  // in a file. Of graphs that never repeat it is that of the first 8 steps.
  uint64_t Digest() const;

  // The groups of a graph whose edges join only workers of different groups, as asynchronous
  // pairs need: true for each worker of the one; empty if it is not bipartite.
  std::vector<bool> Sides() const;

 private:
  Graph(std::string spec, size_t nodes, size_t period, bool symmetric,
        std::function<Mixing(uint64_t)> at);
  static Result<Graph> Make(std::string_view text, size_t nodes, uint64_t seed);
  void FindPeers();
  bool IsLinked(size_t i, size_t j) const;

  std::string spec_;
  size_t nodes_;
  size_t period_;
  bool symmetric_;
  bool balanced_;
  std::function<Mixing(uint64_t)> at_;
  Mixing first_;
  std::vector<std::vector<int>> receivers_, senders_;
};

// Whether Graph::Parse takes the spec for the name of a file.
bool IsEdgeFile(std::string_view spec);

// Returns the names that Graph::Parse takes, for error messages and listings.
const std::vector<std::string>& GraphNames();

}  // namespace elastiquant
