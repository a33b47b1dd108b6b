// Options of verbs that take a model: declared, checked, and turned into the library's options.
#include "tools/options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <optional>

#include "tools/answers.hpp"
#include "tools/printable.hpp"

namespace rlx::tools {
namespace {

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

// Checks give an empty text, or the sentence that CLI11 prints after the option's name.
std::string check_threads(const std::string& text) {
  const auto number = whole_number(text);
  const bool good = text == "auto" || (number && *number >= 1 && *number <= 1024);
  return good ? "" : fmt::format("({}) is neither auto nor a number of threads.", text);
}

std::string check_precision(const std::string& text) {
  return precision_named(text) ? "" : fmt::format("({}) is none of f32, bf16, f16, int8.", text);
}

std::string check_device(const std::string& text) {
  return device_named(text) ? "" : fmt::format("There is no device ({}).", text);
}

std::string check_dim(const std::string& text) {
  const std::size_t at = text.rfind('=');
  const auto number =
      at == std::string::npos ? std::nullopt : whole_number(std::string_view(text).substr(at + 1));
  if (at == 0 || !number || *number < 0) return fmt::format("({}) is not NAME=N.", text);
  return "";
}

std::string check_input(const std::string& text) {
  const std::size_t at = text.find('=');
  const bool good = at != std::string::npos && at > 0 && at + 1 < text.size();
  return good ? "" : fmt::format("({}) is not NAME=FILE.", text);
}

}  // namespace

int exit_code_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage: return exit_usage;
    case ErrorKind::not_available: return exit_missing;
    default: return exit_input;
  }
}

SessionOptions ModelOptions::session_options() const {
  SessionOptions options;
  options.threads = threads == "auto" ? 0 : static_cast<int>(whole_number(threads).value_or(0));
  options.log_level = LogLevel::warning;
  options.log = [](LogLevel, std::string_view text) {
    fmt::print(stderr, "rlx: {}\n", printable(text));
  };
  return options;
}

CompileOptions ModelOptions::compile_options() const {
  CompileOptions options;
  options.precision = precision_named(precision).value_or(Precision::f32);
  options.exact = exact;
  options.flush_subnormals = flush_subnormals;
  for (const std::string& answer : answers) options.answers.insert(split_answer(answer));
  return options;
}

Device ModelOptions::device_asked() const {
  return device_named(device).value_or(Device::automatic);
}

void add_run_options(CLI::App& app, ModelOptions& options) {
  app.add_option("--device", options.device, "Device to run on, or auto")->check(check_device);
  app.add_option("--threads", options.threads, "Worker threads, or auto")->check(check_threads);
  app.add_option("--precision", options.precision, "f32, bf16, f16 or int8")
      ->check(check_precision);
  app.add_flag("--exact", options.exact, "No reordering or algorithm that costs accuracy");
  app.add_flag("--flush-subnormals", options.flush_subnormals,
               "Subnormal numbers count as zero, which some cores compute many times faster");
}

void add_model_options(CLI::App& app, ModelOptions& options) {
  app.add_option("MODEL", options.model, "An .onnx file, or a graph in the text form (.rlx)")
      ->required();
  app.add_option("--input", options.inputs,
                 "NAME=FILE (.npy, .pb, .wav, or .wav@RATE to resample): the value of an input")
      ->check(check_input)
      ->allow_extra_args(false);
  app.add_option("--case", options.case_folder, "A test_data_set folder with input_K.pb files");
  app.add_option("--dim", options.dims, "NAME=N or INPUT:AXIS=N: the value of a dim")
      ->check(check_dim)
      ->allow_extra_args(false);
  add_run_options(app, options);
  app.add_flag("--json", options.json, "Results as JSON");
}

std::pair<std::string, std::int64_t> split_dim(const std::string& option) {
  const std::size_t at = option.rfind('=');
  return {option.substr(0, at), whole_number(std::string_view(option).substr(at + 1)).value_or(0)};
}

std::pair<std::string, std::string> split_input(const std::string& option) {
  const std::size_t at = option.find('=');
  return {option.substr(0, at), option.substr(at + 1)};
}

}  // namespace rlx::tools
