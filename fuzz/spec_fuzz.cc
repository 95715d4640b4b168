// Any text, taken as a codec spec: an error in words, or a codec whose canonical spec makes it
// again and whose frames decode. The input is a spec up to its first zero byte, then floats.
#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "elastiquant/codec/codec.h"
#include "fuzz/fuzz.h"

namespace elastiquant {
namespace {

constexpr size_t kMaxElements = 600;  // more than a bucket of the default size

std::vector<float> Floats(std::string_view bytes) {
  std::vector<float> values(std::min(bytes.size() / sizeof(float), kMaxElements));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

void TrySpec(std::string_view spec, const std::vector<float>& values) {
  const auto codec = MakeCodec(spec);
  if (!codec.ok()) {
    FUZZ_CHECK(!codec.status().message().empty());
    return;
  }
  const auto twin = MakeCodec((*codec)->spec());
  FUZZ_CHECK(twin.ok());
  FUZZ_CHECK((*twin)->spec() == (*codec)->spec());

  static Workspace work(1);
  const size_t room = (*codec)->MaxFrameBytes(values.size());
  std::vector<uint8_t> frame(room), again(room);
  const auto size = (*codec)->Encode(values, {7}, work, frame);
  const auto size_again = (*twin)->Encode(values, {7}, work, again);
  FUZZ_CHECK(size.ok() == size_again.ok());
  if (!size.ok()) {
    FUZZ_CHECK(size.status().code() == StatusCode::kNonFinite ||
               size.status().code() == StatusCode::kOutOfRange);
    return;
  }
  frame.resize(*size);
  again.resize(*size_again);
  FUZZ_CHECK(frame == again);
  std::vector<float> decoded(values.size());
  FUZZ_CHECK(DecodeFrame(frame, work, decoded).ok());
}

}  // namespace
}  // namespace elastiquant

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  const std::string_view floats =
      end == input.npos ? std::string_view() : input.substr(end + 1);
  elastiquant::TrySpec(input.substr(0, end), elastiquant::Floats(floats));
  return 0;
}
