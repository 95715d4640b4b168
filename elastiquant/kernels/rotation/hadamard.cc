// Each stage reads pairs that stand side by side and writes sums to the lower half and
// differences to the upper one (Pease, 1968). That moves bit 0 of an index to the top, so the
// next stage finds its pairs side by side again: one loop without shuffles of its own serves
// all stages on all targets, and after the last stage all bits are back in their places.
#include "elastiquant/kernels/rotation/hadamard.h"

#include <cstring>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "elastiquant/kernels/rotation/hadamard.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace elastiquant {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void OneStage(const float* HWY_RESTRICT in, size_t n, float* HWY_RESTRICT out) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d), half = n / 2;
  size_t i = 0;
  for (; i + lanes <= half; i += lanes) {
    hn::Vec<decltype(d)> a, b;
    hn::LoadInterleaved2(d, in + 2 * i, a, b);
    hn::StoreU(hn::Add(a, b), d, out + i);
    hn::StoreU(hn::Sub(a, b), d, out + half + i);
  }
  for (; i < half; ++i) {
    out[i] = in[2 * i] + in[2 * i + 1];
    out[half + i] = in[2 * i] - in[2 * i + 1];
  }
}

// Two stages in one pass over memory.
void TwoStages(const float* HWY_RESTRICT in, size_t n, float* HWY_RESTRICT out) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d), quarter = n / 4;
  size_t i = 0;
  for (; i + lanes <= quarter; i += lanes) {
    hn::Vec<decltype(d)> a, b, c, e;
    hn::LoadInterleaved4(d, in + 4 * i, a, b, c, e);
    const auto ab = hn::Add(a, b), ce = hn::Add(c, e);
    const auto a_b = hn::Sub(a, b), c_e = hn::Sub(c, e);
    hn::StoreU(hn::Add(ab, ce), d, out + i);
    hn::StoreU(hn::Add(a_b, c_e), d, out + quarter + i);
    hn::StoreU(hn::Sub(ab, ce), d, out + 2 * quarter + i);
    hn::StoreU(hn::Sub(a_b, c_e), d, out + 3 * quarter + i);
  }
  for (; i < quarter; ++i) {
    const float a = in[4 * i], b = in[4 * i + 1], c = in[4 * i + 2], e = in[4 * i + 3];
    out[i] = (a + b) + (c + e);
    out[quarter + i] = (a - b) + (c - e);
    out[2 * quarter + i] = (a + b) - (c + e);
    out[3 * quarter + i] = (a - b) - (c - e);
  }
}

void TransformOf(float* v, size_t n, float* scratch) {
  float *from = v, *to = scratch;
  size_t left = n;
  for (; left >= 4; left /= 4, std::swap(from, to)) TwoStages(from, n, to);
  if (left == 2) {
    OneStage(from, n, to);
    std::swap(from, to);
  }
  if (from != v) std::memcpy(v, from, n * sizeof(float));
}

}  // namespace HWY_NAMESPACE
}  // namespace elastiquant
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elastiquant {

HWY_EXPORT(TransformOf);

void HadamardTransform(float* v, size_t n, float* scratch) {
  HWY_DYNAMIC_DISPATCH(TransformOf)(v, n, scratch);
}

}  // namespace elastiquant
#endif
