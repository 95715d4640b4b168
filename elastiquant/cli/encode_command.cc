// `encode`: a .npy file of float32 to one frame.
#include <fmt/format.h>

#include <memory>

#include "elastiquant/cli/command.h"
#include "elastiquant/cli/compute_options.h"
#include "elastiquant/cli/file.h"
#include "elastiquant/cli/npy.h"
#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/frame.h"

namespace elastiquant::cli {
namespace {

struct EncodeOptions {
  std::string codec;
  uint64_t seed = 0;
  uint64_t step = 0;
  uint64_t worker = 0;
  ComputeOptions compute;
  std::string in;
  std::string out;
};

Status RunEncode(const EncodeOptions& options) {
  EQ_RETURN_IF_ERROR(ApplyTarget(options.compute));
  EQ_ASSIGN_OR_RETURN(const auto codec, MakeCodec(options.codec));
  EQ_ASSIGN_OR_RETURN(const NpyArray array, ReadNpy(options.in));
  const size_t n = array.values.size();
  if (n > kMaxFrameElements) {
    return InvalidArgument(fmt::format("{} has {} elements; a frame holds at most {}",
                                       options.in, n, kMaxFrameElements));
  }
  if (array.shape.size() != 1) {
    fmt::print(stderr, "note: {} has {} dimensions and is encoded flat, in C order\n",
               options.in, array.shape.size());
  }
  Workspace work(options.compute.threads);
  const StreamKey key = DeriveKey(options.seed, options.step, options.worker, 0);
  // Not a vector: the bound can be far above the frame, and pages not touched cost nothing.
  const size_t bound = codec->MaxFrameBytes(n);
  const auto frame = std::make_unique_for_overwrite<uint8_t[]>(bound);
  EQ_ASSIGN_OR_RETURN(const size_t bytes,
                      codec->Encode(array.values, key, work, {frame.get(), bound}));
  EQ_RETURN_IF_ERROR(WriteFile(options.out, {{frame.get(), bytes}}));
  fmt::print(stderr, "{}: {} floats in {} bytes", codec->spec(), n, bytes);
  if (n > 0) {
    fmt::print(stderr, ", {:.3f} bits per coordinate",
               8.0 * static_cast<double>(bytes) / static_cast<double>(n));
  }
  fmt::print(stderr, "\n");
  return Status::Ok();
}

constexpr char kExample[] =
    "  elastiquant encode --codec elastic:bits=4 --seed 1 gradient.npy gradient.eqf";

}  // namespace

Command MakeEncodeCommand(CLI::App& program) {
  auto options = std::make_shared<EncodeOptions>();
  CLI::App* app = AddSubcommand(program, "encode", "Encode a .npy file of float32", kExample);
  app->add_option("--codec", options->codec, "Codec to use, of `elastiquant codecs`")
      ->required();
  app->add_option("--seed", options->seed,
                  "Seed of the random rounding: the same seed gives the same bytes")
      ->capture_default_str();
  app->add_option("--step", options->step, "Training step, mixed into the seed")
      ->capture_default_str();
  app->add_option("--worker", options->worker, "Worker's number, mixed into the seed")
      ->capture_default_str();
  AddComputeOptions(app, &options->compute);
  app->add_option("IN", options->in, "The .npy file")->required();
  app->add_option("OUT", options->out, "The frame to write")->required();
  return {app, [options] { return RunEncode(*options); }};
}

}  // namespace elastiquant::cli
