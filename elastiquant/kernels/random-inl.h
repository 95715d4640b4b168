// RandomBits of base/random.h for the lanes of a vector. This file is included once for each
// SIMD target.
#if defined(ELASTIQUANT_KERNELS_RANDOM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ELASTIQUANT_KERNELS_RANDOM_INL_H_
#undef ELASTIQUANT_KERNELS_RANDOM_INL_H_
#else
#define ELASTIQUANT_KERNELS_RANDOM_INL_H_
#endif

#include <hwy/highway.h>

#include "elastiquant/kernels/quantize.h"

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {

// Next() returns the numbers of the next Lanes(d) coordinates, and Next<U>() those of the next
// U vectors. It takes each step for all U vectors: a processor looks ahead too few instructions
// to overlap the long chains of several vectors that stand one after the other.
template <class D>
class RandomVectors {
  using V = hwy::HWY_NAMESPACE::Vec<D>;

 public:
  HWY_INLINE RandomVectors(D d, RandomRun run)
      : counter_(hwy::HWY_NAMESPACE::Add(
            hwy::HWY_NAMESPACE::Mul(hwy::HWY_NAMESPACE::Iota(d, 0), Set(d, kWeyl)),
            Set(d, run.first * kWeyl + run.keys.add))),
        step_(Set(d, static_cast<uint32_t>(hwy::HWY_NAMESPACE::Lanes(d)) * kWeyl)),
        first_(Set(d, 0x7FEB352Du)),
        second_(Set(d, 0x846CA68Bu)),
        mix_(Set(d, run.keys.mix)),
        ones_(Set(d, ~0u)) {}

  template <size_t U>
  HWY_INLINE void Next(V (&x)[U]) {
    namespace hn = hwy::HWY_NAMESPACE;
    Mix(x);
    for (size_t k = 0; k < U; ++k) x[k] = hn::Xor(x[k], hn::ShiftRight<16>(x[k]));
  }

  // Gives the complements of the numbers, at no cost where there is an instruction for an xor
  // of three.
  template <size_t U>
  HWY_INLINE void NextInverted(V (&x)[U]) {
    namespace hn = hwy::HWY_NAMESPACE;
    Mix(x);
    for (size_t k = 0; k < U; ++k) x[k] = hn::Xor3(x[k], hn::ShiftRight<16>(x[k]), ones_);
  }

  HWY_INLINE V Next() {
    V x[1];
    Next(x);
    return x[0];
  }

 private:
  // Takes all steps but the last.
  template <size_t U>
  HWY_INLINE void Mix(V (&x)[U]) {
    namespace hn = hwy::HWY_NAMESPACE;
    for (size_t k = 0; k < U; ++k) {
      x[k] = hn::Xor(counter_, hn::ShiftRight<16>(counter_));
      counter_ = hn::Add(counter_, step_);
    }
    for (size_t k = 0; k < U; ++k) x[k] = hn::Mul(x[k], first_);
    for (size_t k = 0; k < U; ++k) x[k] = hn::Xor3(x[k], hn::ShiftRight<15>(x[k]), mix_);
    for (size_t k = 0; k < U; ++k) x[k] = hn::Mul(x[k], second_);
  }

  static HWY_INLINE V Set(D d, uint32_t value) { return hwy::HWY_NAMESPACE::Set(d, value); }
  static constexpr uint32_t kWeyl = 0x9E3779B9u;
  V counter_, step_, first_, second_, mix_, ones_;
};

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#endif  // once for each target
