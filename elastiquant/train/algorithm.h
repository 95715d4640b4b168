// What `train --algorithm` names: what workers send in a step, and how the weights move by it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "elastiquant/base/status.h"
#include "elastiquant/protocol/gossip/rules.h"

namespace elastiquant {

enum class AlgorithmKind : uint8_t {
  kAllReduce,    // every step moves the weights by the mean gradient
  kOneBitAdam,   // one_bit_adam.cc
  kZeroOneAdam,  // the same
  kDemo,         // demo.cc
  kLocalSgd,     // local_runner.h: these three
  kDiLoCo,
  kSparseLoCo,
  kDelayed,  // delayed_runner.h
  kLagWk,    // lazy_runner.h: these four
  kLagPs,
  kLaq,
  kLasg,
  kSparsity,       // worker_codecs.h: uniform, dagc-r, dagc-a and accordion
  kQuantisedData,  // data_runner.h
  kGossip,         // gossip_runner.h: those of GossipKind
};

struct Algorithm {
  AlgorithmKind kind = AlgorithmKind::kAllReduce;
  int64_t freeze = 0;  // steps after which Adam's second moments no longer change
  int64_t growth = 0;  // updates of the second moments until they become half as frequent
  double decay = 0;    // how much of its momentum DeMo keeps in a step
  int64_t block = 0, top = 0;  // DeMo's blocks have block x block values, of which top are sent
  int64_t bits = 0;            // of such a value: 32, 16 (bfloat16) or 1 (its sign)

  // Of algorithms whose workers train alone between two exchanges (protocol/local_steps.h).
  double outer_rate = 1, outer_momentum = 0;
  double mix = 0;      // of local weights that is kept when a mean is applied
  int64_t delay = -1;  // steps after which it is applied; -1: none, or if eager a round
  int64_t eager = 0;   // 1: own parts count at once, and the others' a round later

  // Of kQuantisedData.
  int64_t cache = 1;     // 1: a sample travels once
  int64_t refine = 0;    // 1: what quantised samples lack of the gradient travels, too
  int64_t central = 0;   // 1: worker 0 alone computes
  int64_t unbiased = 0;  // 1: samples are skipped by chance, and others weigh more
  double skipped = 0;    // the share of samples that is skipped

  GossipKind gossip = GossipKind::kDpsgd;  // of kGossip

  // Of algorithms that reuse what was sent before, as LazyOptions has them.
  int64_t history = 0, silence = 0;
  double xi = 0;

  bool is_lazy() const {
    return kind == AlgorithmKind::kLagWk || kind == AlgorithmKind::kLagPs ||
           kind == AlgorithmKind::kLaq || kind == AlgorithmKind::kLasg;
  }
  bool is_local() const {
    return kind == AlgorithmKind::kLocalSgd || kind == AlgorithmKind::kDiLoCo ||
           kind == AlgorithmKind::kSparseLoCo;
  }
  bool is_gossip() const { return kind == AlgorithmKind::kGossip; }
  bool is_adam() const {
    return kind == AlgorithmKind::kOneBitAdam || kind == AlgorithmKind::kZeroOneAdam;
  }
  // Whether some steps send their values uncompressed.
  bool has_exact_steps() const { return is_adam(); }
  // Returns whether step `step`, counted from 0, does.
  bool IsExact(int64_t step) const;
};

// Parses NAME[:KEY=VALUE,...]: "allreduce" ("ddp" means the same), "onebit-adam:freeze=100",
// "zeroone-adam:growth=16,freeze=N" (without `freeze` it never stops) or
// "demo:decay=0.999,block=64,top=32,bits=32", "local-sgd:delay=0,mix=0" (which is FedAvg, too),
// "diloco:lr=0.7,momentum=0.9,delay=0,mix=0,eager=0", "sparseloco:lr=1", "delayed:delay=4", or
// "lag-wk:history=10,xi=0.1,silence=100" and likewise "lag-ps" (xi=1), "laq" (xi=0.08) and
// "lasg" (xi=0.1), or "quantised-data:cache=1,refine=0,central=0,skip=0,unbiased=0", or
// "dpsgd", "d2", "gradient-tracking", "dcd", "ecd", "choco:delay=0", "deepsqueeze", "ad-psgd",
// "sgp" or "noloco:lr=0.7,momentum=0.3", or what policy::ParseSparsity takes. Fails with
// kInvalidArgument, which lists what is valid.
Result<Algorithm> ParseAlgorithm(std::string_view text);

// Returns the steps that workers train alone for, as published.
int64_t EveryOf(const Algorithm& algorithm);

// Returns the codec that was published with it, or an empty text for "allreduce", which has
// none, and for those of which it depends on options (UsualCodecOf).
std::string_view CodecOf(const Algorithm& algorithm);

// Returns the graph that is usual for a gossip algorithm.
std::string_view GraphOf(GossipKind kind);

}  // namespace elastiquant
