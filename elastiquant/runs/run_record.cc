#include "elastiquant/runs/run_record.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "elastiquant/base/json_number.h"
#include "elastiquant/base/median.h"
#include "elastiquant/runs/file.h"

namespace elastiquant {
namespace {

using nlohmann::json;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

json ToJson(const StepSeconds& s) {
  return {{"compute", s.compute}, {"encode", s.encode}, {"transmit", s.transmit},
          {"wait", s.wait},       {"decode", s.decode}, {"total", s.total}};
}

StepSeconds SecondsFromJson(const json& j) {
  return {.compute = j.at("compute"),
          .encode = j.at("encode"),
          .transmit = j.at("transmit"),
          .wait = j.at("wait"),
          .decode = j.at("decode"),
          .total = j.at("total")};
}

double Ratio(double numerator, double denominator) {
  return denominator > 0 ? numerator / denominator : kNan;
}

json SumsToJson(const StepTotals& t) {
  return {{"steps", t.steps},
          {"skipped", t.skipped},
          {"loss", NumberOrNull(t.loss)},
          {"accuracy", NumberOrNull(t.accuracy)},
          {"seconds", ToJson(t.seconds)},
          {"bytes_up", t.bytes_up},
          {"bytes_down", t.bytes_down},
          {"images", t.images},
          {"squared_error", t.squared_error},
          {"squared_norm", t.squared_norm}};
}

StepTotals SumsFromJson(const json& j) {
  return {.steps = j.at("steps"),
          .skipped = j.at("skipped"),
          .loss = NumberOrNan(j.at("loss")),
          .accuracy = NumberOrNan(j.at("accuracy")),
          .seconds = SecondsFromJson(j.at("seconds")),
          .bytes_up = j.at("bytes_up"),
          .bytes_down = j.at("bytes_down"),
          .images = j.at("images"),
          .squared_error = j.at("squared_error"),
          .squared_norm = j.at("squared_norm")};
}

}  // namespace

StepSeconds& StepSeconds::operator+=(const StepSeconds& other) {
  compute += other.compute;
  encode += other.encode;
  transmit += other.transmit;
  wait += other.wait;
  decode += other.decode;
  total += other.total;
  return *this;
}

void StepTotals::AddCommunication(const StepRecord& step) {
  seconds += step.seconds;
  bytes_up += step.bytes_up;
  bytes_down += step.bytes_down;
  squared_error += step.squared_error;
  squared_norm += step.squared_norm;
}

void StepTotals::Add(const StepRecord& step) {
  ++steps;
  if (step.skipped) {
    ++skipped;
  } else {
    loss += step.loss;
    accuracy += step.accuracy;
  }
  images += step.images;
  AddCommunication(step);
}

json StepTotals::ToJson() const {
  const auto used = static_cast<double>(steps - skipped);
  return {
      {"steps", steps},
      {"skipped_steps", skipped},
      {"train_loss", NumberOrNull(Ratio(loss, used))},
      {"train_accuracy", NumberOrNull(Ratio(accuracy, used))},
      {"seconds", elastiquant::ToJson(seconds)},
      {"seconds_per_step", NumberOrNull(Ratio(seconds.total, static_cast<double>(steps)))},
      {"images_per_second", NumberOrNull(Ratio(static_cast<double>(images), seconds.total))},
      {"bytes_up", bytes_up},
      {"bytes_down", bytes_down},
      {"nmse", NumberOrNull(Ratio(squared_error, squared_norm))}};
}

void RunRecord::AddStep(const StepRecord& step) {
  run_.Add(step);
  epoch_.Add(step);
  own_.up += step.bytes_up;
  own_.down += step.bytes_down;
  step_seconds_.push_back(step.seconds.total);
}

void RunRecord::AddCommunication(const StepRecord& rest) {
  run_.AddCommunication(rest);
  epoch_.AddCommunication(rest);
  own_.up += rest.bytes_up;
  own_.down += rest.bytes_down;
}

void RunRecord::SetMeanBytes(const WorkerBytes& mean) {
  for (StepTotals* totals : {&run_, &epoch_}) {
    totals->bytes_up += mean.up - own_.up;  // unsigned: right whichever is larger
    totals->bytes_down += mean.down - own_.down;
  }
  own_ = {};
}

void RunRecord::EndEpoch(int64_t epoch, bool is_whole, double test_accuracy, double test_loss,
                         const json& more) {
  json entry = epoch_.ToJson();
  entry["epoch"] = epoch;
  entry["test_accuracy"] = NumberOrNull(test_accuracy);
  entry["test_loss"] = NumberOrNull(test_loss);
  entry.update(more);
  if (!epochs_.empty() && epochs_.back()["epoch"] == epoch) epochs_.erase(epochs_.size() - 1);
  epochs_.push_back(std::move(entry));
  if (is_whole) epoch_ = {};
}

void RunRecord::AddOverhead(double evaluate_seconds, double checkpoint_seconds) {
  evaluate_seconds_ += evaluate_seconds;
  checkpoint_seconds_ += checkpoint_seconds;
}

json RunRecord::SaveState() const {
  return {{"run", SumsToJson(run_)},
          {"epoch", SumsToJson(epoch_)},
          {"epochs", epochs_},
          {"evaluate_seconds", evaluate_seconds_},
          {"checkpoint_seconds", checkpoint_seconds_}};
}

void RunRecord::LoadState(const json& state) {
  run_ = SumsFromJson(state.at("run"));
  epoch_ = SumsFromJson(state.at("epoch"));
  epochs_ = state.at("epochs");
  evaluate_seconds_ = state.at("evaluate_seconds");
  checkpoint_seconds_ = state.at("checkpoint_seconds");
}

json RunRecord::Summary(int64_t coordinates, int world_size, int64_t steps) const {
  if (steps == 0) steps = run_.steps;
  json summary = run_.ToJson();
  summary["steps"] = steps;
  summary["seconds_per_step"] =
      NumberOrNull(Ratio(run_.seconds.total, static_cast<double>(steps)));
  if (!epochs_.empty()) {
    // The state at the end: the last epoch's loss, the last accuracy that was measured.
    summary["train_loss"] = epochs_.back()["train_loss"];
    summary["train_accuracy"] = epochs_.back()["train_accuracy"];
    summary["test_accuracy"] = epochs_.back()["test_accuracy"];
    summary["test_loss"] = epochs_.back()["test_loss"];
    summary["validation_loss"] = epochs_.back()["test_loss"];
  }
  summary["epochs"] = epochs_;
  summary["seconds"]["evaluate"] = evaluate_seconds_;
  summary["seconds"]["checkpoint"] = checkpoint_seconds_;
  summary["median_seconds_per_step"] =
      NumberOrNull(step_seconds_.empty() ? kNan : Median(step_seconds_));
  const double sent = 2.0 * (world_size - 1) / world_size * static_cast<double>(coordinates) *
                      static_cast<double>(steps);
  summary["bits_per_coordinate"] =
      sent > 0 ? 8.0 * static_cast<double>(run_.bytes_up) / sent : 0.0;
  return summary;
}

Result<MetricsLog> MetricsLog::Open(const std::filesystem::path& file, int64_t steps_done) {
  std::string kept;
  if (std::ifstream old(file); old && steps_done > 0) {
    for (std::string line; std::getline(old, line);) {
      const json record = json::parse(line, nullptr, /*allow_exceptions=*/false);
      const auto step = record.is_object() ? record.find("step") : record.end();
      if (step == record.end() || !step->is_number_integer() || *step > steps_done) break;
      kept += line + "\n";
    }
  }
  EQ_RETURN_IF_ERROR(WriteFileAtomically(file, AsBytes(kept)));
  std::ofstream stream(file, std::ios::app);
  if (!stream) return IoError("cannot write " + file.string());
  return MetricsLog(std::move(stream), file.filename());
}

Status MetricsLog::Write(const StepRecord& r) {
  json line = {{"step", r.step},
               {"epoch", r.epoch},
               {"loss", NumberOrNull(r.loss)},
               {"accuracy", NumberOrNull(r.accuracy)},
               {"lr", r.learning_rate},
               {"seconds", ToJson(r.seconds)},
               {"bytes_up", r.bytes_up},
               {"bytes_down", r.bytes_down},
               {"images_per_second",
                NumberOrNull(Ratio(static_cast<double>(r.images), r.seconds.total))}};
  if (r.squared_norm > 0) line["nmse"] = r.squared_error / r.squared_norm;
  if (r.skipped) line["skipped"] = true;
  if (!r.decisions.is_null()) line["decisions"] = r.decisions;
  if (!r.variance.is_null()) line["variance"] = r.variance;
  return Write(line);
}

Status MetricsLog::Write(const json& line) {
  stream_ << line.dump() << std::endl;  // flushed: a killed run keeps its lines
  return stream_ ? Status::Ok() : IoError("cannot write " + name_ + ": is the disk full?");
}

json DescribeMachine() {
  json machine = {{"cores", sysconf(_SC_NPROCESSORS_ONLN)}};
  utsname name{};
  if (uname(&name) == 0) {
    machine["system"] = std::string(name.sysname) + " " + name.release;
    machine["architecture"] = name.machine;
  }
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const size_t colon = line.find(": ");
    if (!line.starts_with("model name") || colon == std::string::npos) continue;
    machine["processor"] = line.substr(colon + 2);
    break;
  }
  return machine;
}

}  // namespace elastiquant
