// The shape that a reshape gives: element counts as a number times a product of symbols.
#include "ops/reshape.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/error.hpp"
#include "ops/families.hpp"

namespace rlx {
namespace {

// A product of dims: a number and the texts that are no numbers.
struct Product {
  std::int64_t number = 1;
  std::vector<Dim> symbols;
  bool overflows = false;
};

// Where "(a*b)" has its operator, or nothing for texts of another form.
std::optional<std::size_t> product_sign(const std::string& text) {
  if (text.size() < 3 || text.front() != '(' || text.back() != ')') return std::nullopt;
  int depth = 0;
  for (std::size_t i = 1; i + 1 < text.size(); ++i) {
    if (text[i] == '(') ++depth;
    if (text[i] == ')') --depth;
    if (depth == 0 && text[i] == '*') return i;
    if (depth == 0 && (text[i] == '+' || text[i] == '-' || text[i] == '/' || text[i] == '|'))
      return std::nullopt;
  }
  return std::nullopt;
}

void multiply(Product& product, const std::string& text) {
  if (!text.empty() &&
      std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    // Longer numbers than any dim are left as texts.
    if (text.size() < 19) {
      product.overflows |=
          __builtin_mul_overflow(product.number, std::stoll(text), &product.number);
      return;
    }
  } else if (const auto sign = product_sign(text)) {
    multiply(product, text.substr(1, *sign - 1));
    multiply(product, text.substr(*sign + 1, text.size() - *sign - 2));
    return;
  }
  product.symbols.push_back(Dim(text));
}

void multiply(Product& product, const Dim& dim) {
  if (dim.is_static()) {
    product.overflows |= __builtin_mul_overflow(product.number, dim.value(), &product.number);
  } else {
    multiply(product, dim.text());
  }
}

Product product_of(const Shape& shape) {
  Product product;
  for (const Dim& dim : shape) multiply(product, dim);
  return product;
}

// Takes the symbols that both have out of both.
void cancel(Product& a, Product& b) {
  for (std::size_t i = 0; i < a.symbols.size();) {
    const auto same = std::find(b.symbols.begin(), b.symbols.end(), a.symbols[i]);
    if (same == b.symbols.end()) {
      ++i;
      continue;
    }
    b.symbols.erase(same);
    a.symbols.erase(a.symbols.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

Dim dim_of(const Product& product) {
  Dim dim(product.number);
  for (const Dim& symbol : product.symbols)
    dim = product.number == 1 && &symbol == &product.symbols[0] ? symbol : dim * symbol;
  return dim;
}

Error differs(const Type& x, const Shape& wanted) {
  return bad_input("{} cannot be reshaped to {}: the numbers of elements differ.", x.text(),
                   Type{x.dtype, wanted}.text());
}

// The dim that makes the counts equal: count of x / count of the other dims.
Result<Dim> missing_dim(const Type& x, const Shape& wanted, Product have, Product others) {
  if (others.number == 0) {
    return bad_input("The dim -1 of {} cannot be told: the other dims hold no element.",
                     Type{x.dtype, wanted}.text());
  }
  if (have.number == 0) return Dim(0);
  if (others.symbols.empty() && have.number % others.number == 0)
    return dim_of({have.number / others.number, have.symbols});
  if (others.symbols.empty() && have.symbols.empty()) return differs(x, wanted);
  return floor_div(dim_of(have), dim_of(others));
}

/// `wanted` with what it leaves unknown from `from`, which has one dim for each of these places;
/// nothing where others differ. Where `wanted` knows one that `from` does not, the others may not
/// be those of `from`: they stay unknown.
std::optional<Shape> filled(const Shape& wanted, const Shape& from,
                            const std::vector<std::size_t>& places) {
  if (from.size() != places.size()) return std::nullopt;
  Shape result = wanted;
  bool says_more = false;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const Dim& dim = wanted[places[i]];
    if (!compatible(from[i], dim)) return std::nullopt;
    if (dim.is_unknown()) result[places[i]] = from[i];
    else says_more |= from[i].is_unknown();
  }
  return says_more ? wanted : result;
}

std::optional<Shape> place_by_place(const Type& x, const Shape& wanted) {
  std::vector<std::size_t> places(wanted.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  return filled(wanted, x.shape, places);
}

/// Several unknown dims stay where the shapes differ by dims of 1 alone (unsqueeze, squeeze).
Shape aligned(const Type& x, const Shape& wanted) {
  Shape from;
  std::vector<std::size_t> places;
  for (const Dim& dim : x.shape) {
    if (!(dim == Dim(1))) from.push_back(dim);
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (!(wanted[i] == Dim(1))) places.push_back(i);
  }
  return filled(wanted, from, places).value_or(wanted);
}

}  // namespace

Result<Shape> reshaped_shape(const Type& x, const Shape& wanted) {
  std::vector<std::size_t> unknown;
  bool asked = false;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == Dim(-1)) {
      if (asked)
        return bad_input("The shape {} of a reshape has more than one dim of -1.",
                         Type{x.dtype, wanted}.text());
      asked = true;
    } else if (is_negative(wanted[i])) {
      return bad_input("A dim of a shape must not be negative ({}).", wanted[i].value());
    }
    if (wanted[i] == Dim(-1) || wanted[i].is_unknown()) unknown.push_back(i);
  }
  Shape others;
  for (const Dim& dim : wanted) {
    if (!(dim == Dim(-1)) && !dim.is_unknown()) others.push_back(dim);
  }
  Product have = product_of(x.shape), want = product_of(others);
  if (have.overflows || want.overflows)
    return bad_input("The shape {} has no representable size.", Type{x.dtype, wanted}.text());
  cancel(have, want);
  Shape shape = wanted;
  if (!unknown.empty() && !asked) {
    if (const auto same = place_by_place(x, wanted)) return *same;
  }
  if (unknown.size() > 1) {
    shape = aligned(x, wanted);
    for (Dim& dim : shape) dim = dim == Dim(-1) ? Dim::unknown() : dim;
  } else if (unknown.size() == 1) {
    RLX_ASSIGN(shape[unknown[0]], missing_dim(x, wanted, have, want));
  } else if (have.symbols.empty() && want.symbols.empty() && have.number != want.number) {
    return differs(x, wanted);
  }
  return shape;
}

}  // namespace rlx
