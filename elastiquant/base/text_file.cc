#include "elastiquant/base/text_file.h"

#include <filesystem>
#include <fstream>
#include <sstream>

namespace elastiquant {

Result<std::string> ReadTextFile(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return NotFound("'" + path + "' is a folder, not a file");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return NotFound("cannot open '" + path + "'");
  std::string text;
  char part[4096];
  while (file.read(part, sizeof(part)) || file.gcount() > 0) {
    text.append(part, static_cast<size_t>(file.gcount()));
  }
  if (file.bad()) return NotFound("cannot read '" + path + "' to its end");
  return text;
}

std::vector<std::string> WordsOf(const std::string& line) {
  std::istringstream stream(line.substr(0, line.find('#')));
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

}  // namespace elastiquant
