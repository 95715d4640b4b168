#include "elastiquant/ddp/tensor_collectives.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <mutex>
#include <thread>

#include "elastiquant/codec/frame.h"
#include "elastiquant/net/memory/testing.h"

namespace elastiquant {
namespace {

std::shared_ptr<const Codec> Make(const std::string& spec) { return MakeCodec(spec).value(); }

std::vector<float> Values(int rank, size_t n) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) {
    values[i] = std::sin(static_cast<float>(i + 1) * (.01f + static_cast<float>(rank)));
  }
  return values;
}

void RunWorkers(int world, const std::function<void(int, TensorCollectives&)>& body) {
  const CommunicatorOptions options = WorldOptions(world);
  std::vector<std::thread> threads;
  for (int r = 0; r < world; ++r) {
    threads.emplace_back([&, r] {
      CommunicatorOptions mine = options;
      mine.rank = r;
      auto workers = TensorCollectives::Create(mine, 1);
      ASSERT_TRUE(workers.ok()) << workers.status().ToString();
      body(r, **workers);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(TensorCollectives, MeanOfAnyLengthAndCodec) {
  for (const int world : {1, 2, 3}) {
    RunWorkers(world, [&](int rank, TensorCollectives& workers) {
      for (const size_t n :
           {size_t{0}, size_t{1}, size_t{2}, size_t{1000}, (size_t{1} << 18) + 1}) {
        for (const char* spec : {"fp32", "topk:ratio=1,bits=32"}) {
          std::vector<float> values = Values(rank, n);
          ASSERT_TRUE(workers.Mean(values, Make(spec), 7).ok()) << spec << " " << n;
          double worst = 0;
          for (size_t i = 0; i < n; ++i) {
            double mean = 0;
            for (int r = 0; r < world; ++r) {
              mean += std::sin(static_cast<float>(i + 1) * (.01f + static_cast<float>(r)));
            }
            worst = std::max(worst, std::abs(values[i] - mean / world));
          }
          EXPECT_LT(worst, 1e-6) << spec << " " << n;
        }
      }
    });
  }
}

TEST(TensorCollectives, AllGetTheSameBitsAndRoundingDiffersByCall) {
  std::mutex mutex;
  std::vector<std::vector<float>> first(2);
  RunWorkers(3, [&](int rank, TensorCollectives& workers) {
    for (size_t call = 0; call < 2; ++call) {
      std::vector<float> values = Values(rank, 5000);
      ASSERT_TRUE(workers.Mean(values, Make("dither:bits=2"), 7).ok());
      const std::lock_guard lock(mutex);
      if (first[call].empty()) first[call] = values;
      EXPECT_EQ(values, first[call]);
    }
  });
  EXPECT_NE(first[0], first[1]);
}

TEST(TensorCollectives, GatherIsWhatEachFrameDecodesTo) {
  RunWorkers(3, [](int rank, TensorCollectives& workers) {
    const auto all = workers.Gather(Values(rank, 777), *Make("fp32"), 1).value();
    ASSERT_EQ(all.size(), 3u);
    for (int r = 0; r < 3; ++r) EXPECT_EQ(all[static_cast<size_t>(r)], Values(r, 777));
    EXPECT_EQ(workers.Gather({}, *Make("fp32"), 1).value().size(), 3u);
  });
}

// compress() and these count steps, workers and messages from the same numbers on, and have the
// same seed unless another is given: errors of the two must not be alike.
TEST(TensorCollectives, RoundingIsNotThatOfCompressWithTheSameSeed) {
  constexpr size_t kSize = 1000;
  const auto codec = Make("dither:bits=2");
  RunWorkers(1, [&](int, TensorCollectives& workers) {
    const auto all = workers.Gather(Values(0, kSize), *codec, /*seed=*/0).value();
    // What a message of compress() decodes to, with the seed as DdpEngine passes it on.
    Workspace work;
    std::vector<uint8_t> frame(codec->MaxFrameBytes(kSize));
    const StreamKey key = DeriveKey(Mix64(0), /*step=*/1, /*worker=*/0, /*message=*/0);
    const size_t size = codec->Encode(Values(0, kSize), key, work, frame).value();
    std::vector<float> theirs(kSize);
    ASSERT_TRUE(DecodeFrame(std::span(frame).first(size), work, theirs).ok());
    EXPECT_NE(all.at(0), theirs);
  });
}

TEST(TensorCollectives, ANanIsAnErrorOfAllThatNamesTheWorkerAndPasses) {
  RunWorkers(2, [](int rank, TensorCollectives& workers) {
    std::vector<float> values = Values(rank, 100);
    const std::vector<float> clean = values;
    if (rank == 1) values[42] = std::nanf("");
    const Status mean = workers.Mean(values, Make("dither:bits=2"), 0);
    EXPECT_EQ(mean.code(), StatusCode::kNonFinite);
    EXPECT_NE(mean.message().find("worker 1"), std::string::npos) << mean.message();
    const Status gather = workers.Gather(values, *Make("dither:bits=2"), 0).status();
    EXPECT_EQ(gather.code(), StatusCode::kNonFinite);
    values = clean;
    EXPECT_TRUE(workers.Mean(values, Make("dither:bits=2"), 0).ok());
  });
}

TEST(TensorCollectives, RefusesCodecsThatRemember) {
  RunWorkers(1, [](int, TensorCollectives& workers) {
    std::vector<float> values = Values(0, 10);
    EXPECT_EQ(workers.Mean(values, Make("efsign|ef"), 0).code(), StatusCode::kInvalidArgument);
  });
}

TEST(TensorCollectives, MoreThanAFrameHoldsIsRefusedBeforeAnythingIsSent) {
  RunWorkers(2, [](int rank, TensorCollectives& workers) {
    std::vector<float> values = Values(rank, 10);
    const std::span<const float> large(values.data(), kMaxFrameElements + 1);  // not read
    EXPECT_EQ(workers.Gather(large, *Make("fp32"), 0).status().code(),
              StatusCode::kInvalidArgument);
    EXPECT_EQ(workers.Gather(values, *Make("fp32"), 0).value().at(1), Values(1, 10));
  });
}

TEST(TensorCollectives, CallsThatDifferAreAnErrorOfAllAndPass) {
  RunWorkers(3, [](int rank, TensorCollectives& workers) {
    const bool last = rank == 2;
    const auto mean = [&](size_t n, const char* spec, uint64_t seed) {
      std::vector<float> values = Values(rank, n);
      return workers.Mean(values, Make(spec), seed);
    };
    for (const size_t n : {size_t{10}, size_t{1} << 19}) {
      ASSERT_TRUE(mean(n, "fp32", 0).ok());  // whose reducer is there from then on
      for (const Status& differs :
           {mean(last ? n : 20, "fp32", 0), mean(last ? 0 : n, "fp32", 0),
            mean(n, last ? "dither:bits=2" : "fp32", 0), mean(n, "fp32", last ? 1 : 0),
            mean(n, last ? "efsign|ef" : "fp32", 0),
            last ? mean(n, "fp32", 0)
                 : workers.Gather(Values(rank, n), *Make("fp32"), 0).status()}) {
        EXPECT_EQ(differs.code(), StatusCode::kInvalidArgument);
        EXPECT_NE(differs.message().find("workers 2 and 0"), std::string::npos)
            << differs.message();
      }
      EXPECT_TRUE(mean(n, "fp32", 0).ok());
    }
  });
}

TEST(TensorCollectives, KeepsFewReducers) {
  RunWorkers(2, [](int rank, TensorCollectives& workers) {
    for (int round = 0; round < 2; ++round) {
      for (size_t n = 1; n < 30; ++n) {
        std::vector<float> values = Values(rank, n);
        ASSERT_TRUE(workers.Mean(values, Make("fp32"), 0).ok());
      }
    }
  });
}

}  // namespace
}  // namespace elastiquant
