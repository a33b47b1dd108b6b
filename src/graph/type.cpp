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

}  // namespace

Dim operator+(const Dim& a, const Dim& b) {
  if (a.is_static() && b.is_static()) return a.value() + b.value();
  if (a.is_static() && a.value() == 0) return b;
  if (b.is_static() && b.value() == 0) return a;
  return derived(a, "+", b);
}

Dim operator-(const Dim& a, const Dim& b) {
  if (a.is_static() && b.is_static()) return a.value() - b.value();
  if (b.is_static() && b.value() == 0) return a;
  if (a == b) return 0;
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
