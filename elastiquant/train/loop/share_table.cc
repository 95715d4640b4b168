#include "elastiquant/train/loop/share_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace elastiquant {
namespace {

constexpr size_t kMostColumns = 10;

// The first column has room for its head.
int WidthOf(size_t column) { return column == 0 ? 9 : 7; }

std::string ClassColumns(const std::vector<int64_t>& counts) {
  if (counts.size() > kMostColumns) {
    const auto has = std::ranges::count_if(counts, [](int64_t n) { return n > 0; });
    return fmt::format("{:>9}", fmt::format("{}/{}", has, counts.size()));
  }
  std::string columns;
  for (size_t c = 0; c < counts.size(); ++c) {
    columns +=
        fmt::format("{:>{}}", counts[c] > 0 ? std::to_string(counts[c]) : "-", WidthOf(c));
  }
  return columns;
}

std::string ClassHeads(size_t classes) {
  if (classes > kMostColumns) return "  classes";
  std::string heads = "  class 0";
  for (size_t c = 1; c < classes; ++c) heads += fmt::format("{:>{}}", c, WidthOf(c));
  return heads;
}

}  // namespace

std::string ShareTable(const Shares& shares, const std::string& spec, int64_t samples) {
  const int64_t dealt = shares.Total();
  std::string text = fmt::format("{} training samples lie on {} workers, by {}", dealt,
                                 shares.samples.size(), spec);
  if (dealt < samples) {
    text += fmt::format(
        "; {} lie on none and are not trained on, because no worker has their classes",
        samples - dealt);
  }
  text += "\nworker  samples   per cent" + ClassHeads(shares.classes.front().size());
  const std::vector<int64_t> volumes = shares.Volumes();
  for (size_t w = 0; w < volumes.size(); ++w) {
    text += fmt::format("\n{:>6} {:>8} {:>10.2f}{}", w, volumes[w],
                        100.0 * static_cast<double>(volumes[w]) / static_cast<double>(dealt),
                        ClassColumns(shares.classes[w]));
  }
  return text;
}

}  // namespace elastiquant
