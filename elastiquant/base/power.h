// Powers and logarithms that are computed by rounded sums, products and quotients alone. They
// have the same bits on every machine, which std::pow and std::log do not promise.
#pragma once

namespace elastiquant {

// Returns x^y for finite x >= 0 and finite y > 0, or 0 or infinity where that is beyond a
// double. The relative error is below 2^-52 (4 + |y log2 x|).
double PortablePow(double x, double y);

// Returns log2 x for finite x > 0.
double PortableLog2(double x);

// Returns 2^x, or 0 or infinity where that is beyond a double.
double PortableExp2(double x);

}  // namespace elastiquant
