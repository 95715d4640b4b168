#include "elastiquant/codec/rotation/rotation.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <functional>
#include <string>

#include "elastiquant/kernels/norms.h"
#include "elastiquant/kernels/rotation/flip_signs.h"
#include "elastiquant/kernels/rotation/hadamard.h"

namespace elastiquant {
namespace {

// Coordinates that one thread takes at a time: whole blocks, but for the last.
size_t ChunkOf(const Rotation& rotation) { return std::max(rotation.block(), size_t{1} << 16); }

RandomRun SignsOf(const Rotation& rotation, int round, size_t begin) {
  const StreamKey key{Mix64(rotation.key.value ^ static_cast<uint64_t>(round))};
  return {MakeLaneKeys(key), static_cast<uint32_t>(begin)};
}

// 1 / sqrt(size), a power of two.
float ScaleOf(size_t size) { return 1 / std::sqrt(static_cast<float>(size)); }

// Calls fn(begin, size, scratch of `size` floats) for each piece.
template <typename Fn>
void ForEachPiece(const Rotation& rotation, size_t n, Workspace& work, const Fn& fn) {
  const size_t chunk = ChunkOf(rotation);
  const auto run = [&](size_t item, int thread) {
    auto* scratch = reinterpret_cast<float*>(
        work.Scratch(thread, std::min(n, rotation.block()) * sizeof(float)).data());
    const size_t end = std::min(n, (item + 1) * chunk);
    for (size_t begin = item * chunk; begin < end;) {
      const size_t size = RotatedPiece(rotation, begin, n);
      fn(begin, size, scratch);
      begin += size;
    }
  };
  work.ParallelFor((n + chunk - 1) / chunk, std::cref(run));
}

}  // namespace

size_t RotatedPiece(const Rotation& rotation, size_t begin, size_t n) {
  size_t size = rotation.block();
  while (size > n - begin) size /= 4;
  return size;
}

void Rotate(const Rotation& rotation, std::span<const float> values, Workspace& work,
            std::span<float> out) {
  const auto rotate = [&](size_t begin, size_t size, float* scratch) {
    float* const piece = out.data() + begin;
    const float* from = values.data() + begin;
    float scale = 1;
    for (int round = 1; round <= rotation.rounds; ++round, from = piece) {
      FlipSigns(from, size, SignsOf(rotation, round, begin), scale, piece);
      HadamardTransform(piece, size, scratch);
      scale = ScaleOf(size);
    }
    for (size_t i = 0; i < size; ++i) piece[i] *= scale;
  };
  ForEachPiece(rotation, values.size(), work, rotate);
}

bool RotateBack(const Rotation& rotation, std::span<float> values, const DecodeSink& sink,
                Workspace& work) {
  std::atomic<bool> finite{true};
  const auto rotate = [&](size_t begin, size_t size, float* scratch) {
    float* const piece = values.data() + begin;
    for (int round = rotation.rounds; round >= 1; --round) {
      HadamardTransform(piece, size, scratch);
      FlipSigns(piece, size, SignsOf(rotation, round, begin), ScaleOf(size), piece);
    }
    const auto [add, weight] = sink.how();
    float* const out = sink.Room(begin, std::bit_cast<float>(AbsMaxBits(piece, size)));
    if (out == nullptr) {
      finite = false;
      return;
    }
    for (size_t i = 0; i < size; ++i) out[i] = add ? out[i] + weight * piece[i] : piece[i];
  };
  ForEachPiece(rotation, values.size(), work, rotate);
  return finite;
}

Status CheckRotatable(std::span<const float> values, size_t rotated) {
  const auto fits = [](float v) { return std::abs(v) <= kMostRotated; };
  auto bad = std::ranges::find_if_not(values.first(rotated), fits);
  if (bad == values.first(rotated).end()) {
    bad = std::find_if_not(bad, values.end(), [](float v) { return std::isfinite(v); });
  }
  if (bad == values.end()) return Status::Ok();
  const std::string where =
      std::to_string(*bad) + " at coordinate " + std::to_string(bad - values.begin());
  if (!std::isfinite(*bad)) return NonFinite("the value is " + where);
  return OutOfRange("the value " + where + " is too large to be rotated: scale it down");
}

}  // namespace elastiquant
