// Runs the program as a script would: by its command line, exit code and output.
#include "elastiquant/cli/program_testing.h"

#include <gmock/gmock.h>

#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "elastiquant/codec/frame.h"
#include "elastiquant/kernels/targets.h"

namespace elastiquant::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(ProgramTest, EveryCommandHelpsWithAnExample) {
  const Outcome top = Run("--help");
  EXPECT_EQ(top.exit_code, kExitDone);
  EXPECT_THAT(top.out, HasSubstr("Exit codes"));
  const size_t list = top.out.find("Subcommands:");
  ASSERT_NE(list, std::string::npos);
  std::istringstream lines(top.out.substr(list));
  std::string line;
  std::getline(lines, line);
  int commands = 0;
  while (std::getline(lines, line) && line.starts_with("  ")) {
    std::string name;
    std::istringstream(line) >> name;
    if (line.starts_with("   ")) continue;  // a description that goes on
    const Outcome help = Run(name + " --help");
    EXPECT_EQ(help.exit_code, kExitDone) << name;
    EXPECT_THAT(help.out, HasSubstr("Example")) << name;
    EXPECT_THAT(help.out, HasSubstr("elastiquant " + name)) << name;
    ++commands;
  }
  EXPECT_GE(commands, 5);
}

TEST_F(ProgramTest, BadUsageIsExitCodeTwoWithWordsOnStderr) {
  for (const char* arguments :
       {"", "fly", "encode", "encode --codec fp32", "bench --elements 0", "bench --elements x",
        "decode a b c", "codecs --yaml", "encode --codec fp32 --threads 0 a b"}) {
    const Outcome run = Run(arguments);
    EXPECT_EQ(run.exit_code, kExitUsage) << arguments;
    EXPECT_THAT(run.err, Not(::testing::IsEmpty())) << arguments;
    EXPECT_EQ(run.out, "") << arguments;
  }
}

TEST_F(ProgramTest, AWordThatIsNoCommandIsNamed) {
  for (const auto& [arguments, words] :
       {std::pair("trian --steps 3", "'trian' is no command; valid are: train, models, "),
        std::pair("-v", "'-v' is no command"),
        std::pair("data foo", "'foo' is no command; valid are: fetch, info"),
        std::pair("data", "subcommand is required")}) {
    const Outcome run = Run(arguments);
    EXPECT_EQ(run.exit_code, kExitUsage) << arguments;
    EXPECT_THAT(run.err, HasSubstr(words)) << arguments;
  }
}

TEST_F(ProgramTest, WholeNumbersAreDecimal) {
  const Outcome plain = Run("graph ring --nodes 10 --seed 7 --json");
  EXPECT_EQ(plain.exit_code, kExitDone) << plain.err;
  EXPECT_EQ(Run("graph ring --nodes 010 --seed 007 --json").out, plain.out);
  EXPECT_EQ(Run("graph ring --nodes 10 --seed 0 --json").exit_code, kExitDone);
  ExpectUsageErrors("graph ring", {{"--nodes 0x10", "'0x10' must be a whole number"},
                                   {"--nodes 1e1", "'1e1' must be a whole number"},
                                   {"--nodes ''", "'' must be a whole number"},
                                   {"--seed -1", "'-1' must be a whole number from 0 on"},
                                   {"--seed 18446744073709551616", "below 2^64"}});
}

TEST_F(ProgramTest, WhatIsNoNumberIsNamed) {
  ExpectUsageErrors("train", {{"--lr x", "'x' must be a number"}});
}

TEST_F(ProgramTest, LosslessFramesDecodeToTheSameFile) {
  for (const size_t n : {0, 1, 1000, 70001}) {
    WriteInput(n);
    Encode("--codec fp32 --seed 1", "frame.eqf");
    const Outcome run =
        Run(fmt::format("decode {} {}", File("frame.eqf"), File("decoded.npy")));
    EXPECT_EQ(run.exit_code, kExitDone) << run.err;
    EXPECT_EQ(TextOf(File("decoded.npy")), TextOf(File("in.npy"))) << n;
  }
}

// The other tests run the program without starting its file.
TEST_F(ProgramTest, ItsFileIsTheSameProgram) {
  const std::string redirected = fmt::format(" >{} 2>{}", File("out"), File("err"));
  const auto start = [&](const std::string& words) {
    return WEXITSTATUS(std::system((words + redirected).c_str()));
  };
  EXPECT_EQ(start(ELASTIQUANT_PROGRAM " --help"), kExitDone);
  EXPECT_EQ(TextOf(File("out")), Run("--help").out);
  EXPECT_EQ(start(ELASTIQUANT_PROGRAM " encode --codec nonsense"), kExitUsage);
  EXPECT_EQ(TextOf(File("err")), Run("encode --codec nonsense").err);
}

TEST_F(ProgramTest, SaysThatItsOutputCannotBeWritten) {
  const std::string full =
      fmt::format("{} codecs >/dev/full 2>{}", ELASTIQUANT_PROGRAM, File("err"));
  EXPECT_EQ(WEXITSTATUS(std::system(full.c_str())), kExitFailure);
  EXPECT_THAT(TextOf(File("err")), HasSubstr("cannot write to stdout: No space left"));
}

// The conformance suite holds every codec to this on every target without starting a program.
TEST_F(ProgramTest, EveryListedCodecEncodesAndDecodesBothWays) {
  WriteInput(5000);
  for (const auto& codec : nlohmann::json::parse(Run("codecs --json").out)) {
    const std::string spec = codec.at("spec");
    std::string options = fmt::format("--codec '{}' --seed 7", spec);
    if (!codec.at("state").empty()) options += " --stream " + File(codec.at("name"));
    Encode(options, "frame.eqf");
    const Outcome run =
        Run(fmt::format("decode {} {}", File("frame.eqf"), File("decoded.npy")));
    ASSERT_EQ(run.exit_code, kExitDone) << spec << run.err;
    EXPECT_EQ(ReadNpy(File("decoded.npy"))->values.size(), 5000u);
  }
}

TEST_F(ProgramTest, ThreadsAndTargetsGiveTheSameBytes) {
  WriteInput(5000);
  const Outcome targets = Run("bench --list-targets");
  for (const std::string spec : {"elastic:bits=4|rans", "dither:bits=2", "topk|rotate"}) {
    const std::string options = fmt::format("--codec '{}' --seed 7", spec);
    const std::string frame = Encode(options, "frame.eqf");
    EXPECT_EQ(Encode(options + " --threads 3", "other.eqf"), frame) << spec;
    std::string decoded;
    std::istringstream lines(targets.out);
    for (std::string target; std::getline(lines, target);) {
      EXPECT_EQ(Encode(options + " --target " + target, "other.eqf"), frame) << spec << target;
      const Outcome run = Run(fmt::format("decode --target {} {} {}", target, File("frame.eqf"),
                                          File("decoded.npy")));
      ASSERT_EQ(run.exit_code, kExitDone) << run.err;
      if (decoded.empty()) decoded = TextOf(File("decoded.npy"));
      EXPECT_EQ(TextOf(File("decoded.npy")), decoded) << spec << target;
    }
  }
}

TEST_F(ProgramTest, CodecsWithMemoryAreEncodedInAStreamOrNotAtAll) {
  WriteInput(1000);
  for (const std::string spec : {"topk:ratio=0.1|ef", "dgc", "powersgd"}) {
    const std::string encode = fmt::format("encode --codec '{}' --seed 7 ", spec);
    const std::string files = fmt::format("{} {}", File("in.npy"), File("alone.eqf"));
    const Outcome alone = Run(encode + files);
    EXPECT_EQ(alone.exit_code, kExitUsage) << spec;
    EXPECT_THAT(alone.err, HasSubstr("remembers")) << spec;
    EXPECT_THAT(alone.err, HasSubstr("--stream")) << spec;
    EXPECT_FALSE(std::filesystem::exists(File("alone.eqf")));
  }
  // The second message has what the first has lost; so it goes on from a copy of the state.
  const std::string options = "--codec 'topk:ratio=0.1|ef' --seed 7 --stream " + File("state");
  const std::string first = Encode(options, "first.eqf");
  std::filesystem::copy_file(File("state"), File("copy"));
  const std::string second = Encode(options, "second.eqf");
  EXPECT_NE(second, first);
  std::filesystem::rename(File("copy"), File("state"));
  EXPECT_EQ(Encode(options, "again.eqf"), second);
  EXPECT_FALSE(std::filesystem::exists(File("state.new")));

  const auto refused = [&](const std::string& codec, const std::string& words, int code) {
    const std::string before = TextOf(File("state"));
    const Outcome run = Run(fmt::format("encode --codec '{}' --stream {} {} {}", codec,
                                        File("state"), File("in.npy"), File("x")));
    EXPECT_EQ(run.exit_code, code) << run.err;
    EXPECT_THAT(run.err, HasSubstr(words));
    EXPECT_EQ(TextOf(File("state")), before);
    EXPECT_FALSE(std::filesystem::exists(File("x")));
  };
  refused("topk:ratio=0.2|ef", "topk:ratio=0.1", kExitUsage);
  WriteInput(999);
  refused("topk:ratio=0.1|ef", "1000 values", kExitUsage);
  WriteInput(1000);
  std::filesystem::resize_file(File("state"), 100);
  refused("topk:ratio=0.1|ef", "stream state check failed", kExitCorrupt);
}

TEST_F(ProgramTest, StepsOfAStreamCountByThemselves) {
  WriteInput(1000);
  const std::string options = "--codec dither:bits=2 --seed 7 ";
  const std::string stream = options + "--stream " + File("state");
  for (const char* step : {"0", "1", "2"}) {
    EXPECT_EQ(Encode(stream, "next.eqf"), Encode(options + "--step " + step, "step.eqf"));
  }
  EXPECT_EQ(Encode(options, "none.eqf"), Encode(options + "--step 0", "step.eqf"));
}

TEST_F(ProgramTest, FramesThatClaimTooMuchAreRefusedUnlessAllowed) {
  WriteInput(1000);
  Encode("--codec fp16", "frame.eqf");
  const auto decode = [&](const std::string& most) {
    return Run(fmt::format("decode {} {} {}", most, File("frame.eqf"), File("decoded.npy")));
  };
  const Outcome refused = decode("--max-elements 999");
  EXPECT_EQ(refused.exit_code, kExitUsage);
  EXPECT_THAT(refused.err, HasSubstr("1000 values"));
  EXPECT_THAT(refused.err, HasSubstr("--max-elements"));
  EXPECT_FALSE(std::filesystem::exists(File("decoded.npy")));
  EXPECT_EQ(decode("--max-elements 1000").exit_code, kExitDone);
  // 44 bytes: none of 2^32 - 1 coordinates kept. By default nothing is allocated for it.
  FrameView giant;
  giant.codec = CodecId::kSparse;
  giant.elements = kMaxFrameElements;
  const std::array<uint8_t, 12> parameters = {0, 32, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0};
  giant.parameters = parameters;
  std::vector<uint8_t> frame(44);
  ASSERT_EQ(SealFrame(giant, frame), frame.size());
  ASSERT_TRUE(WriteFile(File("frame.eqf"), {frame}).ok());
  const Outcome bomb = decode("");
  EXPECT_EQ(bomb.exit_code, kExitUsage);
  EXPECT_THAT(bomb.err, HasSubstr("a frame of 44 bytes claims 4294967295 values"));
}

TEST_F(ProgramTest, BadInputIsToldApartByExitCode) {
  const std::string nothing = File("nothing");
  EXPECT_EQ(Run(fmt::format("encode --codec fp32 {} {}", nothing, File("x"))).exit_code,
            kExitUsage);
  WriteInput(1000);
  const Outcome unknown =
      Run(fmt::format("encode --codec fp33 {} {}", File("in.npy"), File("x")));
  EXPECT_EQ(unknown.exit_code, kExitUsage);
  EXPECT_THAT(unknown.err, HasSubstr("fp16"));  // lists what is valid
  const Outcome target =
      Run(fmt::format("encode --codec fp32 --target Z80 {} {}", File("in.npy"), File("x")));
  EXPECT_EQ(target.exit_code, kExitUsage);
  EXPECT_THAT(target.err, HasSubstr(SimdTargets().back()));
  EXPECT_EQ(Run(fmt::format("encode --codec fp32 {} /nowhere/x", File("in.npy"))).exit_code,
            kExitFailure);
  ASSERT_TRUE(
      WriteNpy(File("in.npy"), std::vector<float>{1, std::numeric_limits<float>::quiet_NaN()})
          .ok());
  const Outcome nan = Run(fmt::format("encode --codec fp16 {} {}", File("in.npy"), File("x")));
  EXPECT_EQ(nan.exit_code, kExitNonFinite);
  EXPECT_FALSE(std::filesystem::exists(File("x")));
}

TEST_F(ProgramTest, DamagedFramesAreExitCodeFour) {
  WriteInput(300);
  const std::string frame = Encode("--codec fp16", "frame.eqf");
  const auto decode = [&](const std::string& bytes) {
    EXPECT_TRUE(WriteFile(File("bad.eqf"), {AsBytes(std::span<const char>(bytes))}).ok());
    return Run(fmt::format("decode {} {}", File("bad.eqf"), File("decoded.npy")));
  };
  EXPECT_EQ(decode(frame).exit_code, kExitDone);
  std::filesystem::remove(File("decoded.npy"));
  for (const size_t at : {size_t{0}, size_t{20}, frame.size() / 2, frame.size() - 1}) {
    std::string damaged = frame;
    damaged[at] = static_cast<char>(damaged[at] ^ 16);
    const Outcome run = decode(damaged);
    EXPECT_EQ(run.exit_code, kExitCorrupt) << at << run.err;
    EXPECT_THAT(run.err, HasSubstr("bad.eqf"));
    EXPECT_EQ(decode(frame.substr(0, at)).exit_code, kExitCorrupt) << at;
  }
  EXPECT_FALSE(std::filesystem::exists(File("decoded.npy")));
}

TEST_F(ProgramTest, CodecsAreListedAsJsonAndText) {
  const Outcome run = Run("codecs --json");
  ASSERT_EQ(run.exit_code, kExitDone);
  const auto codecs = nlohmann::json::parse(run.out);
  const auto modifiers = nlohmann::json::parse(Run("codecs --modifiers --json").out);
  const Outcome text = Run("codecs");
  EXPECT_GE(codecs.size(), 8u);
  EXPECT_GE(modifiers.size(), 2u);
  EXPECT_THAT(text.out, HasSubstr(Run("codecs --modifiers").out));
  for (const auto& list : {codecs, modifiers}) {
    for (const auto& each : list) {
      EXPECT_THAT(text.out, HasSubstr(each.at("name")));
      EXPECT_THAT(text.out, HasSubstr(each.at("summary")));
      for (const auto& parameter : each.at("parameters")) {
        EXPECT_TRUE(parameter.at("default").is_string());
        EXPECT_THAT(text.out, HasSubstr(parameter.at("name")));
      }
    }
  }
}

TEST_F(ProgramTest, CodecsSayWhatTheyPromise) {
  const auto list = nlohmann::json::parse(Run("codecs --json").out);
  for (const auto& codec : list) {
    const std::string name = codec.at("name"), kind = codec.at("class");
    const std::set<std::string> classes = {"lossless", "unbiased", "contractive", "biased"};
    EXPECT_TRUE(classes.contains(kind)) << name;
    EXPECT_EQ(codec.contains("delta"), kind == "contractive") << name;
    EXPECT_EQ(codec.contains("omega"), kind != "contractive") << name;
    if (kind == "contractive") {
      for (const char* n : {"1", "1024", "1048576"}) {
        EXPECT_GT(codec.at("delta").at(n), 0.0) << name;
      }
    }
    if (!codec.at("nominal_bits").is_null()) {
      EXPECT_GT(codec.at("nominal_bits"), 0.0) << name;
      EXPECT_LE(codec.at("nominal_bits"), codec.at("worst_case_bits")) << name;
    }
    EXPECT_TRUE(codec.at("collective").is_string()) << name;
    EXPECT_TRUE(codec.at("state").is_array()) << name;
    EXPECT_TRUE(codec.at("momentum").is_boolean()) << name;
    if (name == "fp32") {
      EXPECT_EQ(codec.at("omega").at("1024"), 0.0);
      EXPECT_NEAR(codec.at("nominal_bits"), 32, 0.001);
    }
    if (name == "qsgd") {  // min(d / 4s^2, sqrt(d) / s) of buckets of 512 and 7 levels
      EXPECT_NEAR(codec.at("omega").at("1048576"), 512 / 196.0, 0.3);
      EXPECT_NEAR(codec.at("nominal_bits"), 4 + 32 / 512.0, 0.01);
    }
  }
}

TEST_F(ProgramTest, BenchMeasuresWhatItSays) {
  const Outcome run = Run(
      "bench --codec fp32 --codec fp16 --elements 10000 --repetitions 3 --threads 2 --json");
  ASSERT_EQ(run.exit_code, kExitDone) << run.err;
  const auto report = nlohmann::json::parse(run.out);
  EXPECT_EQ(report.at("elements"), 10000);
  ASSERT_EQ(report.at("results").size(), 2u);
  const auto& fp32 = report["results"][0];
  EXPECT_EQ(fp32.at("codec"), "fp32");
  EXPECT_EQ(fp32.at("nmse"), 0.0);
  EXPECT_NEAR(fp32.at("bits_per_coordinate"), 32, 0.1);
  const auto& fp16 = report["results"][1];
  EXPECT_NEAR(fp16.at("bits_per_coordinate"), 16, 0.1);
  // Rounding to 11 significant bits: a relative error of at most 2^-11 each.
  EXPECT_GT(fp16.at("nmse"), 0.0);
  EXPECT_LT(fp16.at("nmse"), 0x1p-22);
  for (const char* operation : {"encode", "decode", "decode_add"}) {
    EXPECT_GT(fp32.at(operation).at("ratio_to_memcpy"), 0.0);
  }
}

TEST_F(ProgramTest, BenchRunsOnAFile) {
  WriteInput(3000);
  const Outcome run =
      Run(fmt::format("bench --codec fp16 --input {} --repetitions 2", File("in.npy")));
  ASSERT_EQ(run.exit_code, kExitDone) << run.err;
  EXPECT_THAT(run.out, HasSubstr("3000 floats"));
  WriteInput(0);
  EXPECT_EQ(Run("bench --codec fp16 --input " + File("in.npy")).exit_code, kExitUsage);
}

TEST_F(ProgramTest, BenchRepeatsAFileToTheLengthAskedFor) {
  WriteInput(1000);
  const std::string bench =
      "bench --codec fp16 --repetitions 1 --json --input " + File("in.npy");
  const Outcome once = Run(bench), longer = Run(bench + " --elements 3000");
  ASSERT_EQ(longer.exit_code, kExitDone) << longer.err;
  const auto a = nlohmann::json::parse(once.out), b = nlohmann::json::parse(longer.out);
  EXPECT_EQ(a.at("elements"), 1000);
  EXPECT_EQ(b.at("elements"), 3000);
  // The same values in the same proportion: the same error.
  const double error = a["results"][0].at("nmse");
  EXPECT_NEAR(b["results"][0].at("nmse"), error, error * 1e-9);
}

TEST_F(ProgramTest, BenchMeasuresEveryCodecByDefault) {
  const Outcome run = Run("bench --elements 2000 --repetitions 1 --json");
  ASSERT_EQ(run.exit_code, kExitDone) << run.err;
  EXPECT_EQ(run.err, "");
  const auto results = nlohmann::json::parse(run.out).at("results");
  const auto codecs = nlohmann::json::parse(Run("codecs --json").out);
  EXPECT_GE(results.size(), codecs.size());
  const Outcome all = Run("bench --all --codec dither:bits=3 --elements 2000 --repetitions 1");
  ASSERT_EQ(all.exit_code, kExitDone) << all.err;
  EXPECT_THAT(all.out, HasSubstr("\ndither:bits=3 "));
  EXPECT_THAT(all.out, HasSubstr("\nfp32 "));
}

TEST_F(ProgramTest, ListsTargetsOneALine) {
  const Outcome run = Run("bench --list-targets");
  EXPECT_EQ(run.exit_code, kExitDone);
  EXPECT_THAT(run.out, ::testing::EndsWith("\n" + SimdTargets().back() + "\n"));
}

}  // namespace
}  // namespace elastiquant::cli
