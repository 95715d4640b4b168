#include "elastiquant/cli/rates_report.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "elastiquant/protocol/lazy.h"

namespace elastiquant::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string Cell(const Json& row, const char* name) {
  if (!row.contains(name)) return "";
  return row[name].is_null() ? "-" : fmt::format("{:.4f}", row[name].get<double>());
}

}  // namespace

void PrintGossipRates(const Json& rates) {
  const bool quadratics = rates["problem"] == "quadratics";
  fmt::print("{} of {} nodes, {} = {}\n\n", rates["graph"].get<std::string>(),
             rates["nodes"].get<size_t>(),
             quadratics ? "on quadratics whose minima are unrelated, eta h"
                        : "on logistic regressions of unequal workers, eta L",
             rates["curvature"].get<double>());
  const std::string codec =
      rates["codec"].is_null() ? "" : "under " + rates["codec"].get<std::string>();
  fmt::print("{:<18} {:>5}   {:<35} left in the end, of {}\n", "", "",
             quadratics ? "differences are multiplied by" : "distances are multiplied by",
             rates["unit"].get<std::string>());
  fmt::print("{:<18} {:>5}   {:>8} {:>9} {:>12}     {:>8} {:>9}\n", "", "step", "theory",
             "measured", codec.empty() ? "" : "with codec", "theory", "measured");
  for (const Json& row : rates["rows"]) {
    const auto name = row["algorithm"].get<std::string>();
    if (row.contains("refused")) {
      fmt::print("{:<18} refused: {}\n", name, row["refused"].get<std::string>());
      continue;
    }
    fmt::print("{:<18} {:>5g}   {:>8} {:>9} {:>12}     {:>8} {:>9}\n", name,
               row["step"].get<double>(), Cell(row, "rate"), Cell(row, "measured_rate"),
               Cell(row, "codec_rate"), Cell(row, "left"), Cell(row, "measured_left"));
  }
  if (!rates["rows"].back().contains("refused")) {
    fmt::print(
        "\nad-psgd picks pairs at random: its numbers are roots of mean squares, "
        "with workers that are\nequally fast and fp32, and its rate is of all weights.\n");
  }
  if (!codec.empty()) fmt::print("\nThe codec's column is {}.\n", codec);
}

void PrintLazyUploads(const Json& found) {
  fmt::print(
      "Logistic regression on {} workers of unequal smoothness, until the loss is within {:g} "
      "of the least\n\n{:<18} {:<12} {:>8} {:>9} {:>12} {:>10}   uploads by worker\n",
      found["workers"].get<size_t>(), found["gap"].get<double>(), "", "codec", "steps",
      "uploads", "times fewer", "kB");
  const Json& rows = found["rows"];
  const auto every = rows[0]["uploads"].get<double>();
  for (const Json& row : rows) {
    std::string by_worker;
    for (const Json& uploads : row["uploads_by_worker"]) {
      by_worker += fmt::format(" {}", uploads.get<size_t>());
    }
    fmt::print("{:<18} {:<12} {:>8} {:>9} {:>12.1f} {:>10.0f}  {}\n",
               row["rule"].get<std::string>(), row["codec"].get<std::string>(),
               row["steps"].is_null() ? "-" : fmt::format("{}", row["steps"].get<int64_t>()),
               row["uploads"].get<size_t>(), every / row["uploads"].get<double>(),
               row["bytes"].get<double>() / 1e3, by_worker);
  }
  fmt::print("\nA silent worker's message is a header of {} bytes, which kB has in it.\n",
             Lazy::kHeaderBytes);
}

}  // namespace elastiquant::cli
