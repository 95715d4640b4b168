#include "elastiquant/data/partition.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "elastiquant/base/number.h"
#include "elastiquant/base/power.h"
#include "elastiquant/base/random.h"
#include "elastiquant/data/dirichlet.h"
#include "elastiquant/data/shuffle.h"

namespace elastiquant {
namespace {

// Names of the random streams made from the seed. A loader of the same seed has 0 and 1.
constexpr uint64_t kMixStream = 2;
constexpr uint64_t kDealStream = 3;
constexpr uint64_t kCutStream = 4;

using Counts = std::vector<std::vector<int64_t>>;  // samples, by worker and class

const std::map<std::string_view, PartitionKind>& PartitionKinds() {
  static const std::map<std::string_view, PartitionKind> kinds = {
      {"iid", PartitionKind::kIid},
      {"dirichlet", PartitionKind::kDirichlet},
      {"classes", PartitionKind::kClasses},
      {"volumes", PartitionKind::kVolumes}};
  return kinds;
}

std::string NameOf(PartitionKind kind) {
  for (const auto& [name, k] : PartitionKinds()) {
    if (k == kind) return std::string(name);
  }
  return "";
}

// Where the value of a key goes: one of the first two is set.
struct PartitionKey {
  double* number = nullptr;
  int64_t* count = nullptr;
  double low = 0, high = 0;
};

Partition DefaultsOf(PartitionKind kind) {
  switch (kind) {
    case PartitionKind::kIid:
      return {};
    case PartitionKind::kDirichlet:
      return {.kind = kind, .alpha = .5};
    case PartitionKind::kClasses:
      return {.kind = kind, .classes = 2};
    case PartitionKind::kVolumes:
      return {.kind = kind, .alpha = 1, .skew = 100};
  }
  return {};
}

std::map<std::string_view, PartitionKey> KeysOf(Partition& p) {
  constexpr double kMost = 1e6;
  const PartitionKey alpha = {.number = &p.alpha, .low = 1e-3, .high = kMost};
  switch (p.kind) {
    case PartitionKind::kIid:
      return {};
    case PartitionKind::kDirichlet:
      return {{"alpha", alpha}};
    case PartitionKind::kClasses:
      return {{"k", {.count = &p.classes, .low = 1, .high = kMost}}};
    case PartitionKind::kVolumes:
      return {{"alpha", alpha}, {"skew", {.number = &p.skew, .low = 1, .high = kMost}}};
  }
  return {};
}

std::string NamesOf(const auto& entries) {
  std::string list;
  for (const auto& [name, unused] : entries) {
    list += (list.empty() ? "" : ", ") + std::string(name);
  }
  return list.empty() ? "none" : list;
}

// The shortest text that reads back as the same number.
std::string TextOf(double value) {
  char text[64];
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

Status SetKey(const std::string& owner, std::string_view name, std::string_view text,
              const PartitionKey& key) {
  double value = NAN;
  const bool read = key.count ? ParseNumber(text, key.count) : ParseNumber(text, key.number);
  if (read) value = key.count ? static_cast<double>(*key.count) : *key.number;
  if (value >= key.low && value <= key.high) return Status::Ok();
  return InvalidArgument(owner + " has " + std::string(name) + "='" + std::string(text) +
                         "'; valid are " + (key.count ? "whole " : "") + "numbers from " +
                         TextOf(key.low) + " to " + TextOf(key.high));
}

// Reads one KEY=VALUE.
Status ReadPair(const std::string& owner, std::string_view pair,
                const std::map<std::string_view, PartitionKey>& keys,
                std::set<std::string_view>* seen) {
  const size_t equals = pair.find('=');
  const std::string_view name = pair.substr(0, equals);
  const auto key = keys.find(name);
  if (key == keys.end()) {
    return InvalidArgument(owner + " has no parameter '" + std::string(name) + "'; it has " +
                           NamesOf(keys));
  }
  if (equals == std::string_view::npos || !seen->insert(name).second) {
    return InvalidArgument(owner + " takes " + std::string(name) + "=VALUE, once");
  }
  return SetKey(owner, name, pair.substr(equals + 1), key->second);
}

// By worker, the logarithm of its nominal volume, to base 2.
std::vector<double> LogVolumes(double skew, int workers) {
  std::vector<double> logs(static_cast<size_t>(workers));
  // The last but one has volume 1 as well, but for two workers, who would not differ.
  const int last = workers == 2 ? 1 : workers - 2;
  for (int w = 0; w < last; ++w) {
    logs[static_cast<size_t>(w)] = PortableLog2(skew) * (last - w) / last;
  }
  return logs;
}

// Cuts `samples` in the proportions whose logarithms are given: at the cumulative sums, all
// moved by one random part of a sample and rounded down. So each part is less than one sample
// from its own proportion, and has that on average: a worker that is to have a hundredth of a
// sample of each class seldom has any.
std::vector<int64_t> Cut(const std::vector<double>& logs, int64_t samples, StreamKey key) {
  const double largest = *std::ranges::max_element(logs);
  std::vector<double> sums(logs.size());
  double sum = 0;
  for (size_t i = 0; i < logs.size(); ++i) sums[i] = sum += PortableExp2(logs[i] - largest);
  const double move = (RandomBits(MakeLaneKeys(key), 0) + .5) * 0x1p-32;  // in (0, 1)
  std::vector<int64_t> parts(logs.size());
  int64_t before = 0;
  for (size_t i = 0; i < logs.size(); ++i) {
    const auto end = static_cast<int64_t>(sums[i] / sum * static_cast<double>(samples) + move);
    parts[i] = end - before;
    before = end;
  }
  return parts;
}

// Deals each class in the proportions whose logarithms `logs_of(class)` gives by worker.
Counts CountByProportion(const std::vector<int64_t>& class_sizes, uint64_t seed, int workers,
                         const auto& logs_of) {
  Counts counts(static_cast<size_t>(workers), std::vector<int64_t>(class_sizes.size()));
  for (size_t c = 0; c < class_sizes.size(); ++c) {
    const std::vector<int64_t> parts =
        Cut(logs_of(c), class_sizes[c], DeriveKey(seed, c, 0, kCutStream));
    for (size_t w = 0; w < counts.size(); ++w) counts[w][c] = parts[w];
  }
  return counts;
}

Counts CountDirichlet(const std::vector<int64_t>& class_sizes, const Partition& partition,
                      uint64_t seed, int workers) {
  return CountByProportion(class_sizes, seed, workers, [&](size_t c) {
    return DrawLogGammas(DeriveKey(seed, c, 0, kMixStream), partition.alpha,
                         static_cast<size_t>(workers));
  });
}

Counts CountVolumes(const std::vector<int64_t>& class_sizes, const Partition& partition,
                    uint64_t seed, int workers) {
  std::vector<std::vector<double>> mixes;  // by worker and class, times its volume
  for (const double volume : LogVolumes(partition.skew, workers)) {
    std::vector<double>& mix = mixes.emplace_back(DrawLogGammas(
        DeriveKey(seed, mixes.size(), 1, kMixStream), partition.alpha, class_sizes.size()));
    const double sum = LogOfSum(mix);
    for (double& log : mix) log += volume - sum;
  }
  return CountByProportion(class_sizes, seed, workers, [&](size_t c) {
    std::vector<double> logs;
    for (const std::vector<double>& mix : mixes) logs.push_back(mix[c]);
    return logs;
  });
}

Counts CountClasses(const std::vector<int64_t>& class_sizes, int64_t k, int workers) {
  const auto classes = static_cast<int64_t>(class_sizes.size());
  std::vector<std::vector<size_t>> holders(class_sizes.size());
  for (int64_t w = 0; w < workers; ++w) {
    for (int64_t i = 0; i < k; ++i) {
      holders[static_cast<size_t>((w * k + i) % classes)].push_back(static_cast<size_t>(w));
    }
  }
  Counts counts(static_cast<size_t>(workers), std::vector<int64_t>(class_sizes.size()));
  for (size_t c = 0; c < class_sizes.size(); ++c) {
    const auto among = static_cast<int64_t>(holders[c].size());
    for (int64_t i = 0; i < among; ++i) {
      counts[holders[c][static_cast<size_t>(i)]][c] =
          class_sizes[c] * (i + 1) / among - class_sizes[c] * i / among;
    }
  }
  return counts;
}

// The samples, class by class, go to the workers in turn: so no two workers' counts of a class,
// and of all classes, differ by more than one.
Counts CountEvenly(const std::vector<int64_t>& class_sizes, int workers) {
  Counts counts(static_cast<size_t>(workers), std::vector<int64_t>(class_sizes.size()));
  size_t next = 0;
  for (size_t c = 0; c < class_sizes.size(); ++c) {
    for (int64_t i = 0; i < class_sizes[c]; ++i) ++counts[next++ % counts.size()][c];
  }
  return counts;
}

int64_t SumOf(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

// Gives one sample to each worker that has none. There are at least as many as workers.
void FillEmpty(Counts* counts) {
  for (std::vector<int64_t>& mine : *counts) {
    if (SumOf(mine) > 0) continue;
    std::vector<int64_t>& giver = *std::ranges::max_element(*counts, {}, SumOf);
    const auto most = std::ranges::max_element(giver);
    --*most;
    ++mine[static_cast<size_t>(most - giver.begin())];
  }
}

// Deals random samples of each class, as many as `counts` says.
std::vector<std::vector<int64_t>> DealByCounts(std::vector<std::vector<int64_t>> by_class,
                                               const Counts& counts, uint64_t seed) {
  std::vector<std::vector<int64_t>> samples(counts.size());
  for (size_t c = 0; c < by_class.size(); ++c) {
    std::vector<int64_t>& deck = by_class[c];
    Shuffle(DeriveKey(seed, c, 0, kDealStream), deck);
    auto next = deck.begin();
    for (size_t w = 0; w < counts.size(); ++w) {
      const auto end = next + counts[w][c];
      samples[w].insert(samples[w].end(), next, end);
      next = end;
    }
  }
  for (std::vector<int64_t>& share : samples) std::ranges::sort(share);
  return samples;
}

Result<std::vector<std::vector<int64_t>>> SamplesByClass(std::span<const int64_t> labels,
                                                         int64_t classes) {
  std::vector<std::vector<int64_t>> by_class(static_cast<size_t>(classes));
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] < 0 || labels[i] >= classes) {
      return InvalidArgument("sample " + std::to_string(i) + " has the label " +
                             std::to_string(labels[i]) + ", and there are " +
                             std::to_string(classes) + " classes");
    }
    by_class[static_cast<size_t>(labels[i])].push_back(static_cast<int64_t>(i));
  }
  return by_class;
}

Status CheckDeal(int64_t samples, int64_t classes, const Partition& partition, int workers) {
  if (workers < 1 || samples < workers) {
    return InvalidArgument(std::to_string(samples) + " samples cannot be dealt to " +
                           std::to_string(workers) + " workers: each needs one");
  }
  if (partition.classes <= classes) return Status::Ok();
  return InvalidArgument(
      "partition '" + SpecOf(partition) + "' asks for " + std::to_string(partition.classes) +
      " classes a worker, and there are " + std::to_string(classes) + ": give a smaller k");
}

Counts CountSamples(const std::vector<int64_t>& class_sizes, const Partition& partition,
                    uint64_t seed, int workers) {
  if (partition.kind == PartitionKind::kClasses) {
    return CountClasses(class_sizes, partition.classes, workers);
  }
  if (partition.is_iid()) return CountEvenly(class_sizes, workers);
  Counts counts = partition.kind == PartitionKind::kVolumes
                      ? CountVolumes(class_sizes, partition, seed, workers)
                      : CountDirichlet(class_sizes, partition, seed, workers);
  FillEmpty(&counts);
  return counts;
}

}  // namespace

Result<Partition> ParsePartition(std::string_view text) {
  const size_t colon = text.find(':');
  const auto kind = PartitionKinds().find(text.substr(0, colon));
  if (kind == PartitionKinds().end()) {
    return InvalidArgument("partition '" + std::string(text) +
                           "' is not known; valid are: " + NamesOf(PartitionKinds()));
  }
  const std::string owner = "partition '" + std::string(kind->first) + "'";
  Partition partition = DefaultsOf(kind->second);
  const auto keys = KeysOf(partition);
  if (colon == std::string_view::npos) return partition;
  std::set<std::string_view> seen;
  std::string_view rest = text.substr(colon);
  while (!rest.empty()) {
    rest.remove_prefix(1);  // a colon or comma
    const std::string_view pair = rest.substr(0, rest.find(','));
    EQ_RETURN_IF_ERROR(ReadPair(owner, pair, keys, &seen));
    rest.remove_prefix(pair.size());
  }
  return partition;
}

std::string SpecOf(const Partition& partition) {
  Partition copy = partition;
  std::string spec = NameOf(partition.kind);
  char separator = ':';
  for (const auto& [name, key] : KeysOf(copy)) {
    spec += separator + std::string(name) + '=' +
            (key.count ? std::to_string(*key.count) : TextOf(*key.number));
    separator = ',';
  }
  return spec;
}

std::vector<int64_t> Shares::Volumes() const {
  std::vector<int64_t> volumes;
  for (const auto& share : samples) volumes.push_back(static_cast<int64_t>(share.size()));
  return volumes;
}

int64_t Shares::Total() const { return SumOf(Volumes()); }

Result<Shares> DealShares(std::span<const int64_t> labels, int64_t classes,
                          const Partition& partition, uint64_t seed, int workers) {
  EQ_RETURN_IF_ERROR(
      CheckDeal(static_cast<int64_t>(labels.size()), classes, partition, workers));
  EQ_ASSIGN_OR_RETURN(auto by_class, SamplesByClass(labels, classes));
  std::vector<int64_t> class_sizes;
  for (const auto& of_class : by_class) {
    class_sizes.push_back(static_cast<int64_t>(of_class.size()));
  }
  Shares shares;
  shares.classes = CountSamples(class_sizes, partition, seed, workers);
  for (size_t w = 0; w < shares.classes.size(); ++w) {
    if (SumOf(shares.classes[w]) > 0) continue;
    return InvalidArgument("partition '" + SpecOf(partition) + "' leaves worker " +
                           std::to_string(w) +
                           " without a sample, because its classes have so few: take fewer "
                           "workers, or a larger k");
  }
  shares.samples = DealByCounts(std::move(by_class), shares.classes, seed);
  return shares;
}

}  // namespace elastiquant
