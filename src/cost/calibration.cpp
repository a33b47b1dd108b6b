// Calibrations as files: written whole, read with distrust.
#include "cost/calibration.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/cache_folder.hpp"
#include "base/cpu_set.hpp"
#include "base/error.hpp"
#include "base/hash.hpp"
#include "cost/clock.hpp"

namespace rlx {
namespace cost {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t file_limit = 256 << 10;
constexpr const char* file_kind = "rlx calibration";
constexpr std::size_t most_races = 256;
constexpr std::size_t digest_digits = 2 * sizeof(Digest::bytes);

struct Figure {
  const char* name;
  double MachineModel::* value;
};
constexpr Figure figures[] = {
    {"cycle_ns", &MachineModel::cycle},
    {"row_block_ns", &MachineModel::row_block},
    {"tap_ns", &MachineModel::tap},
    {"recurrent_step_ns", &MachineModel::recurrent_step},
    {"loop_trip_ns", &MachineModel::loop_trip},
    {"run_ns", &MachineModel::run},
    {"narrow_ns", &MachineModel::narrow_ns},
    {"wide_factor", &MachineModel::wide_factor},
    {"gather_lane_ns", &MachineModel::gather_lane_ns},
    {"kernel_ns", &MachineModel::kernel},
    {"item_ns", &MachineModel::item},
    {"loop_ns", &MachineModel::loop},
    {"join_ns", &MachineModel::join},
    {"barrier_ns", &MachineModel::barrier},
    {"team_ns", &MachineModel::team},
    {"memory_all_gbs", &MachineModel::memory_all},
    {"l3_all_gbs", &MachineModel::l3_all},
};
constexpr std::string_view levels[] = {"l1", "l2", "l3", "memory"};

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (line.starts_with("model name") && colon != std::string::npos)
      return line.substr(std::min(colon + 2, line.size()));
  }
  return "processor";
}

Json to_json(const DeviceIdentity& identity) {
  return {{"device", "cpu"},
          {"processor", identity.processor},
          {"family", identity.family},
          {"model", identity.model},
          {"isa", identity.isa},
          {"features", identity.features},
          {"threads", identity.threads}};
}

/// A figure that a real machine could have: within a factor of 50 of the preset's.
bool can_be_true(double figure, double preset) {
  constexpr double factor = 50;
  return std::isfinite(figure) && figure > 0 && figure <= preset * factor &&
         figure >= preset / factor;
}

/// visit(name, figure) for all that stand side by side.
void for_figures(MachineModel& model, const auto& visit) {
  for (const Figure& figure : figures) visit(std::string(figure.name), model.*figure.value);
  for (std::size_t level = 0; level < level_count; ++level) {
    const std::string name(levels[level]);
    visit("read_" + name + "_gbs", model.read[level]);
    visit("write_" + name + "_gbs", model.write[level]);
  }
}
/// The same for those of ops that the model has.
void for_ops(MachineModel& model, const auto& visit) {
  for (std::size_t i = 0; i < scalar_op_count; ++i) {
    if (model.op_ns[i] > 0) visit(std::string(name_of(static_cast<ScalarOp>(i))), model.op_ns[i]);
  }
}

/// visit(name, figure, the other model's) for all of them and for all ops.
void for_both(MachineModel& model, MachineModel other, const auto& visit) {
  std::vector<double> figures;
  for_figures(other, [&](const std::string&, double value) { figures.push_back(value); });
  std::size_t at = 0;
  for_figures(model,
              [&](const std::string& name, double& value) { visit(name, value, figures[at++]); });
  for (std::size_t i = 0; i < scalar_op_count; ++i)
    visit(name_of(static_cast<ScalarOp>(i)), model.op_ns[i], other.op_ns[i]);
}

Status read_figure(const Json& json, const std::string& name, double& value) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number())
    return bad_input("the figure ({}) is missing", name);
  const double read = found->get<double>();
  if (!can_be_true(read, value))
    return bad_input("the figure ({}) cannot be true ({})", name, read);
  value = read;
  return {};
}

Status read_model(const Json& json, MachineModel& model) {
  Status status;
  const auto read_from = [&](const Json& part) {
    return [&](const std::string& name, double& value) {
      if (status.ok()) status = read_figure(part, name, value);
    };
  };
  double ghz = 0;  // where there is none, none was known
  if (json.contains("clock_ghz")) {
    ghz = 3;  // a likely one
    read_from(json)("clock_ghz", ghz);
  }
  model = at_clock(model, ghz);
  model.ghz = ghz;
  for_figures(model, read_from(json));
  if (!status.ok()) return status;
  const auto ops = json.find("ops_ns");
  if (ops == json.end() || !ops->is_object()) return bad_input("the figures of ops are missing");
  for_ops(model, read_from(*ops));
  model.calibrated = true;
  return status;
}

Json model_json(MachineModel model) {
  Json json;
  for_figures(model, [&](const std::string& name, double value) { json[name] = value; });
  if (model.ghz > 0) json["clock_ghz"] = model.ghz;
  for_ops(model, [&](const std::string& name, double value) { json["ops_ns"][name] = value; });
  return json;
}

/// Wants a matmul of f32 on `threads` threads among them: device choice asks for it.
Status read_gemms(const Json& json, int threads, std::vector<MeasuredGemm>& gemms) {
  constexpr double least_gflops = 1e-3, most_gflops = 1e5;
  bool has_all_threads = false;
  if (!json.is_array() || json.empty() || json.size() > 1000)
    return bad_input("the matmuls are missing");
  for (const Json& entry : json) {
    MeasuredGemm gemm;
    const auto dtype = dtype_named(entry.at("dtype").get<std::string>());
    if (!dtype) return bad_input("a matmul has no dtype");
    gemm.dtype = *dtype;
    gemm.m = entry.at("m").get<std::int64_t>();
    gemm.n = entry.at("n").get<std::int64_t>();
    gemm.k = entry.at("k").get<std::int64_t>();
    gemm.threads = entry.at("threads").get<int>();
    gemm.gflops = entry.at("gflops").get<double>();
    const auto size_ok = [](std::int64_t size) { return size > 0 && size <= 1 << 20; };
    if (!size_ok(gemm.m) || !size_ok(gemm.n) || !size_ok(gemm.k) || gemm.threads < 1 ||
        !std::isfinite(gemm.gflops) || gemm.gflops < least_gflops || gemm.gflops > most_gflops)
      return bad_input("a matmul cannot be true");
    has_all_threads = has_all_threads || (gemm.dtype == DType::f32 && gemm.threads == threads);
    gemms.push_back(gemm);
  }
  if (!has_all_threads) return bad_input("the matmuls of ({}) threads are missing", threads);
  return {};
}

/// Races were kept since, by programs that chose a device: there may be none.
Status read_races(const Json& json, std::vector<Calibration::Impl::Race>& races) {
  const auto found = json.find("races");
  if (found == json.end()) return {};
  if (!found->is_array() || found->size() > most_races) return bad_input("the races are no list");
  for (const Json& entry : *found) {
    Calibration::Impl::Race race{entry.at("graph").get<std::string>(),
                                 entry.at("ns").get<double>()};
    constexpr double longest_ns = 1e15;
    if (race.graph.size() != digest_digits || !(race.ns > 0 && race.ns < longest_ns))
      return bad_input("a race cannot be true");
    races.push_back(std::move(race));
  }
  return {};
}

/// "2026-11-21T14:00:00Z".
bool is_date(std::string_view text) {
  constexpr std::string_view form = "dddd-dd-ddTdd:dd:ddZ";
  return std::ranges::equal(text, form, [](char c, char expected) {
    return expected == 'd' ? c >= '0' && c <= '9' : c == expected;
  });
}

Result<std::shared_ptr<const Calibration::Impl>> read(const Json& json) {
  if (!json.is_object() || json.value("kind", "") != file_kind)
    return bad_input("it is no calibration");
  if (json.value("schema", -1) != calibration_schema || json.value("rlx", "") != RLX_VERSION)
    return bad_input("it was made by another version");
  RLX_ASSIGN(const DeviceIdentity identity, cpu_identity());
  const Json own = to_json(identity), kept = json.value("identity", Json());
  if (kept != own) {
    std::string differing;
    for (const auto& [key, value] : own.items()) {
      if (kept.is_object() && kept.contains(key) && kept[key] == value) continue;
      differing += (differing.empty() ? "" : ", ") + key;
    }
    return bad_input("it is of another machine, or for another use of this one (other: {})",
                     differing.empty() ? "identity" : differing);
  }
  RLX_ASSIGN(const codegen::Target target, codegen::host_target());
  auto impl = std::make_shared<Calibration::Impl>();
  impl->model = preset_for(codegen::host_cpu(), target);
  impl->threads = identity.threads;
  impl->date = json.value("date", "");
  impl->generator = json.value("generator", "");
  if (!is_date(impl->date) || impl->generator.empty())
    return bad_input("it does not say when and with which generator it was made");
  RLX_TRY(read_model(json.at("figures"), impl->model));
  RLX_TRY(read_gemms(json.at("gemms"), impl->threads, impl->gemms));
  RLX_TRY(read_races(json, impl->races));
  return std::shared_ptr<const Calibration::Impl>(std::move(impl));
}

Status check_device(Device device) {
  if (device == Device::cpu || device == Device::automatic) return {};
  return not_available("The device ({}) is not available here: there is nothing to measure.",
                       name_of(device));
}

}  // namespace

Result<DeviceIdentity> cpu_identity() {
  RLX_ASSIGN(const codegen::Target target, codegen::host_target());
  const codegen::CpuFacts facts = codegen::host_cpu();
  return DeviceIdentity{processor_name(), facts.family,
                        facts.model,      std::string(codegen::name_of(target.isa)),
                        target.features,  default_thread_count()};
}

std::string calibration_file(const DeviceIdentity& identity) {
  return fmt::format("calibration_cpu_{}_{}.json", identity.isa, identity.threads);
}

std::optional<double> kept_race(Device device, const std::string& graph) {
  const auto calibration = Calibration::load(device);
  if (!calibration.ok()) return std::nullopt;
  const auto& races = calibration->impl().races;
  const auto found = std::ranges::find(races, graph, &Calibration::Impl::Race::graph);
  return found == races.end() ? std::nullopt : std::optional(found->ns);
}

bool keep_race(Device device, const std::string& graph, double ns) {
  const auto calibration = Calibration::load(device);
  if (!calibration.ok()) return false;
  Calibration::Impl impl = calibration->impl();
  if (impl.races.size() >= most_races) impl.races.erase(impl.races.begin());
  impl.races.push_back({graph, ns});
  return Calibration(std::make_shared<const Calibration::Impl>(std::move(impl))).save().ok();
}

void replace_untrue(MachineModel& measured, const MachineModel& preset) {
  for_both(measured, preset, [](std::string_view, double& value, double figure) {
    if (!can_be_true(value, figure)) value = figure;
  });
}

void keep_fitted(MachineModel& measured, const MachineModel& preset) {
  if (preset.ghz <= 0 || measured.ghz <= 0) return;
  constexpr double near = 1.4;  // the calibrations of one machine lie 1.31 apart, of others beyond
  const auto is_shared = [](std::string_view name) {
    return name.ends_with("_all_gbs") || name.ends_with("_l3_gbs") || name.ends_with("_memory_gbs");
  };
  for_both(measured, at_clock(preset, measured.ghz),
           [&](std::string_view name, double& value, double figure) {
             if (!is_shared(name) && value < figure * near && figure < value * near) value = figure;
           });
}

HostModel model_for(const codegen::Target& target) {
  HostModel chosen{preset_for(codegen::host_cpu(), target), {}};
  const auto host = codegen::host_target();
  if (!host.ok() || *host != target) return chosen;
  const auto calibration = Calibration::load(Device::cpu);
  if (calibration.ok()) {
    chosen.model = calibration->impl().model;
  } else if (calibration.error().kind == ErrorKind::bad_input) {
    chosen.note = calibration.error().message;
  }
  return chosen;
}

Digest digest_of(const MachineModel& model) {
  Hasher hasher;
  hasher.add_field(model.family).add_field(model.calibrated ? "calibrated" : "preset");
  const auto add = [&](const std::string& name, double value) {
    hasher.add_field(name).add_field(std::bit_cast<std::uint64_t>(value));
  };
  MachineModel figures = model;
  for_figures(figures, add);
  for_ops(figures, add);
  add("clock", model.ghz);
  for (const std::int64_t bytes : model.cache_bytes) add("cache", static_cast<double>(bytes));
  return hasher.finish();
}

}  // namespace cost

Result<Calibration> Calibration::parse(std::string_view text) {
  try {
    const cost::Json json = cost::Json::parse(text, nullptr, false);
    if (json.is_discarded()) return bad_input("it is no JSON, or cut short");
    RLX_ASSIGN(auto impl, cost::read(json));
    return Calibration(std::move(impl));
  } catch (const nlohmann::json::exception&) {
    return bad_input("a part of it is missing or of the wrong kind");
  }
}

Result<Calibration> Calibration::load(Device device) {
  RLX_TRY(cost::check_device(device));
  RLX_ASSIGN(const CacheFolder folder, CacheFolder::open_for_user());
  RLX_ASSIGN(const cost::DeviceIdentity identity, cost::cpu_identity());
  const std::string file = cost::calibration_file(identity);
  const std::string path = folder.path() + "/" + file;
  const auto bytes = folder.read(file, cost::file_limit);
  std::error_code none;
  if (!bytes && !std::filesystem::exists(std::filesystem::symlink_status(path, none)))
    return not_available("The machine is not calibrated.");
  const Result<Calibration> parsed =
      bytes
          ? parse({reinterpret_cast<const char*>(bytes->data()), bytes->size()})
          : bad_input("it is no plain file of this user that nobody else may write, or too large");
  if (parsed.ok()) return parsed;
  return bad_input("The calibration ({}) is not used: {}. rlx calibrate makes a new one.", path,
                   parsed.error().message);
}

Result<Calibration> Calibration::measure(Device device, const CalibrationProgress& progress) {
  RLX_TRY(cost::check_device(device));
  RLX_ASSIGN(const codegen::Target target, codegen::host_target());
  const cost::MachineModel preset = cost::preset_for(codegen::host_cpu(), target);
  RLX_ASSIGN(Impl impl, cost::measure_cpu(preset, progress));
  cost::replace_untrue(impl.model, preset);
  cost::keep_fitted(impl.model, preset);
  return Calibration(std::make_shared<const Impl>(std::move(impl)));
}

Result<Calibration> Calibration::load_or_measure(
    Device device, const CalibrationProgress& progress,
    const std::function<void(std::string_view)>& note) {
  auto kept = load(device);
  if (kept.ok()) return kept;
  if (note) note(kept.error().message);
  RLX_ASSIGN(Calibration measured, measure(device, progress));
  const auto saved = measured.save();
  if (!saved.ok() && note) note(saved.error().message);
  return measured;
}

Result<std::string> Calibration::save() const {
  RLX_ASSIGN(const CacheFolder folder, CacheFolder::open_for_user());
  RLX_ASSIGN(const cost::DeviceIdentity identity, cost::cpu_identity());
  const std::string file = cost::calibration_file(identity), content = text();
  RLX_TRY(folder.write(file, std::as_bytes(std::span(content))));
  return folder.path() + "/" + file;
}

std::string Calibration::text() const {
  using cost::Json;
  Json json{{"kind", cost::file_kind},
            {"schema", cost::calibration_schema},
            {"rlx", RLX_VERSION},
            {"generator", impl_->generator},
            {"date", impl_->date}};
  const auto identity = cost::cpu_identity();
  if (identity.ok()) json["identity"] = cost::to_json(*identity);
  json["figures"] = cost::model_json(impl_->model);
  for (const MeasuredGemm& gemm : impl_->gemms) {
    json["gemms"].push_back({{"dtype", name_of(gemm.dtype)},
                             {"m", gemm.m},
                             {"n", gemm.n},
                             {"k", gemm.k},
                             {"threads", gemm.threads},
                             {"gflops", gemm.gflops}});
  }
  for (const auto& [graph, ns] : impl_->races)
    json["races"].push_back({{"graph", graph}, {"ns", ns}});
  return json.dump(1) + "\n";
}

Device Calibration::device() const { return Device::cpu; }
const std::string& Calibration::date() const { return impl_->date; }
const std::vector<MeasuredGemm>& Calibration::gemms() const { return impl_->gemms; }

IoFusionGate Calibration::gate() const {
  IoFusionGate gate = IoFusionGate::preset(Device::cpu);
  gate.dispatch_ns = impl_->model.kernel + impl_->model.item;
  // What a kernel hands to the next one lies in L2 as a rule.
  gate.memory_bw = gate.host_readback_bw = impl_->model.read[1];
  return gate;
}

BackendCostModel Calibration::cost_model() const {
  BackendCostModel model = *BackendCostModel::preset(Device::cpu, impl_->threads);
  model.gemm_rates.clear();
  for (const MeasuredGemm& gemm : impl_->gemms) {
    if (gemm.dtype != DType::f32 || gemm.threads != impl_->threads) continue;
    const double work = static_cast<double>(gemm.m * gemm.n * gemm.k);
    if (!model.gemm_rates.empty() && work <= model.gemm_rates.back().work_max) continue;
    model.gemm_rates.push_back({work, gemm.gflops});
  }
  if (!model.gemm_rates.empty())
    model.gemm_rates.back().work_max = std::numeric_limits<double>::infinity();
  model.dispatch_overhead_ns = impl_->model.kernel + impl_->model.item;
  model.memory_bw = impl_->model.memory_all;
  model.calibrated = true;
  return model;
}

}  // namespace rlx
