// `decode`: one frame to a .npy file of float32. No codec is named: the frame says it.
#include <fmt/format.h>

#include <memory>
#include <new>

#include "elastiquant/cli/command.h"
#include "elastiquant/cli/compute_options.h"
#include "elastiquant/cli/file.h"
#include "elastiquant/cli/npy.h"
#include "elastiquant/codec/untrusted.h"

namespace elastiquant::cli {
namespace {

struct DecodeOptions {
  ComputeOptions compute;
  uint64_t max_elements = kDefaultMaxElements;
  std::string in;
  std::string out;
};

Status Decode(const DecodeOptions& options, std::span<const uint8_t> frame) {
  EQ_ASSIGN_OR_RETURN(const FrameSummary summary, InspectFrame(frame, options.max_elements));
  // Not a vector: a count that the payload belies costs nothing as long as no page is touched,
  // and the decoder checks the one against the other before it writes.
  const std::unique_ptr<float[]> storage(new (std::nothrow) float[summary.elements]);
  if (storage == nullptr) {
    return IoError(fmt::format("no memory for {} floats", summary.elements));
  }
  const std::span<float> values(storage.get(), summary.elements);
  Workspace work(options.compute.threads);
  EQ_RETURN_IF_ERROR(DecodeFrame(frame, work, values));
  EQ_RETURN_IF_ERROR(WriteNpy(options.out, values));
  fmt::print(stderr, "{}: {} floats from {} bytes\n", summary.codec, summary.elements,
             summary.bytes);
  return Status::Ok();
}

Status RunDecode(const DecodeOptions& options) {
  EQ_RETURN_IF_ERROR(ApplyTarget(options.compute));
  EQ_ASSIGN_OR_RETURN(const std::vector<uint8_t> frame, ReadFile(options.in));
  Status status = Decode(options, frame);
  const std::string text = options.in + ": " + status.message();
  switch (status.code()) {
    case StatusCode::kCorruptData:
      return CorruptData(text);
    case StatusCode::kOutOfRange:  // more values than --max-elements
      return InvalidArgument(text);
    default:
      return status;
  }
}

constexpr char kDecodeExample[] = "  elastiquant decode gradient.eqf decoded.npy";

}  // namespace

Command MakeDecodeCommand(CLI::App& program) {
  auto options = std::make_shared<DecodeOptions>();
  CLI::App* app =
      AddSubcommand(program, "decode", "Decode a frame to a .npy file", kDecodeExample);
  app->add_option("--max-elements", options->max_elements,
                  "Most values that the frame may claim to have; raise it only for frames that "
                  "you trust")
      ->capture_default_str();
  AddComputeOptions(app, &options->compute);
  app->add_option("IN", options->in, "The frame")->required();
  app->add_option("OUT", options->out, "The .npy file to write: float32, 1-D")->required();
  return {app, [options] { return RunDecode(*options); }};
}

}  // namespace elastiquant::cli
