// Counter-based random numbers. They are a pure function of (seed, step, worker, message,
// coordinate), so that encoded bytes do not depend on threads, SIMD width or machine.
#pragma once

#include <cstdint>

namespace elastiquant {

// Names the stream of random numbers of one message. It travels in the frame, so that a decoder
// can make the same numbers again (shared-seed dither).
struct StreamKey {
  uint64_t value = 0;
};

// Mixes 64 bits bijectively (the finaliser of SplitMix64, Steele et al. 2014).
constexpr uint64_t Mix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Returns the stream of message number `message` (a bucket, a chunk) that `worker` sends at
// `step`.
constexpr StreamKey DeriveKey(uint64_t seed, uint64_t step, uint64_t worker, uint64_t message) {
  return {Mix64(Mix64(Mix64(Mix64(seed) ^ step) ^ worker) ^ message)};
}

// The two 32-bit halves that the per-coordinate hash is keyed with. SIMD kernels take these.
struct LaneKeys {
  uint32_t add;  // added to the scaled counter
  uint32_t mix;  // xored in between the two multiplications
};
constexpr LaneKeys MakeLaneKeys(StreamKey key) {
  return {static_cast<uint32_t>(key.value), static_cast<uint32_t>(key.value >> 32)};
}

// Returns the 32 random bits of coordinate i. They are made by two rounds of multiplication and
// xorshift over a Weyl sequence, with the constants of "lowbias32" (Wellons, 2018). Each
// operation is one SIMD instruction.
constexpr uint32_t RandomBits(LaneKeys keys, uint32_t i) {
  uint32_t x = i * 0x9E3779B9u + keys.add;
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15) ^ keys.mix) * 0x846CA68Bu;
  return x ^ (x >> 16);
}

// Returns a number that is uniform in [0, 1). It has the top 24 bits, so that the float is
// exact.
constexpr float UniformFloat(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

}  // namespace elastiquant
