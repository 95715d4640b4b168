#include "elastiquant/cli/help_formatter.h"

namespace elastiquant::cli {

std::string Wrapped(std::string_view text, size_t width) {
  std::string wrapped;
  size_t column = 0;
  while (!text.empty()) {
    const size_t size = text.find_first_of(" \n");
    const std::string_view word = text.substr(0, size);
    if (column > 0 && column + 1 + word.size() > width) {
      wrapped += '\n';
      column = 0;
    } else if (column > 0) {
      wrapped += ' ';
      ++column;
    }
    wrapped += word;
    column += word.size();
    if (size == std::string_view::npos) break;
    if (text[size] == '\n') {
      wrapped += '\n';
      column = 0;
    }
    text.remove_prefix(size + 1);
  }
  return wrapped;
}

std::string HelpFormatter::make_option_name(const CLI::Option* option,
                                            bool is_positional) const {
  std::string name = CLI::Formatter::make_option_name(option, is_positional);
  constexpr std::string_view kMeaning = "{false}";
  for (size_t at = name.find(kMeaning); at != std::string::npos; at = name.find(kMeaning)) {
    name.erase(at, kMeaning.size());
  }
  return name;
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
  return Wrapped(CLI::Formatter::make_option_desc(option), kHelpColumns - get_column_width());
}

}  // namespace elastiquant::cli
