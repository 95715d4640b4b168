#include "elastiquant/data/md5.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "elastiquant/data/mapped_file.h"

namespace elastiquant {
namespace {

// T[i] = floor(2^32 * |sin(i + 1)|), section 3.4. A double holds it with 20 bits to spare.
std::array<uint32_t, 64> SineTable() {
  std::array<uint32_t, 64> table{};
  for (size_t i = 0; i < 64; ++i) {
    table[i] =
        static_cast<uint32_t>(std::fabs(std::sin(static_cast<double>(i + 1))) * 4294967296.0);
  }
  return table;
}

constexpr int kShifts[4][4] = {
    {7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};

}  // namespace

void Md5::AddBlock(const uint8_t* block) {
  static const std::array<uint32_t, 64> sines = SineTable();
  std::array<uint32_t, 16> words;
  std::memcpy(words.data(), block, 64);
  auto [a, b, c, d] = state_;
  for (uint32_t i = 0; i < 64; ++i) {
    uint32_t mixed = 0;
    uint32_t word = 0;
    switch (i / 16) {
      case 0:
        mixed = (b & c) | (~b & d), word = i;
        break;
      case 1:
        mixed = (d & b) | (~d & c), word = 5 * i + 1;
        break;
      case 2:
        mixed = b ^ c ^ d, word = 3 * i + 5;
        break;
      default:
        mixed = c ^ (b | ~d), word = 7 * i;
        break;
    }
    const uint32_t sum = a + mixed + words[word % 16] + sines[i];
    a = d;
    d = c;
    c = b;
    b += std::rotl(sum, kShifts[i / 16][i % 4]);
  }
  state_[0] += a;
  state_[1] += b;
  state_[2] += c;
  state_[3] += d;
}

void Md5::Add(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const size_t filled = length_ % 64;
    const size_t take = std::min(bytes.size(), 64 - filled);
    if (take == 64) {
      AddBlock(bytes.data());
    } else {
      std::memcpy(pending_.data() + filled, bytes.data(), take);
      if (filled + take == 64) AddBlock(pending_.data());
    }
    length_ += take;
    bytes = bytes.subspan(take);
  }
}

std::string Md5::Finish() {
  const uint64_t bits = length_ * 8;
  constexpr uint8_t kZeros[64] = {};
  const uint8_t one = 0x80;
  Add({&one, 1});
  Add({kZeros, (120 - length_ % 64) % 64});
  std::array<uint8_t, 8> size;
  std::memcpy(size.data(), &bits, 8);
  Add(size);
  std::string hex;
  for (const uint32_t word : state_) {
    for (int shift = 0; shift < 32; shift += 8) {
      hex += "0123456789abcdef"[word >> (shift + 4) & 15];
      hex += "0123456789abcdef"[word >> shift & 15];
    }
  }
  return hex;
}

Result<std::string> Md5OfFile(const std::filesystem::path& path) {
  EQ_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  Md5 md5;
  md5.Add(file.bytes());
  return md5.Finish();
}

}  // namespace elastiquant
