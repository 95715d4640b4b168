// The Walsh-Hadamard transform, in Sylvester's order and without scaling.
#pragma once

#include <cstddef>

namespace elastiquant {

// Replaces v by H v for the n x n matrix H of +1 and -1; n is a power of two, at most 2^31.
// Applied twice it multiplies by n. Stage k = 0, 1, ... replaces each pair (a, b) of
// coordinates that differ in bit k alone by (a + b, a - b), each rounded once, so that every
// target gives the same bits. `scratch` has room for n floats and does not overlap v.
void HadamardTransform(float* v, size_t n, float* scratch);

}  // namespace elastiquant
