// RandomBits of base/random.h for the lanes of a vector. Included once for each SIMD target.
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

// Next() gives the numbers of the next Lanes(d) coordinates.
template <class D>
class RandomVectors {
  using V = hwy::HWY_NAMESPACE::Vec<D>;

 public:
  HWY_INLINE RandomVectors(D d, RandomRun run)
      : counter_(Add(Mul(Iota(d, run.first), Set(d, kWeyl)), Set(d, run.keys.add))),
        step_(Set(d, static_cast<uint32_t>(Lanes(d)) * kWeyl)),
        first_(Set(d, 0x7FEB352Du)),
        second_(Set(d, 0x846CA68Bu)),
        mix_(Set(d, run.keys.mix)) {}

  HWY_INLINE V Next() {
    namespace hn = hwy::HWY_NAMESPACE;
    V x = counter_;
    counter_ = hn::Add(counter_, step_);
    x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), first_);
    x = hn::Mul(hn::Xor(hn::Xor(x, hn::ShiftRight<15>(x)), mix_), second_);
    return hn::Xor(x, hn::ShiftRight<16>(x));
  }

 private:
  static constexpr uint32_t kWeyl = 0x9E3779B9u;
  V counter_, step_, first_, second_, mix_;
};

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#endif  // once for each target
