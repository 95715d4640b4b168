#include "elastiquant/runs/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "elastiquant/base/bytes.h"

namespace elastiquant {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kAlignment = 8;  // of the data in the file
constexpr char kMetadata[] = "__metadata__";

using Dtype = std::pair<std::string_view, size_t>;  // name, bytes a value
constexpr Dtype kDtypes[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
    {"U16", 2},  {"I16", 2}, {"F16", 2}, {"BF16", 2},    {"U32", 4},
    {"I32", 4},  {"F32", 4}, {"U64", 8}, {"I64", 8},     {"F64", 8},
};

Status BadHeader(const std::string& what) {
  return CorruptData("header check failed: " + what);
}
Status BadTensor(const std::string& name, const std::string& what) {
  return CorruptData("tensor check failed: '" + name + "' " + what);
}

// What an entry of the header says: the tensor but for its bytes, and where these are.
struct Entry {
  std::string name;
  StoredTensor tensor;
  uint64_t begin = 0, end = 0;
};

// The header, of which no object may have a key twice.
Result<json> ParseHeader(std::span<const uint8_t> text) {
  if (text.empty() || text.front() != '{') return BadHeader("it does not begin with {");
  std::vector<std::set<std::string>> keys;  // of the objects around the place reached
  std::optional<std::string> twice;
  const auto watch = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(parsed).second) {
      twice = parsed.get<std::string>();
    }
    return true;
  };
  json header = json::parse(text.begin(), text.end(), watch, /*allow_exceptions=*/false);
  if (!header.is_object()) return BadHeader("it is not a JSON object");
  if (twice) return BadHeader("'" + *twice + "' is there twice");
  return header;
}

// The list at `key`, whole numbers all; none if it is something else.
std::optional<std::vector<uint64_t>> Numbers(const json& entry, const char* key) {
  const auto list = entry.find(key);
  if (list == entry.end() || !list->is_array()) return std::nullopt;
  std::vector<uint64_t> numbers;
  for (const json& number : *list) {
    if (!number.is_number_unsigned()) return std::nullopt;
    numbers.push_back(number);
  }
  return numbers;
}

// None if there are more than the largest number, or a dimension is above an int64_t's.
std::optional<uint64_t> BytesOf(const std::vector<uint64_t>& shape, uint64_t width) {
  uint64_t bytes = width;
  for (const uint64_t size : shape) {
    if (size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) ||
        __builtin_mul_overflow(bytes, size, &bytes)) {
      return std::nullopt;
    }
  }
  return bytes;
}

Result<Entry> ParseEntry(const std::string& name, const json& value) {
  const auto dtype = value.find("dtype");
  const auto shape = Numbers(value, "shape"), offsets = Numbers(value, "data_offsets");
  if (!value.is_object() || dtype == value.end() || !dtype->is_string() || !shape || !offsets ||
      offsets->size() != 2) {
    return BadTensor(name, "needs a dtype, a shape and two data_offsets");
  }
  Entry entry{name, {.dtype = *dtype, .shape = {}, .bytes = {}}, (*offsets)[0], (*offsets)[1]};
  const size_t width = DtypeBytes(entry.tensor.dtype);
  if (width == 0) return BadTensor(name, "has the unknown dtype " + entry.tensor.dtype);
  entry.tensor.shape.assign(shape->begin(), shape->end());
  const auto bytes = BytesOf(*shape, width);
  if (!bytes) return BadTensor(name, "has a shape of more values than can be counted");
  if (entry.begin > entry.end || entry.end - entry.begin != *bytes) {
    return BadTensor(name, entry.tensor.Describe() + " has " + std::to_string(*bytes) +
                               " bytes, but its data_offsets are " +
                               std::to_string(entry.begin) + " and " +
                               std::to_string(entry.end));
  }
  return entry;
}

Result<std::map<std::string, std::string>> ParseMetadata(const json& value) {
  std::map<std::string, std::string> metadata;
  if (!value.is_object()) return BadHeader("__metadata__ is not an object");
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) return BadHeader("__metadata__ '" + key + "' is not a string");
    metadata[key] = text;
  }
  return metadata;
}

// Sorts them by where they are, and checks that they fill `data` with no gap and no overlap.
Status CheckPlaces(std::vector<Entry>* entries, uint64_t data) {
  std::ranges::sort(*entries, [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t reached = 0;
  for (const Entry& entry : *entries) {
    if (entry.begin != reached) {
      return BadTensor(entry.name, "begins at byte " + std::to_string(entry.begin) +
                                       " of the data, where it should be " +
                                       std::to_string(reached) + ": there is " +
                                       (entry.begin < reached ? "an overlap" : "a gap"));
    }
    reached = entry.end;
  }
  if (reached == data) return Status::Ok();
  return CorruptData("length check failed: the header says " + std::to_string(reached) +
                     " bytes of data, there are " + std::to_string(data));
}

}  // namespace

std::string StoredTensor::Describe() const {
  std::string text = dtype + " [";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

size_t DtypeBytes(std::string_view dtype) {
  const auto known = std::ranges::find(kDtypes, dtype, &Dtype::first);
  return known == std::end(kDtypes) ? 0 : known->second;
}

std::vector<uint8_t> SerializeSafetensors(const Safetensors& file) {
  // The widest first, so that all are aligned.
  std::vector<const std::pair<const std::string, StoredTensor>*> order;
  for (const auto& named : file.tensors) order.push_back(&named);
  std::ranges::stable_sort(order, [](const auto* a, const auto* b) {
    return DtypeBytes(a->second.dtype) > DtypeBytes(b->second.dtype);
  });
  json header = json::object();
  if (!file.metadata.empty()) header[kMetadata] = file.metadata;
  size_t data = 0;
  for (const auto* named : order) {
    const auto& [name, tensor] = *named;
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {data, data + tensor.bytes.size()}}};
    data += tensor.bytes.size();
  }
  std::string text = header.dump();
  text.append(kAlignment - 1 - (text.size() + kAlignment - 1) % kAlignment, ' ');

  std::vector<uint8_t> bytes(sizeof(uint64_t) + text.size() + data);
  ByteWriter writer(bytes);
  writer.Write(static_cast<uint64_t>(text.size()));
  writer.WriteSpan({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  for (const auto* named : order) writer.WriteSpan(named->second.bytes);
  return bytes;
}

Result<Safetensors> ParseSafetensors(std::span<const uint8_t> bytes) {
  ByteReader reader(bytes);
  uint64_t header_bytes = 0;
  if (!reader.Read(&header_bytes)) {
    return CorruptData("size check failed: " + std::to_string(bytes.size()) +
                       " bytes, but a safetensors file has at least 8");
  }
  if (header_bytes > kMaxHeaderBytes) {
    return BadHeader("of " + std::to_string(header_bytes) + " bytes; at most " +
                     std::to_string(kMaxHeaderBytes) +
                     " are allowed. Is this a safetensors file?");
  }
  std::span<const uint8_t> text;
  if (!reader.ReadSpan(header_bytes, &text)) {
    return CorruptData("length check failed: a header of " + std::to_string(header_bytes) +
                       " bytes in a file of " + std::to_string(bytes.size()));
  }
  EQ_ASSIGN_OR_RETURN(const json header, ParseHeader(text));

  Safetensors file;
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadata) {
      EQ_ASSIGN_OR_RETURN(file.metadata, ParseMetadata(value));
    } else {
      EQ_ASSIGN_OR_RETURN(Entry entry, ParseEntry(name, value));
      entries.push_back(std::move(entry));
    }
  }
  const std::span<const uint8_t> data = bytes.subspan(reader.position());
  EQ_RETURN_IF_ERROR(CheckPlaces(&entries, data.size()));
  for (Entry& entry : entries) {
    const auto part = data.subspan(entry.begin, entry.end - entry.begin);
    entry.tensor.bytes.assign(part.begin(), part.end());
    file.tensors.emplace(std::move(entry.name), std::move(entry.tensor));
  }
  return file;
}

}  // namespace elastiquant
