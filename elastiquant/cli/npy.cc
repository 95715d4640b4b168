#include "elastiquant/cli/npy.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>

#include "elastiquant/base/npy_front.h"
#include "elastiquant/cli/file.h"

namespace elastiquant::cli {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
// Far above any real header, far below what would hurt: names bound what is read first.
constexpr size_t kMaxHeaderBytes = 1 << 16;

Status NotNpy(const std::string& why) { return CorruptData("not a .npy file: " + why); }

// Reads the Python dictionary literal of the header, of which NumPy's own writer uses only
// strings, True, False and a tuple of integers.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  Status Parse() {
    if (!Take('{')) return Malformed("'{' expected");
    while (!Take('}')) {
      EQ_RETURN_IF_ERROR(ParseEntry());
      if (!Take(',')) {
        if (!Take('}')) return Malformed("',' or '}' expected");
        break;
      }
    }
    SkipSpace();
    if (!text_.empty()) return Malformed("text after the dictionary");
    if (!descr || !fortran_order || !shape) {
      return NotNpy("the header lacks one of 'descr', 'fortran_order', 'shape'");
    }
    return Status::Ok();
  }

  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<size_t>> shape;

 private:
  Status Malformed(const std::string& what) const {
    return NotNpy(fmt::format("{} in the header before \"{}\"", what, text_.substr(0, 16)));
  }
  void SkipSpace() {
    const size_t word = text_.find_first_not_of(" \t\n");
    text_.remove_prefix(word == std::string_view::npos ? text_.size() : word);
  }
  bool Take(char c) {
    SkipSpace();
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  bool TakeWord(std::string_view word) {
    SkipSpace();
    if (!text_.starts_with(word)) return false;
    text_.remove_prefix(word.size());
    return true;
  }

  Status ParseEntry() {
    EQ_ASSIGN_OR_RETURN(const std::string key, ParseString());
    if (!Take(':')) return Malformed("':' expected");
    if (key == "descr" && !descr) return ParseDescr();
    if (key == "fortran_order" && !fortran_order) return ParseOrder();
    if (key == "shape" && !shape) return ParseShape();
    return NotNpy("unexpected key '" + key + "' in the header");
  }
  Result<std::string> ParseString() {
    SkipSpace();
    const char quote = text_.empty() ? ' ' : text_.front();
    const size_t end = text_.find(quote, 1);
    if ((quote != '\'' && quote != '"') || end == std::string_view::npos) {
      return Malformed("a quoted string expected");
    }
    std::string value(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    return value;
  }
  Status ParseDescr() {
    SkipSpace();
    if (text_.starts_with('[')) {
      return Unsupported("a structured array; save one float32 field of it");
    }
    EQ_ASSIGN_OR_RETURN(descr, ParseString());
    return Status::Ok();
  }
  Status ParseOrder() {
    if (TakeWord("True")) {
      fortran_order = true;
    } else if (TakeWord("False")) {
      fortran_order = false;
    } else {
      return Malformed("True or False expected");
    }
    return Status::Ok();
  }
  Status ParseShape() {
    if (!Take('(')) return Malformed("'(' expected");
    shape.emplace();
    while (!Take(')')) {
      SkipSpace();
      size_t size = 0;
      const auto [end, error] =
          std::from_chars(text_.data(), text_.data() + text_.size(), size);
      if (error != std::errc()) return Malformed("a size expected");
      text_.remove_prefix(static_cast<size_t>(end - text_.data()));
      shape->push_back(size);
      if (!Take(',')) {
        if (!Take(')')) return Malformed("',' or ')' expected");
        break;
      }
    }
    return Status::Ok();
  }

  std::string_view text_;
};

Status CheckType(const HeaderParser& header) {
  const std::string& descr = *header.descr;
  if (descr == ">f4") {
    return Unsupported("float32 with big-endian bytes; save array.astype('<f4')");
  }
  if (descr != "<f4") {
    return Unsupported("elements of type '" + descr +
                       "', but float32 ('<f4') is needed; save array.astype('float32')");
  }
  if (*header.fortran_order && header.shape->size() > 1) {
    return Unsupported("Fortran order; save numpy.ascontiguousarray(array)");
  }
  return Status::Ok();
}

// How many bytes the length field of each format version has; 0 for an unknown version.
size_t LengthBytes(uint8_t version) { return version == 1 ? 2 : version <= 3 ? 4 : 0; }

Result<NpyArray> ReadElements(std::FILE* file, const NpyHeader& header, size_t file_bytes) {
  const size_t expected = header.data_offset + header.elements * sizeof(float);
  if (file_bytes != expected) {
    return CorruptData(
        fmt::format("{}: its header promises {} elements, {} bytes in all, but "
                    "it has {} bytes",
                    file_bytes < expected ? "truncated" : "too long", header.elements, expected,
                    file_bytes));
  }
  NpyArray array{header.shape, std::vector<float>(header.elements)};
  if (std::fseek(file, static_cast<long>(header.data_offset), SEEK_SET) != 0 ||
      std::fread(array.values.data(), sizeof(float), header.elements, file) !=
          header.elements) {
    return IoError("reading its elements failed");
  }
  return array;
}

Result<NpyArray> ReadOpenNpy(std::FILE* file) {
  struct stat info {};
  if (fstat(fileno(file), &info) != 0) return IoError("its size cannot be read");
  if (!S_ISREG(info.st_mode)) return Unsupported("not a regular file");
  std::vector<uint8_t> front(kMaxHeaderBytes);
  front.resize(std::fread(front.data(), 1, front.size(), file));
  EQ_ASSIGN_OR_RETURN(const NpyHeader header, ParseNpyHeader(front));
  return ReadElements(file, header, static_cast<size_t>(info.st_size));
}

}  // namespace

Result<NpyHeader> ParseNpyHeader(std::span<const uint8_t> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kMagic)) return NotNpy("it does not begin with \\x93NUMPY");
  if (text.size() < kMagic.size() + 2) return CorruptData("truncated inside the .npy header");
  const uint8_t version = bytes[kMagic.size()];
  const size_t length_bytes = version == 0 ? 0 : LengthBytes(version);
  if (length_bytes == 0) {
    return Unsupported(fmt::format(".npy format version {}; 1, 2 and 3 are known", version));
  }
  const size_t length_at = kMagic.size() + 2;
  if (text.size() < length_at + length_bytes) {
    return CorruptData("truncated inside the .npy header");
  }
  uint32_t length = 0;  // little endian, as bytes.h asserts of this machine
  std::memcpy(&length, bytes.data() + length_at, length_bytes);
  if (text.size() - length_at - length_bytes < length) {
    return CorruptData("truncated inside the .npy header");
  }
  HeaderParser parser(text.substr(length_at + length_bytes, length));
  EQ_RETURN_IF_ERROR(parser.Parse());
  EQ_RETURN_IF_ERROR(CheckType(parser));
  NpyHeader header{*parser.shape, 1, length_at + length_bytes + length};
  constexpr size_t kLimit = std::numeric_limits<size_t>::max() / (2 * sizeof(float));
  for (const size_t size : header.shape) {
    if (size != 0 && header.elements > kLimit / size) return NotNpy("its shape overflows");
    header.elements *= size;
  }
  return header;
}

Result<NpyArray> ReadNpy(const std::string& path) {
  EQ_ASSIGN_OR_RETURN(const FilePtr file, OpenForReading(path));
  Result<NpyArray> array = ReadOpenNpy(file.get());
  if (!array.ok()) return Status(array.status().code(), path + ": " + array.status().message());
  return array;
}

Status WriteNpy(const std::string& path, std::span<const float> values) {
  const std::string front = NpyFront(values.size());
  return WriteFile(path, {AsBytes(std::span<const char>(front)), AsBytes(values)});
}

}  // namespace elastiquant::cli
