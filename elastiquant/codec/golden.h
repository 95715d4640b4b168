// The golden frames in testdata/golden: what to encode, and how the files are named. If an
// encoder must change, the frames that it has made move to testdata/earlier. Those must decode
// for ever, or one release cannot read what another has sent.
#pragma once

#include <string>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/base/status.h"
#include "elastiquant/codec/codec.h"

namespace elastiquant {

struct GoldenCase {
  std::string name;  // NAME.eqf is the frame, and NAME.npy what it decodes to
  std::string spec;
  std::string input;  // one of those that GoldenInput knows
  size_t elements;
  std::vector<TensorShape> shapes = {};  // for codecs that treat tensors as such
  // If not 0, the frame is the mean of so many workers, each with this input, under a shared
  // scale.
  int workers = 0;
};
const std::vector<GoldenCase>& GoldenCases();

// Returns the values to encode. They are made from integers only, and so are the same on every
// machine.
std::vector<float> GoldenInput(const GoldenCase& golden);
StreamKey GoldenKey(const GoldenCase& golden);

Result<std::vector<uint8_t>> EncodeGolden(const GoldenCase& golden);
// Returns a one-dimensional float32 .npy file, as numpy.save writes it.
std::vector<uint8_t> NpyFile(const std::vector<float>& values);

}  // namespace elastiquant
