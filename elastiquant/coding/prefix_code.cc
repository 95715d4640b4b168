#include "elastiquant/coding/prefix_code.h"

#include <algorithm>
#include <bitset>
#include <cassert>
#include <string>

namespace elastiquant {
namespace {

struct Item {
  uint64_t weight;
  int symbol;
};

// One list of package-merge: the items, merged with the pairs of the list before.
struct PackageList {
  std::array<uint64_t, 2 * kMaxPrefixSymbols> weights{};
  std::bitset<2 * kMaxPrefixSymbols> is_item;
  size_t size = 0;

  void Append(uint64_t weight, bool item) {
    weights[size] = weight;
    is_item[size++] = item;
  }
};

PackageList Merge(std::span<const Item> items, const PackageList& before) {
  PackageList list;
  size_t item = 0, pair = 0;
  while (item < items.size() || pair + 2 <= before.size) {
    const uint64_t packed =
        pair + 2 <= before.size ? before.weights[pair] + before.weights[pair + 1] : 0;
    if (pair + 2 > before.size || (item < items.size() && items[item].weight <= packed)) {
      list.Append(items[item++].weight, true);
    } else {
      list.Append(packed, false);
      pair += 2;
    }
  }
  return list;
}

Status Bad(const std::string& what) { return CorruptData("prefix code check failed: " + what); }

}  // namespace

PrefixCode PrefixCode::Optimal(std::span<const uint64_t> counts) {
  std::array<Item, kMaxPrefixSymbols> storage{};
  size_t size = 0;
  for (size_t s = 0; s < counts.size(); ++s) {
    if (counts[s] != 0) storage[size++] = {counts[s], static_cast<int>(s)};
  }
  assert(size > 0);
  const std::span<Item> items(storage.data(), size);
  PrefixCode code;
  code.first_ = items.front().symbol;
  code.count_ = items.back().symbol - code.first_ + 1;
  if (size == 1) return code;
  std::ranges::sort(items, [](const Item& a, const Item& b) {
    return a.weight != b.weight ? a.weight < b.weight : a.symbol < b.symbol;
  });
  std::array<PackageList, kMaxPrefixBits> lists;
  lists[0] = Merge(items, {});
  for (size_t i = 1; i < lists.size(); ++i) lists[i] = Merge(items, lists[i - 1]);
  // The first 2(m-1) of the last list are the solution: an item adds one bit to its symbol,
  // and pairs stand for the first ones of the list before.
  size_t taken = 2 * (size - 1);
  for (size_t i = lists.size(); i-- > 0;) {
    size_t own = 0;
    for (size_t k = 0; k < taken; ++k) {
      if (lists[i].is_item[k]) ++code.lengths_[static_cast<size_t>(items[own++].symbol)];
    }
    taken = 2 * (taken - own);
  }
  code.GiveOutCodes();
  return code;
}

Result<PrefixCode> PrefixCode::Read(std::span<const uint8_t> in, int symbols, size_t* bytes) {
  if (in.size() < 2) return Bad("its table is cut short");
  PrefixCode code;
  code.first_ = in[0];
  code.count_ = in[1];
  if (code.count_ == 0 || code.first_ + code.count_ > symbols)
    return Bad("a symbol is unknown");
  const size_t lengths = code.count_ == 1 ? 0 : static_cast<size_t>(code.count_);
  *bytes = 2 + (lengths + 1) / 2;
  if (in.size() < *bytes) return Bad("its table is cut short");
  uint32_t space = 0;  // in parts of 2^-kMaxPrefixBits
  for (size_t i = 0; i < 2 * (*bytes - 2); ++i) {
    const auto length = static_cast<uint8_t>(in[2 + i / 2] >> (i % 2 == 0 ? 0 : 4) & 15);
    if (length > kMaxPrefixBits) return Bad("a code is too long");
    if (i >= lengths) {
      if (length != 0) return Bad("a filling bit is set");
      continue;
    }
    code.lengths_[static_cast<size_t>(code.first_) + i] = length;
    if (length != 0) space += 1u << (kMaxPrefixBits - length);
  }
  if (lengths != 0 && space != 1u << kMaxPrefixBits) return Bad("it is not complete");
  code.GiveOutCodes();
  return code;
}

size_t PrefixCode::Write(uint8_t* out) const {
  out[0] = static_cast<uint8_t>(first_);
  out[1] = static_cast<uint8_t>(count_);
  if (count_ == 1) return 2;
  const auto half = [&](int i) {
    return i < count_ ? static_cast<unsigned>(length(first_ + i)) : 0u;
  };
  uint8_t* end = out + 2;
  for (int i = 0; i < count_; i += 2) {
    *end++ = static_cast<uint8_t>(half(i) | half(i + 1) << 4);
  }
  return static_cast<size_t>(end - out);
}

void PrefixCode::GiveOutCodes() {
  uint32_t next = 0;
  for (int length = 1; length <= kMaxPrefixBits; ++length) {
    next <<= 1;
    for (size_t s = 0; s < lengths_.size(); ++s) {
      if (lengths_[s] == length) codes_[s] = static_cast<uint16_t>(next++);
    }
  }
}

PrefixDecoder::PrefixDecoder(const PrefixCode& code) {
  if (code.count_ == 1) {
    entries_.fill(static_cast<uint16_t>(code.first_ * 16));
    return;
  }
  for (int s = code.first_; s < code.first_ + code.count_; ++s) {
    const int length = code.length(s);
    if (length == 0) continue;
    const int rest = kMaxPrefixBits - length;
    std::fill_n(entries_.begin() + (code.code(s) << rest), size_t{1} << rest,
                static_cast<uint16_t>(s * 16 + length));
  }
}

}  // namespace elastiquant
