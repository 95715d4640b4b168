// Powers by rounded sums, products and quotients alone: the same bits on every machine, which
// std::pow does not promise.
#pragma once

namespace elastiquant {

// x^y for 0 <= x, finite, and 0 < y, finite; 0 or infinity where that is beyond a double. The
// relative error is below 2^-52 (4 + |y log2 x|).
double PortablePow(double x, double y);

}  // namespace elastiquant
