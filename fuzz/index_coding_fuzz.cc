// Bytes 0 to 3 choose coder, bits, run and length. The rest is decoded as it stands, which must
// never touch other memory, and then, taken as codes, must come back as they were.
#include <algorithm>
#include <vector>

#include "elastiquant/coding/index_coding.h"
#include "fuzz/fuzz.h"

using namespace elastiquant;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  const auto coding = static_cast<IndexCoding>(data[0] % 3);
  const int bits = 2 + data[1] % 7;
  const size_t run = size_t{1} << data[2] % 14;
  const std::span<const uint8_t> rest(data + 4, size - 4);

  std::vector<uint8_t> decoded(size_t{data[3]} * data[3]);
  (void)DecodeIndices(coding, rest, bits, run, decoded).ok();

  std::vector<uint8_t> codes(rest.begin(), rest.end());
  for (uint8_t& code : codes) {
    code = static_cast<uint8_t>(code & ((1 << bits) - 1));
    if (code == 1 << (bits - 1)) code = 0;  // no negative zero
  }
  const size_t runs = (codes.size() + run - 1) / run;
  std::vector<uint8_t> bytes(MaxIndexBytes(coding, codes.size(), bits, runs));
  const auto written = EncodeIndices(coding, codes, bits, run, bytes);
  FUZZ_CHECK(written.ok());
  std::vector<uint8_t> back(codes.size());
  FUZZ_CHECK(DecodeIndices(coding, {bytes.data(), *written}, bits, run, back).ok());
  FUZZ_CHECK(back == codes);
  return 0;
}
