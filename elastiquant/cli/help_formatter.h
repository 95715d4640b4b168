// How --help looks: descriptions are wrapped, so that their column holds on any terminal.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>
#include <string_view>

namespace elastiquant::cli {

// Columns that help takes: those of a terminal that nobody has widened.
inline constexpr size_t kHelpColumns = 80;

// Returns the text with its spaces turned into line breaks where a line would be longer than
// `width` otherwise. A word that is longer than that stays whole, and so do the breaks that the
// text has.
std::string Wrapped(std::string_view text, size_t width);

class HelpFormatter : public CLI::Formatter {
 public:
  // Without what a flag's names stand for: CLI11 would print "--no-augment{false}".
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
};

}  // namespace elastiquant::cli
