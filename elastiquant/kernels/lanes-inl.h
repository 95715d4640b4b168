// The vectors that the quantisers and dequantisers work in. This file is included once for each
// SIMD target.
#if defined(ELASTIQUANT_KERNELS_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ELASTIQUANT_KERNELS_LANES_INL_H_
#undef ELASTIQUANT_KERNELS_LANES_INL_H_
#else
#define ELASTIQUANT_KERNELS_LANES_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {

// Vectors of floats, of unsigned and of signed integers of the same size, and of as many bytes.
using DF = hwy::HWY_NAMESPACE::ScalableTag<float>;
using DU = hwy::HWY_NAMESPACE::RebindToUnsigned<DF>;
using DI = hwy::HWY_NAMESPACE::RebindToSigned<DF>;
using DB = hwy::HWY_NAMESPACE::Rebind<uint8_t, DF>;
using VF = hwy::HWY_NAMESPACE::Vec<DF>;
using VU = hwy::HWY_NAMESPACE::Vec<DU>;
using VI = hwy::HWY_NAMESPACE::Vec<DI>;

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#endif  // once for each target
