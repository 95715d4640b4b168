// What every codec owes its callers, whatever its scheme: each test runs over each variant that
// the registered families name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "elastiquant/codec/allocation_counter_testing.h"
#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/codec_testing.h"
#include "elastiquant/codec/frame.h"
#include "elastiquant/codec/frame_testing.h"
#include "elastiquant/codec/registry.h"
#include "elastiquant/codec/spec.h"
#include "elastiquant/kernels/norms.h"
#include "elastiquant/kernels/targets.h"

namespace elastiquant {
namespace {

using ::testing::HasSubstr;

constexpr float kMax = std::numeric_limits<float>::max();
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr size_t kLengths[] = {0,   1,   2,   3,    7,    8,    15,   16,  17,
                               31,  32,  33,  63,   64,   127,  129,  255, 511,
                               512, 513, 999, 1025, 8191, 8193, 70001};

// Finite vectors that quantisers get wrong. All within fp16, so that no codec saturates.
std::vector<std::vector<float>> DifficultVectors() {
  std::vector<std::vector<float>> vectors{
      {},
      {0.0f},
      {-0.0f, 0.0f},
      {1.0f},
      {-3.5f},
      {3, -4, 0, 12},
      std::vector<float>(700, 0.0f),
      std::vector<float>(600, 1.0f),
      std::vector<float>(33, -0.001f),
  };
  vectors.push_back(std::vector<float>(530, 1e-4f));
  vectors.back()[517] = -1000.0f;  // one giant among dwarfs
  vectors.push_back(std::vector<float>(40, kDenormal));
  vectors.push_back({kDenormal, -kDenormal, 1e-40f, -1e-38f, 1e-30f, 1e-10f, 1.0f});
  vectors.push_back(Gaussian(1300));
  return vectors;
}

struct ScopedTarget {
  explicit ScopedTarget(const std::string& name) { EXPECT_TRUE(UseSimdTarget(name).ok()); }
  ~ScopedTarget() { EXPECT_TRUE(UseSimdTarget("auto").ok()); }
};

bool IsTiny(float v) { return v != 0 && std::abs(v) < 1e-15f; }

// Of the first family with the same wire format, or of a modifier with one of its own.
std::string NameOnTheWire(const Spec& spec) {
  for (const CodecModifier* modifier : CodecModifiers()) {
    if (modifier->decode != nullptr && !spec.modifiers.empty() &&
        modifier->name == spec.modifiers.back().name) {
      return modifier->name;
    }
  }
  // terngrad:bucket=tensor makes frames of elastic, whose buckets may end with tensors.
  const bool by_tensor = SpecValue(spec.codec, "bucket", "") == "tensor";
  const std::string name = by_tensor ? "elastic" : spec.codec.name;
  const auto families = CodecFamilies();
  const auto own = std::ranges::find_if(
      families, [&](const CodecFamily* family) { return family->info.name == name; });
  const auto first = std::ranges::find_if(
      families, [&](const CodecFamily* family) { return family->id == (*own)->id; });
  return (*first)->info.name;
}

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

class Conformance : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto made = MakeCodec(GetParam());
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    codec_ = *made;
  }

  // A buffer of exactly the promised size, so that a sanitizer sees a write past it.
  std::vector<uint8_t> Encoded(std::span<const float> values, StreamKey key = {42}) {
    std::vector<uint8_t> frame(codec_->MaxFrameBytes(values.size()));
    const auto size = codec_->Encode(values, key, work_, frame);
    EXPECT_TRUE(size.ok()) << size.status().ToString();
    if (size.ok()) {
      EXPECT_LE(*size, frame.size());
      frame.resize(*size);
    }
    return frame;
  }
  std::vector<float> Decoded(std::span<const uint8_t> frame, size_t n) {
    std::vector<float> values(n, -77.0f);
    const Status status = DecodeFrame(frame, work_, values);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return values;
  }
  Status TryDecode(std::span<const uint8_t> frame, size_t n) {
    std::vector<float> values(n);
    return DecodeFrame(frame, work_, values);
  }
  Status TryEncode(std::span<const float> values) {
    std::vector<uint8_t> frame(codec_->MaxFrameBytes(values.size()));
    return codec_->Encode(values, {1}, work_, frame).status();
  }

  std::shared_ptr<const Codec> codec_;
  Workspace work_{1};
};

// What is promised of one class only runs over the codecs of that class.
class LosslessConformance : public Conformance {};
class UnbiasedConformance : public Conformance {};

TEST_P(LosslessConformance, FramesGiveTheSameBits) {
  for (size_t n : kLengths) {
    const std::vector<float> values = Gaussian(n);
    EXPECT_TRUE(SameBits(Decoded(Encoded(values), n), values)) << n;
  }
  for (const auto& values : DifficultVectors()) {
    EXPECT_TRUE(SameBits(Decoded(Encoded(values), values.size()), values));
  }
}

// The errors Q(v) - v of many draws, coordinate by coordinate.
struct ErrorSums {
  explicit ErrorSums(size_t n) : sum(n), squares(n), varies(n, false), first(n) {}
  void Add(std::span<const float> q, std::span<const float> values) {
    for (size_t i = 0; i < q.size(); ++i) {
      const double error = static_cast<double>(q[i]) - values[i];
      if (draws == 0) first[i] = error;
      if (error != first[i]) varies[i] = true;
      sum[i] += error;
      squares[i] += error * error;
      largest = std::max(largest, std::abs(error));
    }
    ++draws;
  }
  std::vector<double> sum, squares;
  std::vector<bool> varies;
  std::vector<double> first;
  double largest = 0;
  int draws = 0;
};

constexpr int kConformanceDraws = 600;

// A sum of independent draws against the root of the sum of their squares.
struct DrawSum {
  void Add(double draw) {
    sum += draw;
    squares += draw * draw;
  }
  double z() const { return squares > 0 ? std::abs(sum) / std::sqrt(squares) : 0; }
  double sum = 0, squares = 0;
};

// If E error = 0 then E (sum of T errors)^2 = E (sum of T squared errors), however rare an
// outcome is; a lasting error makes the left side up to T times the right one. Their ratio
// spreads by sqrt(2 / f), f being how many ways the errors go: as many as there are coordinates
// of a quantiser, but few if whole parts of the vector are drawn. Two independent errors have a
// product whose mean square tells f.
TEST_P(UnbiasedConformance, ErrorsCancelOut) {
  const std::vector<float> values = Gaussian(1300);
  ErrorSums errors(values.size());
  DrawSum total, outward, products;
  std::vector<double> last(values.size());
  for (uint64_t t = 0; t < kConformanceDraws; ++t) {
    const std::vector<float> q = Decoded(Encoded(values, DeriveKey(9, t, 0, 0)), values.size());
    errors.Add(q, values);
    double all = 0, away = 0, product = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const double error = static_cast<double>(q[i]) - values[i];
      all += error;
      away += values[i] < 0 ? -error : error;
      product += error * last[i];
      last[i] = error;
    }
    total.Add(all);
    outward.Add(away);
    products.Add(product);
  }
  double of_sums = 0, of_squares = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    of_sums += errors.sum[i] * errors.sum[i];
    of_squares += errors.squares[i];
  }
  const double spread = std::sqrt(2 * products.squares * kConformanceDraws) / of_squares;
  EXPECT_LT(of_sums / of_squares, 1 + std::max(0.4, 5 * spread));
  EXPECT_LT(total.z(), 5) << "the same way everywhere";
  EXPECT_LT(outward.z(), 5) << "towards or away from zero";
}

TEST_P(UnbiasedConformance, HoldsForDifficultVectors) {
  for (const auto& values : DifficultVectors()) {
    const size_t n = values.size();
    ErrorSums errors(n);
    for (uint64_t t = 0; t < kConformanceDraws; ++t) {
      errors.Add(Decoded(Encoded(values, DeriveKey(9, t, 0, n)), n), values);
    }
    double norm = 0, largest = 0, total = 0, variance = 0;
    for (size_t i = 0; i < n; ++i) {
      const double v = values[i];
      norm += v * v;
      largest = std::max(largest, std::abs(v));
      total += errors.sum[i];
      variance += errors.squares[i];
    }
    // Levels are products of floats: each has half a unit in the last place to itself.
    const double rounding = std::sqrt(norm) * 0x1p-23 + kDenormal;
    // An outcome of probability p is missed by T draws with e^-pT: 16/T is missed once in 10^7.
    for (size_t i = 0; i < n; ++i) {
      if (!errors.varies[i]) continue;  // it is held against `total` only
      EXPECT_LE(std::abs(errors.sum[i]), 5.5 * std::sqrt(errors.squares[i]) +
                                             16 * errors.largest + kConformanceDraws * rounding)
          << "coordinate " << i << " of " << n;
    }
    EXPECT_LE(std::abs(total), 5 * std::sqrt(variance) + 16 * largest +
                                   kConformanceDraws * static_cast<double>(n) * rounding)
        << n;
  }
}

TEST_P(Conformance, FramesStayWithinTheBound) {
  for (size_t n : kLengths) {
    const std::vector<float> values = Gaussian(n, 3);
    Encoded(values);  // checks it
    const size_t bound = codec_->MaxFrameBytes(n);
    std::vector<uint8_t> small(bound - 1);
    const Status status = codec_->Encode(values, {1}, work_, small).status();
    EXPECT_EQ(status.code(), StatusCode::kBufferTooSmall) << n;
    EXPECT_THAT(status.message(), HasSubstr(std::to_string(bound)));
  }
  for (const auto& values : DifficultVectors()) Encoded(values);
}

// The bound of a length that no test can hold in memory, where counts of 32 bits would wrap.
TEST_P(Conformance, TheBoundGrowsUpToTheLongestMessage) {
  const size_t least = codec_->MaxFrameBytes(kMaxFrameElements / 2);
  for (size_t below = 1; below <= size_t{1} << 16; below *= 2) {
    EXPECT_GE(codec_->MaxFrameBytes(kMaxFrameElements + 1 - below), least) << below;
  }
}

TEST_P(Conformance, BytesDependOnlyOnValuesAndKey) {
  for (size_t n : kLengths) {
    const std::vector<float> values = Gaussian(n, 4);
    const std::vector<uint8_t> frame = Encoded(values);
    const std::vector<float> decoded = Decoded(frame, n);
    std::vector<float> sum(n, 0.5f);
    ASSERT_TRUE(DecodeAddFrame(frame, -0.3f, work_, sum).ok());
    for (const std::string& target : SimdTargets()) {
      const ScopedTarget scoped(target);
      for (int threads : {1, 2, 5}) {
        Workspace work(threads);
        std::vector<uint8_t> again(codec_->MaxFrameBytes(n), 0xAA);
        const auto size = codec_->Encode(values, {42}, work, again);
        ASSERT_TRUE(size.ok()) << size.status().ToString();
        again.resize(*size);
        ASSERT_EQ(again, frame) << target << " " << threads << " threads, length " << n;
        std::vector<float> decoded_again(n), sum_again(n, 0.5f);
        ASSERT_TRUE(DecodeFrame(frame, work, decoded_again).ok());
        ASSERT_TRUE(DecodeAddFrame(frame, -0.3f, work, sum_again).ok());
        ASSERT_TRUE(SameBits(decoded_again, decoded)) << target << " length " << n;
        ASSERT_TRUE(SameBits(sum_again, sum)) << target << " length " << n;
      }
    }
  }
}

TEST_P(Conformance, DecodeAddIsDecodeThenAdd) {
  for (const auto& values : DifficultVectors()) {
    const std::vector<uint8_t> frame = Encoded(values);
    const std::vector<float> q = Decoded(frame, values.size());
    for (float weight : {1.0f, 0.0f, -0.25f, 1.0f / 3}) {
      std::vector<float> sum = Gaussian(values.size(), 5), expected = sum;
      for (size_t i = 0; i < q.size(); ++i) {
        const float product = weight * q[i];
        expected[i] = expected[i] + product;
      }
      ASSERT_TRUE(DecodeAddFrame(frame, weight, work_, sum).ok());
      EXPECT_TRUE(SameBits(sum, expected)) << "weight " << weight;
    }
  }
}

TEST_P(Conformance, FramesSayWhatTheyAre) {
  const std::vector<uint8_t> frame = Encoded(Gaussian(100), {0x123456789ABCDEF0});
  const auto summary = InspectFrame(frame);
  ASSERT_TRUE(summary.ok()) << summary.status().ToString();
  EXPECT_EQ(summary->codec, NameOnTheWire(*ParseSpec(GetParam())));
  EXPECT_EQ(summary->elements, 100u);
  EXPECT_EQ(summary->bytes, frame.size());
  EXPECT_EQ(summary->key.value, 0x123456789ABCDEF0u);
}

TEST_P(Conformance, TheCanonicalSpecMakesTheSameCodec) {
  const auto twin = MakeCodec(codec_->spec());
  ASSERT_TRUE(twin.ok()) << twin.status().ToString();
  EXPECT_EQ((*twin)->spec(), codec_->spec());
  EXPECT_EQ((*twin)->codec_class(), codec_->codec_class());
  const std::vector<float> values = Gaussian(1500, 6);
  EXPECT_EQ((*twin)->MaxFrameBytes(values.size()), codec_->MaxFrameBytes(values.size()));
  const std::vector<uint8_t> frame = Encoded(values);
  codec_ = *twin;
  EXPECT_EQ(Encoded(values), frame);
}

TEST_P(Conformance, EveryFlippedBitIsNoticed) {
  for (size_t n : {0u, 1u, 37u}) {
    std::vector<uint8_t> frame = Encoded(Gaussian(n));
    for (size_t bit = 0; bit < 8 * frame.size(); ++bit) {
      const auto mask = static_cast<uint8_t>(1 << bit % 8);
      frame[bit / 8] ^= mask;
      EXPECT_FALSE(InspectFrame(frame).ok()) << "bit " << bit;
      EXPECT_FALSE(TryDecode(frame, n).ok()) << "bit " << bit;
      frame[bit / 8] ^= mask;
    }
    EXPECT_TRUE(TryDecode(frame, n).ok());
  }
}

TEST_P(Conformance, EveryTruncationIsNoticed) {
  const std::vector<uint8_t> frame = Encoded(Gaussian(37));
  for (size_t size = 0; size < frame.size(); ++size) {
    const std::vector<uint8_t> cut(frame.begin(), frame.begin() + static_cast<long>(size));
    EXPECT_EQ(TryDecode(cut, 37).code(), StatusCode::kCorruptData) << size;
  }
  std::vector<uint8_t> longer = frame;
  longer.push_back(0);
  EXPECT_EQ(TryDecode(longer, 37).code(), StatusCode::kCorruptData);
}

// What a frame comes to on one SIMD target.
struct Decoding {
  Status decoded, added;
  std::vector<float> values, sum;
};
Decoding DecodeBothWays(std::span<const uint8_t> frame, size_t n, Workspace& work) {
  Decoding d{{}, {}, std::vector<float>(n), std::vector<float>(n, 0.25f)};
  d.decoded = DecodeFrame(frame, work, d.values);
  d.added = DecodeAddFrame(frame, 0.5f, work, d.sum);
  return d;
}

// Whatever stands behind a right checksum, decoding gives finite values or an error, the same
// on all targets; the sanitizers watch that it stays within its buffers.
TEST_P(Conformance, HostileBytesAreDecodedOrRefused) {
  std::mt19937 generator(7);
  const auto random = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(generator);
  };
  const std::vector<std::string> targets = SimdTargets();
  for (size_t n : {1u, 37u, 600u}) {
    const std::vector<uint8_t> good = Encoded(Gaussian(n));
    std::vector<std::vector<uint8_t>> frames(500, good);
    for (std::vector<uint8_t>& bad : frames) {
      // Not the element count and lengths: those have a test of their own.
      for (size_t k = 1 + random(4); k > 0; --k) {
        const size_t at = random(bad.size());
        const bool fixed = at < 5 || (at >= 7 && at < 16) || (at >= 24 && at < 32);
        if (!fixed) bad[at] = static_cast<uint8_t>(random(256));
      }
      FixFrameChecksum(bad);
    }
    std::vector<Decoding> first;
    for (const std::string& target : targets) {
      const ScopedTarget scoped(target);
      for (size_t i = 0; i < frames.size(); ++i) {
        Decoding d = DecodeBothWays(frames[i], n, work_);
        ASSERT_EQ(d.decoded.ToString(), d.added.ToString()) << target;
        if (d.decoded.ok()) {
          EXPECT_TRUE(std::ranges::all_of(d.values, [](float v) { return std::isfinite(v); }));
        }
        if (target == targets.front()) {
          first.push_back(std::move(d));
          continue;
        }
        ASSERT_EQ(d.decoded.ToString(), first[i].decoded.ToString()) << target;
        if (!d.decoded.ok()) continue;
        EXPECT_TRUE(SameBits(d.values, first[i].values)) << target;
        EXPECT_TRUE(SameBits(d.sum, first[i].sum)) << target;
      }
    }
  }
}

TEST_P(Conformance, PayloadsCutShortOrDrawnOutAreRefused) {
  const std::vector<uint8_t> good = Encoded(Gaussian(37));
  const size_t body = good.size() - kFrameHeaderBytes;
  for (size_t size = 0; size < body + 5; ++size) {
    if (size == body) continue;
    std::vector<uint8_t> bad = good;
    bad.resize(kFrameHeaderBytes + size);
    if (size < bad[7]) bad[7] = static_cast<uint8_t>(size);
    const uint64_t payload = size - bad[7];
    std::memcpy(bad.data() + 24, &payload, sizeof(payload));
    FixFrameChecksum(bad);
    EXPECT_EQ(TryDecode(bad, 37).code(), StatusCode::kCorruptData) << size;
  }
}

TEST_P(Conformance, FramesAreNotBelievedAboutTheirSize) {
  const std::vector<uint8_t> good = Encoded(Gaussian(37));
  for (size_t n : {0u, 36u, 38u, 100000u}) {
    const Status status = TryDecode(good, n);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("37"));
    EXPECT_THAT(status.message(), HasSubstr(std::to_string(n)));
  }
  // A count that the payload cannot hold, with an output that fits the lie.
  for (uint32_t count : {0u, 1u, 36u, 38u, 1000u, 1u << 20, ~0u}) {
    std::vector<uint8_t> bad = good;
    std::memcpy(bad.data() + 8, &count, sizeof(count));
    FixFrameChecksum(bad);
    std::vector<float> values(std::min(count, 1u << 20));
    const size_t before = AllocatedBytes();
    const Status status = DecodeFrame(bad, work_, values);
    // Codes of a few bits leave room in their last byte: a few more coordinates may fit.
    const bool may_fit = count + 4 > 37 && count < 37 + 4;
    EXPECT_TRUE(!status.ok() || may_fit) << count;
    // Scratch for a tile, and for values as many as the caller has given room for.
    EXPECT_LT(AllocatedBytes() - before, 300000 + values.size() * sizeof(float)) << count;
  }
}

TEST_P(Conformance, NothingIsAllocatedInSteadyState) {
  const std::vector<float> values = Gaussian(150000);
  std::vector<uint8_t> frame(codec_->MaxFrameBytes(values.size()));
  std::vector<float> decoded(values.size());
  for (int threads : {1, 3}) {
    Workspace work(threads);
    // Threads take blocks in any order: one may be given its first block late. It shall have
    // been given room before.
    for (int t = 0; threads > 1 && t < threads; ++t) work.Scratch(t, size_t{1} << 22);
    size_t before = 0;
    for (uint64_t step = 0; step < 6; ++step) {
      if (step == 3) before = AllocatedBytes();
      const auto size = codec_->Encode(values, DeriveKey(1, step, 0, 0), work, frame);
      ASSERT_TRUE(size.ok());
      const std::span<const uint8_t> sent = std::span(frame).first(*size);
      ASSERT_TRUE(DecodeFrame(sent, work, decoded).ok());
      ASSERT_TRUE(DecodeAddFrame(sent, 0.5f, work, decoded).ok());
    }
    EXPECT_EQ(AllocatedBytes() - before, 0u) << threads << " threads";
  }
}

TEST_P(Conformance, NonFiniteValuesAreNeverEncoded) {
  for (size_t n : {1u, 5u, 37u, 600u, 70001u}) {
    for (float poison : {kInfinity, -kInfinity, std::nanf("")}) {
      for (size_t at : {size_t{0}, n / 2, n - 1}) {
        std::vector<float> values = Gaussian(n);
        values[at] = poison;
        values[n - 1] = poison;  // the first one is to be named
        const Status status = TryEncode(values);
        EXPECT_EQ(status.code(), StatusCode::kNonFinite) << n << " " << at;
        EXPECT_THAT(status.message(), HasSubstr("coordinate " + std::to_string(at)));
      }
    }
  }
}

TEST_P(Conformance, HugeValuesStayFiniteOrAreRefused) {
  for (size_t n : {1u, 2u, 33u, 600u}) {
    std::vector<float> values(n, kMax);
    for (size_t i = 1; i < n; i += 2) values[i] = -kMax;
    std::vector<uint8_t> frame(codec_->MaxFrameBytes(n));
    const auto size = codec_->Encode(values, {1}, work_, frame);
    if (!size.ok()) {
      EXPECT_EQ(size.status().code(), StatusCode::kOutOfRange) << size.status().ToString();
      continue;
    }
    frame.resize(*size);
    for (float q : Decoded(frame, n)) EXPECT_TRUE(std::isfinite(q));
  }
}

TEST_P(Conformance, ZerosStayZero) {
  const std::vector<float> zeros(1000, 0.0f);
  for (float q : Decoded(Encoded(zeros), zeros.size())) EXPECT_EQ(q, 0.0f);
}

// The squared errors of many draws, of a run of coordinates.
struct Draws {
  static constexpr int kCount = 200;
  double norm = 0, sum = 0, squares = 0;

  void Add(double error) {
    sum += error;
    squares += error * error;
  }
  void ExpectWithin(double bound) const {
    const double mean = sum / kCount;
    const double deviation =
        std::sqrt(std::max(0.0, squares / kCount - mean * mean) / (kCount - 1));
    EXPECT_LE(mean, bound * norm * (1 + 1e-5) + 5 * deviation + norm * 0x1p-46);
  }
};

// What a receiver may count on: the mean squared error of many draws against the bound, of the
// message and of each run that the codec quantises apart.
TEST_P(Conformance, TheErrorStaysWithinTheBound) {
  if (codec_->codec_class() == CodecClass::kContractive) {
    ASSERT_TRUE(codec_->NmseBound(1300).has_value());
    EXPECT_LT(*codec_->NmseBound(1300), 1);
  }
  if (!codec_->NmseBound(1300)) GTEST_SKIP() << "no bound is known";
  for (const auto& values : DifficultVectors()) {
    const size_t n = values.size();
    const std::optional<double> bound = codec_->NmseBound(n);
    if (!bound || std::ranges::any_of(values, IsTiny)) continue;
    EXPECT_GE(*bound, 0);
    const size_t run = codec_->granule() == 0 ? std::max<size_t>(n, 1) : codec_->granule();
    const std::vector<float> zeros(n);
    Draws whole;
    std::vector<Draws> runs((n + run - 1) / run);
    const auto of_run = [&](std::span<const float> all, size_t r) {
      return all.subspan(r * run, std::min(run, n - r * run));
    };
    for (size_t r = 0; r < runs.size(); ++r) {
      runs[r].norm = SquaredDistance(of_run(values, r), of_run(zeros, r));
      whole.norm += runs[r].norm;
    }
    for (uint64_t t = 0; t < Draws::kCount; ++t) {
      const std::vector<float> q = Decoded(Encoded(values, DeriveKey(5, t, 0, n)), n);
      for (size_t r = 0; r < runs.size(); ++r) {
        runs[r].Add(SquaredDistance(of_run(q, r), of_run(values, r)));
      }
      whole.Add(SquaredDistance(q, values));
    }
    SCOPED_TRACE(n);
    whole.ExpectWithin(*bound);
    for (size_t r = 0; r < runs.size(); ++r) {
      SCOPED_TRACE("run " + std::to_string(r));
      runs[r].ExpectWithin(*codec_->NmseBound(of_run(values, r).size()));
    }
  }
}

std::vector<std::string> Variants() {
  std::vector<std::string> specs;
  for (const CodecFamily* family : CodecFamilies()) {
    specs.insert(specs.end(), family->variants.begin(), family->variants.end());
  }
  for (const CodecModifier* modifier : CodecModifiers()) {
    specs.insert(specs.end(), modifier->variants.begin(), modifier->variants.end());
  }
  return specs;
}
std::string TestName(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}
std::vector<std::string> VariantsOf(CodecClass kind) {
  std::vector<std::string> specs = Variants();
  std::erase_if(specs, [&](const std::string& spec) {
    const auto codec = MakeCodec(spec);
    return !codec.ok() || (*codec)->codec_class() != kind;  // what is not ok fails elsewhere
  });
  return specs;
}
INSTANTIATE_TEST_SUITE_P(AllCodecs, Conformance, ::testing::ValuesIn(Variants()), TestName);
INSTANTIATE_TEST_SUITE_P(LosslessCodecs, LosslessConformance,
                         ::testing::ValuesIn(VariantsOf(CodecClass::kLossless)), TestName);
INSTANTIATE_TEST_SUITE_P(UnbiasedCodecs, UnbiasedConformance,
                         ::testing::ValuesIn(VariantsOf(CodecClass::kUnbiased)), TestName);

TEST(AllocationCounter, SeesEveryFormOfNew) {
  constexpr size_t kBytes = 1000;
  constexpr std::align_val_t kAlign{64};
  void* volatile seen;  // or a compiler may leave out what is freed again
  const auto counted = [&](const auto& allocate, const auto& free) {
    const size_t before = AllocatedBytes();
    seen = allocate();
    free(seen);
    return AllocatedBytes() - before;
  };
  const auto free = [](void* p) { ::operator delete(p); };
  const auto free_array = [](void* p) { ::operator delete[](p); };
  const auto free_aligned = [](void* p) { ::operator delete(p, kAlign); };
  EXPECT_EQ(counted([] { return ::operator new(kBytes); }, free), kBytes);
  EXPECT_EQ(counted([] { return ::operator new(kBytes, std::nothrow); }, free), kBytes);
  EXPECT_EQ(counted([] { return ::operator new[](kBytes); }, free_array), kBytes);
  EXPECT_EQ(counted([] { return ::operator new[](kBytes, std::nothrow); }, free_array), kBytes);
  EXPECT_EQ(counted([] { return ::operator new(kBytes, kAlign); }, free_aligned), kBytes);
  EXPECT_EQ(counted([] { return ::operator new(kBytes, kAlign, std::nothrow); }, free_aligned),
            kBytes);
  Workspace work(1);
  const size_t before = AllocatedBytes();
  work.Scratch(0, kBytes)[0] = 1;
  EXPECT_GE(AllocatedBytes() - before, kBytes) << "what codecs work in";
}

TEST(ConformanceList, EveryRegisteredCodecHasVariantsOfItsOwn) {
  for (const CodecFamily* family : CodecFamilies()) {
    EXPECT_FALSE(family->variants.empty()) << family->info.name;
    for (const std::string& spec : family->variants) {
      EXPECT_EQ(ParseSpec(spec)->codec.name, family->info.name);
    }
  }
}

}  // namespace
}  // namespace elastiquant
