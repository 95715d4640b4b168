#include "elastiquant/codec/sparse/sparse_part.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "elastiquant/codec/codec.h"

namespace elastiquant {
namespace {

std::vector<float> Values(size_t n) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) {
    const float u = UniformFloat(RandomBits({1, 2}, static_cast<uint32_t>(i)));
    values[i] = std::ldexp(u - 0.5f, static_cast<int>(i % 30) - 20);
  }
  return values;
}

class Parts : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, Parts,
                         testing::Values("topk:ratio=0.03", "topk:ratio=1", "topk:k=3,bits=32",
                                         "threshold:value=1e-30,bits=32",
                                         "threshold:value=0.001,bits=exact",
                                         "chunktopk:chunk=1000,k=20,bits=exact",
                                         "randomk:ratio=0.1", "randomk:ratio=0.5,scale=no",
                                         "atomo:ratio=0.05", "atomo:ratio=0.6,bits=32"));

TEST_P(Parts, DecodeToTheBitsOfTheWhole) {
  const std::vector<float> values = Values(30011);
  const auto codec = MakeCodec(GetParam()).value();
  Workspace work;
  std::vector<uint8_t> whole(codec->MaxFrameBytes(values.size()));
  whole.resize(codec->Encode(values, {7}, work, whole).value());
  std::vector<float> decoded(values.size());
  ASSERT_TRUE(DecodeFrame(whole, work, decoded).ok());
  size_t all = 0;
  const size_t borders[] = {0, 1, 1, 777, 20000, values.size()};
  for (size_t p = 0; p + 1 < std::size(borders); ++p) {
    const size_t n = borders[p + 1] - borders[p];
    const std::span<const float> part = std::span(decoded).subspan(borders[p], n);
    std::vector<uint8_t> frame(MaxSparsePartBytes(n));
    const auto size = EncodeSparsePart(whole, part, work, frame);
    ASSERT_TRUE(size.ok()) << size.status().ToString();
    all += *size;
    std::vector<float> read(n, 1.0f);
    ASSERT_TRUE(DecodeFrame(std::span(frame).first(*size), work, read).ok());
    for (size_t i = 0; i < n; ++i) {
      ASSERT_EQ(std::memcmp(&read[i], &part[i], sizeof(float)) == 0,
                part[i] != 0 || !std::signbit(part[i]))
          << i;
      ASSERT_EQ(read[i], part[i]) << i;
    }
  }
  // Each part has a header and a table of its own; drawn positions become listed ones.
  const bool drawn = std::string(GetParam()).starts_with("randomk");
  EXPECT_LT(all, whole.size() + 5 * 150 + (drawn ? 30011 : whole.size() / 20));
}

TEST(SparseParts, OfOtherFramesThereAreNone) {
  const std::vector<float> values = Values(100);
  Workspace work;
  for (const char* spec : {"fp32", "topk:ratio=0.5,bits=8", "topk:ratio=0.5,bits=4",
                           "chunktopk:bits=8", "chunktopk:bits=1"}) {
    const auto codec = MakeCodec(spec).value();
    std::vector<uint8_t> whole(codec->MaxFrameBytes(100)), frame(MaxSparsePartBytes(100));
    whole.resize(codec->Encode(values, {7}, work, whole).value());
    EXPECT_EQ(EncodeSparsePart(whole, values, work, frame).status().code(),
              StatusCode::kUnsupported)
        << spec;
  }
}

TEST(SparseParts, NeedRoomAndASoundFrame) {
  const std::vector<float> values = Values(100);
  const auto codec = MakeCodec("topk:ratio=0.5").value();
  Workspace work;
  std::vector<uint8_t> whole(codec->MaxFrameBytes(100)), frame(MaxSparsePartBytes(100));
  whole.resize(codec->Encode(values, {7}, work, whole).value());
  EXPECT_EQ(EncodeSparsePart(whole, values, work, std::span(frame).first(frame.size() - 1))
                .status()
                .code(),
            StatusCode::kBufferTooSmall);
  whole[40] ^= 1;
  EXPECT_EQ(EncodeSparsePart(whole, values, work, frame).status().code(),
            StatusCode::kCorruptData);
}

}  // namespace
}  // namespace elastiquant
