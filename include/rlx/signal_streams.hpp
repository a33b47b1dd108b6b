// Spectra of signals that arrive hop by hop: one hop in, one frame out, the same as offline.
#pragma once

#include <cstdint>
#include <string>

#include "rlx/graph.hpp"
#include "rlx/signal.hpp"

namespace rlx {

/// Frames as an offline transform cuts them: number j begins at sample j * hop - before (before:
/// n_fft / 2 where frames are centred). What lies before the first sample is 0.
struct StreamFrames {
  std::int64_t n_fft = 0, before = 0;
};

/// Run i (from 0) of a stream gives frame i - stream_delay: the newest that is whole.
std::int64_t stream_delay(const StreamFrames& frames, std::int64_t hop);

/// (the next samples [..., hop]) -> the newest whole frame [..., n_fft]. The state `name` keeps the
/// samples that later frames want; writing zeros to it starts the stream anew.
Value stream_frame(Value samples, const std::string& name, const StreamFrames& frames);

/// Its transform [..., n_fft/2 + 1], complex. window [n_fft].
Value stft_stream(Value samples, Value window, const std::string& name, const StreamFrames& frames);

/// A row of log_mel_features, [..., n_mels], under Hann's window; `floor` is none or frame (the
/// clip's maximum is not known yet). log_mel_features takes before = n_fft / 2 and reflects the
/// signal at its ends, where this one sees zeros.
Value log_mel_stream(Value samples, Value filters, const std::string& name,
                     const StreamFrames& frames, op::LogMelFloor floor = op::LogMelFloor::frame);

}  // namespace rlx
