// What no unbiased code of independent Gaussian values can beat, and how near dither comes.
#pragma once

#include <numbers>

namespace elastiquant::theory {

// The least NMSE of unbiased codes at `bits` > 0 a coordinate, 1 / (2^(2 bits) - 1): the least
// mean squared error is D = 2^(-2 bits) (Shannon 1959), whose decoder gives (1-D) v on average;
// divided by 1-D it is unbiased, with error D / (1-D). Asymptotically in the dimension.
double GaussianLimit(double bits);
// Its inverse: the bits that NMSE > 0 takes at least.
double GaussianLimitBits(double nmse);
// How far a codec lies above it: 10 log10(nmse / GaussianLimit(bits)).
double DecibelsAboveLimit(double nmse, double bits);

// Subtractive dither of a standard normal value with this step and an ideal entropy coder: NMSE
// step^2 / 12 exactly, and this many bits, h(X + U) - log step with U uniform over a step
// (Zamir and Feder, IEEE IT 38, 1992). step > 0; accurate to 1e-9.
double DitherBits(double step);

// The gap of any scalar quantiser with an ideal entropy coder as bits grow (Gish and Pierce,
// IEEE IT 14, 1968): pi e / 6, which is 1.53 dB.
inline constexpr double kScalarGap = std::numbers::pi * std::numbers::e / 6;

}  // namespace elastiquant::theory
