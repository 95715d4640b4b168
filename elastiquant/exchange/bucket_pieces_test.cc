#include "elastiquant/exchange/bucket_pieces.h"

#include <gtest/gtest.h>

#include <limits>

#include "elastiquant/exchange/reducer_testing.h"

namespace elastiquant {
namespace {

constexpr size_t kMostInPiece = BucketPieces::kMostElements;

std::vector<size_t> SizesOf(const std::string& codec, size_t elements) {
  std::vector<float> gradient(elements);
  const std::vector<GradientBucket> buckets{{gradient, MakeCodec(codec).value(), "layer"}};
  const BucketPieces pieces(buckets);
  std::vector<size_t> sizes;
  size_t at = 0;
  for (const GradientBucket& piece : pieces.Cut(buckets)) {
    EXPECT_EQ(piece.gradient.data(), gradient.data() + at);
    EXPECT_EQ(piece.name, "layer");
    sizes.push_back(piece.gradient.size());
    at += piece.gradient.size();
  }
  EXPECT_EQ(at, elements);
  return sizes;
}

TEST(BucketPieces, CutLargeBucketsOfCodecsThatTreatCoordinatesAlike) {
  EXPECT_EQ(SizesOf("elastic:bits=4", kMostInPiece), std::vector<size_t>{kMostInPiece});
  for (const char* codec : {"elastic:bits=4", "dither:bits=1", "terngrad", "fp32"}) {
    const std::vector<size_t> sizes = SizesOf(codec, 2 * kMostInPiece + 1);
    ASSERT_EQ(sizes.size(), 3u) << codec;
    for (const size_t size : sizes) EXPECT_LE(size, kMostInPiece) << codec;
  }
  for (const char* codec : {"elastic:bits=4|ef", "topk", "powersgd:rank=2"}) {
    EXPECT_EQ(SizesOf(codec, 2 * kMostInPiece + 1).size(), 1u) << codec;
  }
  EXPECT_EQ(SizesOf("fp32", 0), std::vector<size_t>{0});
}

// Small buckets before and behind one of two pieces.
const Lengths kPieceLengths{1000, kMostInPiece + 1000, 500};

TEST(BucketPieces, AreReducedAndToldOfAsOneBucket) {
  for (const std::optional<Exchange> exchange : {Exchange::kTwoPhase, Exchange::kAllGather}) {
    RunWorld(WorldOptions(2), [&](Communicator& comm) {
      std::vector<size_t> reduced;
      std::vector<Chunk> measured;
      std::mutex mutex;
      ReducerOptions options;
      options.measure_every = 1;
      options.on_measured = [&](const MeasuredMessage& m) {
        const std::lock_guard lock(mutex);
        if (m.bucket == 1) measured.push_back(m.part);
      };
      options.on_reduced = [&](size_t bucket, bool is_mean) {
        EXPECT_TRUE(is_mean);
        reduced.push_back(bucket);
      };
      Worker worker(&comm, "fp32", kPieceLengths, exchange, options);
      worker.Fill(0);
      EXPECT_FALSE(worker.Step(0).skipped);
      EXPECT_EQ(reduced, (std::vector<size_t>{0, 1, 2}));
      for (size_t b = 0; b < kPieceLengths.size(); ++b) {
        for (size_t i = 0; i < kPieceLengths[b]; ++i) {
          ASSERT_EQ(worker.gradients[b][i], (Rough(0, b, i, 0) + Rough(1, b, i, 0)) / 2);
        }
      }
      size_t covered = 0, end = 0;
      for (const Chunk& part : measured) {
        covered += part.size;
        end = std::max(end, part.begin + part.size);
      }
      EXPECT_EQ(covered, kPieceLengths[1]);
      EXPECT_LE(end, kPieceLengths[1]);
      EXPECT_GT(end, kMostInPiece);
    });
  }
}

TEST(BucketPieces, NameTheCoordinateOfTheWholeBucket) {
  RunWorld(WorldOptions(2), [&](Communicator& comm) {
    Worker worker(&comm, "elastic:bits=4", kPieceLengths, std::nullopt);
    worker.Fill(0);
    if (comm.rank() == 1)
      worker.gradients[1][kMostInPiece + 7] = std::numeric_limits<float>::quiet_NaN();
    const StepOutcome outcome = worker.Step(0);
    EXPECT_TRUE(outcome.skipped);
    EXPECT_EQ(outcome.reason,
              "worker 1: NaN in bucket 1 (layer) at " + std::to_string(kMostInPiece + 7));
    worker.Fill(1);
    EXPECT_FALSE(worker.Step(1).skipped);
  });
}

// What the reducer and the messages under way hold is bounded whatever the model's size: here
// of a gradient of 48 MB, whose frames had 96 MB of buffers, and as much again under way, when
// none of it was.
TEST(BucketPieces, BoundTheMemoryOfMessages) {
  const Lengths lengths{11 * kMostInPiece, kMostInPiece, 1000};
  for (const std::optional<Exchange> exchange : {Exchange::kTwoPhase, Exchange::kAllGather}) {
    RunWorld(WorldOptions(2), [&](Communicator& comm) {
      Worker worker(&comm, "fp32", lengths, exchange);
      for (uint64_t step = 0; step < 2; ++step) EXPECT_FALSE(worker.Step(step).skipped);
      EXPECT_GT(comm.peak_buffer_bytes(), 0u);
      EXPECT_LT(comm.peak_buffer_bytes(), size_t{52} << 20);
    });
  }
}

}  // namespace
}  // namespace elastiquant
