#include "elastiquant/coding/index_coding.h"

#include <gtest/gtest.h>

#include <vector>

#include "elastiquant/coding/coding_test_util.h"

namespace elastiquant {
namespace {

Result<std::vector<uint8_t>> Encode(IndexCoding coding, const std::vector<uint8_t>& codes,
                                    int bits) {
  std::vector<uint8_t> out(MaxIndexBytes(coding, codes.size(), bits, 1));
  EQ_ASSIGN_OR_RETURN(const size_t size, EncodeIndices(coding, codes, bits, codes.size(), out));
  out.resize(size);
  return out;
}

TEST(IndexCodingTest, FixedAndRansKeepNegativeZerosAndEliasRefusesThem) {
  for (int bits = 2; bits <= 8; ++bits) {
    // The lengths at which kRans takes its different forms.
    for (const size_t n : {1, 2, 33, 8191, 8192, 200000}) {
      std::vector<uint8_t> codes = MakeCodes(CodePattern::kGaussian, n, bits);
      for (size_t i = 0; i < n; i += 7) codes[i] = static_cast<uint8_t>(1u << (bits - 1));
      for (const IndexCoding coding : {IndexCoding::kFixed, IndexCoding::kRans}) {
        const auto coded = Encode(coding, codes, bits);
        ASSERT_TRUE(coded.ok()) << coded.status().ToString();
        std::vector<uint8_t> back(n);
        const Status status = DecodeIndices(coding, *coded, bits, n, back);
        ASSERT_TRUE(status.ok()) << status.ToString();
        EXPECT_EQ(back, codes) << "bits " << bits << ", n " << n;
      }
      EXPECT_EQ(Encode(IndexCoding::kElias, codes, bits).status().code(),
                StatusCode::kInvalidArgument);
    }
  }
}

TEST(IndexCodingTest, NoCodingTakesACodeOfTooManyBits) {
  for (int bits = 2; bits < 8; ++bits) {
    const std::vector<uint8_t> codes = {1, static_cast<uint8_t>(1u << bits), 1};
    for (const IndexCoding coding :
         {IndexCoding::kFixed, IndexCoding::kElias, IndexCoding::kRans}) {
      EXPECT_EQ(Encode(coding, codes, bits).status().code(), StatusCode::kInvalidArgument)
          << "bits " << bits << ", coding " << static_cast<int>(coding);
    }
  }
}

}  // namespace
}  // namespace elastiquant
