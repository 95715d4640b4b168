// What each step of the elastic codec costs, on one thread: GB/s of fp32 input and the ratio to
// memcpy of the same buffer, the rounds of all steps interleaved in one run.
//   kernel_bench [elements [rounds [simd target]]]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "elastiquant/base/crc32c.h"
#include "elastiquant/codec/codec.h"
#include "elastiquant/codec/levels.h"
#include "elastiquant/kernels/dequantize.h"
#include "elastiquant/kernels/norms.h"
#include "elastiquant/kernels/pack.h"
#include "elastiquant/kernels/quantize.h"
#include "elastiquant/kernels/targets.h"

namespace elastiquant {
namespace {

constexpr size_t kTile = 32768;
constexpr size_t kBucket = 512;

// Processor time of this thread: other programs on the machine do not count.
double Now() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct Step {
  std::string name;
  std::function<void()> run;
  double best = std::numeric_limits<double>::infinity();
};

class Bench {
 public:
  explicit Bench(size_t n) : v_(n), out_(n), codes_(n), work_(1) {
    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    for (float& x : v_) x = normal(generator);
    AddKernels();
    for (const char* spec :
         {"elastic", "elastic:bits=2", "elastic:p=0.5", "elastic:levels=uniform",
          "elastic:p=0.69", "elastic:levels=uniform,rounding=dither", "elastic:p=0.5,norm=l2",
          "elastic:bits=2,levels=uniform", "elastic:bits=8", "elastic:bits=8,levels=uniform"}) {
      AddCodec(spec);
    }
  }

  void Run(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      for (Step& step : steps_) {
        const double start = Now();
        step.run();
        step.best = std::min(step.best, Now() - start);
      }
    }
    const double bytes = static_cast<double>(v_.size()) * sizeof(float);
    std::printf("%-50s %8s %8s\n", "step", "GB/s", "memcpy x");
    for (const Step& step : steps_) {
      std::printf("%-50s %8.2f %8.2f\n", step.name.c_str(), bytes / step.best / 1e9,
                  steps_[0].best / step.best);
    }
  }

 private:
  void Add(std::string name, std::function<void()> run) {
    steps_.push_back({std::move(name), std::move(run)});
  }

  // fn(first coordinate, count) for each bucket.
  template <typename Fn>
  void ForEachBucket(Fn fn) {
    for (size_t i = 0; i < v_.size(); i += kBucket) fn(i, std::min(kBucket, v_.size() - i));
  }

  void AddKernels() {
    Add("memcpy", [this] { std::memcpy(out_.data(), v_.data(), v_.size() * sizeof(float)); });
    Add("abs max", [this] {
      ForEachBucket([this](size_t i, size_t n) { sink_ = sink_ + AbsMaxBits(&v_[i], n); });
    });
    Add("sum of squares", [this] {
      ForEachBucket([this](size_t i, size_t n) { total_ = total_ + SumSquares(&v_[i], n); });
    });
    const auto quantize = [this](const std::string& name, float top, auto kernel) {
      Add("quantise " + name, [this, top, kernel] {
        const Scaler scaler = MakeScaler(5.5f, top);
        ForEachBucket([&](size_t i, size_t n) {
          kernel(&v_[i], n, RandomRun{{1, 2}, static_cast<uint32_t>(i)}, scaler,
                 codes_.data() + i % kTile);
        });
      });
    };
    quantize("uniform 4", UniformTop(4),
             [](auto v, auto n, auto random, auto& scaler, auto out) {
               QuantizeUniform(v, n, random, scaler, 4, out);
             });
    quantize("p=1/2 4", 1, [](auto v, auto n, auto random, auto& scaler, auto out) {
      QuantizeHalving(v, n, random, scaler, 4, out);
    });
    static LevelTable table4, table8, without_zero;
    constexpr float kFitted[] = {.03f, .1f, .18f, .28f, .39f, .52f, .71f, 1};
    FillLevelTable(kFitted, &without_zero);
    FillLevelTable(ExponentialLevels(4, .69f)->span(), &table4);
    FillLevelTable(ExponentialLevels(8, .95f)->span(), &table8);
    quantize("8 levels", 1, [](auto v, auto n, auto random, auto& scaler, auto out) {
      QuantizeLevels(v, n, random, scaler, table4, 4, out);
    });
    quantize("8 levels without zero", 1,
             [](auto v, auto n, auto random, auto& scaler, auto out) {
               QuantizeLevels(v, n, random, scaler, without_zero, 4, out);
             });
    quantize("128 levels", 1, [](auto v, auto n, auto random, auto& scaler, auto out) {
      QuantizeLevels(v, n, random, scaler, table8, 8, out);
    });
    Add("pack 4", [this] {
      for (size_t i = 0; i + kTile <= v_.size(); i += kTile) {
        PackCodes(codes_.data(), kTile, 4, reinterpret_cast<uint8_t*>(out_.data()) + i / 2);
      }
    });
    Add("unpack 4", [this] {
      for (size_t i = 0; i + kTile <= v_.size(); i += kTile) {
        UnpackCodes(reinterpret_cast<uint8_t*>(v_.data()) + i / 2, kTile, 4, codes_.data());
      }
    });
    static ValueTable values;
    FillValueTable(ExponentialLevels(4, .69f)->span(), 4, &values);
    Add("dequantise-add 4", [this] {
      ForEachBucket([this](size_t i, size_t n) {
        DequantizeLevels(codes_.data() + i % kTile, n, values, 2, {true, .5f}, &out_[i]);
      });
    });
    Add("crc of 1/8", [this] {
      sink_ = sink_ + Crc32c({reinterpret_cast<uint8_t*>(out_.data()), v_.size() / 2});
    });
  }

  void AddCodec(const std::string& spec) {
    const auto codec = MakeCodec(spec).value();
    frames_.push_back(std::make_unique<std::vector<uint8_t>>(codec->MaxFrameBytes(v_.size())));
    std::vector<uint8_t>& frame = *frames_.back();
    const size_t size = codec->Encode(v_, {7}, work_, frame).value();
    Add(spec + " encode",
        [this, codec, &frame] { sink_ = sink_ + codec->Encode(v_, {7}, work_, frame).ok(); });
    Add(spec + " decode-add", [this, size, &frame] {
      sink_ = sink_ + DecodeAddFrame({frame.data(), size}, .25f, work_, out_).ok();
    });
  }

  std::vector<float> v_, out_;
  std::vector<uint8_t> codes_;
  Workspace work_;
  std::vector<std::unique_ptr<std::vector<uint8_t>>> frames_;
  std::vector<Step> steps_;
  volatile size_t sink_ = 0;  // keeps results alive
  volatile double total_ = 0;
};

}  // namespace
}  // namespace elastiquant

int main(int argc, char** argv) {
  const size_t elements = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 25'000'000;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 15;
  if (argc > 3) {
    if (const auto status = elastiquant::UseSimdTarget(argv[3]); !status.ok()) {
      std::fprintf(stderr, "%s\n", status.ToString().c_str());
      return 1;
    }
  }
  std::printf("%zu floats, target %s\n", elements, elastiquant::CurrentSimdTarget().c_str());
  elastiquant::Bench(elements).Run(rounds);
}
