// Welch's estimate of an EEG's channels, their power in bands and their strongest rhythms.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <rlx/rlx.hpp>

namespace eeg_bands {

struct Band {
  const char* name;
  double low, high;  ///< Hz
};
inline constexpr std::size_t band_count = 5;
inline constexpr std::array<Band, band_count> bands{
    {{"delta", 0.5, 4}, {"theta", 4, 8}, {"alpha", 8, 13}, {"beta", 13, 30}, {"gamma", 30, 45}}};

struct ChannelReport {
  std::string label;
  std::array<double, band_count> power{};  ///< unit^2
  double rhythm_hz = 0;                    ///< of the largest power times frequency, 1 to 45 Hz
  std::vector<double> density;             ///< [bins], unit^2 / Hz
  double total() const;
};

struct Report {
  std::vector<ChannelReport> channels;
  std::string unit;
  std::int64_t sample_rate = 0, segment = 0, bins = 0;
  double seconds = 0;
  double hz_of(std::int64_t bin) const;
};

/// Channels of other rates than the most common one are left out. Errors: no such file, less than
/// one segment (4 s), rates that are no whole numbers.
rlx::Result<Report> analyse(const std::string& file);

}  // namespace eeg_bands
