// Recordings of body signals: the European data format (.edf, 16 bits) and BioSemi's (.bdf, 24
// bits), with their "+" forms. www.edfplus.info/specs describes them.
#include <charconv>
#include <cmath>
#include <string_view>

#include "import/fail.hpp"
#include "import/mapped_file.hpp"
#include "rlx/import.hpp"
#include "rlx/signal.hpp"

namespace rlx {
namespace {

using importing::fail;
using importing::fail_unsupported;

constexpr std::size_t head_bytes = 256, signal_bytes = 256;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blank(" \0", 2);
  const auto first = text.find_first_not_of(blank), last = text.find_last_not_of(blank);
  return first == std::string_view::npos ? std::string_view()
                                         : text.substr(first, last - first + 1);
}

/// Printable characters alone: labels are put into messages and tables.
std::string readable(std::string_view text) {
  std::string result;
  for (const char c : trimmed(text)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == 0xb5) {
      result += "u";  // the micro sign of Latin 1
    } else {
      result += byte >= 32 && byte < 127 ? c : '?';
    }
  }
  return result;
}

template <class Number>
Number number_of(std::string_view text, std::string_view what) {
  text = trimmed(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size())
    fail("The {} ({}) of the header is no number.", what, readable(text));
  if constexpr (std::is_floating_point_v<Number>) {
    if (!std::isfinite(value)) fail("The {} of the header is not finite.", what);
  }
  return value;
}

struct Signal {
  std::string label, unit;
  double physical_min = 0, physical_max = 0;
  std::int64_t digital_min = 0, digital_max = 0;
  std::int64_t samples = 0;  ///< in each record
  bool is_annotation = false;
};

struct Header {
  std::size_t sample_bytes = 2, data_offset = 0, record_bytes = 0;
  std::int64_t records = 0;
  double record_s = 0;
  bool is_continuous = true;
  std::vector<Signal> signals;
};

/// Field `width` bytes wide of signal i: the fields of all signals stand together.
std::string_view field_of(std::string_view text, std::size_t& at, std::size_t i,
                          std::size_t width) {
  return text.substr(at + i * width, width);
}

void read_signals(std::string_view text, Header& header) {
  std::size_t at = head_bytes;
  auto& signals = header.signals;
  const auto each = [&](std::size_t width, auto&& take) {
    for (std::size_t i = 0; i < signals.size(); ++i) take(signals[i], field_of(text, at, i, width));
    at += signals.size() * width;
  };
  const auto skip = [](Signal&, std::string_view) {};
  each(16, [](Signal& s, std::string_view t) { s.label = readable(t); });
  each(80, skip);
  each(8, [](Signal& s, std::string_view t) { s.unit = readable(t); });
  each(8, [](Signal& s, std::string_view t) {
    s.physical_min = number_of<double>(t, "least physical value");
  });
  each(8, [](Signal& s, std::string_view t) {
    s.physical_max = number_of<double>(t, "largest physical value");
  });
  each(8, [](Signal& s, std::string_view t) {
    s.digital_min = number_of<std::int64_t>(t, "least digital value");
  });
  each(8, [](Signal& s, std::string_view t) {
    s.digital_max = number_of<std::int64_t>(t, "largest digital value");
  });
  each(80, skip);
  each(8, [](Signal& s, std::string_view t) {
    s.samples = number_of<std::int64_t>(t, "number of samples");
  });
  for (Signal& s : signals) {
    s.is_annotation = s.label == "EDF Annotations" || s.label == "BDF Annotations";
    if (s.samples < 1 || s.samples > 1 << 24)
      fail("The signal ({}) has ({}) samples in a record.", s.label, s.samples);
    if (!s.is_annotation && (s.digital_max <= s.digital_min || s.physical_max == s.physical_min)) {
      fail("The signal ({}) has the range ({}) to ({}) for the values ({}) to ({}).", s.label,
           s.physical_min, s.physical_max, s.digital_min, s.digital_max);
    }
    header.record_bytes += static_cast<std::size_t>(s.samples) * header.sample_bytes;
  }
}

Header header_of(std::string_view text) {
  Header header;
  if (text.size() < head_bytes) fail("It is shorter than the header of an .edf file.");
  if (text.substr(0, 8) ==
      "\xff"
      "BIOSEMI") {
    header.sample_bytes = 3;
  } else if (trimmed(text.substr(0, 8)) != "0") {
    fail("It is neither an .edf nor a .bdf file.");
  }
  header.is_continuous = text.substr(192, 5) != "EDF+D" && text.substr(192, 5) != "BDF+D";
  header.data_offset = number_of<std::size_t>(text.substr(184, 8), "length");
  header.records = number_of<std::int64_t>(text.substr(236, 8), "number of records");
  header.record_s = number_of<double>(text.substr(244, 8), "duration of a record");
  const auto count = number_of<std::size_t>(text.substr(252, 4), "number of signals");
  if (count < 1 || header.data_offset != head_bytes + count * signal_bytes ||
      header.data_offset > text.size()) {
    fail("A header of ({}) bytes does not hold ({}) signals.", header.data_offset, count);
  }
  header.signals.resize(count);
  read_signals(text, header);
  const std::size_t room = (text.size() - header.data_offset) / header.record_bytes;
  // A recorder that did not finish left -1: the file's length tells.
  if (header.records == -1) header.records = static_cast<std::int64_t>(room);
  if (header.records < 1 || static_cast<std::size_t>(header.records) > room) {
    fail("It should hold ({}) records of ({}) bytes and holds ({}) whole ones.", header.records,
         header.record_bytes, room);
  }
  return header;
}

std::int64_t digital_value(const std::byte* at, std::size_t size) {
  const auto byte = [&](std::size_t i) { return std::to_integer<std::uint32_t>(at[i]); };
  if (size == 2) return static_cast<std::int16_t>(byte(0) | byte(1) << 8);
  return static_cast<std::int32_t>((byte(0) | byte(1) << 8 | byte(2) << 16) << 8) >> 8;
}

/// The samples of one signal, which begin `offset` bytes into each record.
Tensor samples_of(std::span<const std::byte> bytes, const Header& header, const Signal& signal,
                  std::size_t offset) {
  Tensor samples(f32, {header.records * signal.samples});
  auto* out = reinterpret_cast<float*>(samples.mutable_data());
  const double unit = (signal.physical_max - signal.physical_min) /
                      static_cast<double>(signal.digital_max - signal.digital_min);
  for (std::int64_t record = 0; record < header.records; ++record) {
    const std::byte* at = bytes.data() + header.data_offset +
                          static_cast<std::size_t>(record) * header.record_bytes + offset;
    for (std::int64_t i = 0; i < signal.samples; ++i, at += header.sample_bytes) {
      const auto steps =
          static_cast<double>(digital_value(at, header.sample_bytes) - signal.digital_min);
      *out++ = static_cast<float>(signal.physical_min + unit * steps);
    }
  }
  return samples;
}

void resample_channel(Recording::Channel& channel, std::int64_t sample_rate) {
  // Rates are fractions of whole numbers; thousandths of a hertz tell those that occur.
  const double thousandths = channel.sample_rate * 1000;
  if (std::abs(thousandths - std::round(thousandths)) > 1e-6 * thousandths || thousandths > 1e9)
    fail_unsupported("The rate ({} Hz) of channel ({}) cannot be resampled.", channel.sample_rate,
                     channel.label);
  const Tensor line = channel.samples.reshaped({1, channel.samples.elements()});
  const Tensor resampled =
      resample(line, sample_rate * 1000, static_cast<std::int64_t>(std::round(thousandths)));
  channel.samples = resampled.reshaped({resampled.elements()});
  channel.sample_rate = static_cast<double>(sample_rate);
}

Recording recording_of(std::span<const std::byte> bytes, std::int64_t sample_rate) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const Header header = header_of(text);
  Recording recording;
  recording.duration_s = header.record_s * static_cast<double>(header.records);
  recording.is_continuous = header.is_continuous;
  std::size_t offset = 0;
  for (const Signal& signal : header.signals) {
    if (!signal.is_annotation) {
      if (!(header.record_s > 0))
        fail("A record that lasts ({}) seconds holds no signal.", header.record_s);
      Recording::Channel channel{signal.label, signal.unit,
                                 static_cast<double>(signal.samples) / header.record_s,
                                 samples_of(bytes, header, signal, offset)};
      if (sample_rate != 0 && channel.sample_rate != static_cast<double>(sample_rate))
        resample_channel(channel, sample_rate);
      recording.channels.push_back(std::move(channel));
    }
    offset += static_cast<std::size_t>(signal.samples) * header.sample_bytes;
  }
  return recording;
}

}  // namespace

Result<Recording> read_edf(const std::filesystem::path& file, std::int64_t sample_rate) {
  return importing::guarded("reading", file, [&] {
    if (sample_rate < 0 || sample_rate > 1'000'000)
      fail("The sample rate ({}) is none.", sample_rate);
    return recording_of(importing::map_file(file).span(), sample_rate);
  });
}

}  // namespace rlx
