// Data sets of small images that are held as bytes in memory: CIFAR, idx and the generated set.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "elastiquant/data/dataset.h"
#include "elastiquant/data/mapped_file.h"

namespace elastiquant {

struct ByteImage {
  const uint8_t* pixels;  // channels * image_size^2 of them
  uint16_t label;
};

// The mean and standard deviation of each channel, for pixels scaled to 0 ... 1.
struct ChannelStatistics {
  std::array<float, 3> mean{};
  std::array<float, 3> deviation{};
};

// The images of a data set, and how they are read.
struct ByteImageSet {
  // What the pixels point into.
  std::vector<MappedFile> files;
  std::vector<std::vector<uint8_t>> buffers;

  bool planar = true;  // [channel][y][x] in memory, else [y][x][channel]
  bool mirror = true;  // augmentation may flip images left to right
  int64_t shift = 4;   // augmentation moves them by up to this many pixels
  ChannelStatistics statistics;
  std::vector<ByteImage> train;
  std::vector<ByteImage> test;
};

// Returns the statistics of the given images, from exact integer sums.
ChannelStatistics MeasureStatistics(std::span<const ByteImage> images, int64_t channels,
                                    int64_t pixels, bool planar);

// Makes a data set. Takes name, format, classes, channels and image_size from `info`, and the
// sizes from `set`. Augmentation is a shift of up to `shift` pixels each way (what comes in has
// the mean colour), then, if `mirror` is set, a flip with probability 1/2 (He et al. 2015,
// section 4.2).
std::shared_ptr<const Dataset> MakeByteImageDataset(DatasetInfo info, ByteImageSet set);

}  // namespace elastiquant
