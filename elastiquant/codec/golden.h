// The golden frames in testdata/golden: what to encode, and how the files are named. If an
// encoder must change, the frames it made go to testdata/earlier, which must decode for ever,
// or one release cannot read what another has sent.
#pragma once

#include <string>
#include <vector>

#include "elastiquant/base/random.h"
#include "elastiquant/base/status.h"
#include "elastiquant/codec/codec.h"

namespace elastiquant {

struct GoldenCase {
  std::string name;  // NAME.eqf is the frame, NAME.npy what it decodes to
  std::string spec;
  std::string input;  // one of those that GoldenInput knows
  size_t elements;
  std::vector<TensorShape> shapes = {};  // for codecs that care
  int workers =
      0;  // the mean of so many with this input and a shared scale; 0: a codec's frame
};
const std::vector<GoldenCase>& GoldenCases();

// The same on every machine: made from integers only.
std::vector<float> GoldenInput(const GoldenCase& golden);
StreamKey GoldenKey(const GoldenCase& golden);

Result<std::vector<uint8_t>> EncodeGolden(const GoldenCase& golden);
// A one-dimensional float32 .npy file, as numpy.save writes it.
std::vector<uint8_t> NpyFile(const std::vector<float>& values);

}  // namespace elastiquant
