// Deals a training set to workers as data lies on devices: unevenly.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant {

enum class PartitionKind : uint8_t {
  kIid,        // each epoch deals all samples anew; shares, if there must be any, are alike
  kDirichlet,  // each class is spread unevenly over the workers
  kClasses,    // a worker has samples of few classes only
  kVolumes,    // some workers have far more samples than others
};

struct Partition {
  PartitionKind kind = PartitionKind::kIid;
  double alpha = 0;     // of the Dirichlet distribution; the smaller, the less even
  double skew = 0;      // the largest nominal volume over the smallest
  int64_t classes = 0;  // that each worker has

  bool is_iid() const { return kind == PartitionKind::kIid; }
};

// Parses NAME[:KEY=VALUE,...], in which a key that is not given has the value shown here:
// "iid", "dirichlet:alpha=0.5", "classes:k=2" or "volumes:skew=100,alpha=1". Fails with
// kInvalidArgument, which lists what is valid.
Result<Partition> ParsePartition(std::string_view text);

// Returns the text with all keys, which ParsePartition reads as the same partition.
std::string SpecOf(const Partition& partition);

// Who has which samples. No sample is in two shares, and none of the shares is empty.
struct Shares {
  std::vector<std::vector<int64_t>> samples;  // by worker, ascending
  std::vector<std::vector<int64_t>> classes;  // by worker and class, how many of them

  // By worker, how many samples it has.
  std::vector<int64_t> Volumes() const;
  // How many samples all workers have together.
  int64_t Total() const;
};

// Deals the samples, whose labels are in 0 ... classes - 1, to `workers` workers. The shares
// are a function of the arguments alone, the same on every machine. Every sample goes to
// exactly one worker, but under kClasses those of classes that no worker has go to none.
//
//   kIid        Each class is spread evenly over the workers.
//   kDirichlet  The parts of a class that the workers have are drawn from Dirichlet(alpha) for
//               each class (Yurochkin et al., "Bayesian nonparametric federated learning of
//               neural networks", ICML 2019, and most since; Hsu et al., 2019, draw the classes
//               of each worker instead).
//   kClasses    Worker w has the classes wk, wk + 1, ..., wk + k - 1, counted round in a
//   circle.
//               Workers that have a class in common share it evenly.
//   kVolumes    As in the experiments of DAGC (Lu et al., INFOCOM 2023): the nominal volumes of
//               the workers fall geometrically from `skew` to 1, which the last two have (of
//               two workers only the last). The mix of classes of each worker is drawn from
//               Dirichlet(alpha). Each class is dealt in proportion to nominal volume times
//               part in the mix, so the sizes of the shares are only about the nominal ones.
//
// A worker that would have nothing is given one sample, of the class of which the worker with
// the most samples has most.
//
// Fails with kInvalidArgument if there are fewer samples than workers, if a worker shall have
// more classes than there are, or if a worker of kClasses would have nothing.
Result<Shares> DealShares(std::span<const int64_t> labels, int64_t classes,
                          const Partition& partition, uint64_t seed, int workers);

}  // namespace elastiquant
