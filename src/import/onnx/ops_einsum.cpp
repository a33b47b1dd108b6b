// Einsum as transposes, products over shared labels, and sums.
#include <algorithm>
#include <cctype>

#include "import/onnx/build.hpp"
#include "import/onnx/families.hpp"

namespace rlx::onnx {
namespace {

// A value whose axes carry labels. Axes under an ellipsis carry capitals beyond the alphabet: '\1',
// '\2', ... counted from the last.
struct Labelled {
  Value value;
  std::string labels;
};

// "..." -> one label for each of the axes that it covers.
std::string with_ellipsis(const std::string& term, int covered) {
  std::string out;
  for (std::size_t i = 0; i < term.size(); ++i) {
    if (term.compare(i, 3, "...") == 0) {
      for (int k = covered; k > 0; --k) out += static_cast<char>(k);
      i += 2;
    } else if (std::isalpha(static_cast<unsigned char>(term[i]))) {
      out += term[i];
    } else {
      fail("The equation holds ({}).", term[i]);
    }
  }
  return out;
}

int letters_in(const std::string& term) {
  return static_cast<int>(std::count_if(
      term.begin(), term.end(), [](unsigned char letter) { return std::isalpha(letter) != 0; }));
}

bool contains(const std::string& labels, char label) {
  return labels.find(label) != std::string::npos;
}

Value sum_axis(const Value& x, std::size_t axis) {
  return sum(x, {static_cast<std::int64_t>(axis)});
}

// A label that stands twice means the diagonal of both axes.
void take_diagonals(NodeContext& c, Labelled& x) {
  for (std::size_t i = 0; i < x.labels.size(); ++i) {
    const std::size_t j = x.labels.find(x.labels[i], i + 1);
    if (j == std::string::npos) continue;
    const Shape& shape = x.value.shape();
    const Value row = c.add(op::Iota{i64, shape, static_cast<std::int64_t>(i)}, {});
    const Value column = c.add(op::Iota{i64, shape, static_cast<std::int64_t>(j)}, {});
    x.value = sum_axis(select(equal(row, column), x.value, scalar_like(c, x.value, 0)), j);
    x.labels.erase(j, 1);
    --i;
  }
}

// Labels that nobody else needs are summed at once.
void sum_away(Labelled& x, const std::string& needed) {
  for (std::size_t i = 0; i < x.labels.size();) {
    if (contains(needed, x.labels[i])) {
      ++i;
      continue;
    }
    x.value = sum_axis(x.value, i);
    x.labels.erase(i, 1);
  }
}

// Dims of 1 under an ellipsis are broadcast: in a product they are dropped.
void drop_ones(Labelled& x, const Labelled& other) {
  for (std::size_t i = 0; i < x.labels.size();) {
    const std::size_t at = other.labels.find(x.labels[i]);
    const bool one = x.value.shape()[i] == Dim(1);
    if (!one || at == std::string::npos || other.value.shape()[at] == Dim(1)) {
      ++i;
      continue;
    }
    Shape shape = x.value.shape();
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(i));
    x.value = reshape(x.value, shape);
    x.labels.erase(i, 1);
  }
}

// The product of two: labels of both are batch axes where `needed`, else summed.
Labelled product(NodeContext& c, Labelled a, Labelled b, const std::string& needed) {
  drop_ones(a, b);
  drop_ones(b, a);
  op::DotGeneral dot;
  Labelled result;
  std::string free;
  for (std::size_t i = 0; i < a.labels.size(); ++i) {
    const std::size_t j = b.labels.find(a.labels[i]);
    const bool shared = j != std::string::npos;
    if (!shared) {
      free += a.labels[i];
      continue;
    }
    const bool batch = contains(needed, a.labels[i]);
    (batch ? dot.a_batch : dot.a_contract).push_back(static_cast<std::int64_t>(i));
    (batch ? dot.b_batch : dot.b_contract).push_back(static_cast<std::int64_t>(j));
    if (batch) result.labels += a.labels[i];
  }
  result.labels += free;
  for (const char label : b.labels) {
    if (!contains(a.labels, label)) result.labels += label;
  }
  result.value = c.add(dot, {a.value, b.value});
  return result;
}

struct Equation {
  std::vector<std::string> terms;
  std::string result;
};

Equation parse(NodeContext& c, const Values& inputs) {
  std::string text = c.text("equation", "");
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  const std::size_t arrow = text.find("->");
  const std::string left = text.substr(0, arrow);
  Equation equation;
  for (std::size_t start = 0; start <= left.size();) {
    const std::size_t comma = std::min(left.find(',', start), left.size());
    equation.terms.push_back(left.substr(start, comma - start));
    start = comma + 1;
  }
  if (equation.terms.size() != inputs.size()) {
    fail("The equation ({}) has ({}) terms for ({}) inputs.", text, equation.terms.size(),
         inputs.size());
  }
  int covered = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::string& term = equation.terms[i];
    const int rest = inputs[i].rank() - letters_in(term);
    if (rest < 0 || rest > 20)
      fail("The term ({}) does not fit {}.", term, inputs[i].type().text());
    covered = std::max(covered, rest);
    term = with_ellipsis(term, rest);
    if (static_cast<int>(term.size()) != inputs[i].rank()) {
      fail("The term ({}) does not fit {}.", term, inputs[i].type().text());
    }
  }
  if (arrow != std::string::npos) {
    equation.result = with_ellipsis(text.substr(arrow + 2), covered);
    return equation;
  }
  // Without an arrow: the ellipsis, then the letters that stand once, sorted.
  std::string all, once;
  for (const std::string& term : equation.terms) all += term;
  for (const char label : all) {
    const auto count = std::count(all.begin(), all.end(), label);
    if (std::isalpha(static_cast<unsigned char>(label)) && count == 1) once += label;
  }
  std::sort(once.begin(), once.end());
  equation.result = with_ellipsis("...", covered) + once;
  return equation;
}

void einsum(NodeContext& c) {
  const Values inputs = c.inputs();
  if (inputs.empty()) fail("It has no inputs.");
  const Equation equation = parse(c, inputs);
  Labelled total;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Labelled next{inputs[i], equation.terms[i]};
    take_diagonals(c, next);
    std::string needed = equation.result;
    for (std::size_t k = i + 1; k < inputs.size(); ++k) needed += equation.terms[k];
    sum_away(next, i == 0 ? needed : needed + total.labels);
    if (i == 0) {
      total = next;
      continue;
    }
    sum_away(total, needed + next.labels);
    total = product(c, total, next, needed);
    sum_away(total, needed);
  }
  Axes perm;
  for (const char label : equation.result) {
    const std::size_t at = total.labels.find(label);
    if (at == std::string::npos) fail("The result has a label ({}) that no term has.", label);
    perm.push_back(static_cast<std::int64_t>(at));
  }
  if (perm.size() != total.labels.size()) fail("The result repeats a label.");
  c.set(perm.empty() ? total.value : transpose(total.value, perm));
}

void determinant(NodeContext& c) { c.set(c.add(op::Determinant{}, {c.in(0)})); }

constexpr OpEntry entries[] = {{"Einsum", 12, einsum}, {"Det", 11, determinant}};

}  // namespace

OpEntries einsum_entries() { return entries; }

}  // namespace rlx::onnx
