// Signals of the corpus against SciPy's and Whisper's answers: transforms, Welch, log-mel features.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

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

  std::filesystem::path folder_;
};

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

TEST_F(SignalCorpus, Windows) {
  struct Case {
    const char* name;
    Window window;
    double parameter = 0;
  };
  for (const Case& each :
       {Case{"boxcar", Window::boxcar}, Case{"hann", Window::hann},
        Case{"hamming", Window::hamming}, Case{"blackman", Window::blackman},
        Case{"flattop", Window::flat_top}, Case{"kaiser_8_6", Window::kaiser, 8.6},
        Case{"gaussian_7_0", Window::gaussian, 7}}) {
    for (const std::int64_t n : {16, 17, 400}) {
      for (const bool periodic : {true, false}) {
        const std::string file = std::string("windows/") + each.name + "_" + std::to_string(n) +
                                 (periodic ? "_periodic.npy" : "_symmetric.npy");
        EXPECT_LT(difference(window(each.window, n, periodic, each.parameter), read(file)), 1e-14)
            << file;
      }
    }
  }
}

TEST_F(SignalCorpus, Welch) {
  struct Case {
    const char *name, *input;
    WelchOptions options;
  };
  const auto spectrum = SpectrumScaling::spectrum;
  for (const Case& each :
       {Case{"welch_ecg_0", "input_ecg", {.sample_rate = 360}},
        Case{"welch_ecg_4",
             "input_ecg",
             {.sample_rate = 360,
              .window = Window::kaiser,
              .window_parameter = 8.6,
              .length = 128,
              .overlap = 64,
              .scaling = spectrum}},
        Case{"welch_eeg32_0", "input_eeg32", {.sample_rate = 128}},
        Case{"welch_eeg32_1",
             "input_eeg32",
             {.sample_rate = 128,
              .window = Window::boxcar,
              .overlap = 0,
              .detrend = Detrend::none,
              .scaling = spectrum}},
        Case{"welch_jfk_0", "input_jfk", {.sample_rate = 16000}},
        Case{"welch_jfk_3",
             "input_jfk",
             {.sample_rate = 16000, .window = Window::blackman, .length = 400, .overlap = 200}}}) {
    const Tensor x = read(std::string(each.input) + "/x.npy"),
                 expected = read(std::string(each.name) + "/pxx.npy");
    const auto build = [&](Value value) { return welch(value, each.options); };
    EXPECT_LT(difference(run(x, f64, build), expected), 1e-12) << each.name;
    EXPECT_LT(difference(run(x, f32, build), expected), 2e-6) << each.name;
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
