// The known variance of dithered codes.
#pragma once

namespace elastiquant::policy {

// Returns E|Q(v)-v|^2 / |v|^2 of `dither` with an ideal entropy coder on independent Gaussian
// values at so many bits a coordinate, bits > 0 (theory::DitherBits, solved for the error). Of
// vectors with this norm and so many bits Gaussian ones of one scale have the largest error, so
// real gradients lie below it. Frames, which have headers and scales as well, err by up to 15 %
// more on Gaussian values; each tells its own error. Accurate to 1e-3 of itself.
double DitherNmse(double bits);

// Returns the inverse: the least bits a coordinate at which the NMSE is at most `nmse` > 0,
// accurate to 1e-4. The result is at most 32.
double DitherBitsFor(double nmse);

}  // namespace elastiquant::policy
