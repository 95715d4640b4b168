#include <gtest/gtest.h>

#include <cstdio>

#include <jpeglib.h>

#include <set>

#include "elastiquant/data/dataset_testing.h"

namespace elastiquant {
namespace {

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
  EXPECT_EQ(dataset->Labels(Split::kTrain).value(), (std::vector<int64_t>{0, 0, 1}));
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

}  // namespace
}  // namespace elastiquant
