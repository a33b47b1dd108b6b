// Second-order sections without a loop over samples: a linear system is computed in blocks. A block
// of results is the block of inputs times the system's responses, plus the state at the block's
// begin times the responses to states; the states themselves are a linear system of one step a
// block, which is computed in the same way. States are f64, whatever the signal is: those of
// filters with poles near the unit circle are far larger than what they give.
#include <algorithm>
#include <cmath>

#include "ops/signal_tools.hpp"

namespace rlx {
namespace {

/// Row-major, in more precision than its users have: powers of matrices lose some.
struct Matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<long double> values;

  Matrix(std::int64_t rows, std::int64_t columns)
      : rows(rows), columns(columns), values(static_cast<std::size_t>(rows * columns), 0) {}
  long double& at(std::int64_t i, std::int64_t j) {
    return values[static_cast<std::size_t>(i * columns + j)];
  }
  long double at(std::int64_t i, std::int64_t j) const {
    return values[static_cast<std::size_t>(i * columns + j)];
  }
  /// Puts a block in.
  void put(std::int64_t row, std::int64_t column, const Matrix& block) {
    for (std::int64_t i = 0; i < block.rows; ++i) {
      for (std::int64_t j = 0; j < block.columns; ++j) at(row + i, column + j) = block.at(i, j);
    }
  }
};

Matrix identity(std::int64_t size) {
  Matrix result(size, size);
  for (std::int64_t i = 0; i < size; ++i) result.at(i, i) = 1;
  return result;
}

Matrix operator*(const Matrix& a, const Matrix& b) {
  Matrix result(a.rows, b.columns);
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t k = 0; k < a.columns; ++k) {
      for (std::int64_t j = 0; j < b.columns; ++j) result.at(i, j) += a.at(i, k) * b.at(k, j);
    }
  }
  return result;
}

Value constant_of(Value like, const Matrix& matrix) {
  std::vector<double> values(matrix.values.begin(), matrix.values.end());
  return constant_like(like, {matrix.rows, matrix.columns}, values);
}

/// Rows times matrices: y = x through + s read; next s = x write + s keep.
struct System {
  Matrix keep, write, read, through;
  std::int64_t states() const { return keep.rows; }
  std::int64_t inputs() const { return write.rows; }
  std::int64_t results() const { return read.columns; }
};

/// `steps` steps at once, on their inputs side by side.
System stretched(const System& one, std::int64_t steps) {
  const std::int64_t n = one.states(), p = one.inputs(), q = one.results();
  System result{identity(n), Matrix(steps * p, n), Matrix(n, steps * q),
                Matrix(steps * p, steps * q)};
  // What a unit of input leaves in the state, and gives as result, k steps later.
  Matrix written = one.write, response = one.through;
  for (std::int64_t k = 0; k < steps; ++k) {
    result.read.put(0, k * q, result.keep * one.read);
    result.write.put((steps - 1 - k) * p, 0, written);
    for (std::int64_t i = 0; i + k < steps; ++i) result.through.put(i * p, (i + k) * q, response);
    response = written * one.read;
    written = written * one.keep;
    result.keep = result.keep * one.keep;
  }
  return result;
}

struct Response {
  Value results;  ///< [..., T, q]
  Value state;    ///< [..., 1, n] after the last step
};

/// x [..., T, p], state f64 [..., 1, n].
Response respond(const System& system, Value x, Value state) {
  const auto axis = static_cast<std::int64_t>(x.rank()) - 2;
  const std::int64_t steps = x.shape()[static_cast<std::size_t>(axis)].value();
  const std::int64_t p = system.inputs(), q = system.results();
  const std::int64_t block = std::min(steps, std::max<std::int64_t>(2, 64 / std::max(p, q)));
  const std::int64_t blocks = steps / block, rest = steps - blocks * block;
  const System stretch = stretched(system, block);
  const auto as_rows = [&](Value part, std::int64_t rows) {
    const Dim columns(part.shape()[static_cast<std::size_t>(axis)].value() * p / rows);
    return reshape(part, leading(part, 2, {Dim(rows), columns}));
  };
  const auto times = [](Value rows, const Matrix& m) { return matmul(rows, constant_of(rows, m)); };
  const auto read = [&](Value states, const Matrix& m) {
    return cast(times(states, m), x.dtype());
  };
  const auto written = [](Value rows, const Matrix& m) {
    rows = cast(rows, f64);
    return matmul(rows, constant_of(rows, m));
  };
  const Value rows = as_rows(part_of_axis(x, axis, 0, blocks * block), blocks);
  Value before = state;  // the states at the begin of each block
  if (blocks == 1) {
    state = written(rows, stretch.write) + times(state, stretch.keep);
  } else {
    const std::int64_t n = system.states();
    const System states{stretch.keep, identity(n), identity(n), Matrix(n, n)};
    const Response inner = respond(states, written(rows, stretch.write), state);
    before = inner.results;
    state = inner.state;
  }
  Value results = times(rows, stretch.through) + read(before, stretch.read);
  results = reshape(results, leading(results, 2, {Dim(blocks * block), Dim(q)}));
  if (rest == 0) return {results, state};
  const System tail = stretched(system, rest);
  const Value last = as_rows(part_of_axis(x, axis, blocks * block, steps), 1);
  Value end = times(last, tail.through) + read(state, tail.read);
  end = reshape(end, leading(end, 2, {Dim(rest), Dim(q)}));
  return {concat({results, end}, axis), written(last, tail.write) + times(state, tail.keep)};
}

/// One sample through the sections in transposed direct form II, as SciPy; gives the result.
long double step(std::span<const Section> sections, std::vector<long double>& state,
                 long double x) {
  for (std::size_t i = 0; i < sections.size(); ++i) {
    const Section& s = sections[i];
    const long double y = s[0] * x + state[2 * i];
    state[2 * i] = s[1] * x - s[4] * y + state[2 * i + 1];
    state[2 * i + 1] = s[2] * x - s[5] * y;
    x = y;
  }
  return x;
}

/// The sections as a system: its rows are what a unit of each state, and of the input, becomes.
System system_of(std::span<const Section> sections) {
  const auto n = static_cast<std::int64_t>(2 * sections.size());
  System system{Matrix(n, n), Matrix(1, n), Matrix(n, 1), Matrix(1, 1)};
  for (std::int64_t i = 0; i <= n; ++i) {
    std::vector<long double> state(static_cast<std::size_t>(n), 0);
    if (i < n) state[static_cast<std::size_t>(i)] = 1;
    const long double y = step(sections, state, i == n ? 1 : 0);
    Matrix& next = i == n ? system.write : system.keep;
    (i == n ? system.through : system.read).at(i == n ? 0 : i, 0) = y;
    for (std::int64_t j = 0; j < n; ++j)
      next.at(i == n ? 0 : i, j) = state[static_cast<std::size_t>(j)];
  }
  return system;
}

std::vector<Section> normalised(std::span<const Section> sections) {
  if (sections.empty() || sections.size() > 64)
    throw Exception(bad_input("A filter of ({}) sections is none.", sections.size()));
  std::vector<Section> result(sections.begin(), sections.end());
  for (Section& section : result) {
    const double divisor = section[3];
    if (divisor == 0 || !std::isfinite(divisor))
      throw Exception(bad_input("The a0 ({}) of a section cannot divide.", divisor));
    for (double& coefficient : section) coefficient /= divisor;
  }
  return result;
}

/// [sections * 2]: the state under a constant input of 1 (SciPy's sosfilt_zi).
std::vector<double> steady_state(std::span<const Section> sections) {
  std::vector<double> state;
  double level = 1;
  for (const Section& s : sections) {
    const double gain = (s[0] + s[1] + s[2]) / (1 + s[4] + s[5]);
    const double second = s[2] - s[5] * gain;
    state.push_back(level * (s[1] - s[4] * gain + second));
    state.push_back(level * second);
    level *= gain;
  }
  return state;
}

/// signal [..., T], state f64 [..., 1, 2 sections].
Response filtered(Value signal, std::span<const Section> sections, Value state) {
  Response response = respond(system_of(sections), unsqueeze(signal, {signal.rank()}), state);
  response.results = squeeze(response.results, {signal.rank()});
  return response;
}

Value at_rest(Value signal, std::int64_t states) {
  const Value zero = signal.graph().constant(f64, 0.0);
  return broadcast(zero, leading(signal, 1, {Dim(1), Dim(states)}));
}

void require_samples(Value signal, std::string_view name) {
  require_signal(signal, name);
  if (static_samples(signal, name) < 1)
    throw Exception(bad_input("The signal {} has no samples.", signal.type().text()));
}

}  // namespace

Value sos_filter(Value signal, std::span<const Section> sections) {
  require_samples(signal, "sos_filter");
  const std::vector<Section> unit = normalised(sections);
  return filtered(signal, unit, at_rest(signal, static_cast<std::int64_t>(2 * unit.size())))
      .results;
}

Filtered sos_filter(Value signal, std::span<const Section> sections, Value state) {
  require_samples(signal, "sos_filter");
  const std::vector<Section> unit = normalised(sections);
  const auto count = static_cast<std::int64_t>(unit.size());
  const Shape expected = leading(signal, 1, {Dim(count), Dim(2)});
  const bool fits = state && state.shape() == expected &&
                    (state.dtype() == signal.dtype() || state.dtype() == f64);
  if (!fits) {
    throw Exception(bad_input("The state ({}) of the sections is not {}.",
                              state ? state.type().text() : "none",
                              Type{signal.dtype(), expected}.text()));
  }
  const Value flat = reshape(cast(state, f64), leading(signal, 1, {Dim(1), Dim(2 * count)}));
  const Response response = filtered(signal, unit, flat);
  return {response.results, cast(reshape(response.state, expected), state.dtype())};
}

Value sos_filter_both_ways(Value signal, std::span<const Section> sections) {
  require_samples(signal, "sos_filter_both_ways");
  const std::vector<Section> unit = normalised(sections);
  std::int64_t no_b = 0, no_a = 0;
  for (const Section& section : unit) {
    no_b += section[2] == 0;
    no_a += section[5] == 0;
  }
  const auto count = static_cast<std::int64_t>(unit.size());
  const std::int64_t edge = 3 * (2 * count + 1 - std::min(no_b, no_a));
  const Value steady = signal.graph().constant(
      Tensor::of<double>({2 * count}, std::span<const double>(steady_state(unit))));
  const auto one_way = [&](Value x) {
    const Value first = cast(unsqueeze(part_of_axis(x, -1, 0, 1), {x.rank()}), f64);
    return reversed(filtered(x, unit, first * steady).results);
  };
  const Value both = one_way(one_way(extended(signal, edge, edge, Extension::odd)));
  return widened(both, -edge, -edge);
}

}  // namespace rlx
