// Says what no unbiased code of independent Gaussian values can beat, and how near dither
// comes.
#pragma once

#include <numbers>

namespace elastiquant::theory {

// Returns the least NMSE of unbiased codes at `bits` > 0 a coordinate, 1 / (2^(2 bits) - 1).
// The least mean squared error is D = 2^(-2 bits) (Shannon 1959), whose decoder gives (1-D) v
// on average; divided by 1-D it is unbiased, with error D / (1-D). This holds asymptotically in
// the dimension.
double GaussianLimit(double bits);
// Returns the inverse: the bits a coordinate that an NMSE > 0 takes at least.
double GaussianLimitBits(double nmse);
// Returns how far a codec lies above the limit: 10 log10(nmse / GaussianLimit(bits)).
double DecibelsAboveLimit(double nmse, double bits);

// Returns the bits that subtractive dither of a standard normal value with this step takes with
// an ideal entropy coder: h(X + U) - log step with U uniform over a step (Zamir and Feder, IEEE
// IT 38, 1992). Its NMSE is step^2 / 12 exactly. step > 0, however fine or
// coarse; the result is accurate to 1e-9 of itself.
double DitherBits(double step);

// The gap of any scalar quantiser with an ideal entropy coder as bits grow (Gish and Pierce,
// IEEE IT 14, 1968). It is pi e / 6, which is 1.53 dB.
inline constexpr double kScalarGap = std::numbers::pi * std::numbers::e / 6;

}  // namespace elastiquant::theory
