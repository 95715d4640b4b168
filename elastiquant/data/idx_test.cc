#include <gtest/gtest.h>
#include <zlib.h>

#include "elastiquant/data/dataset_testing.h"

namespace elastiquant {
namespace {

Bytes Idx(std::vector<uint32_t> dimensions, const Bytes& values) {
  Bytes bytes = {0, 0, 8, static_cast<uint8_t>(dimensions.size())};
  for (const uint32_t d : dimensions) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      bytes.push_back(static_cast<uint8_t>(d >> shift));
    }
  }
  bytes.insert(bytes.end(), values.begin(), values.end());
  return bytes;
}

class IdxTest : public DatasetTest {
 protected:
  void WriteGzip(const fs::path& name, const Bytes& bytes) {
    gzFile file = gzopen((directory_ / name).c_str(), "wb");
    gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(file);
  }
  void WriteAll() {
    Write("train-images-idx3-ubyte", Idx({12, 28, 28}, Ramp(12)));
    Write("train-labels-idx1-ubyte", Idx({12}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1}));
    WriteGzip("t10k-images-idx3-ubyte.gz", Idx({3, 28, 28}, Ramp(3)));
    WriteGzip("t10k-labels-idx1-ubyte.gz", Idx({3}, {7, 2, 1}));
  }
  static Bytes Ramp(size_t images) {
    Bytes bytes(images * 28 * 28);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i);
    return bytes;
  }
};

TEST_F(IdxTest, PlainAndGzippedFilesAreRead) {
  WriteAll();
  const auto dataset = MustOpen();
  EXPECT_EQ(dataset->info().format, "idx");
  EXPECT_EQ(dataset->info().classes, 10);
  EXPECT_EQ(dataset->info().channels, 1);
  EXPECT_EQ(dataset->info().image_size, 28);
  EXPECT_EQ(dataset->info().train_size, 12);
  EXPECT_EQ(ReadSample(*dataset, Split::kTest, 0).label, 7);
  // Normalised by the training pixels: mean 0, variance 1 over the whole split.
  double sum = 0;
  double squares = 0;
  for (int64_t i = 0; i < 12; ++i) {
    for (const float value : ReadSample(*dataset, Split::kTrain, i).values) {
      sum += static_cast<double>(value);
      squares += static_cast<double>(value) * static_cast<double>(value);
    }
  }
  EXPECT_NEAR(sum / (12 * 784), 0.0, 1e-5);
  EXPECT_NEAR(squares / (12 * 784), 1.0, 1e-4);
}

TEST_F(IdxTest, MissingFileIsNamed) {
  WriteAll();
  fs::remove(directory_ / "t10k-labels-idx1-ubyte.gz");
  ExpectError(StatusCode::kNotFound, {"t10k-labels-idx1-ubyte is missing"});
}

TEST_F(IdxTest, TruncatedPlainFileIsNamedWithBothSizes) {
  WriteAll();
  fs::resize_file(directory_ / "train-images-idx3-ubyte", 16 + 9000);
  ExpectError(StatusCode::kCorruptData, {"train-images-idx3-ubyte", "9000", "9408"});
}

TEST_F(IdxTest, TruncatedGzipIsRefused) {
  WriteAll();
  const fs::path path = directory_ / "t10k-images-idx3-ubyte.gz";
  fs::resize_file(path, fs::file_size(path) / 2);
  ExpectError(StatusCode::kCorruptData, {"t10k-images-idx3-ubyte.gz"});
}

TEST_F(IdxTest, DamagedGzipIsRefused) {
  WriteAll();
  Bytes bytes = ReadBack("t10k-images-idx3-ubyte.gz");
  bytes[bytes.size() - 6] ^= 1;  // the checksum
  Write("t10k-images-idx3-ubyte.gz", bytes);
  ExpectError(StatusCode::kCorruptData, {"t10k-images-idx3-ubyte.gz"});
}

TEST_F(IdxTest, WrongMagicCountsAndLabelsAreRefused) {
  WriteAll();
  Write("train-images-idx3-ubyte", Idx({12}, Ramp(12)));
  ExpectError(StatusCode::kCorruptData, {"train-images-idx3-ubyte", "2051"});
  WriteAll();
  Write("train-labels-idx1-ubyte", Idx({11}, Bytes(11)));
  ExpectError(StatusCode::kCorruptData, {"train-labels-idx1-ubyte", "11 labels", "12"});
  WriteAll();
  Write("train-images-idx3-ubyte", Idx({12, 28, 27}, Bytes(12 * 28 * 27)));
  ExpectError(StatusCode::kCorruptData, {"28x27", "square"});
  WriteAll();
  WriteGzip("t10k-labels-idx1-ubyte.gz", Idx({3}, {7, 10, 1}));
  ExpectError(StatusCode::kCorruptData, {"label 10", "0 to 9"});
  WriteAll();
  Write("train-images-idx3-ubyte", Idx({0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, {}));
  ExpectError(StatusCode::kCorruptData, {"claims over 4 GiB"});
}

}  // namespace
}  // namespace elastiquant
