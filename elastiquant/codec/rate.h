// Codecs whose rate is a number that can be chosen freely.
#pragma once

#include <memory>

#include "elastiquant/codec/codec.h"

namespace elastiquant {

// Returns the bits a coordinate that the codec was given, or 0 if it has no such rate. Only
// `dither:bits=...` has one.
double RateOf(const Codec& codec);
// Returns the same codec at `share` of its rate. Returns null if it has no rate, or if that
// share of it is not a rate that such a codec can have.
std::shared_ptr<const Codec> AtShareOfRate(const Codec& codec, double share);

}  // namespace elastiquant
