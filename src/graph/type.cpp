// Dims and types.
#include <algorithm>

#include "base/error.hpp"
#include "rlx/graph.hpp"

namespace rlx {
namespace {

Dim derived(const Dim& a, const char* op, const Dim& b) {
  if (a.is_unknown() || b.is_unknown()) return Dim::unknown();
  return Dim("(" + a.text() + op + b.text() + ")");
}

/// A dim as what it was derived from and a number added to that: "(n-2)" is n and -2.
struct Offset {
  Dim base;
  std::int64_t added = 0;
};

Offset offset_of(const Dim& dim) {
  if (dim.is_static()) return {0, dim.value()};
  const std::string text = dim.text();
  std::size_t digits = text.size() - 1;
  while (digits > 0 && text[digits - 1] >= '0' && text[digits - 1] <= '9') --digits;
  constexpr std::size_t most_digits = 12;
  const std::size_t count = text.size() - 1 - digits;
  if (digits < 3 || count == 0 || count > most_digits || text.front() != '(' || text.back() != ')')
    return {dim};
  const char sign = text[digits - 1];
  if (sign != '+' && sign != '-') return {dim};
  const std::int64_t number = std::stoll(text.substr(digits, count));
  return {Dim(text.substr(1, digits - 2)), sign == '+' ? number : -number};
}

Dim plus(const Offset& offset, std::int64_t number) {
  const std::int64_t added = offset.added + number;
  if (added == 0) return offset.base;
  return added > 0 ? derived(offset.base, "+", added) : derived(offset.base, "-", -added);
}

}  // namespace

Dim operator+(const Dim& a, const Dim& b) {
  if (a.is_static() && b.is_static()) return a.value() + b.value();
  if (a.is_static() && a.value() == 0) return b;
  if (b.is_static()) return plus(offset_of(a), b.value());
  return derived(a, "+", b);
}

Dim operator-(const Dim& a, const Dim& b) {
  if (a.is_static() && b.is_static()) return a.value() - b.value();
  if (b.is_static()) return plus(offset_of(a), -b.value());
  const Offset x = offset_of(a), y = offset_of(b);
  if (x.base == y.base) return x.added - y.added;
  return derived(a, "-", b);
}

Dim operator*(const Dim& a, const Dim& b) {
  if (a.is_static() && b.is_static()) return a.value() * b.value();
  if (a.is_static() && a.value() == 1) return b;
  if (b.is_static() && b.value() == 1) return a;
  return derived(a, "*", b);
}

Dim floor_div(const Dim& a, const Dim& b) {
  if (b.is_static() && b.value() == 1) return a;
  if (a.is_static() && b.is_static()) {
    const std::int64_t quotient = a.value() / b.value();
    return quotient - (a.value() % b.value() != 0 && (a.value() < 0) != (b.value() < 0));
  }
  return derived(a, "/", b);
}

Dim broadcast_dim(const Dim& a, const Dim& b) {
  if (a == Dim(1) || (b.is_static() && b != Dim(1) && !a.is_static())) return b;
  if (a.is_static() || b == Dim(1) || a == b) return a;
  // Layer upon layer of sums would double the text each time.
  constexpr std::size_t longest = 256;
  if (a.text().size() + b.text().size() > longest) return Dim::unknown();
  return derived(a, "|", b);
}

bool compatible(const Dim& a, const Dim& b) {
  return !a.is_static() || !b.is_static() || a.value() == b.value();
}

bool Type::is_static() const {
  return std::all_of(shape.begin(), shape.end(), [](const Dim& dim) { return dim.is_static(); });
}

Dims Type::dims() const {
  Dims result;
  result.reserve(shape.size());
  for (const Dim& dim : shape) {
    RLX_CHECK(dim.is_static(), "{} has dims that are not bound", text());
    result.push_back(dim.value());
  }
  return result;
}

std::string Type::text() const {
  std::string result(name_of(dtype));
  result += '[';
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i) result += ',';
    result += shape[i].text();
  }
  return result + ']';
}

Shape to_shape(std::span<const std::int64_t> dims) { return {dims.begin(), dims.end()}; }

}  // namespace rlx
