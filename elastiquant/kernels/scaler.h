// Turns a coordinate into its size relative to the bucket's norm, without over- or underflow.
#pragma once

#include <cmath>

namespace elastiquant {

// Makes y = min(|v| * pre * mul, top), which is |v| / norm * top. `pre` is a power of two that
// brings norms from anywhere in fp32, denormals included, to where 1/norm is an ordinary
// number; it is 1 for norms of ordinary size.
struct Scaler {
  float pre = 1;
  float mul = 0;
  float top = 1;
};

// Returns the scaler of a norm, which is above 0 and finite; 1 <= top < 2^31.
inline Scaler MakeScaler(float norm, float top) {
  float pre = 1;
  if (norm < 0x1p-64f) pre = 0x1p85f;
  if (norm > 0x1p64f) pre = 0x1p-64f;
  return {pre, top / (norm * pre), top};
}

// Returns y.
inline float ScaledSize(const Scaler& scaler, float v) {
  const float y = std::fabs(v) * scaler.pre * scaler.mul;
  return y < scaler.top ? y : scaler.top;
}

}  // namespace elastiquant
