// Writes the golden files that do not exist yet. Run on purpose only, after adding a case:
//   build/core/bin/golden_write testdata/golden
// A file that exists is left alone; to change what an encoder makes, move it to
// testdata/earlier and say why in the commit.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/golden.h"

namespace elastiquant {
namespace {

bool Write(const std::filesystem::path& path, const std::vector<uint8_t>& bytes) {
  if (std::filesystem::exists(path)) return true;
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  std::printf("%s\n", path.c_str());
  return file.good();
}

Status WriteCase(const std::filesystem::path& folder, const GoldenCase& golden) {
  EQ_ASSIGN_OR_RETURN(const auto frame, EncodeGolden(golden));
  std::vector<float> values(golden.elements);
  Workspace work;
  EQ_RETURN_IF_ERROR(DecodeFrame(frame, work, values));
  if (!Write(folder / (golden.name + ".eqf"), frame) ||
      !Write(folder / (golden.name + ".npy"), NpyFile(values))) {
    return IoError("cannot write to " + folder.string());
  }
  return Status::Ok();
}

}  // namespace
}  // namespace elastiquant

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: golden_write FOLDER\n");
    return 2;
  }
  for (const elastiquant::GoldenCase& golden : elastiquant::GoldenCases()) {
    const elastiquant::Status status = elastiquant::WriteCase(argv[1], golden);
    if (!status.ok()) {
      std::fprintf(stderr, "%s: %s\n", golden.name.c_str(), status.ToString().c_str());
      return 1;
    }
  }
  return 0;
}
