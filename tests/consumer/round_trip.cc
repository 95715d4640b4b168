// Encodes a vector in C++ and checks that the 4-bit frame is small and decodes near to it.
#include <cmath>
#include <cstdio>
#include <numeric>
#include <vector>

#include "elastiquant/codec/codec.h"

int main() {
  std::vector<float> values(10000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));

  const auto codec = elastiquant::MakeCodec("elastic:bits=4");
  if (!codec.ok()) {
    std::fprintf(stderr, "%s\n", codec.status().message().c_str());
    return 1;
  }
  elastiquant::Workspace work;
  std::vector<uint8_t> frame((*codec)->MaxFrameBytes(values.size()));
  const elastiquant::StreamKey key{};
  const auto size = (*codec)->Encode(values, key, work, frame);
  if (!size.ok() || *size > values.size() * sizeof(float) / 7) return 1;

  std::vector<float> decoded(values.size());
  frame.resize(*size);
  if (!elastiquant::DecodeFrame(frame, work, decoded).ok()) return 1;
  double error = 0;
  for (size_t i = 0; i < values.size(); ++i) error += std::pow(decoded[i] - values[i], 2.0);
  const double norm = std::inner_product(values.begin(), values.end(), values.begin(), 0.0);
  std::printf("%zu bytes, relative squared error %g\n", *size, error / norm);
  return error < 0.1 * norm ? 0 : 1;
}
