// Codecs whose rate is a number that can be chosen freely.
#pragma once

#include <memory>

#include "elastiquant/codec/codec.h"

namespace elastiquant {

// Its bits a coordinate; 0 if it has no such rate (all but `dither:bits=...`).
double RateOf(const Codec& codec);
// The same codec at `share` of its rate; null if it has none, or not such a one.
std::shared_ptr<const Codec> AtShareOfRate(const Codec& codec, double share);

}  // namespace elastiquant
