// Sound and recordings of body signals: what is written is read, and hostile files are errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "base/temporary_folder.hpp"
#include "rlx/import.hpp"

namespace rlx {
namespace {

using ::testing::HasSubstr;

std::string read_bytes(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

void write_bytes(const std::string& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary) << bytes;
}

Tensor tone(std::int64_t channels, std::int64_t samples, double period) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < channels * samples; ++i) {
    const auto t = static_cast<double>(i % samples);
    values.push_back(static_cast<float>(0.7 * std::sin(2 * M_PI * t / period)));
  }
  return Tensor::of<float>({channels, samples}, std::span<const float>(values));
}

double difference(const Tensor& a, const Tensor& b) {
  if (a.dims() != b.dims()) return INFINITY;
  double most = 0;
  for (std::size_t i = 0; i < a.as<float>().size(); ++i)
    most = std::max(most, std::abs(static_cast<double>(a.as<float>()[i] - b.as<float>()[i])));
  return most;
}

class Recordings : public ::testing::Test {
 protected:
  rlx::testing::TemporaryFolder folder;
  const std::string file = folder.path("a.bin");

  template <class Read>
  std::string refusal(const std::string& bytes, Read read) {
    write_bytes(file, bytes);
    const auto result = read(file);
    EXPECT_FALSE(result.ok()) << "a file of " << bytes.size() << " bytes";
    return result.ok() ? std::string() : result.error().message;
  }
  std::string wav_refusal(const std::string& bytes) {
    return refusal(bytes, [](const std::string& f) { return read_wav(f); });
  }
  std::string edf_refusal(const std::string& bytes) {
    return refusal(bytes, [](const std::string& f) { return read_edf(f); });
  }
};

TEST_F(Recordings, SoundComesBackWithinItsSteps) {
  const Tensor samples = tone(3, 1000, 50);
  const std::pair<SoundFormat, double> formats[] = {{SoundFormat::pcm_16, 1.0 / 32768},
                                                    {SoundFormat::pcm_24, 1.0 / 8388608},
                                                    {SoundFormat::pcm_32, 1e-7},
                                                    {SoundFormat::float_32, 1e-12}};
  for (const auto& [format, step] : formats) {
    ASSERT_TRUE(write_wav(file, samples, 22050, format).ok());
    const Sound sound = read_wav(file).value();
    EXPECT_EQ(sound.sample_rate, 22050);
    EXPECT_LE(difference(sound.samples, samples), step) << static_cast<int>(format);
  }
}

TEST_F(Recordings, IntegersAreClipped) {
  const Tensor loud = Tensor::of<float>({3}, {2.0f, -2.0f, 0.5f});
  ASSERT_TRUE(write_wav(file, loud, 8000).ok());
  const Tensor got = read_wav(file).value().samples;
  EXPECT_NEAR(got.as<float>()[0], 1, 1e-4);
  EXPECT_NEAR(got.as<float>()[1], -1, 1e-4);
  EXPECT_NEAR(got.as<float>()[2], 0.5, 1e-4);
}

TEST_F(Recordings, SoundIsResampledWhereAsked) {
  ASSERT_TRUE(write_wav(file, tone(1, 4410, 441), 44100, SoundFormat::float_32).ok());
  const Sound sound = read_wav(file, 16000).value();
  EXPECT_EQ(sound.sample_rate, 16000);
  const Tensor expected = tone(1, 1600, 160);
  ASSERT_EQ(sound.samples.dims(), expected.dims());
  for (std::size_t i = 200; i < 1400; ++i)
    EXPECT_NEAR(sound.samples.as<float>()[i], expected.as<float>()[i], 2e-3);
  EXPECT_FALSE(read_wav(file, -1).ok());
}

TEST_F(Recordings, BrokenSoundIsAnError) {
  ASSERT_TRUE(write_wav(file, tone(2, 64, 16), 8000).ok());
  const std::string whole = read_bytes(file);
  EXPECT_THAT(wav_refusal("RIFF"), HasSubstr("It is no .wav file."));
  EXPECT_THAT(wav_refusal("fLaC" + whole.substr(4)), HasSubstr("It is no .wav file."));
  EXPECT_FALSE(read_wav(folder.path("absent.wav")).ok());
  for (std::size_t size = 1; size < 44; ++size) wav_refusal(whole.substr(0, size));
  // Bytes of the header turned to others: an error or a sound, never more samples than bytes.
  for (std::size_t at = 0; at < 44; ++at) {
    for (const char byte : {'\x00', '\x01', '\x7f', '\xff'}) {
      std::string bytes = whole;
      bytes[at] = byte;
      write_bytes(file, bytes);
      const auto sound = read_wav(file);
      if (sound.ok()) {
        EXPECT_LE(sound->samples.elements(), 512);
      }
    }
  }
}

TEST_F(Recordings, OddSoundIsNotWritten) {
  EXPECT_FALSE(write_wav(file, tone(1, 4, 4), 0).ok());
  EXPECT_FALSE(write_wav(file, Tensor(f64, {4}), 8000).ok());
  EXPECT_FALSE(write_wav(folder.path("no/such/folder.wav"), tone(1, 4, 4), 8000).ok());
}

std::string field(const std::string& text, std::size_t width) {
  return text + std::string(width - text.size(), ' ');
}

struct EdfSignal {
  std::string label, unit, physical_min, physical_max, digital_min, digital_max, samples;
};

/// Two records of a ramp each; `bytes` 2 for .edf, 3 for .bdf.
std::string edf(const std::vector<EdfSignal>& signals, int bytes = 2,
                const std::string& records = "2", const std::string& duration = "1",
                const std::string& reserved = "") {
  const std::string count = std::to_string(signals.size());
  std::string text = bytes == 2 ? field("0", 8)
                                : "\xff"
                                  "BIOSEMI";
  text += field("X", 80) + field("Startdate", 80) + "01.01.20" + "00.00.00" +
          field(std::to_string(256 * (signals.size() + 1)), 8) + field(reserved, 44) +
          field(records, 8) + field(duration, 8) + field(count, 4);
  const auto put = [&](auto member, std::size_t width) {
    for (const EdfSignal& signal : signals) text += field(signal.*member, width);
  };
  const auto blank = [&](std::size_t width) { text += std::string(width * signals.size(), ' '); };
  put(&EdfSignal::label, 16);
  blank(80);
  put(&EdfSignal::unit, 8);
  put(&EdfSignal::physical_min, 8);
  put(&EdfSignal::physical_max, 8);
  put(&EdfSignal::digital_min, 8);
  put(&EdfSignal::digital_max, 8);
  blank(80);
  put(&EdfSignal::samples, 8);
  blank(32);
  for (int record = 0; record < 2; ++record) {
    for (const EdfSignal& signal : signals) {
      for (int i = 0; i < std::atoi(signal.samples.c_str()); ++i) {
        const int value = 100 * record - i;
        for (int byte = 0; byte < bytes; ++byte)
          text += static_cast<char>((value >> (8 * byte)) & 0xff);
      }
    }
  }
  return text;
}

const EdfSignal eeg{"EEG Fp1", "uV", "-3276.8", "3276.7", "-32768", "32767", "4"};
const EdfSignal slow{"Temp", "degC", "30", "40", "-1000", "1000", "2"};
const EdfSignal notes{"EDF Annotations", "", "-1", "1", "-32768", "32767", "3"};

TEST_F(Recordings, EdfGivesPhysicalUnits) {
  write_bytes(file, edf({eeg, notes, slow}));
  const Recording recording = read_edf(file).value();
  ASSERT_EQ(recording.channels.size(), 2U);
  EXPECT_EQ(recording.duration_s, 2);
  EXPECT_TRUE(recording.is_continuous);
  const auto& first = recording.channels[0];
  EXPECT_EQ(first.label, "EEG Fp1");
  EXPECT_EQ(first.unit, "uV");
  EXPECT_EQ(first.sample_rate, 4);
  ASSERT_EQ(first.samples.dims(), (Dims{8}));
  const float expected[] = {0, -0.1f, -0.2f, -0.3f, 10, 9.9f, 9.8f, 9.7f};
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(first.samples.as<float>()[i], expected[i], 1e-5);
  EXPECT_EQ(recording.channels[1].sample_rate, 2);
  EXPECT_NEAR(recording.channels[1].samples.as<float>()[2], 35.5, 1e-5);
}

TEST_F(Recordings, BdfHas24Bits) {
  EdfSignal wide = eeg;
  wide.digital_min = "-8388608";
  wide.digital_max = "8388607";
  wide.physical_min = "-8388608";
  wide.physical_max = "8388607";
  write_bytes(file, edf({wide}, 3, "-1", "0.5", "BDF+D"));
  const Recording recording = read_edf(file).value();
  EXPECT_EQ(recording.channels[0].sample_rate, 8);
  EXPECT_FALSE(recording.is_continuous);
  EXPECT_EQ(recording.channels[0].samples.as<float>()[3], -3);
  EXPECT_EQ(recording.channels[0].samples.as<float>()[4], 100);
  const Recording faster = read_edf(file, 16).value();
  EXPECT_EQ(faster.channels[0].sample_rate, 16);
  EXPECT_EQ(faster.channels[0].samples.dims(), (Dims{16}));
}

TEST_F(Recordings, EdfThatContradictsItselfIsAnError) {
  const auto with = [](auto member, const std::string& value) {
    EdfSignal signal = eeg;
    signal.*member = value;
    return edf({signal});
  };
  EXPECT_THAT(edf_refusal("not a recording"), HasSubstr("shorter than the header"));
  EXPECT_THAT(edf_refusal(std::string(300, 'x')), HasSubstr("neither an .edf nor a .bdf file"));
  EXPECT_THAT(edf_refusal(with(&EdfSignal::physical_min, "abc")), HasSubstr("(abc)"));
  EXPECT_THAT(edf_refusal(with(&EdfSignal::physical_min, "nan")), HasSubstr("not finite"));
  EXPECT_THAT(edf_refusal(with(&EdfSignal::physical_max, "-3276.8")), HasSubstr("the range"));
  EXPECT_THAT(edf_refusal(with(&EdfSignal::digital_max, "-32768")), HasSubstr("the range"));
  EXPECT_THAT(edf_refusal(with(&EdfSignal::samples, "0")), HasSubstr("(0) samples in a record"));
  EXPECT_THAT(edf_refusal(with(&EdfSignal::samples, "99999999")), HasSubstr("(99999999)"));
  EXPECT_THAT(edf_refusal(edf({eeg}, 2, "3")), HasSubstr("(3) records"));
  EXPECT_THAT(edf_refusal(edf({eeg}, 2, "-2")), HasSubstr("(-2) records"));
  EXPECT_THAT(edf_refusal(edf({eeg}, 2, "2", "0")), HasSubstr("lasts (0) seconds"));
  EXPECT_FALSE(read_edf(folder.path("absent.edf")).ok());
}

TEST_F(Recordings, TruncatedAndDisturbedEdfIsAnErrorOrARecording) {
  const std::string whole = edf({eeg, notes});
  for (std::size_t size = 1; size < whole.size(); ++size) edf_refusal(whole.substr(0, size));
  for (std::size_t at = 0; at < 256 * 3; ++at) {
    for (const char byte : {'\x00', '-', '9', '\xff'}) {
      std::string bytes = whole;
      bytes[at] = byte;
      write_bytes(file, bytes);
      const auto recording = read_edf(file);
      if (!recording.ok()) continue;
      for (const auto& channel : recording->channels) {
        EXPECT_LE(channel.samples.elements() * 2, static_cast<std::int64_t>(whole.size()));
      }
    }
  }
}

}  // namespace
}  // namespace rlx
