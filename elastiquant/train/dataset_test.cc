#include "elastiquant/train/dataset.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdio>

#include <jpeglib.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "elastiquant/train/generated.h"

namespace elastiquant {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<uint8_t>;

class DatasetTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "eq_dataset_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { fs::remove_all(directory_); }

  void Write(const fs::path& name, const Bytes& bytes) {
    fs::create_directories((directory_ / name).parent_path());
    std::ofstream file(directory_ / name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  void WriteGzip(const fs::path& name, const Bytes& bytes) {
    gzFile file = gzopen((directory_ / name).c_str(), "wb");
    gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
    gzclose(file);
  }
  Bytes ReadBack(const fs::path& name) {
    std::ifstream file(directory_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  Result<std::shared_ptr<const Dataset>> Open(const DatasetOptions& options = {}) {
    return OpenDataset(directory_.string(), options);
  }
  std::shared_ptr<const Dataset> MustOpen(const DatasetOptions& options = {}) {
    auto dataset = Open(options);
    EXPECT_TRUE(dataset.ok()) << dataset.status().ToString();
    return dataset.ok() ? *dataset : nullptr;
  }
  // Opening must fail with this code and a message that holds every one of `words`.
  void ExpectError(StatusCode code, const std::vector<std::string>& words,
                   const DatasetOptions& options = {}) {
    const auto dataset = Open(options);
    ASSERT_FALSE(dataset.ok());
    EXPECT_EQ(dataset.status().code(), code) << dataset.status().ToString();
    for (const std::string& word : words) {
      EXPECT_NE(dataset.status().message().find(word), std::string::npos)
          << dataset.status().message() << "\nlacks " << word;
    }
  }

  fs::path directory_;
};

struct Sample {
  int64_t label = -1;
  std::vector<float> values;
};

Sample ReadSample(const Dataset& dataset, Split split, int64_t index,
                  const StreamKey* key = nullptr) {
  Sample sample;
  sample.values.assign(static_cast<size_t>(dataset.info().floats_per_image()), NAN);
  const auto label = dataset.Read(split, index, key, sample.values);
  EXPECT_TRUE(label.ok()) << label.status().ToString();
  if (label.ok()) sample.label = *label;
  return sample;
}

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

// ---- CIFAR

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

// ---- idx

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

// ---- JPEG folders

// A picture whose left half has one grey value and whose right half another.
void WriteJpeg(const fs::path& path, unsigned width, unsigned height, uint8_t left,
               uint8_t right, int channels = 3) {
  fs::create_directories(path.parent_path());
  FILE* file = std::fopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  jpeg_compress_struct info;
  jpeg_error_mgr errors;
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  jpeg_stdio_dest(&info, file);
  info.image_width = width;
  info.image_height = height;
  info.input_components = channels;
  info.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 95, TRUE);
  jpeg_start_compress(&info, TRUE);
  Bytes row(size_t{width} * static_cast<size_t>(channels));
  for (size_t i = 0; i < row.size(); ++i) row[i] = i < row.size() / 2 ? left : right;
  while (info.next_scanline < height) {
    JSAMPROW line = row.data();
    jpeg_write_scanlines(&info, &line, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::fclose(file);
}

class JpegFolderTest : public DatasetTest {
 protected:
  void WriteAll(const std::string& test = "val") {
    WriteJpeg(directory_ / "train/cat/a.jpg", 80, 64, 40, 200);
    WriteJpeg(directory_ / "train/cat/b.JPEG", 64, 96, 40, 200);
    WriteJpeg(directory_ / "train/dog/a.jpg", 64, 64, 40, 200, 1);
    WriteJpeg(directory_ / test / "cat/x.jpg", 100, 70, 200, 40);
    WriteJpeg(directory_ / test / "dog/x.jpg", 64, 64, 40, 200);
    std::ofstream(directory_ / "train/dog/notes.txt") << "not a picture";
  }
  // The byte value that a normalised red value stands for.
  static float Red(const Sample& sample, size_t side, size_t y, size_t x) {
    return (sample.values[(y * side + x) * 3] * 0.229f + 0.485f) * 255.0f;
  }
};

TEST_F(JpegFolderTest, ClassesSizesAndPixels) {
  WriteAll();
  const auto dataset = MustOpen();
  EXPECT_EQ(dataset->info().format, "jpeg");
  EXPECT_EQ(dataset->info().classes, 2);
  EXPECT_EQ(dataset->info().image_size, 64);  // the first picture's shorter side
  EXPECT_EQ(dataset->info().train_size, 3);
  EXPECT_EQ(dataset->info().test_size, 2);
  const Sample cat = ReadSample(*dataset, Split::kTest, 0);
  EXPECT_EQ(cat.label, 0);
  EXPECT_NEAR(Red(cat, 64, 32, 5), 200, 3);
  EXPECT_NEAR(Red(cat, 64, 32, 60), 40, 3);
  const Sample grey = ReadSample(*dataset, Split::kTrain, 2);
  EXPECT_EQ(grey.label, 1);
  EXPECT_NEAR(Red(grey, 64, 10, 5), 40, 3);
}

TEST_F(JpegFolderTest, TakesTestAsWellAsVal) {
  WriteAll("test");
  EXPECT_EQ(MustOpen()->info().test_size, 2);
}

TEST_F(JpegFolderTest, ImageSizeIsAnOption) {
  WriteAll();
  for (const int64_t side : {int64_t{8}, int64_t{32}, int64_t{100}}) {
    const auto dataset = MustOpen({.image_size = side});
    EXPECT_EQ(dataset->info().image_size, side);
    const Sample sample = ReadSample(*dataset, Split::kTest, 1);
    EXPECT_NEAR(Red(sample, static_cast<size_t>(side), 3, 1), 40, 4);
    EXPECT_NEAR(Red(sample, static_cast<size_t>(side), 3, static_cast<size_t>(side) - 2), 200,
                4);
  }
  ExpectError(StatusCode::kInvalidArgument, {"8 to 4096"}, {.image_size = 5000});
}

TEST_F(JpegFolderTest, AugmentationCropsAndFlipsByTheKeyAlone) {
  WriteAll();
  const auto dataset = MustOpen({.image_size = 32});
  int mirrored = 0;
  std::set<std::vector<float>> seen;
  for (uint64_t k = 0; k < 200; ++k) {
    const StreamKey key = DeriveKey(1, 2, k, 1);
    const Sample sample = ReadSample(*dataset, Split::kTrain, 0, &key);
    EXPECT_EQ(ReadSample(*dataset, Split::kTrain, 0, &key).values, sample.values);
    seen.insert(sample.values);
    const float left = Red(sample, 32, 16, 0);
    const float right = Red(sample, 32, 16, 31);
    for (const float value : {left, right}) {
      EXPECT_GT(value, 20);
      EXPECT_LT(value, 220);
    }
    mirrored += left > right + 50;
  }
  EXPECT_GT(seen.size(), 100u);
  EXPECT_GT(mirrored, 30);
  EXPECT_LT(mirrored, 130);
}

TEST_F(JpegFolderTest, CmykIsRead) {
  WriteAll();
  WriteJpeg(directory_ / "train/cat/a.jpg", 64, 64, 255, 255, 4);
  EXPECT_NEAR(Red(ReadSample(*MustOpen(), Split::kTrain, 0), 64, 3, 3), 255, 3);
}

TEST_F(JpegFolderTest, DamagedPicturesAreNamed) {
  WriteAll();
  const fs::path path = directory_ / "val/dog/x.jpg";
  const Bytes whole = ReadBack("val/dog/x.jpg");
  std::vector<float> values(64 * 64 * 3);
  for (const Bytes& bytes :
       {Bytes(whole.begin(), whole.begin() + 300), Bytes{1, 2, 3}, Bytes{}}) {
    Write("val/dog/x.jpg", bytes);
    const auto dataset = MustOpen();
    const auto label = dataset->Read(Split::kTest, 1, nullptr, values);
    ASSERT_FALSE(label.ok());
    EXPECT_EQ(label.status().code(), StatusCode::kCorruptData);
    EXPECT_NE(label.status().message().find(path.string()), std::string::npos);
  }
}

TEST_F(JpegFolderTest, MissingPartsAreNamed) {
  WriteJpeg(directory_ / "train/cat/a.jpg", 64, 64, 1, 2);
  ExpectError(StatusCode::kNotFound, {"neither test/ nor val/"});
  WriteJpeg(directory_ / "val/cat/a.jpg", 64, 64, 1, 2);
  ExpectError(StatusCode::kNotFound, {"train", "1 class folders"});
  WriteJpeg(directory_ / "train/dog/a.jpg", 64, 64, 1, 2);
  WriteJpeg(directory_ / "val/eel/a.jpg", 64, 64, 1, 2);
  ExpectError(StatusCode::kCorruptData, {"eel", "without training pictures"});
}

// ---- what is no data set

TEST_F(DatasetTest, UnknownDirectoriesAreExplained) {
  ExpectError(StatusCode::kNotFound, {"holds no known data set", "data_batch_1.bin"});
  const auto missing = OpenDataset((directory_ / "none").string(), {});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_NE(missing.status().message().find("data fetch"), std::string::npos);
}

// ---- the generated set

TEST(GeneratedTest, SizesAndLabels) {
  const auto dataset = OpenDataset("generated", {.generated_train = 40, .generated_test = 20});
  ASSERT_TRUE(dataset.ok());
  const DatasetInfo& info = (*dataset)->info();
  EXPECT_EQ(info.train_size, 40);
  EXPECT_EQ(info.test_size, 20);
  EXPECT_EQ(info.classes, 10);
  std::vector<int> labels(10);
  double sum = 0;
  for (int64_t i = 0; i < 40; ++i) {
    const Sample sample = ReadSample(**dataset, Split::kTrain, i);
    ++labels[static_cast<size_t>(sample.label)];
    for (const float value : sample.values) sum += static_cast<double>(value);
  }
  EXPECT_EQ(labels, std::vector<int>(10, 4));
  EXPECT_NEAR(sum / (40 * 3072), 0.0, 0.2);
  EXPECT_EQ(OpenDataset("generated", {.generated_train = 0}).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(GeneratedTest, BytesDependOnSeedSplitAndIndexOnly) {
  Bytes a(3072), b(3072);
  DrawGenerated(1, Split::kTrain, 7, a);
  DrawGenerated(1, Split::kTrain, 7, b);
  EXPECT_EQ(a, b);
  DrawGenerated(2, Split::kTrain, 7, b);
  EXPECT_NE(a, b);
  DrawGenerated(1, Split::kTest, 7, b);
  EXPECT_NE(a, b);
  DrawGenerated(1, Split::kTrain, 17, b);
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace elastiquant
