// What quantisation did to each layer of a model, against what theory allows: the certificate
// of a run.
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

// Sums over messages, or over their parts that belong to a layer. Plain doubles, as workers
// add them up.
struct CertificateSums {
  double messages = 0;
  double coordinates = 0;
  double squared_norm = 0;   // of what was encoded
  double squared_error = 0;  // of what was decoded, against it
  // The most that squared_error can be on average: of every run of coordinates that are
  // quantised together (Codec::granule) and meet the layer, Codec::NmseBound times their
  // squares; or, of frames that tell their variance, that. NaN if no bound is known.
  double bound = 0;
  double worst_case = 0;  // the same by CodecBounds::worst_case; NaN if that is not known
  double bits = 0;        // of frames, the share of these coordinates
  double bits_bound = 0;  // likewise, of CodecBounds::frame_bits
  // Over the messages: for the spread of squared_error.
  double error_error = 0, error_norm = 0, norm_norm = 0;

  CertificateSums& operator+=(const CertificateSums& other);
  // How uncertain squared_error is, as a standard deviation.
  double Spread() const;
};

// How measured variance and bound go together.
enum class Verdict : uint8_t {
  kHolds,
  kLoose,      // the bound is more than kLooseBound times what was measured
  kExceeded,   // the error is above the bound, and not by chance: a bug
  kUnbounded,  // no bound is known of the codec
};
inline constexpr double kLooseBound = 10;
// Standard deviations above a bound that chance does not explain; of kFewestMessages at least.
inline constexpr double kBeyondChance = 5;
inline constexpr double kFewestMessages = 8;
std::string_view VerdictName(Verdict v);  // "holds", "loose", "exceeded", "unbounded"
Verdict Judge(const CertificateSums& sums);

// Collects the measured steps of an epoch.
class Certificate {
 public:
  // Of the layers that lie in buckets which are not exact.
  Certificate(const BucketPlan& plan, std::span<const ParameterShape> parameters);

  // A message; those of lossless codecs are passed over. Thread-safe.
  void Add(const MeasuredMessage& message);

  // Collective: worker 0 has the sums of all workers then, and the others none.
  Status Gather(Communicator* comm);

  // Of worker 0: one object a layer that was measured, and one named "" of all of them;
  // docs/metrics.md defines the fields. step: done at the epoch's end.
  std::vector<nlohmann::json> Lines(int64_t step, int64_t epoch) const;
  void Forget();
  // Lines, then Forget.
  std::vector<nlohmann::json> TakeLines(int64_t step, int64_t epoch);

  // The sums so far, for a checkpoint within an epoch.
  nlohmann::json SaveState() const;
  // Of other buckets or layers: this epoch's sums begin anew. Errors: CorruptData, and nothing
  // has changed, if it is no such state.
  Status LoadState(const nlohmann::json& state);

 private:
  struct Slice {
    size_t layer = 0;
    size_t begin = 0, end = 0;  // in the bucket
  };

  const theory::CodecBounds& BoundsOf(const Codec& codec, size_t coordinates);

  std::vector<std::string> layers_;         // names
  std::vector<std::vector<Slice>> slices_;  // by bucket; none of an exact one
  mutable std::mutex mutex_;
  std::vector<CertificateSums> sums_;  // by layer, and at the end of all
  std::map<std::pair<std::string, size_t>, theory::CodecBounds>
      known_;  // by codec and coordinates
};

}  // namespace elastiquant
