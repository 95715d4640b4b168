#include "elastiquant/net/links.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <vector>

#include "elastiquant/base/text_file.h"

namespace elastiquant {
namespace {

std::optional<int> WorkerOf(std::string_view word) {
  int worker = 0;
  const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), worker);
  if (error != std::errc() || rest != word.data() + word.size() || worker < 0) return {};
  return worker;
}

Status BadLine(const std::string& name, int number, const std::string& why) {
  return InvalidArgument(name + ", line " + std::to_string(number) + ": " + why);
}

// Returns what is wrong with the words of a line, or an empty string if they were taken.
std::string TakeLine(const std::vector<std::string>& words, Links* links) {
  const bool is_access = words.size() == 2 && words[0] == "*";
  if (!is_access && words.size() != 3) {
    return "give 'A B RATE[,DELAY]' or '* RATE[,DELAY]'";
  }
  const Result<LinkSpec> link = ParseLink(words.back());
  if (!link.ok()) return link.status().message();
  if (is_access) {
    if (links->access) return "there is another line with '*'";
    links->access = *link;
    return "";
  }
  const std::optional<int> a = WorkerOf(words[0]), b = WorkerOf(words[1]);
  if (!a || !b || *a == *b) return "A and B must be numbers of two workers, from 0";
  const bool is_new =
      links->wires.emplace(std::pair(std::min(*a, *b), std::max(*a, *b)), *link).second;
  return is_new ? "" : "there is another line for these two";
}

}  // namespace

Status Links::Check(int workers) const {
  for (const auto& [pair, link] : wires) {
    if (pair.second < workers) continue;
    return InvalidArgument("there is a link of worker " + std::to_string(pair.second) +
                           ", and the last of " + std::to_string(workers) + " workers is " +
                           std::to_string(workers - 1));
  }
  return {};
}

std::map<int, LinkSpec> Links::WiresOf(int worker) const {
  std::map<int, LinkSpec> own;
  for (const auto& [pair, link] : wires) {
    if (pair.first == worker) own.emplace(pair.second, link);
    if (pair.second == worker) own.emplace(pair.first, link);
  }
  return own;
}

Result<Links> ParseLinks(const std::string& text, const std::string& name) {
  Links links;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::vector<std::string> words = WordsOf(line);
    if (words.empty()) continue;
    const std::string wrong = TakeLine(words, &links);
    if (wrong.empty()) continue;
    return BadLine(name, number, wrong);
  }
  if (links.access || !links.wires.empty()) return links;
  return InvalidArgument(name + " has no link");
}

Result<Links> ReadLinks(const std::string& text_or_file) {
  const Result<LinkSpec> link = ParseLink(text_or_file);
  if (link.ok()) return Links{.access = *link};
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(text_or_file, ignored)) {
    return InvalidArgument(link.status().message() + "; or give a file of links");
  }
  EQ_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(text_or_file));
  return ParseLinks(text, text_or_file);
}

}  // namespace elastiquant
