#include "elastiquant/codec/conformance/conformance_testing.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "elastiquant/codec/registry.h"

namespace elastiquant {

std::vector<std::vector<float>> DifficultVectors() {
  std::vector<std::vector<float>> vectors{
      {},
      {0.0f},
      {-0.0f, 0.0f},
      {1.0f},
      {-3.5f},
      {3, -4, 0, 12},
      std::vector<float>(700, 0.0f),
      std::vector<float>(600, 1.0f),
      std::vector<float>(33, -0.001f),
  };
  vectors.push_back(std::vector<float>(530, 1e-4f));
  vectors.back()[517] = -1000.0f;  // one giant among dwarfs
  vectors.push_back(std::vector<float>(40, kDenormal));
  vectors.push_back({kDenormal, -kDenormal, 1e-40f, -1e-38f, 1e-30f, 1e-10f, 1.0f});
  vectors.push_back(Gaussian(1300));
  return vectors;
}

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

std::vector<std::string> Variants() {
  std::vector<std::string> specs;
  for (const CodecFamily* family : CodecFamilies()) {
    specs.insert(specs.end(), family->variants.begin(), family->variants.end());
  }
  for (const CodecModifier* modifier : CodecModifiers()) {
    specs.insert(specs.end(), modifier->variants.begin(), modifier->variants.end());
  }
  return specs;
}

std::vector<std::string> VariantsOf(CodecClass kind) {
  std::vector<std::string> specs = Variants();
  std::erase_if(specs, [&](const std::string& spec) {
    const auto codec = MakeCodec(spec);
    return !codec.ok() || (*codec)->codec_class() != kind;  // what is not ok fails elsewhere
  });
  return specs;
}

std::string TestName(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

}  // namespace elastiquant
