// What a codec does to a vector: size, error, bias, entropy and speed over repeated draws of
// its randomness.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "elastiquant/base/status.h"
#include "elastiquant/base/workspace.h"
#include "elastiquant/codec/codec.h"

namespace elastiquant::cli {

struct AnalysisOptions {
  int draws = 32;  // at least 2
  uint64_t seed = 1;
};

// Of T draws with errors e_t = Q_t(v) - v. Codecs with a memory are taken at their first
// message.
struct Analysis {
  double bits_per_coordinate = 0;  // mean over the draws, of the whole frame
  // Order-0 empirical entropy of the decoded values of a bucket, in bits a coordinate: the mean
  // over the buckets, those of the codec's key `bucket` but at most 32768 coordinates. What an
  // ideal coder that knows each bucket's frequencies would need for the values, norms apart.
  // Absent where the decoded values are no symbols: most values of a bucket differ, as under
  // shared dither or after a rotation. At most the first 2^20 coordinates are looked at.
  std::optional<double> entropy;
  double nmse = 0;                 // mean of |e_t|^2 / |v|^2
  double nmse_standard_error = 0;  // of that mean
  double cosine = 0;               // mean of <Q_t, v> / (|Q_t| |v|)
  // The larger of two tests of E e = 0, each a normal number if it holds:
  //  along v: Student's t of the mean of <e_t, v> / |v|^2, turned into the normal number that
  //    is exceeded as often (Wallace 1959). Its standard error is taken for at least 2^-23,
  //    since what is decoded is rounded to fp32;
  //  in any direction: the sum of <e_s, e_t> over all s < t, over the root of the sum of its
  //    terms' squares, which are uncorrelated; sqrt(T(T-1)/2) at most. Longer vectors are
  //    folded to 32768 places with random signs first.
  double bias_z = 0;
  // |E e|^2 / E|e|^2, estimated without bias (so it may fall below 0): the share of the squared
  // error that does not average out.
  double bias_share = 0;
  double encode_gigabytes_per_second = 0;  // of fp32, from the median time
  double decode_gigabytes_per_second = 0;
};

// values.size() >= 1. Fails as codec.Encode does.
Result<Analysis> Analyse(const Codec& codec, std::span<const float> values,
                         const AnalysisOptions& options, Workspace& work);

}  // namespace elastiquant::cli
