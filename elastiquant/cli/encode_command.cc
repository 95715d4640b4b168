// `encode`: a .npy file of float32 to one frame.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <vector>

#include "elastiquant/cli/command.h"
#include "elastiquant/cli/compute_options.h"
#include "elastiquant/cli/file.h"
#include "elastiquant/cli/npy.h"
#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/frame.h"
#include "elastiquant/stream/codec_stream.h"

namespace elastiquant::cli {
namespace {

struct EncodeOptions {
  std::string codec;
  uint64_t seed = 0;
  std::optional<uint64_t> step;
  uint64_t worker = 0;
  std::string stream;
  ComputeOptions compute;
  std::string in;
  std::string out;
};

// The stream whose state is in the file, or a new one if there is no such file.
Result<CodecStream> OpenStream(const std::string& path, std::shared_ptr<const Codec> codec,
                               size_t n) {
  CodecStream stream(std::move(codec), n);
  const auto state = ReadFile(path);
  if (state.status().code() == StatusCode::kNotFound) return stream;
  EQ_RETURN_IF_ERROR(state.status());
  const Status loaded = stream.Load(*state);
  if (!loaded.ok()) return Status(loaded.code(), path + ": " + loaded.message());
  return stream;
}

Status SaveStream(const std::string& path, const CodecStream& stream) {
  std::vector<uint8_t> state(stream.StateBytes());
  EQ_RETURN_IF_ERROR(stream.Save(state).status());
  return ReplaceFile(path, {state});
}

Result<NpyArray> ReadValues(const std::string& path) {
  EQ_ASSIGN_OR_RETURN(NpyArray array, ReadNpy(path));
  const size_t n = array.values.size();
  if (n > kMaxFrameElements) {
    return InvalidArgument(fmt::format("{} has {} elements; a frame holds at most {}", path, n,
                                       kMaxFrameElements));
  }
  if (array.shape.size() != 1) {
    fmt::print(stderr, "note: {} has {} dimensions and is encoded flat, in C order\n", path,
               array.shape.size());
  }
  return array;
}

Status RunEncode(const EncodeOptions& options) {
  EQ_RETURN_IF_ERROR(ApplyTarget(options.compute));
  EQ_ASSIGN_OR_RETURN(const auto codec, MakeCodec(options.codec));
  const bool is_stream = !options.stream.empty();
  if (!is_stream) {
    EQ_RETURN_IF_ERROR(CheckRemembersNothing(
        *codec, "give --stream STATEFILE, which keeps it for the next message"));
  }
  EQ_ASSIGN_OR_RETURN(const NpyArray array, ReadValues(options.in));
  const size_t n = array.values.size();
  // Of a codec without memory that is no stream, one of a single message.
  CodecStream stream(codec, n);
  if (is_stream) {
    EQ_ASSIGN_OR_RETURN(stream, OpenStream(options.stream, codec, n));
  }
  Workspace work(options.compute.threads);
  const uint64_t step = options.step.value_or(stream.messages());
  const StreamKey key = DeriveKey(options.seed, step, options.worker, 0);
  // Not a vector: the bound can be far above the frame, and pages not touched cost nothing.
  const size_t bound = codec->MaxFrameBytes(n);
  const auto frame = std::make_unique_for_overwrite<uint8_t[]>(bound);
  EQ_ASSIGN_OR_RETURN(const size_t bytes,
                      stream.Encode(array.values, key, work, {frame.get(), bound}));
  stream.Commit();
  EQ_RETURN_IF_ERROR(WriteFile(options.out, {{frame.get(), bytes}}));
  // After the frame: if this fails, the same command gives the same frame once more.
  if (is_stream) EQ_RETURN_IF_ERROR(SaveStream(options.stream, stream));
  fmt::print(stderr, "{}: {} floats in {} bytes", codec->spec(), n, bytes);
  if (n > 0) {
    fmt::print(stderr, ", {:.3f} bits per coordinate",
               8.0 * static_cast<double>(bytes) / static_cast<double>(n));
  }
  fmt::print(stderr, "\n");
  return Status::Ok();
}

constexpr char kEncodeExample[] =
    "  elastiquant encode --codec elastic:bits=4 --seed 1 gradient.npy gradient.eqf\n"
    "  elastiquant encode --codec 'topk|ef' --stream topk.state gradient.npy gradient.eqf";

}  // namespace

Command MakeEncodeCommand(CLI::App& program) {
  auto options = std::make_shared<EncodeOptions>();
  CLI::App* app =
      AddSubcommand(program, "encode", "Encode a .npy file of float32", kEncodeExample);
  app->add_option("--codec", options->codec, "Codec to use, of `elastiquant codecs`")
      ->required();
  app->add_option("--seed", options->seed,
                  "Seed of the random rounding: the same seed gives the same bytes")
      ->capture_default_str();
  app->add_option("--step", options->step,
                  "Training step, mixed into the seed; by default the number of messages "
                  "before this one in --stream, or 0");
  app->add_option("--worker", options->worker, "Number of the worker, mixed into the seed")
      ->capture_default_str();
  app->add_option("--stream", options->stream,
                  "File of what codecs such as topk|ef and dgc remember for the next message: "
                  "read if it is there, and replaced");
  AddComputeOptions(app, &options->compute);
  app->add_option("IN", options->in, "The .npy file")->required();
  app->add_option("OUT", options->out, "The frame to write")->required();
  return {app, [options] { return RunEncode(*options); }};
}

}  // namespace elastiquant::cli
