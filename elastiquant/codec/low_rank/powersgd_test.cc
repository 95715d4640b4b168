#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/low_rank/low_rank_format.h"
#include "elastiquant/codec/low_rank/matrix_testing.h"

namespace elastiquant {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;

// A stream of messages of these tensors.
class ShapedStream {
 public:
  ShapedStream(const std::string& spec, const std::vector<TensorShape>& shapes)
      : codec_(CodecForShapes(MakeCodec(spec).value(), shapes).value()) {
    size_t n = 0;
    for (const TensorShape& shape : shapes) n += shape.rows * shape.cols;
    fields_.assign(codec_->StateFields().size(), std::vector<float>(n));
  }

  std::vector<float> Send(std::span<const float> values) {
    frame_.resize(codec_->MaxFrameBytes(values.size()));
    std::vector<std::vector<float>> after(fields_.size(),
                                          std::vector<float>(values.size(), NAN));
    const std::vector<std::span<const float>> in(fields_.begin(), fields_.end());
    const std::vector<std::span<float>> out(after.begin(), after.end());
    const auto size =
        codec_->EncodeNext(values, DeriveKey(1, step_++, 0, 0), work_, frame_, in, out);
    EXPECT_TRUE(size.ok()) << size.status().ToString();
    fields_ = after;
    frame_.resize(*size);
    std::vector<float> decoded(values.size());
    EXPECT_TRUE(DecodeFrame(frame_, work_, decoded).ok());
    return decoded;
  }
  std::vector<float>& field(size_t i) { return fields_[i]; }
  size_t frame_bytes() const { return frame_.size(); }
  const Codec& codec() const { return *codec_; }

 private:
  std::shared_ptr<const Codec> codec_;
  std::vector<std::vector<float>> fields_;
  std::vector<uint8_t> frame_;
  uint64_t step_ = 0;
  Workspace work_{2};
};

TEST(PowerSgd, TheStepOfTheTextbook) {
  ShapedStream stream("powersgd:rank=1", {{3, 2}});
  stream.field(0) = {1, 1, 0, 0, 0, 0};
  const std::vector<float> m_hat = stream.Send(std::vector<float>{3, 0, 0, 1, 0, 0});
  const auto near = [](float v) { return FloatNear(v, 1e-6f); };
  EXPECT_THAT(m_hat, ElementsAre(near(2.7f), near(0.3f), near(0.9f), near(0.1f), 0, 0));
  EXPECT_THAT(stream.field(0),
              ElementsAre(FloatNear(2.84605f, 1e-5f), near(0.316228f), 0, 0, 0, 0));
}

TEST(PowerSgd, AMatrixOfItsRankIsSentExactlyAtOnce) {
  for (const size_t rank : {1, 2, 4}) {
    const std::vector<float> m = MatrixOf(40, 90, std::vector<double>(rank, 3.0), 1);
    ShapedStream stream("powersgd:rank=" + std::to_string(rank), {{40, 90}});
    EXPECT_LT(SquaredError(stream.Send(m), m), 1e-12 * SquaredNorm(m)) << rank;
  }
}

// Eckart and Young: no matrix of rank 2 is nearer than that of the two largest singular values.
TEST(PowerSgd, FromItsWarmStartItComesToTheBestApproximation) {
  const std::vector<double> singular{8, 6, 3, 2, 1, 0.5, 0.25};
  const std::vector<float> m = MatrixOf(50, 30, singular, 7);
  double best = 0;
  for (size_t k = 2; k < singular.size(); ++k) best += singular[k] * singular[k];
  ShapedStream stream("powersgd:rank=2", {{50, 30}});
  double error = SquaredNorm(m);
  for (int t = 0; t < 12; ++t) {
    const double now = SquaredError(stream.Send(m), m);
    EXPECT_LE(now, error * (1 + 1e-6)) << "a power iteration never loses";
    error = now;
  }
  EXPECT_NEAR(error, best, 1e-3 * best);
  ShapedStream cold("powersgd:rank=2", {{50, 30}});
  EXPECT_GT(SquaredError(cold.Send(m), m), 1.05 * best);
}

// rank / cols of the squared norm is what a drawn basis keeps on average of any matrix, and of
// one with equal singular values no more.
TEST(PowerSgd, ADrawnBasisKeepsItsShareOnAverage) {
  const auto codec =
      CodecForShapes(MakeCodec("powersgd:rank=2").value(), std::vector<TensorShape>{{16, 16}})
          .value();
  const auto mean_error = [&](const std::vector<float>& m) {
    Workspace work;
    std::vector<uint8_t> frame(codec->MaxFrameBytes(m.size()));
    double sum = 0;
    constexpr int kDraws = 400;
    for (uint64_t t = 0; t < kDraws; ++t) {
      const size_t size = codec->Encode(m, DeriveKey(4, t, 0, 0), work, frame).value();
      std::vector<float> decoded(m.size());
      EXPECT_TRUE(DecodeFrame(std::span(frame).first(size), work, decoded).ok());
      sum += SquaredError(decoded, m) / SquaredNorm(m);
    }
    return sum / kDraws;
  };
  EXPECT_NEAR(mean_error(MatrixOf(16, 16, std::vector<double>(16, 1.0), 3)), 1 - 2.0 / 16,
              1e-5);
  EXPECT_LT(mean_error(GaussianValues(256, 8)), 1 - 2.0 / 16);
}

TEST(PowerSgd, TensorsAreFactorsWhereThoseAreFewerNumbers) {
  // 2 * (30 + 40) < 1200; 2 * (4 + 4) = 16 is not less; one row never is.
  const std::vector<TensorShape> shapes{{30, 40}, {1, 100}, {4, 4}, {0, 7}, {5, 20}};
  ShapedStream stream("powersgd", shapes);
  const std::vector<float> values = GaussianValues(1200 + 100 + 16 + 100, 2);
  const std::vector<float> decoded = stream.Send(values);
  EXPECT_EQ(stream.frame_bytes(), LowRankNumbersOffset(4) + 4 * (140 + 100 + 16 + 50));
  EXPECT_EQ(stream.frame_bytes(), stream.codec().MaxFrameBytes(values.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    const bool dense = i >= 1200 && i < 1316;
    EXPECT_EQ(decoded[i] == values[i], dense) << i;
    // The basis has 2 columns of 40, and of 20.
    const bool basis = i < 80 || (i >= 1316 && i < 1316 + 40);
    EXPECT_EQ(stream.field(0)[i] != 0, basis) << i;
  }
  ShapedStream half("powersgd:factors=bf16", shapes);
  half.Send(values);
  EXPECT_EQ(half.frame_bytes(), LowRankNumbersOffset(4) + 2 * (140 + 50) + 4 * 116);
}

TEST(PowerSgd, HalfPrecisionFactorsCostLittleAccuracy) {
  const std::vector<float> m = MatrixOf(40, 90, {5e-12, 1e-12}, 4);  // far below fp16
  ShapedStream stream("powersgd:factors=bf16", {{40, 90}});
  const double error = SquaredError(stream.Send(m), m) / SquaredNorm(m);
  EXPECT_LT(error, 0x1p-15);
  EXPECT_GT(error, 0);
}

TEST(PowerSgd, AZeroMatrixDoesNotEndTheIteration) {
  const std::vector<float> m = MatrixOf(20, 30, {4, 2, 0.1}, 9);
  ShapedStream stream("powersgd", {{20, 30}});
  const std::vector<float> zeros(600);
  EXPECT_EQ(stream.Send(zeros), zeros);
  for (int t = 0; t < 4; ++t) stream.Send(m);
  EXPECT_LT(SquaredError(stream.Send(m), m), 0.011);
  // Nor does one of a lower rank, which leaves nothing for the second column.
  stream.Send(MatrixOf(20, 30, {4}, 10));
  for (int t = 0; t < 4; ++t) stream.Send(m);
  EXPECT_LT(SquaredError(stream.Send(m), m), 0.011);
}

TEST(PowerSgd, WithErrorFeedbackInputsAreWhatWasSentAndTheResidual) {
  for (const std::string spec : {"powersgd|ef", "powersgd:rank=1,factors=bf16|ef"}) {
    const std::vector<TensorShape> shapes{{20, 30}, {1, 9}, {6, 50}};
    ShapedStream stream(spec, shapes);
    EXPECT_THAT(stream.codec().StateFields(), ElementsAre("residual", "basis"));
    const size_t n = 909;
    std::vector<double> inputs(n), sent(n);
    const std::vector<float> steady = GaussianValues(n, 77);
    double norm = 0;
    for (unsigned t = 0; t < 40; ++t) {
      std::vector<float> values = GaussianValues(n, t);
      for (size_t i = 0; i < n; ++i) values[i] = 0.3f * values[i] + steady[i];
      const std::vector<float> q = stream.Send(values);
      for (size_t i = 0; i < n; ++i) {
        inputs[i] += values[i];
        sent[i] += q[i];
      }
      norm = SquaredNorm(values);
    }
    for (size_t i = 0; i < n; ++i) {
      ASSERT_NEAR(inputs[i], sent[i] + stream.field(0)[i], 1e-4) << spec << " " << i;
    }
    EXPECT_NE(stream.field(1)[0], 0);
    // A residual may gather many messages, but not all.
    EXPECT_LT(SquaredNorm(stream.field(0)), 40 * 40 * norm / 4) << spec;
  }
}

TEST(PowerSgd, MessagesOfOtherTensorsAreRefused) {
  const auto codec =
      CodecForShapes(MakeCodec("powersgd|ef").value(), std::vector<TensorShape>{{5, 8}})
          .value();
  Workspace work;
  std::vector<uint8_t> frame(10000);
  const Status status = codec->Encode(GaussianValues(41, 1), {1}, work, frame).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("40"));
  EXPECT_THAT(status.message(), HasSubstr("41"));
  EXPECT_EQ(codec->spec(), "powersgd:rank=2,factors=fp32|ef");
}

TEST(PowerSgd, SaysWhichValuesAreValid) {
  EXPECT_THAT(MakeCodec("powersgd:rank=0").status().message(), HasSubstr("1 to 1024"));
  EXPECT_THAT(MakeCodec("powersgd:rank=two").status().message(), HasSubstr("1 to 1024"));
  EXPECT_THAT(MakeCodec("powersgd:factors=fp16").status().message(), HasSubstr("fp32, bf16"));
  EXPECT_THAT(MakeCodec("powersgd|ef|dgc").status().message(),
              HasSubstr("one of |ef and |dgc"));
  EXPECT_EQ(MakeCodec("powersgd|ef").value()->exchange(), Exchange::kFactors);
  EXPECT_EQ(MakeCodec("powersgd|dgc").value()->exchange(), Exchange::kAllGather);
  EXPECT_EQ(MakeCodec("bf16|ef").value()->Factors(5).status().code(), StatusCode::kUnsupported);
}

}  // namespace
}  // namespace elastiquant
