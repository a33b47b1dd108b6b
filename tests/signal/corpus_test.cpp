// Signals of the corpus against SciPy's and Whisper's answers: transforms, Welch, log-mel features.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <map>
#include <nlohmann/json.hpp>

#include "rlx/rlx.hpp"
#include "rlx/signal.hpp"

namespace rlx {
namespace {

class SignalCorpus : public testing::Test {
 protected:
  void SetUp() override {
    const char* corpus = std::getenv("RLX_CORPUS");
    if (!corpus) GTEST_SKIP() << "RLX_CORPUS names no folder: the corpus is not there.";
    folder_ = std::filesystem::path(corpus) / "signal";
    if (!std::filesystem::exists(folder_)) GTEST_SKIP() << "The corpus has no folder signal.";
  }
  Tensor read(const std::string& file) const { return read_npy(folder_ / file).value(); }

  nlohmann::json params(const std::string& name) const {
    std::ifstream stream(folder_ / name / "params.json");
    return nlohmann::json::parse(stream);
  }
  std::vector<std::string> cases(const std::string& prefix) const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      const std::string name = entry.path().filename();
      if (name.starts_with(prefix)) names.push_back(name);
    }
    return names;
  }

  std::filesystem::path folder_;
};

struct NamedWindow {
  Window kind;
  double parameter = 0;
};

/// "hann", "('kaiser', 8.6)", and the files' "kaiser_8_6".
NamedWindow named_window(const std::string& text) {
  const std::map<std::string, Window> kinds{{"boxcar", Window::boxcar},
                                            {"hann", Window::hann},
                                            {"hamming", Window::hamming},
                                            {"blackman", Window::blackman},
                                            {"flattop", Window::flat_top},
                                            {"kaiser", Window::kaiser},
                                            {"gaussian", Window::gaussian},
                                            {"bartlett", Window::bartlett},
                                            {"blackmanharris", Window::blackman_harris},
                                            {"bohman", Window::bohman},
                                            {"cosine", Window::cosine},
                                            {"nuttall", Window::nuttall},
                                            {"parzen", Window::parzen},
                                            {"triang", Window::triangle},
                                            {"tukey", Window::tukey}};
  std::string name, digits;
  for (const char c : text) {
    if (c >= 'a' && c <= 'z') name += c;
    if ((c >= '0' && c <= '9') || c == '.') digits += c;
    if (c == '_' && !digits.empty()) digits += '.';
  }
  return {kinds.at(name), digits.empty() ? 0 : std::stod(digits)};
}

std::vector<double> doubles(const Tensor& tensor) {
  const std::int64_t bytes = tensor.elements() * static_cast<std::int64_t>(size_of(tensor.dtype()));
  std::vector<double> list;
  if (tensor.dtype() == f64 || tensor.dtype() == c128) {
    const auto* data = reinterpret_cast<const double*>(tensor.data());
    list.assign(data, data + bytes / 8);
  } else {
    const auto* data = reinterpret_cast<const float*>(tensor.data());
    list.assign(data, data + bytes / 4);
  }
  return list;
}

/// Largest difference relative to the largest expected number.
double difference(const Tensor& got, const Tensor& expected) {
  const std::vector<double> a = doubles(got), b = doubles(expected);
  if (a.size() != b.size()) return INFINITY;
  double most = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(a[i] - b[i]));
    size = std::max(size, std::abs(b[i]));
  }
  return most / std::max(size, 1e-300);
}

template <class Build>
Tensor run(const Tensor& x, DType dtype, Build build) {
  Graph graph;
  const Value input = graph.input("x", x.dtype(), Shape(x.dims().begin(), x.dims().end()));
  graph.output("y", build(x.dtype() == dtype ? input : cast(input, dtype)));
  Session session(Device::cpu);
  CompiledGraph program = session.compile(graph).value();
  const Outputs outputs = program.run_typed(std::vector<NamedInput>{{"x", x}}).value();
  return outputs["y"];
}

TEST_F(SignalCorpus, Transforms) {
  int cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("fft_")) continue;
    const Tensor c = read(name + "/c.npy"), r = read(name + "/r.npy");
    const auto apply = [](const Op& op) {
      return [op](Value x) { return x.graph().add_one(op, {x}); };
    };
    EXPECT_LT(difference(run(c, c128, apply(op::Fft{})), read(name + "/fft.npy")), 1e-13) << name;
    EXPECT_LT(difference(run(c, c128, apply(op::Fft{.inverse = true})), read(name + "/ifft.npy")),
              1e-13)
        << name;
    EXPECT_LT(difference(run(c, c64, apply(op::Fft{})), read(name + "/fft.npy")), 2e-6) << name;
    EXPECT_LT(difference(run(c, c64, apply(op::Fft{.inverse = true})), read(name + "/ifft.npy")),
              2e-6)
        << name;
    EXPECT_LT(difference(run(r, f64, apply(op::Rfft{})), read(name + "/rfft.npy")), 1e-13) << name;
    EXPECT_LT(difference(run(r, f32, apply(op::Rfft{})), read(name + "/rfft.npy")), 2e-6) << name;
    // Odd lengths among them.
    const auto back = apply(op::Irfft{.length = r.dims().back()});
    EXPECT_LT(difference(run(read(name + "/rfft.npy"), c128, back), read(name + "/irfft.npy")),
              1e-13)
        << name;
    ++cases;
  }
  EXPECT_GT(cases, 0);
}

TEST_F(SignalCorpus, CosineTransformsAndAnalyticSignals) {
  const auto check = [&](const std::string& name, const std::string& file, const auto& build) {
    if (!std::filesystem::exists(folder_ / name / file)) return;
    const Tensor r = read(name + "/r.npy"), expected = read(name + "/" + file);
    EXPECT_LT(difference(run(r, f64, build), expected), 1e-12) << name << " " << file;
    EXPECT_LT(difference(run(r, f32, build), expected), 2e-6) << name << " " << file;
  };
  for (const std::string& name : cases("fft_")) {
    for (int type = 1; type <= 4; ++type)
      check(name, "dct" + std::to_string(type) + ".npy", [&](Value x) { return dct(x, type); });
    check(name, "dct2_ortho.npy", [](Value x) { return dct(x, 2, FftNorm::ortho); });
    check(name, "idct2.npy", [](Value x) { return idct(x, 2); });
    check(name, "hilbert.npy", [](Value x) { return hilbert(x); });
  }
}

TEST_F(SignalCorpus, Windows) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "windows")) {
    const std::string file = entry.path().filename(), stem = entry.path().stem();
    if (entry.path().extension() != ".npy") continue;
    // NAME[_PARAMETER]_LENGTH_periodic or _symmetric
    const auto last = stem.rfind('_'), before = stem.rfind('_', last - 1);
    const std::int64_t n = std::stoll(stem.substr(before + 1, last - before - 1));
    const NamedWindow named = named_window(stem.substr(0, before));
    const Tensor got = window(named.kind, n, stem.substr(last + 1) == "periodic", named.parameter);
    EXPECT_LT(difference(got, read("windows/" + file)), 1e-14) << file;
    ++count;
  }
  EXPECT_GT(count, 50);
}

TEST_F(SignalCorpus, Welch) {
  for (const std::string& name : cases("welch_")) {
    const auto given = params(name);
    const std::string input = given.at("input"), window_name = given.at("window");
    const NamedWindow named = named_window(window_name);
    WelchOptions options{.sample_rate = given.at("fs"),
                         .window = named.kind,
                         .window_parameter = named.parameter,
                         .length = given.at("nperseg"),
                         .overlap = given.at("noverlap")};
    options.detrend = given.at("detrend").is_boolean()    ? Detrend::none
                      : given.at("detrend") == "constant" ? Detrend::constant
                                                          : Detrend::linear;
    if (given.at("scaling") == "spectrum") options.scaling = SpectrumScaling::spectrum;
    const Tensor x = read(input + "/x.npy");
    for (const Average average : {Average::mean, Average::median}) {
      options.average = average;
      const Tensor expected =
          read(name + (average == Average::mean ? "/pxx.npy" : "/pxx_median.npy"));
      const auto build = [&](Value value) { return welch(value, options); };
      EXPECT_LT(difference(run(x, f64, build), expected), 1e-12) << name;
      EXPECT_LT(difference(run(x, f32, build), expected), 2e-6) << name;
    }
  }
}

TEST_F(SignalCorpus, ShortTimeTransforms) {
  for (const std::string& name : cases("stft_")) {
    const auto given = params(name);
    const std::string input = given.at("input"), window_name = given.at("window");
    const NamedWindow named = named_window(window_name);
    StftOptions options =
        scipy_stft(given.at("nperseg"), given.at("noverlap"), named.kind, named.parameter);
    options.n_fft = given.at("nfft");
    options.whole = given.at("padded");
    options.centre = !given.at("boundary").is_null();
    if (options.centre && given.at("boundary") == "even") options.extension = Extension::reflect;
    if (options.centre && given.at("boundary") == "odd") options.extension = Extension::odd;
    if (options.centre && given.at("boundary") == "constant") options.extension = Extension::edge;
    if (given.at("scaling") == "psd") options.scaling = StftScaling::density;
    options.sample_rate = given.at("fs");
    const Tensor x = read(input + "/x.npy"), z = read(name + "/z.npy");
    const auto forwards = [&](Value value) { return stft(value, options); };
    EXPECT_LT(difference(run(x, f64, forwards), z), 1e-12) << name;
    EXPECT_LT(difference(run(x, f32, forwards), z), 2e-6) << name;
    const auto back = [&](Value value) { return istft(stft(value, options), options); };
    EXPECT_LT(difference(run(x, f64, back), read(name + "/istft.npy")), 1e-12) << name;
    EXPECT_LT(difference(run(x, f32, back), read(name + "/istft.npy")), 2e-6) << name;
  }
}

TEST_F(SignalCorpus, WhisperLogMel) {
  const Tensor clip = read("whisper_logmel_mel_80/pcm.npy"),
               filters = read("whisper_logmel_mel_80/filters.npy"),
               expected = read("whisper_logmel_mel_80/logmel.npy");
  const auto build = [&](Value value) {
    const Value padded = pad(value, {0}, {480000 - 176000});
    return transpose(log_mel_features(padded, value.graph().constant(filters), 400, 160), {1, 0});
  };
  const Tensor got = run(clip, f32, build);
  const std::vector<double> a = doubles(got), b = doubles(expected);
  ASSERT_EQ(a.size(), b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  EXPECT_LT(most, 1e-4);
}

}  // namespace
}  // namespace rlx
