// `theory`: what a setting of the elastic quantiser may cost, before anything is run.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "elastiquant/base/json_number.h"
#include "elastiquant/base/json_text.h"
#include "elastiquant/cli/command.h"
#include "elastiquant/cli/python_package.h"
#include "elastiquant/cli/rates_report.h"
#include "elastiquant/cli/theory_report.h"
#include "elastiquant/rates/gossip_rates.h"
#include "elastiquant/rates/lazy_uploads.h"
#include "elastiquant/theory/communication_cost.h"

namespace elastiquant::cli {
namespace {

using Json = nlohmann::ordered_json;

struct TheoryOptions {
  TheorySetting setting;
  std::string link;
  theory::Cluster cluster;
  theory::SgdProblem problem;
  double target = 0.1;
  rates::GossipRateOptions gossip;
  bool uploads = false;
  rates::LazyUploadOptions lazy;
  bool json = false;
  std::string plot;
  std::string python;
};

// fp32, this setting, and the settings that reach the target first.
struct Prediction {
  theory::Cost full, own, own_elias;
  std::vector<theory::Cost> best;
};
constexpr size_t kShownSettings = 5;

Result<Prediction> Predict(const TheoryOptions& options, const std::string& spec) {
  theory::Cluster cluster = options.cluster;
  EQ_ASSIGN_OR_RETURN(cluster.link, ParseLink(options.link));
  const auto cost = [&](const std::string& codec) {
    return theory::CostOf(codec, options.problem, cluster, options.target);
  };
  Prediction prediction;
  EQ_ASSIGN_OR_RETURN(prediction.full, cost("fp32"));
  EQ_ASSIGN_OR_RETURN(prediction.own, cost(spec));
  EQ_ASSIGN_OR_RETURN(prediction.own_elias, cost(spec + "|elias"));
  EQ_ASSIGN_OR_RETURN(prediction.best,
                      theory::RankSettings(options.problem, cluster, options.target));
  prediction.best.resize(std::min(prediction.best.size(), kShownSettings));
  return prediction;
}

Json ToJson(const std::optional<RatioChoice>& choice) {
  if (!choice) return nullptr;
  return {{"p", choice->p},
          {"variance_bound", choice->variance_bound},
          {"worst_case", choice->worst_case}};
}

Json ToJson(const LevelSet& levels) {
  auto list = Json::array();
  for (const float level : levels.span()) list.push_back(level);
  return list;
}

Json ToJson(const theory::Cost& cost) {
  return {{"spec", cost.spec},
          {"variance", cost.variance},
          {"bits_per_coordinate", cost.bits_per_coordinate},
          {"steps", cost.steps},
          {"bits", cost.bits},
          {"seconds", cost.seconds}};
}

Json ToJson(const TheoryReport& r) {
  const bool has_p = r.format.family == LevelFamily::kExponential;
  Json json = {{"spec", r.spec},
               {"bits", r.format.bits},
               {"bucket", r.format.bucket},
               {"norm_order", std::isinf(r.q) ? Json("infinity") : Json(r.q)},
               {"levels", ToJson(r.format.levels)},
               {"p", has_p ? Json(r.format.p) : Json(nullptr)},
               {"variance_bound", r.terms.bound()},
               {"variance_terms",
                {{"between_levels", r.terms.between},
                 {"below_smallest", r.terms.below},
                 {"widest_gap", r.terms.grid},
                 {"crossover_bucket", r.terms.crossover}}},
               {"alq_bound", r.alq_bound},
               {"worst_case", r.worst_case},
               {"lower_bound", r.vector.variance},
               {"gap", r.terms.bound() - r.vector.variance},
               {"worst_vector",
                {{"large", r.vector.large},
                 {"large_count", r.vector.large_count},
                 {"small", r.vector.small}}},
               {"equal_vector", r.equal_vector},
               {"measured_gaussian", r.gaussian},
               {"gaussian_limit", r.gaussian_limit},
               {"best_p", {{"rule", ToJson(r.rule)}, {"exact", ToJson(r.exact)}}},
               {"minimax", nullptr},
               {"nonzeros_bound", r.nonzeros},
               {"code_length_bound_bits", r.code_length_bits},
               {"fixed_width_bits", r.fixed_bits},
               {"published_code_length_bits", NumberOrNull(r.published_code_length)},
               {"explicit_code_length_bits", NumberOrNull(r.explicit_code_length)}};
  if (r.minimax) {
    json["minimax"] = {{"worst_case", r.minimax->variance},
                       {"levels", ToJson(r.minimax->levels)}};
  }
  return json;
}

Json ToJson(const Prediction& prediction, const TheoryOptions& options) {
  auto best = Json::array();
  for (const theory::Cost& cost : prediction.best) best.push_back(ToJson(cost));
  return {{"link", options.link},
          {"workers", options.cluster.workers},
          {"parameters", options.cluster.parameters},
          {"target", options.target},
          {"fp32", ToJson(prediction.full)},
          {"setting", ToJson(prediction.own)},
          {"setting_elias", ToJson(prediction.own_elias)},
          {"best", best}};
}

Json ToJson(const std::vector<Curve>& curves) {
  auto list = Json::array();
  for (const Curve& curve : curves) {
    auto points = Json::array();
    for (const CurvePoint& p : curve.points) {
      points.push_back({{"bits", p.bits},
                        {"bits_per_coordinate", p.bits_per_coordinate},
                        {"variance_bound", p.variance_bound},
                        {"worst_case", p.worst_case},
                        {"measured_gaussian", p.gaussian}});
    }
    list.push_back({{"family", curve.family}, {"points", points}});
  }
  return list;
}

void PrintLine(const std::string& name, const std::string& value, const std::string& what) {
  fmt::print("{:<28} {:>11}  {}\n", name, value, what);
}
std::string Digits(double value) { return fmt::format("{:.4g}", value); }

void PrintVariance(const TheoryReport& r) {
  fmt::print("variance, E|Q(v)-v|^2 / |v|^2, of any {} values under their norm\n", r.d);
  PrintLine("  bound", Digits(r.terms.bound()), "holds always");
  PrintLine("  exact worst case", Digits(r.worst_case),
            "from above, but for rounding counts to integers");
  PrintLine("  attained", Digits(r.vector.variance),
            fmt::format("by {} values of {:.4g} and {} of {:.4g}, norm 1", r.vector.large_count,
                        r.vector.large, r.d - r.vector.large_count, r.vector.small));
  PrintLine("  bound - attained", Digits(r.terms.bound() - r.vector.variance), "");
  if (r.minimax) {
    PrintLine("  least of all level sets", Digits(r.minimax->variance),
              fmt::format("with {} levels; this one is {:.3g} times it",
                          r.minimax->levels.count, r.worst_case / r.minimax->variance));
  }
  PrintLine("  measured, Gaussian", Digits(r.gaussian),
            fmt::format("the limit of unbiased codes of {:.4g} bits is {:.4g}",
                        r.fixed_bits / r.d, r.gaussian_limit));
}

void PrintRatios(const TheoryReport& r) {
  if (!r.rule || !r.exact) return;
  const auto print = [](const char* name, const RatioChoice& choice) {
    PrintLine(name, fmt::format("{:.3f}", choice.p),
              fmt::format("bound {:.4g}, worst case {:.4g}", choice.variance_bound,
                          choice.worst_case));
  };
  fmt::print("\nbest p of exponential levels\n");
  print("  by the bound (p=auto)", *r.rule);
  print("  by the exact worst case", *r.exact);
}

void PrintLengths(const TheoryReport& r) {
  const auto per = [&](double bits) {
    return fmt::format("{:.3f} a value, norm included", bits / r.d);
  };
  fmt::print("\nbits of a bucket\n");
  PrintLine("  fixed width", fmt::format("{:.0f}", r.fixed_bits), per(r.fixed_bits));
  PrintLine("  Elias omega, at most", fmt::format("{:.0f}", r.code_length_bits),
            per(r.code_length_bits) + "; in expectation, for any values");
  PrintLine("  nonzeros, at most", fmt::format("{:.1f}", r.nonzeros), "in expectation");
  if (r.published_code_length) {
    PrintLine("  published form", fmt::format("{:.0f}", *r.published_code_length),
              "with its o(1) left out it does not hold");
  }
}

void PrintCost(const char* name, const theory::Cost& cost) {
  fmt::print("{:<22} {:>10.4g} {:>9.3f} {:>11.4g} {:>11.4g} {:>11.4g}\n", name, cost.variance,
             cost.bits_per_coordinate, cost.steps, cost.bits / 8e6, cost.seconds);
}

void PrintPrediction(const Prediction& p, const TheoryOptions& o) {
  fmt::print(
      "\nto a gap of {} on a convex problem (L={}, R={}, noise {}, E|g|^2 {}), {} workers of "
      "{} "
      "parameters over {}:\nbounds for the worst gradients, to rank settings by; runs are much "
      "faster\n",
      o.target, o.problem.smoothness, o.problem.distance, o.problem.noise,
      o.problem.second_moment, o.cluster.workers, o.cluster.parameters, o.link);
  fmt::print("{:<22} {:>10} {:>9} {:>11} {:>11} {:>11}\n", "", "variance", "bits", "steps",
             "MB sent", "seconds");
  PrintCost("  fp32", p.full);
  PrintCost("  this setting", p.own);
  PrintCost("  the same |elias", p.own_elias);
  fmt::print("  first to arrive\n");
  for (const theory::Cost& cost : p.best) {
    PrintCost("", cost);
    fmt::print("    {}\n", cost.spec);
  }
}

Status Plot(const TheoryOptions& options, Json report) {
  EQ_ASSIGN_OR_RETURN(const std::vector<Curve> curves, MakeCurves(options.setting));
  report["curves"] = ToJson(curves);
  return DrawReport("elastiquant_theory", options.python, JsonText(report, 2) + "\n",
                    options.plot);
}

Status Show(const Result<Json>& found, bool json, void (*print)(const Json&)) {
  if (!found.ok()) return found.status();
  json ? fmt::print("{}\n", JsonText(*found, 2)) : print(*found);
  return {};
}

// Options that have an effect only beside another one.
struct Beside {
  const char* option;
  const char* other;
};
constexpr Beside kBeside[] = {
    {"--parameters", "--link"}, {"--workers", "--link"},        {"--compute", "--link"},
    {"--target", "--link"},     {"--smoothness", "--link"},     {"--distance", "--link"},
    {"--noise", "--link"},      {"--second-moment", "--link"},  {"--python", "--plot"},
    {"--nodes", "--graph"},     {"--codec", "--graph"},         {"--problem", "--graph"},
    {"--curvature", "--graph"}, {"--regressions", "--uploads"}, {"--gap", "--uploads"},
};
// Options that describe a quantiser. Reports of --graph and --uploads are about none.
constexpr const char* kOfQuantiser[] = {"--levels", "--p",    "--bits", "--bucket",
                                        "--norm",   "--link", "--plot"};

Status RefuseBeside(const CLI::App& app, const char* option, const char* other) {
  if (app.count(option) == 0 || app.count(other) == 0) return {};
  return InvalidArgument(
      fmt::format("{} has no effect beside {}: leave one of them out", option, other));
}

Status CheckEffect(const CLI::App& app) {
  EQ_RETURN_IF_ERROR(RefuseBeside(app, "--graph", "--uploads"));
  for (const char* option : kOfQuantiser) {
    EQ_RETURN_IF_ERROR(RefuseBeside(app, option, "--graph"));
    EQ_RETURN_IF_ERROR(RefuseBeside(app, option, "--uploads"));
  }
  for (const auto& [option, other] : kBeside) {
    if (app.count(option) == 0 || app.count(other) > 0) continue;
    return InvalidArgument(fmt::format(
        "{0} has no effect without {1}: give {1} too, or leave {0} out", option, other));
  }
  return {};
}

Status Run(const CLI::App& app, const TheoryOptions& options) {
  EQ_RETURN_IF_ERROR(CheckEffect(app));
  if (options.uploads) {
    return Show(rates::LazyUploads(options.lazy), options.json, PrintLazyUploads);
  }
  if (app.count("--graph") > 0) {
    return Show(rates::GossipRates(options.gossip), options.json, PrintGossipRates);
  }
  EQ_ASSIGN_OR_RETURN(const TheoryReport report, MakeTheoryReport(options.setting));
  Json json = ToJson(report);
  std::optional<Prediction> prediction;
  if (app.count("--link") > 0) {
    EQ_ASSIGN_OR_RETURN(prediction, Predict(options, report.spec));
    json["prediction"] = ToJson(*prediction, options);
  }
  if (options.json) {
    fmt::print("{}\n", JsonText(json, 2));
  } else {
    fmt::print("{}\n\n", report.spec);
    PrintVariance(report);
    PrintRatios(report);
    PrintLengths(report);
    if (prediction) PrintPrediction(*prediction, options);
  }
  return options.plot.empty() ? Status::Ok() : Plot(options, std::move(json));
}

constexpr char kTheoryExample[] =
    "  elastiquant theory --bits 4 --bucket 8192 --norm l2\n"
    "  elastiquant theory --levels minimax --bits 3 --json\n"
    "  elastiquant theory --link 20mbit,10ms --workers 4 --parameters 270000 --target 0.05\n"
    "  elastiquant theory --norm l2 --bucket 512 --plot theory.png\n"
    "  elastiquant theory --graph ring --nodes 8 --codec dither:bits=1\n"
    "  elastiquant theory --uploads";

void AddGossipOptions(CLI::App* app, rates::GossipRateOptions* o) {
  app->add_option("--graph", o->graph,
                  "In place of a quantiser: rates of decentralised training, by theory and as "
                  "measured, on this graph (`elastiquant graph --help`)");
  app->add_option("--nodes", o->nodes, "Workers on --graph")
      ->capture_default_str()
      ->check(CLI::Range(2, 64));
  app->add_option("--codec", o->codec, "Measure on --graph under this codec, too");
  app->add_option("--problem", o->problem,
                  "What is trained on --graph: quadratics, which theory knows wholly, or "
                  "logistic regressions of unequal workers")
      ->capture_default_str()
      ->check(CLI::IsMember({"quadratics", "logistic"}));
  app->add_option("--curvature", o->curvature,
                  "Learning rate times the largest curvature of the --problem, below 1")
      ->capture_default_str()
      ->check(CLI::Range(1e-3, .999));
}

void AddUploadOptions(CLI::App* app, TheoryOptions* o) {
  app->add_flag("--uploads", o->uploads,
                "In place of a quantiser: how often workers send under lag-wk, lag-ps, laq and "
                "lasg, on logistic regression as published");
  app->add_option("--regressions", o->lazy.workers, "Workers of --uploads, each with a loss")
      ->capture_default_str()
      ->check(CLI::Range(2, 64));
  app->add_option("--gap", o->lazy.gap, "Gap from the least loss that ends a run of --uploads")
      ->capture_default_str()
      ->check(CLI::Range(1e-10, .999));
}

void AddProblemOptions(CLI::App* app, TheoryOptions* o) {
  app->add_option("--link", o->link,
                  "Predict bits and time over this access link: RATE[,DELAY], as 20mbit,10ms");
  app->add_option("--parameters", o->cluster.parameters, "Parameters of the model")
      ->capture_default_str();
  app->add_option("--workers", o->cluster.workers, "Workers that train together, 2 or more")
      ->capture_default_str();
  app->add_option("--compute", o->cluster.compute_seconds, "Seconds that a step computes")
      ->capture_default_str();
  app->add_option("--target", o->target, "Gap f(x) - f* to the best loss that is to be reached")
      ->capture_default_str();
  app->add_option("--smoothness", o->problem.smoothness, "Smoothness L of the loss")
      ->capture_default_str();
  app->add_option("--distance", o->problem.distance,
                  "Largest distance R = |x - x_0| of weights in training from the first ones")
      ->capture_default_str();
  app->add_option("--noise", o->problem.noise,
                  "Variance E|g - grad f|^2 of one worker's gradient")
      ->capture_default_str();
  app->add_option("--second-moment", o->problem.second_moment,
                  "Second moment E|g|^2 of one worker's gradient")
      ->capture_default_str();
}

}  // namespace

Command MakeTheoryCommand(CLI::App& program) {
  auto options = std::make_shared<TheoryOptions>();
  CLI::App* app = AddSubcommand(
      program, "theory", "Compute bounds and worst cases of a quantiser, before it is run",
      kTheoryExample);
  TheorySetting& setting = options->setting;
  app->add_option("--levels", setting.levels,
                  "Levels: exp, uniform, minimax (with the smallest worst case), or a list "
                  "such as 0.1/0.3/1")
      ->capture_default_str();
  app->add_option("--p", setting.p, "Ratio of exponential levels, or auto")
      ->capture_default_str();
  app->add_option("--bits", setting.bits, "Bits of a code, its sign included: 2 to 8")
      ->capture_default_str();
  app->add_option("--bucket", setting.bucket, "Values that share a norm")
      ->capture_default_str();
  app->add_option("--norm", setting.norm, "Norm of a bucket: l1, l2, linf, or l<q>, such as l3")
      ->capture_default_str();
  AddProblemOptions(app, options.get());
  AddGossipOptions(app, &options->gossip);
  AddUploadOptions(app, options.get());
  app->add_flag("--json", options->json, "Print a JSON object");
  app->add_option("--plot", options->plot,
                  "Draw variance against bits for families of levels: PLOT.png and .svg, and "
                  "their figures in .json");
  AddPythonOption(app, ", for --plot", &options->python);
  return {app, [app, options] { return Run(*app, *options); }};
}

}  // namespace elastiquant::cli
