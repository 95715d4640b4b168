// Whole files, with errors that name the file and give the operating system's words.
#pragma once

#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "elastiquant/base/status.h"

namespace elastiquant::cli {

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using FilePtr = std::unique_ptr<std::FILE, FileCloser>;

// kNotFound if there is no such file, kIo if it cannot be opened.
Result<FilePtr> OpenForReading(const std::string& path);

Result<std::vector<uint8_t>> ReadFile(const std::string& path);

// Writes the parts one after the other. What was written is removed again if that fails, so
// that no half file is taken for a whole one.
Status WriteFile(const std::string& path,
                 std::initializer_list<std::span<const uint8_t>> parts);

// WriteFile, but all or nothing: until the whole file is there, what was at `path` stays.
Status ReplaceFile(const std::string& path,
                   std::initializer_list<std::span<const uint8_t>> parts);

template <typename T>
std::span<const uint8_t> AsBytes(std::span<const T> values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()};
}

}  // namespace elastiquant::cli
