#include "elastiquant/codec/golden.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "elastiquant/codec/bucket/shared_scale.h"
#include "elastiquant/codec/codec.h"

namespace elastiquant {
namespace {

// About Gaussian, with a scale that changes from one 64 to the next.
float Bell(uint64_t i) {
  const uint64_t bits = Mix64(i);
  int32_t sum = -2 * 65535;
  for (int k = 0; k < 4; ++k) sum += static_cast<int32_t>(bits >> 16 * k & 0xFFFF);
  return std::ldexp(static_cast<float>(sum), -17 - static_cast<int>(i / 64 % 6));
}

float Sparse(uint64_t i) { return Mix64(~i) % 16 == 0 ? Bell(i) : 0.0f; }

// From the least denormal to the limits of fp16, both signs, zeros among them.
float Range(uint64_t i) {
  constexpr float kValues[] = {0.0f,     -0.0f, 0x1p-149f,  -0x1p-130f,   0x1p-126f, -0x1p-24f,
                               0x1p-25f, 1e-3f, -0.333333f, 1.0f,         -7.5f,     1000.25f,
                               -32767.f, 65504, 1.5f,       0x1.000002p0f};
  return kValues[i % std::size(kValues)];
}

// Worker w draws the random numbers of its rank.
Result<std::vector<uint8_t>> EncodeMean(const GoldenCase& golden, const Codec& codec) {
  const SharedScale& codes = *codec.shared_scale();
  const std::vector<float> values = GoldenInput(golden);
  const size_t n = values.size();
  std::vector<float> scales(codes.ScaleCount(n)), sums(n);
  std::vector<uint8_t> frame(codec.MaxFrameBytes(n)),
      mean(codes.MaxMeanBytes(n, golden.workers));
  Workspace work;
  EQ_RETURN_IF_ERROR(codes.Measure(values, work, scales));
  for (int w = 0; w < golden.workers; ++w) {
    const StreamKey key = DeriveKey(1, 2, static_cast<uint64_t>(w), n);
    EQ_ASSIGN_OR_RETURN(const size_t size,
                        codes.Encode(values, scales, scales, key, work, frame));
    EQ_RETURN_IF_ERROR(codes.AddCodes(std::span(frame).first(size), scales, work, sums));
  }
  EQ_ASSIGN_OR_RETURN(const size_t size, codes.EncodeMean(sums, golden.workers, scales,
                                                          GoldenKey(golden), work, mean));
  mean.resize(size);
  return mean;
}

}  // namespace

const std::vector<GoldenCase>& GoldenCases() {
  static const std::vector<GoldenCase> cases{
      {"fp32-empty", "fp32", "bell", 0},
      {"fp32-one", "fp32", "bell", 1},
      {"fp32-range", "fp32", "range", 33},
      {"fp16-range", "fp16", "range", 33},
      {"fp16-odd", "fp16", "bell", 77},
      {"bf16-range", "bf16", "range", 33},
      {"bf16-odd", "bf16", "bell", 77},
      {"bf16-stochastic", "bf16:rounding=stochastic", "bell", 101},

      {"elastic-default", "elastic:levels=exp", "bell", 1333},
      {"elastic-empty", "elastic:levels=exp", "bell", 0},
      {"elastic-one", "elastic:levels=exp", "bell", 1},
      {"elastic-zeros", "elastic:levels=exp", "zeros", 600},
      {"elastic-range", "elastic:bucket=16,levels=exp", "range", 47},
      {"elastic-2bit", "elastic:bits=2,levels=exp", "bell", 515},
      {"elastic-3bit-l2", "elastic:bits=3,p=0.5,norm=l2,bucket=128", "bell", 261},
      {"elastic-4bit-half", "elastic:bits=4,p=0.5,bucket=100", "bell", 333},
      {"elastic-5bit-l1", "elastic:bits=5,norm=l1,bucket=17,levels=exp", "bell", 111},
      {"elastic-6bit-wide-bucket", "elastic:bits=6,bucket=5000,levels=exp", "bell", 700},
      {"elastic-7bit-l3", "elastic:bits=7,p=0.8,norm=l3,bucket=64", "bell", 200},
      {"elastic-8bit", "elastic:bits=8,bucket=0,levels=exp", "bell", 999},
      {"elastic-uniform", "elastic:levels=uniform,bucket=96", "bell", 401},
      {"elastic-uniform-8bit", "elastic:bits=8,levels=uniform,norm=l2", "bell", 300},
      {"elastic-dither", "elastic:levels=uniform,rounding=dither", "bell", 1025},
      {"elastic-dither-2bit", "elastic:bits=2,levels=uniform,rounding=dither,bucket=31", "bell",
       129},
      {"elastic-dither-7bit", "elastic:bits=7,levels=uniform,rounding=dither,norm=l2", "bell",
       65},
      {"elastic-dither-zeros", "elastic:levels=uniform,rounding=dither,bucket=9", "zeros", 20},
      {"elastic-listed", "elastic:levels=0.1/0.3/1,norm=l2,bucket=7", "bell", 50},
      {"elastic-listed-8bit", "elastic:bits=8,levels=0.001/0.01/0.02/0.5/0.75/1", "bell", 90},

      {"elastic-fit", "elastic", "bell", 5000},
      {"elastic-fit-2bit", "elastic:bits=2,levels=fit,bucket=100", "bell", 515},
      {"elastic-fit-3bit-l2", "elastic:bits=3,levels=fit,norm=l2,bucket=2000", "bell", 6000},
      {"elastic-fit-8bit", "elastic:bits=8,levels=fit", "bell", 999},
      {"elastic-fit-sparse", "elastic:levels=fit,bucket=64", "sparse", 2500},
      {"elastic-fit-range", "elastic:levels=fit,bucket=16", "range", 47},
      {"elastic-fit-empty", "elastic", "bell", 0},
      {"elastic-fit-zeros", "elastic:bits=3,levels=fit", "zeros", 600},
      {"elastic-fit-wide", "elastic:bits=3,levels=fit,bucket=40000", "bell", 40100},
      {"elastic-fit-rans", "elastic:levels=fit|rans", "bell", 3000},
      {"elastic-fit-elias", "elastic:levels=fit|elias", "bell", 900},

      {"elastiquant", "elastiquant", "bell", 9000},
      {"elastiquant-elias", "elastiquant|elias", "sparse", 9000},
      {"elastiquant-tensors",
       "elastiquant:bucket=100",
       "bell",
       400,
       {{10, 30}, {1, 20}, {2, 2}, {4, 19}}},
      {"elastiquant-tensors-elias",
       "elastiquant:bits=3|elias",
       "bell",
       700,
       {{1, 50}, {50, 9}, {8, 25}}},
      {"elastiquant-tensors-rans",
       "elastiquant:bucket=0|rans",
       "sparse",
       40000,
       {{1, 33000}, {1, 0}, {70, 100}}},

      {"elastic-elias", "elastic:levels=exp|elias", "bell", 1333},
      {"elastic-elias-sparse", "elastic:p=0.5,norm=l2,bucket=8192|elias", "sparse", 9000},
      {"elastic-elias-zeros", "elastic:levels=exp|elias", "zeros", 1025},
      {"elastic-elias-empty", "elastic:levels=exp|elias", "bell", 0},
      {"elastic-elias-8bit", "elastic:bits=8,bucket=3,levels=exp|elias", "bell", 100},
      {"elastic-elias-dither", "elastic:bits=3,levels=uniform,rounding=dither|elias", "bell",
       300},
      {"elastic-elias-listed", "elastic:bits=3,levels=0.25/1,bucket=40|elias", "sparse", 250},

      {"elastic-rans", "elastic:levels=exp|rans", "bell", 2000},
      {"elastic-rans-one", "elastic:levels=exp|rans", "bell", 1},
      {"elastic-rans-empty", "elastic:levels=exp|rans", "bell", 0},
      {"elastic-rans-zeros", "elastic:levels=exp|rans", "zeros", 700},
      {"elastic-rans-sparse", "elastic:p=0.5,norm=l2,bucket=512|rans", "sparse", 3000},
      {"elastic-rans-8bit", "elastic:bits=8,levels=uniform|rans", "sparse", 5000},
      {"elastic-rans-dither", "elastic:bits=3,levels=uniform,rounding=dither|rans", "bell",
       1500},
      {"elastic-rans-listed", "elastic:bits=3,levels=0.25/1,bucket=40|rans", "bell", 550},
      {"elastic-rans-rows", "elastic:bits=3,norm=l2,levels=exp|rans", "bell", 9001},
      {"elastic-rans-wide-rows", "elastic:bits=8,p=0.95,bucket=64|rans", "bell", 12345},
      {"elastic-several-tiles", "elastic:bits=5,levels=uniform,bucket=500", "bell", 4900},

      // Buckets longer than a tile, and several tiles.
      {"elastic-wide", "elastic:bits=2,levels=uniform,bucket=40000", "bell", 40100},
      {"elastic-wide-rans", "elastic:bits=2,norm=l2,bucket=0,levels=exp|rans", "bell", 33003},
      {"elastic-wide-elias", "elastic:bits=2,norm=l2,bucket=33000,levels=exp|elias", "sparse",
       33100},

      {"dither-default", "dither", "bell", 5000},
      {"dither-empty", "dither", "bell", 0},
      {"dither-one", "dither", "bell", 1},
      {"dither-plain", "dither:bits=8", "range", 5},
      {"dither-zeros", "dither", "zeros", 700},
      {"dither-range", "dither", "range", 333},
      {"dither-sparse", "dither:bits=0.5", "sparse", 3001},
      {"dither-laplace", "dither:bits=3.25,model=laplace", "bell", 777},
      {"dither-gauss", "dither:bits=1,model=gauss", "bell", 1040},
      {"dither-8bit", "dither:bits=8", "bell", 2500},
      {"dither-nmse", "dither:nmse=1e-6", "sparse", 1500},
      {"dither-8-states", "dither:bits=4", "bell", 9000},
      {"dither-32-states", "dither:bits=2", "sparse", 66000},

      {"terngrad-default", "terngrad", "bell", 2500},
      {"terngrad-empty", "terngrad", "bell", 0},
      {"terngrad-one", "terngrad:clip=0", "bell", 1},
      {"terngrad-zeros", "terngrad", "zeros", 4100},
      {"terngrad-range", "terngrad:clip=0,bucket=8", "range", 33},
      {"terngrad-rans", "terngrad:bucket=500|rans", "bell", 1700},
      {"terngrad-wide-rans", "terngrad:clip=1,bucket=0|rans", "sparse", 33003},
      {"terngrad-tensors",
       "terngrad:bucket=tensor",
       "bell",
       700,
       {{20, 10}, {1, 1}, {7, 57}, {1, 100}}},
      {"terngrad-tensors-rans",
       "terngrad:clip=0,bucket=tensor|rans",
       "sparse",
       33003,
       {{1, 3}, {330, 100}}},
      {"terngrad-mean-of-4", "terngrad", "bell", 2500, {}, 4},
      {"terngrad-mean-of-16", "terngrad:clip=0,bucket=100", "bell", 1200, {}, 16},
      {"terngrad-mean-of-127", "terngrad:clip=0,bucket=0|rans", "sparse", 33003, {}, 127},
      {"terngrad-mean-zeros", "terngrad", "zeros", 50, {}, 3},
      {"signsgd", "signsgd", "bell", 77},
      {"signsgd-zeros", "signsgd", "zeros", 10},
      {"efsign", "efsign:bucket=100", "bell", 777},
      {"onebit", "onebit:bucket=64", "bell", 300},
      {"onebit-range", "onebit", "range", 33},
      {"onebit-empty", "onebit", "bell", 0},
      {"bingrad-b", "bingrad-b:lloyd=1,bucket=100", "bell", 222},
      {"bingrad-pb", "bingrad-pb:bucket=128", "bell", 513},
      {"orq-3", "orq:levels=3,bucket=100", "bell", 333},
      {"orq-5-rans", "orq:levels=5,bucket=700|rans", "bell", 1500},
      {"orq-9", "orq:bucket=128", "bell", 600},
      {"orq-clip", "orq:clip=2,bucket=300", "bell", 301},
      {"orq-range", "orq", "range", 33},
      {"orq-zeros", "orq:levels=3", "zeros", 41},
      {"quiver", "quiver:bucket=200", "bell", 500},
      {"quiver-odd", "quiver:levels=7,bucket=64", "sparse", 200},
      {"quiver-32", "quiver:levels=32,bins=64,bucket=300", "bell", 777},
      {"quiver-256", "quiver:levels=256,bins=300,bucket=1000", "bell", 1000},
      {"quiver-empty", "quiver", "bell", 0},
      {"zeroless", "zeroless", "bell", 777},
      {"zeroless-2bit-l2", "zeroless:bits=2,p=0.5,norm=l2,bucket=100", "bell", 333},
      {"zeroless-8bit", "zeroless:bits=8,levels=uniform,bucket=90", "bell", 200},
      {"zeroless-listed", "zeroless:levels=0.1/0.3/0.6/1,bucket=64", "sparse", 150},
      {"zeroless-listed-rans", "zeroless:bits=2,levels=0.25/1,bucket=500|rans", "bell", 1001},
      {"zeroless-range", "zeroless", "range", 33},
      {"amq-empty", "amq", "bell", 0},
      {"laq", "laq", "bell", 300},
      {"laq-range", "laq:bits=3,bucket=0", "range", 33},
      {"laq-rans", "laq:bits=8,bucket=0|rans", "bell", 2000},
      {"alq-rans", "alq:levels=0.01/0.03/1,bucket=500|rans", "bell", 700},
      {"natural", "natural", "bell", 205},
      {"natural-empty", "natural", "bell", 0},
      {"natural-range", "natural", "range", 33},
      {"natural-rans", "natural|rans", "bell", 1000},
      {"natural-rans-one", "natural|rans", "bell", 1},
      {"natural-rans-tiles", "natural|rans", "sparse", 33000},

      {"powersgd-default", "powersgd", "bell", 1000},
      {"powersgd-empty", "powersgd", "bell", 0},
      {"powersgd-one", "powersgd", "bell", 1},
      {"powersgd-zeros", "powersgd", "zeros", 50},
      {"powersgd-sparse", "powersgd:rank=5", "sparse", 777},
      {"powersgd-bf16", "powersgd:rank=3,factors=bf16", "bell", 600},
      {"powersgd-range", "powersgd:rank=1", "range", 333},
      {"powersgd-tensors",
       "powersgd:rank=1",
       "bell",
       400,
       {{10, 30}, {1, 20}, {2, 2}, {4, 19}}},
      {"powersgd-tensors-bf16",
       "powersgd:rank=2,factors=bf16",
       "sparse",
       700,
       {{1, 50}, {50, 9}, {8, 25}}},

      {"topk-default", "topk:ratio=0.05", "bell", 3000},
      {"topk-empty", "topk", "bell", 0},
      {"topk-one", "topk", "bell", 1},
      {"topk-zeros", "topk", "zeros", 100},
      {"topk-range", "topk:ratio=1,bits=32", "range", 33},
      {"topk-range-16bit", "topk:ratio=1", "range", 33},
      {"topk-8bit", "topk:ratio=0.1,bits=8", "bell", 1500},
      {"topk-4bit", "topk:k=77,bits=4", "sparse", 2001},
      {"topk-ties", "topk:k=5,bits=32", "range", 160},
      {"topk-several-segments", "topk:ratio=0.5", "bell", 19000},
      {"topk-sampled", "topk:ratio=0.02,method=sampled", "bell", 9000},
      {"threshold", "threshold:value=0.01,bits=8", "sparse", 2500},
      {"sparse-exact", "threshold:value=1e-45,bits=exact", "sparse", 2500},
      {"sparse-exact-range", "topk:ratio=1,bits=exact", "range", 160},
      {"sparse-exact-several-segments", "topk:ratio=0.5,bits=exact", "bell", 9000},
      {"atomo-svd", "atomo-svd", "bell", 1000},
      {"atomo-svd-zeros", "atomo-svd", "zeros", 300},
      {"atomo-svd-tensors", "atomo-svd:rank=1", "bell", 500, {{30, 10}, {1, 40}, {8, 20}}},
      {"randomk-default", "randomk:ratio=0.05", "bell", 1000},
      {"randomk-range", "randomk:ratio=1,bits=32,scale=no", "range", 33},
      {"randomk-8bit", "randomk:ratio=0.1,bits=8", "bell", 1500},
      {"randomk-several-segments", "randomk:ratio=0.4,bits=4,scale=no", "bell", 11000},
      {"atomo-default", "atomo:ratio=0.05", "bell", 3000},
      {"atomo-values-and-signs", "atomo:ratio=0.2,bits=8", "bell", 2000},
      {"atomo-all", "atomo:k=900,bits=4", "sparse", 3000},
      {"atomo-range", "atomo:ratio=0.3,bits=32", "range", 100},
      {"atomo-several-segments", "atomo:ratio=0.6,bits=16", "bell", 9000},
      {"dgc", "dgc:ratio=0.02", "bell", 2500},

      {"chunktopk-default", "chunktopk", "bell", 30000},
      {"chunktopk-empty", "chunktopk", "bell", 0},
      {"chunktopk-one", "chunktopk:bits=1", "bell", 1},
      {"chunktopk-zeros", "chunktopk:chunk=100,k=9", "zeros", 999},
      {"chunktopk-range", "chunktopk:chunk=16,k=16,bits=exact", "range", 333},
      {"chunktopk-range-8bit", "chunktopk:chunk=64,k=50,bits=8", "range", 333},
      {"chunktopk-1bit", "chunktopk:chunk=512,k=20,bits=1", "bell", 9000},
      {"chunktopk-4bit", "chunktopk:chunk=256,k=64,bits=4", "bell", 5001},
      {"chunktopk-sparse", "chunktopk:chunk=64,k=8", "sparse", 7000},
      {"chunktopk-exact", "chunktopk:k=32,bits=exact", "bell", 30000},
      {"chunktopk-long-gaps", "chunktopk:chunk=32768,k=4096,bits=1", "sparse", 33000},
      {"chunktopk-several-tiles", "chunktopk:chunk=16,k=5,bits=3", "bell", 70000},
      {"chunktopk-tensors",
       "chunktopk:k=64",
       "bell",
       37112,
       {{1, 100}, {64, 128}, {64, 128}, {128, 64}, {37, 4}, {64, 192}}},
      {"chunktopk-tensors-exact",
       "chunktopk:chunk=64,k=6,bits=exact",
       "sparse",
       700,
       {{8, 24}, {1, 100}, {16, 8}, {7, 40}}},

      {"rotate-dither", "dither:bits=3|rotate", "bell", 5000},
      {"rotate-sparse", "qsgdv:bits=4|rotate:block=64,rounds=2", "sparse", 700},
      {"eden-4bit", "eden:bits=4", "bell", 6000},
      {"eden-1bit", "eden:bits=1", "sparse", 4096},
      {"eden-fraction", "eden:bits=2.5", "bell", 5700},
      {"eden-half", "eden:bits=0.5", "bell", 1300},
      {"eden-short", "eden", "bell", 100},
      {"eden-zeros", "eden:bits=2", "zeros", 700},

      {"rotate-empty", "qsgdv|rotate", "bell", 0},
  };
  return cases;
}

std::vector<float> GoldenInput(const GoldenCase& golden) {
  std::vector<float> values(golden.elements, 0.0f);  // "zeros"
  for (size_t i = 0; i < values.size(); ++i) {
    if (golden.input == "bell") values[i] = Bell(i);
    if (golden.input == "sparse") values[i] = Sparse(i);
    if (golden.input == "range") values[i] = Range(i);
  }
  return values;
}

StreamKey GoldenKey(const GoldenCase& golden) { return DeriveKey(1, 2, 3, golden.elements); }

Result<std::vector<uint8_t>> EncodeGolden(const GoldenCase& golden) {
  EQ_ASSIGN_OR_RETURN(auto codec, MakeCodec(golden.spec));
  if (golden.workers > 0) return EncodeMean(golden, *codec);
  if (!golden.shapes.empty()) {
    EQ_ASSIGN_OR_RETURN(codec, CodecForShapes(std::move(codec), golden.shapes));
  }
  Workspace work;
  std::vector<uint8_t> frame(codec->MaxFrameBytes(golden.elements));
  EQ_ASSIGN_OR_RETURN(const size_t size,
                      codec->Encode(GoldenInput(golden), GoldenKey(golden), work, frame));
  frame.resize(size);
  return frame;
}

std::vector<uint8_t> NpyFile(const std::vector<float>& values) {
  std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': (" +
                     std::to_string(values.size()) + ",), }";
  constexpr size_t kFront = 10;  // magic, version, length of the text
  text.append(63 - (kFront + text.size()) % 64, ' ');
  text += '\n';
  std::vector<uint8_t> file(kFront + text.size() + 4 * values.size());
  std::memcpy(file.data(), "\x93NUMPY\x01\x00", 8);
  const auto length = static_cast<uint16_t>(text.size());
  std::memcpy(file.data() + 8, &length, sizeof(length));
  std::memcpy(file.data() + kFront, text.data(), text.size());
  if (!values.empty()) {
    std::memcpy(file.data() + kFront + text.size(), values.data(), 4 * values.size());
  }
  return file;
}

}  // namespace elastiquant
