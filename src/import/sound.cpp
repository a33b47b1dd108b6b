// Sound files: .wav in and out, through libsndfile. It sees memory that was checked to hold a .wav
// file, so that its readers of other formats are never reached. The library is opened by the first
// sound: it and the eight that it needs would be a megabyte of every process.
#include <dlfcn.h>
#include <sndfile.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "import/fail.hpp"
#include "import/mapped_file.hpp"
#include "rlx/import.hpp"
#include "rlx/signal.hpp"

namespace rlx {
namespace {

using importing::fail;
using importing::fail_unsupported;

constexpr const char* library_file = "libsndfile.so.1";
constexpr std::int64_t rate_max = 10'000'000, channels_max = 1024;

/// The functions of libsndfile that are used here.
struct SoundLibrary {
  decltype(&sf_open) open = nullptr;
  decltype(&sf_open_virtual) open_virtual = nullptr;
  decltype(&sf_readf_float) readf_float = nullptr;
  decltype(&sf_writef_float) writef_float = nullptr;
  decltype(&sf_command) command = nullptr;
  decltype(&sf_strerror) strerror = nullptr;
  decltype(&sf_close) close = nullptr;
  bool is_whole = false;
};

SoundLibrary open_library() {
  SoundLibrary library;
  void* const handle = dlopen(library_file, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return library;
  library.is_whole = true;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    library.is_whole = library.is_whole && function != nullptr;
  };
  find(library.open, "sf_open");
  find(library.open_virtual, "sf_open_virtual");
  find(library.readf_float, "sf_readf_float");
  find(library.writef_float, "sf_writef_float");
  find(library.command, "sf_command");
  find(library.strerror, "sf_strerror");
  find(library.close, "sf_close");
  return library;
}

/// Throws where it is not installed.
const SoundLibrary& sound_library() {
  static const SoundLibrary library = open_library();
  if (!library.is_whole)
    fail_unsupported("Sound files need the library ({}), which cannot be opened.", library_file);
  return library;
}

struct Closer {
  void operator()(SNDFILE* file) const { sound_library().close(file); }
};
using SoundFile = std::unique_ptr<SNDFILE, Closer>;

/// Bytes with a position, as libsndfile reads them.
struct Cursor {
  std::span<const std::byte> bytes;
  sf_count_t at = 0;
  sf_count_t size() const { return static_cast<sf_count_t>(bytes.size()); }
};

sf_count_t size_of_cursor(void* user) { return static_cast<Cursor*>(user)->size(); }

sf_count_t seek_cursor(sf_count_t offset, int whence, void* user) {
  auto& cursor = *static_cast<Cursor*>(user);
  const sf_count_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? cursor.at : cursor.size();
  sf_count_t sum = 0;
  if (__builtin_add_overflow(base, offset, &sum)) return -1;
  cursor.at = std::clamp<sf_count_t>(sum, 0, cursor.size());
  return cursor.at;
}

sf_count_t read_cursor(void* to, sf_count_t count, void* user) {
  auto& cursor = *static_cast<Cursor*>(user);
  const sf_count_t taken = std::clamp<sf_count_t>(count, 0, cursor.size() - cursor.at);
  if (taken > 0) std::memcpy(to, cursor.bytes.data() + cursor.at, static_cast<std::size_t>(taken));
  cursor.at += taken;
  return taken;
}

sf_count_t write_nothing(const void*, sf_count_t, void*) { return 0; }
sf_count_t tell_cursor(void* user) { return static_cast<Cursor*>(user)->at; }

bool is_wav(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return text.size() >= 12 && (text.starts_with("RIFF") || text.starts_with("RF64")) &&
         text.substr(8, 4) == "WAVE";
}

/// Bytes of one sample; throws for what is neither integers nor floats.
std::int64_t sample_bytes(int format) {
  switch (format & SF_FORMAT_SUBMASK) {
    case SF_FORMAT_PCM_U8: return 1;
    case SF_FORMAT_PCM_16: return 2;
    case SF_FORMAT_PCM_24: return 3;
    case SF_FORMAT_PCM_32:
    case SF_FORMAT_FLOAT: return 4;
    case SF_FORMAT_DOUBLE: return 8;
    default: fail_unsupported("Compressed sound (0x{:x}) is not supported.", format);
  }
}

/// Interleaved samples as [channels, T].
Tensor by_channel(std::span<const float> interleaved, std::int64_t channels) {
  const auto count = static_cast<std::int64_t>(interleaved.size()) / channels;
  Tensor samples(f32, {channels, count});
  auto* out = reinterpret_cast<float*>(samples.mutable_data());
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t t = 0; t < count; ++t)
      *out++ = interleaved[static_cast<std::size_t>(t * channels + c)];
  }
  return samples;
}

Sound sound_of(std::span<const std::byte> bytes) {
  if (!is_wav(bytes)) fail("It is no .wav file.");
  Cursor cursor{bytes};
  SF_VIRTUAL_IO io{size_of_cursor, seek_cursor, read_cursor, write_nothing, tell_cursor};
  SF_INFO facts{};
  const SoundLibrary& library = sound_library();
  const SoundFile file(library.open_virtual(&io, SFM_READ, &facts, &cursor));
  if (!file) fail("It is a broken .wav file: {}", library.strerror(nullptr));
  const std::int64_t channels = facts.channels, size = sample_bytes(facts.format);
  if (channels < 1 || channels > channels_max || facts.samplerate < 1 ||
      facts.samplerate > rate_max) {
    fail("It has ({}) channels at ({}) Hz.", channels, facts.samplerate);
  }
  const auto room = static_cast<std::int64_t>(bytes.size()) / (channels * size);
  if (facts.frames < 1 || facts.frames > room)
    fail("It has ({}) samples in ({}) bytes.", facts.frames, bytes.size());
  std::vector<float> interleaved(static_cast<std::size_t>(facts.frames * channels));
  const sf_count_t got = library.readf_float(file.get(), interleaved.data(), facts.frames);
  if (got != facts.frames) fail("It ends after ({}) of ({}) samples.", got, facts.frames);
  return {by_channel(interleaved, channels), facts.samplerate};
}

int format_of(SoundFormat format) {
  switch (format) {
    case SoundFormat::pcm_16: return SF_FORMAT_PCM_16;
    case SoundFormat::pcm_24: return SF_FORMAT_PCM_24;
    case SoundFormat::pcm_32: return SF_FORMAT_PCM_32;
    case SoundFormat::float_32: return SF_FORMAT_FLOAT;
  }
  return SF_FORMAT_PCM_16;
}

void write_samples(const std::filesystem::path& path, const Tensor& samples,
                   std::int64_t sample_rate, SoundFormat format) {
  const Dims& dims = samples.dims();
  if (samples.dtype() != f32 || dims.empty() || dims.size() > 2)
    fail("Sound is f32 [T] or [channels, T].");
  const std::int64_t channels = dims.size() == 2 ? dims[0] : 1, count = dims.back();
  if (channels < 1 || channels > channels_max || sample_rate < 1 || sample_rate > rate_max)
    fail("Sound of ({}) channels at ({}) Hz cannot be written.", channels, sample_rate);
  std::vector<float> interleaved(static_cast<std::size_t>(channels * count));
  const auto values = samples.as<float>();
  for (std::int64_t t = 0, i = 0; t < count; ++t) {
    for (std::int64_t c = 0; c < channels; ++c)
      interleaved[static_cast<std::size_t>(i++)] = values[static_cast<std::size_t>(c * count + t)];
  }
  SF_INFO facts{};
  facts.channels = static_cast<int>(channels);
  facts.samplerate = static_cast<int>(sample_rate);
  facts.format = SF_FORMAT_WAV | format_of(format);
  const SoundLibrary& library = sound_library();
  SoundFile file(library.open(path.c_str(), SFM_WRITE, &facts));
  if (!file) fail("The file cannot be written: {}", library.strerror(nullptr));
  library.command(file.get(), SFC_SET_CLIPPING, nullptr, SF_TRUE);
  const bool whole = library.writef_float(file.get(), interleaved.data(), count) == count;
  if (library.close(file.release()) != 0 || !whole) fail("The file cannot be written.");
}

}  // namespace

Result<Sound> read_wav(const std::filesystem::path& file, std::int64_t sample_rate) {
  return importing::guarded("reading", file, [&] {
    if (sample_rate < 0 || sample_rate > rate_max)
      fail("The sample rate ({}) is none.", sample_rate);
    Sound sound = sound_of(importing::map_file(file).span());
    if (sample_rate != 0 && sample_rate != sound.sample_rate) {
      sound.samples = resample(sound.samples, sample_rate, sound.sample_rate);
      sound.sample_rate = sample_rate;
    }
    return sound;
  });
}

Status write_wav(const std::filesystem::path& file, const Tensor& samples, std::int64_t sample_rate,
                 SoundFormat format) {
  auto written = importing::guarded("writing", file, [&] {
    write_samples(file, samples, sample_rate, format);
    return Done{};
  });
  if (!written.ok()) return written.error();
  return {};
}

}  // namespace rlx
