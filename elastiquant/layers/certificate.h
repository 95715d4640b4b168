// The certificate of a run says what quantisation did to each layer of a model, against what
// theory allows.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "elastiquant/base/status.h"
#include "elastiquant/exchange/gradient_reducer.h"
#include "elastiquant/layers/bucket_plan.h"
#include "elastiquant/net/communicator.h"
#include "elastiquant/theory/codec_bounds.h"

namespace elastiquant {

// Sums over messages, or over their parts that belong to a layer. They are all doubles, because
// workers add them up.
struct CertificateSums {
  double messages = 0;
  double coordinates = 0;
  double squared_norm = 0;   // sum of squares of what was encoded
  double squared_error = 0;  // of what was decoded less that
  // The most that squared_error can be on average. It is the sum, over the runs of coordinates
  // that are quantised together (Codec::granule) and that meet the layer, of Codec::NmseBound
  // times the squared norm of the run. For frames that tell their variance it is made from
  // that. It is NaN if no bound is known.
  double bound = 0;
  double worst_case = 0;  // likewise from CodecBounds::worst_case; NaN if not known
  double bits = 0;        // the share of these coordinates in the frames' bits
  double bits_bound = 0;  // likewise from CodecBounds::frame_bits
  // Sums over the messages of products of their error and norm, for the spread of
  // squared_error.
  double error_error = 0, error_norm = 0, norm_norm = 0;

  CertificateSums& operator+=(const CertificateSums& other);
  // Returns how uncertain squared_error is, as a standard deviation. It is estimated from how
  // the messages scatter, which a few of them with nearly all of the norm do not show.
  double Spread() const;
  double EffectiveMessages() const;
};

// How measured variance and bound go together.
enum class Verdict : uint8_t {
  kHolds,
  kLoose,      // the bound is more than kLooseBound times what was measured
  kExceeded,   // the error is above the bound, not by chance: a bug
  kUnbounded,  // no bound is known of the codec
};
inline constexpr double kLooseBound = 10;
// How many standard deviations above a bound chance does not explain, if there are effectively
// at least kFewestMessages messages.
inline constexpr double kBeyondChance = 5;
inline constexpr double kFewestMessages = 8;
std::string_view VerdictName(Verdict v);  // "holds", "loose", "exceeded", "unbounded"
Verdict Judge(const CertificateSums& sums);

// Collects the measured steps of an epoch. LayerReduction has one. It is thread-safe.
class Certificate {
 public:
  // Makes an empty certificate of the layers that lie in buckets which are not exact.
  Certificate(const BucketPlan& plan, std::span<const ParameterShape> parameters);

  // Adds a message. Those of lossless codecs are passed over.
  void Add(const MeasuredMessage& message);

  // Collective. Afterwards worker 0 has the sums of all workers, and the others have none.
  Status Gather(Communicator* comm);

  // Returns an object for each layer that was measured, and one named "" for all of them
  // together; docs/metrics.md defines the fields. The sums are this worker's own before Gather.
  // `step` is the number of steps done at the epoch's end.
  std::vector<nlohmann::json> Lines(int64_t step, int64_t epoch) const;
  // Sets all sums to 0.
  void Forget();
  // Does Lines, then Forget.
  std::vector<nlohmann::json> TakeLines(int64_t step, int64_t epoch);

  // Returns the sums so far, for a checkpoint within an epoch.
  nlohmann::json SaveState() const;
  // Takes up what SaveState returned, which may have the layers in another order. Sums of other
  // layers are passed over: the sums stay as they are. Fails with CorruptData, and has changed
  // nothing, if it is no such state.
  Status LoadState(const nlohmann::json& state);

 private:
  struct Slice {
    size_t layer = 0;
    size_t begin = 0, end = 0;  // in the bucket
  };

  const theory::CodecBounds& BoundsOf(const Codec& codec, size_t coordinates);

  std::vector<std::string> layers_;         // names
  std::vector<std::vector<Slice>> slices_;  // by bucket; an exact one has none
  mutable std::mutex mutex_;
  std::vector<CertificateSums> sums_;  // by layer, and at the end those of all
  std::map<std::pair<std::string, size_t>, theory::CodecBounds>
      known_;  // by codec and coordinates
};

}  // namespace elastiquant
