// Calibration files: kept whole, distrusted when read.
#include "cost/calibration.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "cost/clock.hpp"
#include "presets.hpp"

namespace rlx {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

/// RLX_CACHE_DIR points at a folder of the test's own for as long as this lives.
class CacheHome {
 public:
  CacheHome() {
    std::string pattern = (fs::temp_directory_path() / "rlx_calibration_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
    const char* before = std::getenv("RLX_CACHE_DIR");
    before_ = before ? before : "";
    setenv("RLX_CACHE_DIR", path_.c_str(), 1);
  }
  ~CacheHome() {
    setenv("RLX_CACHE_DIR", before_.c_str(), 1);
    if (before_.empty()) unsetenv("RLX_CACHE_DIR");
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  CacheHome(const CacheHome&) = delete;
  CacheHome& operator=(const CacheHome&) = delete;
  fs::path file() const { return path_ / cost::calibration_file(cost::cpu_identity().value()); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  std::string before_;
};

/// A calibration whose figures are the preset's: only what a test of measuring itself needs is
/// measured.
Calibration sample() {
  auto impl = std::make_shared<Calibration::Impl>();
  const auto target = codegen::host_target().value();
  impl->model = cost::preset_for(codegen::host_cpu(), target);
  impl->date = "2026-01-01T00:00:00Z";
  impl->generator = "LLVM";
  impl->threads = cost::cpu_identity().value().threads;
  impl->gemms = {{f32, 64, 64, 64, 1, 100}, {f32, 512, 512, 512, impl->threads, 200}};
  return Calibration(impl);
}

void write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
}

TEST(Calibration, ComesBackAsItWasKept) {
  const CacheHome home;
  EXPECT_FALSE(Calibration::load().ok());
  const Calibration kept = sample();
  const auto path = kept.save();
  ASSERT_TRUE(path.ok()) << path.error().message;
  EXPECT_EQ(*path, home.file().string());
  const auto loaded = Calibration::load();
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded->text(), kept.text());
  EXPECT_EQ(loaded->date(), "2026-01-01T00:00:00Z");
  EXPECT_TRUE(loaded->impl().model.calibrated);
  EXPECT_TRUE(loaded->cost_model().calibrated);
  const Json json = Json::parse(kept.text());
  for (const char* key : {"schema", "rlx", "generator", "date", "identity"})
    EXPECT_TRUE(json.contains(key)) << key;
}

TEST(Calibration, KeepsTheAnswersOfRaces) {
  const CacheHome home;
  const std::string graph(64, 'a'), other(64, 'b');
  EXPECT_FALSE(cost::keep_race(Device::cpu, graph, 5e3)) << "there is no calibration";
  ASSERT_TRUE(sample().save().ok());
  EXPECT_FALSE(cost::kept_race(Device::cpu, graph));
  ASSERT_TRUE(cost::keep_race(Device::cpu, graph, 5e3));
  ASSERT_TRUE(cost::keep_race(Device::cpu, other, 6e3));
  EXPECT_EQ(cost::kept_race(Device::cpu, graph), 5e3);
  EXPECT_EQ(cost::kept_race(Device::cpu, other), 6e3);
  EXPECT_FALSE(cost::kept_race(Device::cuda, graph));
  for (int i = 0; i < 256; ++i)
    ASSERT_TRUE(cost::keep_race(Device::cpu, fmt::format("{:064x}", i), 1e3 + i));
  EXPECT_FALSE(cost::kept_race(Device::cpu, graph)) << "the oldest give way";
  EXPECT_EQ(cost::kept_race(Device::cpu, fmt::format("{:064x}", 0)), 1e3);
  ASSERT_TRUE(sample().save().ok());
  EXPECT_FALSE(cost::kept_race(Device::cpu, other)) << "figures measured anew begin without";
}

TEST(Calibration, HostileRacesAreRefused) {
  const Json good = Json::parse(sample().text());
  const Json name = std::string(64, 'a');
  for (const Json& race :
       {Json(3), Json({{"graph", name}}), Json({{"graph", "a"}, {"ns", 5.0}}),
        Json({{"graph", name}, {"ns", -1.0}}), Json({{"graph", name}, {"ns", 1e300}})}) {
    Json json = good;
    json["races"] = Json::array({race});
    EXPECT_FALSE(Calibration::parse(json.dump()).ok()) << json["races"].dump();
  }
}

TEST(Calibration, EachInstructionSetAndNumberOfThreadsHasAFile) {
  cost::DeviceIdentity identity = cost::cpu_identity().value();
  const std::string own = cost::calibration_file(identity);
  ++identity.threads;
  const std::string more = cost::calibration_file(identity);
  identity.isa = "portable";
  EXPECT_NE(own, more);
  EXPECT_NE(more, cost::calibration_file(identity));
}

TEST(Calibration, NoPrefixOfAFileIsTrusted) {
  const std::string text = sample().text();
  for (std::size_t length = 0; length + 2 < text.size(); length += 7)
    EXPECT_FALSE(Calibration::parse(text.substr(0, length)).ok()) << length;
}

TEST(Calibration, ForeignAndStaleFilesAreRefusedWithTheReason) {
  const Json good = Json::parse(sample().text());
  const auto reason = [](const Json& json) {
    const auto parsed = Calibration::parse(json.dump());
    return parsed.ok() ? std::string("used") : parsed.error().message;
  };
  EXPECT_EQ(reason(good), "used");
  Json json = good;
  json["schema"] = 999;
  EXPECT_NE(reason(json).find("another version"), std::string::npos);
  json = good;
  json["identity"]["processor"] = "somebody else's";
  EXPECT_NE(reason(json).find("another machine"), std::string::npos);
  json = good;
  json["identity"]["threads"] = 77;
  EXPECT_NE(reason(json).find("another machine"), std::string::npos);
  for (const char* key : {"date", "generator"}) {
    json = good;
    json[key] = "";
    EXPECT_NE(reason(json).find("when and with which"), std::string::npos) << key;
  }
  json = good;
  json["gemms"].erase(1);
  EXPECT_NE(reason(json).find("threads are missing"), std::string::npos);
  json = good;
  json["kind"] = "poem";
  EXPECT_NE(reason(json).find("no calibration"), std::string::npos);
}

TEST(Calibration, HostileFiguresAreRefused) {
  const Json good = Json::parse(sample().text());
  for (const Json& value : {Json(-1.0), Json(0), Json(1e300), Json("0.25"), Json(nullptr),
                            Json::array(), Json(1e-12)}) {
    for (const auto& [name, figure] : good["figures"].items()) {
      Json json = good;
      json["figures"][name] = value;
      EXPECT_FALSE(Calibration::parse(json.dump()).ok()) << name << " " << value.dump();
    }
    Json json = good;
    json["gemms"][0]["gflops"] = value;
    EXPECT_FALSE(Calibration::parse(json.dump()).ok()) << value.dump();
    json = good;
    json["gemms"][0]["m"] = value;
    EXPECT_FALSE(Calibration::parse(json.dump()).ok()) << value.dump();
  }
  EXPECT_FALSE(Calibration::parse(std::string(100000, '[')).ok());
  EXPECT_FALSE(Calibration::parse("[1, 2]").ok());
  EXPECT_FALSE(Calibration::parse("\xff\xfe{}").ok());
  Json json = good;
  json.erase("figures");
  EXPECT_FALSE(Calibration::parse(json.dump()).ok());
}

TEST(Calibration, ADamagedFileServesThePresetAndBreaksNothing) {
  const CacheHome home;
  write(home.file(), "{\"kind\": \"rlx calibration\", ");
  const auto loaded = Calibration::load();
  ASSERT_FALSE(loaded.ok());
  EXPECT_NE(loaded.error().message.find("is not used"), std::string::npos);
  const auto target = codegen::host_target().value();
  const cost::HostModel host = cost::model_for(target);
  EXPECT_FALSE(host.model.calibrated);
  EXPECT_NE(host.note.find("cut short"), std::string::npos) << host.note;
}

TEST(Calibration, AFileOfOthersIsNotUsedAndSaysSo) {
  const CacheHome home;
  ASSERT_TRUE(sample().save().ok());
  fs::permissions(home.file(), fs::perms::others_write, fs::perm_options::add);
  const auto loaded = Calibration::load();
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().kind, ErrorKind::bad_input);
  EXPECT_NE(loaded.error().message.find("nobody else may write"), std::string::npos);
}

TEST(Calibration, IsTakenFromItsFileOrMeasuredAndKept) {
  const CacheHome home;
  std::vector<std::string> notes;
  const auto note = [&](std::string_view text) { notes.emplace_back(text); };
  write(home.file(), "{}");
  int parts = 0;
  const auto measured =
      Calibration::load_or_measure(Device::cpu, [&](std::string_view, double) { ++parts; }, note);
  ASSERT_TRUE(measured.ok()) << measured.error().message;
  EXPECT_GT(parts, 0);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_NE(notes[0].find("no calibration"), std::string::npos) << notes[0];
  parts = 0;
  const auto kept =
      Calibration::load_or_measure(Device::cpu, [&](std::string_view, double) { ++parts; }, note);
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(parts, 0);
  EXPECT_EQ(notes.size(), 1U);
  EXPECT_EQ(kept->text(), measured->text());
}

/// What others did at the time may make a difference of two times negative, or a hundred times
/// too long.
TEST(Calibration, WhatCannotBeTrueIsNotKept) {
  const cost::MachineModel preset = sample().impl().model;
  cost::MachineModel measured = preset;
  const auto exp = static_cast<std::size_t>(ScalarOp::exp);
  measured.item = -0.1;
  measured.read[2] = std::numeric_limits<double>::quiet_NaN();
  measured.op_ns[exp] = 100 * preset.op_ns[exp];
  measured.tap = 1.5 * preset.tap;
  cost::replace_untrue(measured, preset);
  EXPECT_EQ(measured.item, preset.item);
  EXPECT_EQ(measured.read[2], preset.read[2]);
  EXPECT_EQ(measured.op_ns[exp], preset.op_ns[exp]);
  EXPECT_EQ(measured.tap, 1.5 * preset.tap);
  auto impl = std::make_shared<Calibration::Impl>(sample().impl());
  impl->model = measured;
  EXPECT_TRUE(Calibration::parse(Calibration(impl).text()).ok());
}

TEST(Calibration, WhatWasFittedStaysWhereItIsConfirmed) {
  const cost::MachineModel preset = cost::model_of_rapids(false);
  ASSERT_GT(preset.ghz, 0);
  const auto exp = static_cast<std::size_t>(ScalarOp::exp),
             floor = static_cast<std::size_t>(ScalarOp::floor);
  const double slower = 1.5;  // of the clock, which no core figure may be told by
  cost::MachineModel measured = cost::at_clock(preset, preset.ghz / slower);
  measured.cycle *= 1.1;
  measured.op_ns[exp] *= 1.2;
  measured.op_ns[floor] *= 2.6;
  measured.read[0] /= 1.2;
  measured.read[3] /= 1.2;
  measured.memory_all /= 1.2;
  const cost::MachineModel before = measured;
  cost::keep_fitted(measured, preset);
  EXPECT_DOUBLE_EQ(measured.cycle, slower * preset.cycle);
  EXPECT_DOUBLE_EQ(measured.op_ns[exp], slower * preset.op_ns[exp]);
  EXPECT_DOUBLE_EQ(measured.read[0], preset.read[0] / slower);
  EXPECT_EQ(measured.op_ns[floor], before.op_ns[floor]);
  EXPECT_EQ(measured.read[3], before.read[3]);
  EXPECT_EQ(measured.memory_all, before.memory_all);
  // Without clocks a slower machine is one.
  cost::MachineModel unclocked = preset, other = preset;
  unclocked.ghz = 0;
  other.cycle *= 1.2;
  cost::keep_fitted(other, unclocked);
  EXPECT_EQ(other.cycle, 1.2 * preset.cycle);
}

TEST(Calibration, WhatItsFileDoesNotNameMovesToItsClock) {
  const auto target = codegen::host_target();
  ASSERT_TRUE(target.ok());
  const cost::MachineModel preset = cost::preset_for(codegen::host_cpu(), *target);
  if (preset.ghz <= 0) GTEST_SKIP() << "the preset holds whatever the clock is";
  auto impl = std::make_shared<Calibration::Impl>(sample().impl());
  impl->model = cost::at_clock(preset, preset.ghz / 2);
  const auto parsed = Calibration::parse(Calibration(impl).text());
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_DOUBLE_EQ(parsed->impl().model.cycle, 2 * preset.cycle);
  EXPECT_DOUBLE_EQ(parsed->impl().model.code_line[1], 2 * preset.code_line[1]);
  EXPECT_DOUBLE_EQ(parsed->impl().model.code_line[3], preset.code_line[3]);
}

TEST(Calibration, WritersAtOnceLeaveOneGoodFile) {
  const CacheHome home;
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([] {
      const Calibration mine = sample();
      for (int round = 0; round < 50; ++round) {
        EXPECT_TRUE(mine.save().ok());
        EXPECT_TRUE(Calibration::load().ok());
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_TRUE(Calibration::load().ok());
}

TEST(Calibration, AFolderThatCannotBeWrittenIsAnErrorValue) {
  const CacheHome home;
  write(home.path() / "file", "");
  setenv("RLX_CACHE_DIR", (home.path() / "file" / "folder").c_str(), 1);
  EXPECT_FALSE(sample().save().ok());
  EXPECT_FALSE(Calibration::load().ok());
  setenv("RLX_CACHE_DIR", home.path().c_str(), 1);
}

TEST(Calibration, AMachineMayBeSlowerOrFasterThanItsPreset) {
  for (const double factor : {0.6, 1.6}) {
    cost::MachineModel preset = sample().impl().model;
    preset.cycle *= factor;
    for (double& ns : preset.op_ns) ns *= factor;
    const auto measured = cost::measure_cpu(preset, {});
    ASSERT_TRUE(measured.ok()) << factor << ": " << measured.error().message;
    EXPECT_TRUE(measured->model.calibrated);
    for (const ScalarOp op : {ScalarOp::add, ScalarOp::exp, ScalarOp::log2, ScalarOp::atan2})
      EXPECT_GT(measured->model.op(op), 0) << name_of(op);
  }
}

TEST(Calibration, ADeviceThatIsNotThereIsNotMeasured) {
  const auto measured = Calibration::measure(Device::cuda);
  ASSERT_FALSE(measured.ok());
  EXPECT_EQ(measured.error().kind, ErrorKind::not_available);
}

TEST(Calibration, digests_tell_models_apart) {
  const cost::MachineModel model = cost::model_of_zen5();
  const auto changed = [&](const auto& change) {
    cost::MachineModel other = model;
    change(other);
    return cost::digest_of(other) != cost::digest_of(model);
  };
  EXPECT_FALSE(changed([](cost::MachineModel&) {}));
  EXPECT_TRUE(changed([](cost::MachineModel& other) { other.family += " mended"; }));
  EXPECT_TRUE(changed([](cost::MachineModel& other) { other.calibrated = true; }));
  EXPECT_TRUE(changed([](cost::MachineModel& other) { other.cycle *= 1.001; }));
  EXPECT_TRUE(changed([](cost::MachineModel& other) { other.read[2] *= 1.001; }));
  EXPECT_TRUE(changed([](cost::MachineModel& other) { other.op_ns[1] += 0.001; }));
  EXPECT_TRUE(changed([](cost::MachineModel& other) { other.ghz += 0.1; }));
  EXPECT_TRUE(changed([](cost::MachineModel& other) { other.cache_bytes[1] += 4096; }));
}

}  // namespace
}  // namespace rlx
