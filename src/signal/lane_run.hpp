// A job on lanes: load, transform, and what becomes of the bins. Included as lane_vector.hpp is.
#pragma once

#include "signal/lane_frames.hpp"
#include "signal/lane_lines.hpp"
#include "signal/lane_log.hpp"
#include "signal/lane_power.hpp"
#include "signal/lane_split.hpp"

template <class T, int lanes>
struct LaneRun {
  using V = Vector<T, lanes>;
  using C = ComplexLanes<V>;
  using Access = LineAccess<T, lanes>;

  const Job<T>& job;
  C *buffer, *spare;

  /// Bins of 2n real numbers z[j] = x[2j] + i x[2j+1] from those of z, in place; bin n goes to slot
  /// n of the kernel's end.
  void split_real(C* bins) const {
    const std::int64_t n = job.tables.n;
    const std::int32_t* source = job.tables.source;
    const C zero = bins[source[0]];
    for (std::int64_t k = 1; 2 * k <= n; ++k) {
      real_bins<T>(bins[source[k]], bins[source[n - k]], job.half_roots[2 * k],
                   job.half_roots[2 * k + 1]);
    }
    bins[source[0]] = {zero.re + zero.im, V{}};
    bins[job.tables.slots - 1] = {zero.re - zero.im, V{}};
  }

  /// The reverse, of bins at `position` and bin n in the last slot, twice as large.
  void join_real(C* bins) const {
    const std::int64_t n = job.tables.n;
    const std::int32_t* position = job.tables.position;
    C& zero = bins[position[0]];
    const V last = bins[job.tables.slots - 1].re;
    zero = {zero.re + last, zero.re - last};
    for (std::int64_t k = 1; 2 * k <= n; ++k) {
      real_points(bins[position[k]], bins[position[n - k]], job.half_roots[2 * k],
                  job.half_roots[2 * k + 1]);
    }
  }

  void load(T* const* rows) const {
    const T* const window = job.window;
    if (!window || job.take_mean_off)
      return load(rows, [](std::int64_t, C point) { return point; });
    if (job.real_input) {
      load(rows, [=](std::int64_t j, C point) __attribute__((always_inline)) {
        return C{point.re * window[2 * j], point.im * window[2 * j + 1]};
      });
    } else {
      load(rows, [=](std::int64_t j, C point) { return C{point.re * window[j], point.im}; });
    }
  }
  template <class Weighed>
  void load(T* const* rows, Weighed weighed) const {
    const Tables<T>& tables = job.tables;
    const std::int32_t* position = tables.position;
    const std::int64_t n = tables.n, end = tables.slots - 1;
    const std::int64_t wanted = job.real_output ? n + 1 : job.mirrored ? n / 2 + 1 : n;
    const std::int64_t count = job.in.count < wanted ? job.in.count : wanted;
    if (job.real_output) {
      const auto place = [=](std::int64_t j) {
        return j < n ? static_cast<std::int64_t>(position[j]) : end;
      };
      Access::load(job.in, rows, count, buffer, place, weighed);
      if (count <= n) buffer[end] = {V{}, V{}};
    } else {
      Access::load(
          job.in, rows, count, buffer, [=](std::int64_t j) { return position[j]; }, weighed);
    }
    for (std::int64_t j = count; j < n; ++j) buffer[position[j]] = {V{}, V{}};
    if (job.mirrored) mirror();
    if (job.take_mean_off) weigh();
    if (job.real_output) join_real(buffer);
  }

  /// The second half of an odd number of bins, whose points are real.
  void mirror() const {
    const std::int32_t* position = job.tables.position;
    const std::int64_t n = job.tables.n;
    buffer[position[0]].im = V{};
    for (std::int64_t k = 1; 2 * k < n; ++k) {
      const C bin = buffer[position[k]];
      buffer[position[n - k]] = {bin.re, -bin.im};
    }
  }

  /// Takes the mean off and multiplies by the window, which is there.
  void weigh() const {
    const std::int32_t* position = job.tables.position;
    const std::int64_t n = job.tables.n;
    // Of what lies above the first point: a level far from zero would cost the mean its digits.
    const V level = buffer[position[0]].re;
    C sum = {V{}, V{}};
    for (std::int64_t j = 0; j < n; ++j) {
      const C point = buffer[position[j]];
      sum = sum + C{point.re - level, point.im - level};
    }
    const V above = job.real_input ? (sum.re + sum.im) / T(2 * n) : sum.re / T(n);
    const std::int64_t step = job.real_input ? 2 : 1;
    for (std::int64_t j = 0; j < n; ++j) {
      C& point = buffer[position[j]];
      point.re = (point.re - level - above) * job.window[step * j];
      if (job.real_input) point.im = (point.im - level - above) * job.window[2 * j + 1];
    }
  }

  /// The lines of a group, transformed; bin k stands at bin_slot(k).
  C* transform(const T* in, std::int64_t first, std::int64_t end) const {
    T* rows[lanes];
    Access::addresses(job.in, const_cast<T*>(in), first, end, rows);
    load(rows);
    C* const bins = Stages<T, lanes>::transform(job.tables, buffer, spare);
    if (job.real_input) split_real(bins);
    return bins;
  }
  std::int64_t bin_slot(std::int64_t k) const {
    return k < job.tables.n ? job.tables.source[k] : job.tables.slots - 1;
  }
  /// The power of the bins of a group of lines: bin k stands at [k * step].
  struct Powers {
    const V* first;
    std::int64_t step;
    V operator[](std::int64_t k) const { return first[k * step]; }
  };
  /// held: the line whose group has its samples in the spare buffer, -1: none has.
  Powers powers(const T* in, std::int64_t first, std::int64_t end, std::int64_t& held) const {
    if (job.real_input && PowerPass<T, lanes>::fits(job.tables)) {
      using Frames = FrameLoad<T, lanes>;
      T* rows[lanes];
      Access::addresses(job.in, const_cast<T*>(in), first, end, rows);
      const bool overlap = Frames::fits(job) && Frames::reaches(job, first, end);
      if (overlap) {
        Frames::load(job, rows[0], &spare->re, held == first);
        Frames::run_first_stage(job, &spare->re, buffer);
        held = first + lanes;
      } else {
        load(rows);
      }
      PowerPass<T, lanes>::run(job, overlap ? 1 : 0, buffer, spare + job.tables.slots);
      return {&buffer->re, 2};
    }
    const C* const bins = transform(in, first, end);
    V* const to = reinterpret_cast<V*>(bins == buffer ? spare : buffer);
    for (std::int64_t k = 0; k < job.out.count; ++k) {
      const C bin = bins[bin_slot(k)];
      to[k] = bin.re * bin.re + bin.im * bin.im;
    }
    return {to, 1};
  }

  void store_bins(const C* bins, T* const* rows) const {
    const std::int32_t* source = job.tables.source;
    const std::int64_t n = job.tables.n, end = job.tables.slots - 1;
    const T scale = job.scale;
    if (job.real_input) {
      Access::store(job.out, rows, job.out.count, [=](std::int64_t k) {
        const C bin = bins[k < n ? static_cast<std::int64_t>(source[k]) : end];
        return C{bin.re * scale, bin.im * scale};
      });
      return;
    }
    Access::store(job.out, rows, job.out.count, [=](std::int64_t k) {
      const C bin = bins[source[k]];
      return C{bin.re * scale, bin.im * scale};
    });
  }

  template <int step>
  V energy(const V* powers, std::int64_t band) const {
    const Band<T>& filter = job.bands[band];
    const V* from = powers + step * filter.first;
    const T* weights = filter.weights;
    V sum = V{} + job.offset, other = V{};
    std::int32_t k = 0;
    for (; k + 4 <= filter.count; k += 4, from += 4 * step, weights += 4) {
      sum += from[0] * weights[0];
      other += from[step] * weights[1];
      sum += from[2 * step] * weights[2];
      other += from[3 * step] * weights[3];
    }
    for (; k < filter.count; ++k, from += step) sum += *from * *weights++;
    return sum + other;
  }
  /// any: of infinite energies, of those that are no numbers, and of those that filters below zero
  /// make, too.
  template <bool any>
  V level(V energy) const {
    const V least = V{} + job.least;
    const V level = log10_of<T, lanes>(energy > least ? energy : least);
    if constexpr (!any) return level;
    const V infinity = V{} + static_cast<T>(__builtin_inff());
    const V known = energy < infinity ? level : energy;
    if (!(job.offset > 0)) return known;
    const V none = V{} + static_cast<T>(__builtin_nanf(""));
    const V of_zero = energy == V{} ? -infinity : none;
    return energy > V{} ? known : of_zero;
  }
  template <bool any>
  static V larger(V a, V b) {
    if constexpr (any) {
      const V no_number = b != b ? b : a;
      return b > a ? b : no_number;
    }
    return b > a ? b : a;
  }

  /// The levels of a group of lines and, where wanted, the largest of each line. Returns whether
  /// all energies were numbers, without which levels that are not of `any` energies mean nothing.
  template <int step, bool any>
  bool store_bands(const V* powers, T* const* rows, std::int64_t first) const {
    V total = V{}, most = V{} - static_cast<T>(__builtin_inff());
    std::int64_t band = 0;
    for (; band + lanes <= job.band_count; band += lanes) {
      V levels[lanes];
      for (int i = 0; i < lanes; ++i) levels[i] = energy<step>(powers, band + i);
      for (int i = 0; i < lanes; ++i) {
        total += levels[i];
        levels[i] = level<any>(levels[i]);
        most = larger<any>(most, levels[i]);
      }
      transpose<T, lanes>(levels);
#pragma GCC unroll 16
      for (int lane = 0; lane < lanes; ++lane) store_unaligned(rows[lane] + band, levels[lane]);
    }
    for (; band < job.band_count; ++band) {
      const V own = energy<step>(powers, band), one = level<any>(own);
      total += own;
      most = larger<any>(most, one);
      for (int lane = 0; lane < lanes; ++lane) rows[lane][band] = one[lane];
    }
    for (int lane = 0; job.maxima && lane < lanes && first + lane < job.lines; ++lane)
      job.maxima[first + lane] = most[lane];
    const V above = total - total;  // no number where the total is infinite or none
    T sum = 0;
    for (int lane = 0; lane < lanes; ++lane) sum += above[lane];
    return sum == 0;
  }
  template <int step>
  void store_bands(const V* powers, T* const* rows, std::int64_t first) const {
    if (job.offset > 0 || !store_bands<step, false>(powers, rows, first))
      store_bands<step, true>(powers, rows, first);
  }

  /// The mean power of a group of lines, bin by bin: a few groups summed lane by lane, those sums
  /// in f64, as long recordings have many.
  void store_mean(const T* in, T* out, std::int64_t group) const {
    constexpr std::int64_t few = 32 * lanes;
    const std::int64_t each = job.out.inner, count = job.out.count;
    V* const sums = static_cast<V*>(job.sums);
    auto* const totals = reinterpret_cast<double*>(sums + count);
    for (std::int64_t k = 0; k < count; ++k) {
      sums[k] = V{};
      totals[k] = 0;
    }
    std::int64_t held = -1;
    for (std::int64_t line = 0; line < each; line += lanes) {
      const Powers of_lines = powers(in, group * each + line, (group + 1) * each, held);
      const bool is_last = line + lanes >= each;
      const int there = is_last ? static_cast<int>(each - line) : lanes;
      for (std::int64_t k = 0; k < count; ++k) {
        V power = of_lines[k];
        for (int lane = there; lane < lanes; ++lane) power[lane] = 0;
        sums[k] += power;
      }
      if (!is_last && (line + lanes) % few != 0) continue;
      for (std::int64_t k = 0; k < count; ++k) {
        for (int lane = 0; lane < lanes; ++lane) totals[k] += static_cast<double>(sums[k][lane]);
        sums[k] = V{};
      }
    }
    T* const row = out + group * job.out.outer_step;
    for (std::int64_t k = 0; k < count; ++k)
      row[k] = static_cast<T>(totals[k] * static_cast<double>(job.bin_factors[k]));
  }

  /// fetched: the lines of the next group are on their way while one is worked on.
  template <int split, bool fetched>
  static void run_split(const Job<T>& job, const T* in, T* out, std::int64_t begin,
                        std::int64_t end, void* scratch) {
    using Split = SplitLines<T, lanes, split>;
    const Tables<T>& tables = job.tables;
    C* const buffer = static_cast<C*>(scratch);
    for (std::int64_t group = begin; group < end; ++group) {
      T *rows[lanes], *bins[lanes], *next[lanes];
      const std::int64_t first = group * Split::each;
      Access::addresses(job.in, const_cast<T*>(in), first, job.lines, rows, split);
      Access::addresses(job.in, const_cast<T*>(in), first + (group + 1 < end ? Split::each : 0),
                        job.lines, next, split);
      Access::addresses(job.out, out, first, job.lines, bins, split);
      if (job.real_output) {
        // The points stand where the results will.
        for (int line = 0; line < Split::each; ++line)
          Split::join_real(job, rows[line * split], bins[line * split]);
        for (int lane = 0; lane < lanes; ++lane) rows[lane] = bins[lane];
      }
      Split::template load<fetched>(rows, tables.n, buffer, tables.position, bins);
      const C* const own = Stages<T, lanes>::transform(tables, buffer, buffer + tables.slots);
      const int there =
          job.lines - first < Split::each ? static_cast<int>(job.lines - first) : Split::each;
      Split::template store<fetched>(job, own, bins, there, next);
      for (int line = 0; job.real_input && line < there; ++line)
        Split::split_real(job, bins[line * split]);
    }
  }
  /// By as many lanes a line as the job says.
  template <int split>
  static void run_by_split(const Job<T>& job, const T* in, T* out, std::int64_t begin,
                           std::int64_t end, void* scratch) {
    if constexpr (split <= lanes && split <= 16) {
      if (job.split != split) return run_by_split<2 * split>(job, in, out, begin, end, scratch);
      // Lines that the caches hold need no fetching.
      constexpr std::int64_t held = 1 << 21;
      const std::int64_t bytes =
          job.lines * job.tables.n * split * 2 * static_cast<std::int64_t>(sizeof(T));
      const auto run_all = bytes > held ? run_split<split, true> : run_split<split, false>;
      run_all(job, in, out, begin, end, scratch);
    }
  }

  static void run(const Job<T>& job, const T* in, T* out, std::int64_t begin, std::int64_t end,
                  void* scratch) {
    if (job.split > 1) {
      run_by_split<2>(job, in, out, begin, end, scratch);
      return;
    }
    C* const buffer = static_cast<C*>(scratch);
    const LaneRun self{job, buffer, buffer + job.tables.slots};
    std::int64_t held = -1;
    for (std::int64_t group = begin; group < end; ++group) {
      if (job.result == Result::mean) {
        self.store_mean(in, out, group);
        continue;
      }
      const std::int64_t first = group * lanes;
      T* rows[lanes];
      Access::addresses(job.out, out, first, job.lines, rows);
      if (job.result == Result::bands) {
        const Powers powers = self.powers(in, first, job.lines, held);
        if (powers.step == 1) self.template store_bands<1>(powers.first, rows, first);
        else self.template store_bands<2>(powers.first, rows, first);
      } else {
        self.store_bins(self.transform(in, first, job.lines), rows);
      }
    }
  }
};
