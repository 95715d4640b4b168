#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "elastiquant/data/dataset_testing.h"

namespace elastiquant {
namespace {

// Record i of a file of `count`: its label bytes, then pixels that tell channel, row and
// column.
uint8_t Pixel(size_t i, size_t channel, size_t y, size_t x) {
  return static_cast<uint8_t>(i * 7 + channel * 50 + y * 3 + x);
}
Bytes Records(size_t count, size_t label_bytes, size_t classes) {
  Bytes bytes;
  for (size_t i = 0; i < count; ++i) {
    if (label_bytes == 2) bytes.push_back(200);  // the coarse label, which must not be used
    bytes.push_back(static_cast<uint8_t>(i % classes));
    for (size_t c = 0; c < 3; ++c) {
      for (size_t y = 0; y < 32; ++y) {
        for (size_t x = 0; x < 32; ++x) bytes.push_back(Pixel(i, c, y, x));
      }
    }
  }
  return bytes;
}

class CifarTest : public DatasetTest {
 protected:
  // Files of the official size whose records beyond the first four are holes: zeros.
  void WriteOfficial() {
    for (const char* name : {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                             "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"}) {
      Write(name, Records(4, 1, 10));
      fs::resize_file(directory_ / name, 30730000);
    }
  }
};

// Whoever gets an image as bytes can make of it what its owner does.
TEST_F(CifarTest, PixelsPreparedAreWhatIsRead) {
  WriteOfficial();
  const auto dataset = MustOpen();
  ASSERT_TRUE(dataset->has_pixels());
  std::vector<uint8_t> pixels(3 * 32 * 32);
  EXPECT_EQ(dataset->Pixels(Split::kTrain, 20002, pixels).value(), 2);
  EXPECT_EQ(pixels[(5 * 32 + 20) * 3 + 1], Pixel(2, 1, 5, 20));
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const StreamKey key = DeriveKey(seed, 0, 0, 0);
    std::vector<float> read(pixels.size()), prepared(pixels.size());
    ASSERT_TRUE(dataset->Read(Split::kTrain, 20002, &key, read).ok());
    ASSERT_TRUE(dataset->Prepare(pixels, &key, prepared).ok());
    EXPECT_EQ(read, prepared) << seed;
  }
  EXPECT_FALSE(dataset->Pixels(Split::kTrain, 50000, pixels).ok());
  EXPECT_FALSE(dataset->Pixels(Split::kTrain, 0, std::span(pixels).first(3)).ok());
}

TEST_F(CifarTest, OfficialLayoutIsRead) {
  WriteOfficial();
  const auto dataset = MustOpen();
  EXPECT_EQ(dataset->info().format, "cifar10");
  EXPECT_EQ(dataset->info().classes, 10);
  EXPECT_EQ(dataset->info().train_size, 50000);
  EXPECT_EQ(dataset->info().test_size, 10000);
  // Record 2 of the third file.
  const Sample sample = ReadSample(*dataset, Split::kTrain, 20002);
  EXPECT_EQ(sample.label, 2);
  const float mean[] = {0.4914f, 0.4822f, 0.4465f};
  const float deviation[] = {0.2470f, 0.2435f, 0.2616f};
  for (const size_t y : {size_t{0}, size_t{13}, size_t{31}}) {
    for (const size_t x : {size_t{0}, size_t{20}, size_t{31}}) {
      for (size_t c = 0; c < 3; ++c) {
        const float unit = static_cast<float>(Pixel(2, c, y, x)) / 255.0f;
        EXPECT_FLOAT_EQ(sample.values[(y * 32 + x) * 3 + c], (unit - mean[c]) / deviation[c]);
      }
    }
  }
}

TEST_F(CifarTest, TruncatedFileIsNamedWithBothSizes) {
  WriteOfficial();
  fs::resize_file(directory_ / "data_batch_4.bin", 30729999);
  ExpectError(StatusCode::kCorruptData, {"data_batch_4.bin", "30729999", "30730000"});
}

TEST_F(CifarTest, MissingFileIsNamed) {
  WriteOfficial();
  fs::remove(directory_ / "test_batch.bin");
  ExpectError(StatusCode::kNotFound, {"test_batch.bin", "No such file"});
}

TEST_F(CifarTest, LabelBeyondTheClassesIsRefused) {
  WriteOfficial();
  Write("data_batch_2.bin", Records(20, 1, 11));
  fs::resize_file(directory_ / "data_batch_2.bin", 30730000);
  ExpectError(StatusCode::kCorruptData,
              {"data_batch_2.bin", "record 10", "label 10", "0 to 9"});
}

TEST_F(CifarTest, Cifar100TakesTheFineLabel) {
  Write("train.bin", Records(150, 2, 100));
  Write("test.bin", Records(5, 2, 100));
  const auto dataset = MustOpen();
  EXPECT_EQ(dataset->info().format, "cifar100");
  EXPECT_EQ(dataset->info().classes, 100);
  EXPECT_EQ(dataset->info().train_size, 150);
  EXPECT_EQ(ReadSample(*dataset, Split::kTrain, 99).label, 99);
  EXPECT_EQ(ReadSample(*dataset, Split::kTest, 4).label, 4);
}

TEST_F(CifarTest, OneLabelByteInTrainAndTestBin) {
  Write("train.bin", Records(40, 1, 13));
  Write("test.bin", Records(6, 1, 13));
  const auto dataset = MustOpen();
  EXPECT_EQ(dataset->info().classes, 13);
  EXPECT_EQ(dataset->info().test_size, 6);
  EXPECT_EQ(ReadSample(*dataset, Split::kTrain, 12).label, 12);
}

TEST_F(CifarTest, TestLabelMustOccurInTraining) {
  Write("train.bin", Records(40, 1, 5));
  Write("test.bin", Records(6, 1, 6));
  ExpectError(StatusCode::kCorruptData, {"test.bin", "label 5", "0 to 4"});
}

TEST_F(CifarTest, TrainBinThatFitsNoRecordIsExplained) {
  Bytes bytes = Records(40, 1, 10);
  bytes.pop_back();
  Write("train.bin", bytes);
  Write("test.bin", Records(6, 1, 10));
  ExpectError(StatusCode::kCorruptData, {"train.bin", "122919", "3073"});
}

TEST_F(CifarTest, EmptyTestBinIsExplained) {
  Write("train.bin", Records(40, 1, 10));
  Write("test.bin", {});
  ExpectError(StatusCode::kCorruptData, {"test.bin", "has 0 bytes"});
}

TEST_F(CifarTest, AugmentationShiftsAndFlipsByTheKeyAlone) {
  WriteOfficial();
  const auto dataset = MustOpen();
  const Sample plain = ReadSample(*dataset, Split::kTrain, 1);
  std::set<std::vector<float>> seen;
  int mirrored = 0;
  for (uint64_t k = 0; k < 400; ++k) {
    const StreamKey key = DeriveKey(5, 0, k, 1);
    const Sample moved = ReadSample(*dataset, Split::kTrain, 1, &key);
    EXPECT_EQ(ReadSample(*dataset, Split::kTrain, 1, &key).values, moved.values);
    seen.insert(moved.values);
    // Find the shift and flip that explain it, pixel for pixel.
    bool explained = false;
    for (int flip = 0; flip < 2 && !explained; ++flip) {
      for (int dy = -4; dy <= 4 && !explained; ++dy) {
        for (int dx = -4; dx <= 4 && !explained; ++dx) {
          bool same = true;
          for (int y = 0; y < 32 && same; ++y) {
            for (int x = 0; x < 32 && same; ++x) {
              const int sy = y + dy;
              const int sx = x + dx;
              const bool inside = sy >= 0 && sy < 32 && sx >= 0 && sx < 32;
              const int column = flip ? 31 - sx : sx;
              for (int c = 0; c < 3 && same; ++c) {
                const float expected =
                    inside ? plain.values[static_cast<size_t>((sy * 32 + column) * 3 + c)] : 0;
                same = moved.values[static_cast<size_t>((y * 32 + x) * 3 + c)] == expected;
              }
            }
          }
          if (same) {
            explained = true;
            mirrored += flip;
          }
        }
      }
    }
    ASSERT_TRUE(explained) << "key " << k;
  }
  EXPECT_GT(seen.size(), 130u);  // of 162 placements
  EXPECT_NEAR(mirrored, 200, 40);
}

TEST_F(CifarTest, WrongIndexOrSpanIsRefused) {
  Write("train.bin", Records(40, 1, 10));
  Write("test.bin", Records(6, 1, 10));
  const auto dataset = MustOpen();
  std::vector<float> values(3072);
  EXPECT_EQ(dataset->Read(Split::kTrain, 40, nullptr, values).status().code(),
            StatusCode::kOutOfRange);
  EXPECT_EQ(dataset->Read(Split::kTrain, -1, nullptr, values).status().code(),
            StatusCode::kOutOfRange);
  values.pop_back();
  EXPECT_EQ(dataset->Read(Split::kTrain, 0, nullptr, values).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(RealCifarTest, PixelsAreNormalised) {
  const char* directory = std::getenv("ELASTIQUANT_CIFAR10_DIR");
  if (directory == nullptr) GTEST_SKIP() << "ELASTIQUANT_CIFAR10_DIR names no directory";
  const auto dataset = OpenDataset(directory, {});
  ASSERT_TRUE(dataset.ok()) << dataset.status().ToString();
  std::vector<int> labels(10);
  double sum = 0;
  double squares = 0;
  for (int64_t i = 0; i < 5000; ++i) {
    const Sample sample = ReadSample(**dataset, Split::kTrain, i * 10);
    ++labels[static_cast<size_t>(sample.label)];
    for (const float value : sample.values) {
      sum += static_cast<double>(value);
      squares += static_cast<double>(value * value);
    }
  }
  EXPECT_NEAR(sum / (5000 * 3072), 0.0, 0.02);
  EXPECT_NEAR(squares / (5000 * 3072), 1.0, 0.03);
  for (const int count : labels) EXPECT_NEAR(count, 500, 80);
}

}  // namespace
}  // namespace elastiquant
