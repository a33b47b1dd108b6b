"""Generated graphs for cost.py, in the text form: kinds of ops over many shapes."""
import os
import random

SHAPES = [(1, 64, 128), (4, 256, 256), (16, 768, 384), (64, 100, 500), (100, 333, 70),
          (128, 384, 384), (256, 1024, 512), (1000, 64, 30)]
# Channels, side of the image, channels out.
IMAGES = [(3, 64, 16), (16, 40, 24), (32, 28, 64), (64, 14, 128), (96, 56, 24), (128, 7, 256)]
MATRIX_KINDS = ("matmul", "softmax", "chain", "sum", "transpose", "norm", "join", "gather")
IMAGE_KINDS = ("conv", "point", "depthwise", "pool")


def matrix_lines(kind, a, b, c):
    """The lines of a graph over f32[a, b]; the last value is %9."""
    if kind == "matmul":
        return [f'%1 = input() {{name = "w", dtype = f32, shape = [{b}, {c}]}}',
                "%2 = dot_general(%0, %1) {a_batch = [], b_batch = [], "
                "a_contract = [1], b_contract = [0]}", "%9 = tanh(%2)"]
    if kind == "softmax":
        return ["%9 = softmax(%0) {axis = 1}"]
    if kind == "chain":
        return ["%1 = exp(%0)", "%2 = add(%1, %0)", "%4 = sqrt(%1)", "%9 = mul(%2, %4)"]
    if kind == "sum":
        return ["%1 = mul(%0, %0)",
                "%9 = reduce(%1) {kind = sum, axes = [1], keep_dims = false}"]
    if kind == "transpose":
        return ["%1 = transpose(%0) {perm = [1, 0]}", "%9 = tanh(%1)"]
    if kind == "norm":
        return [f"%1 = iota() {{dtype = f32, shape = [{b}], axis = 0}}",
                "%9 = layer_norm(%0, %1, %1) {axis = 1, epsilon = 1e-5}"]
    if kind == "join":
        half = (b + 1) // 2
        return [f"%1 = slice(%0) {{starts = [0, {b - half}], limits = [{a}, {b}], steps = [1, 1]}}",
                f"%2 = slice(%0) {{starts = [0, 0], limits = [{a}, {half}], steps = [1, 1]}}",
                "%3 = concat(%1, %2, %0) {axis = 1}",
                "%9 = pad(%3) {low = [0, 1], high = [0, 2], mode = constant}"]
    if kind == "gather":
        return [f"%1 = iota() {{dtype = i64, shape = [{min(a, c)}], axis = 0}}",
                "%2 = gather(%0, %1) {axis = 0}", "%9 = abs(%2)"]
    raise ValueError(kind)


def image_lines(kind, channels, out):
    """The same over f32[1, channels, side, side]."""
    taps = 1 if kind == "point" else 3
    groups = channels if kind == "depthwise" else 1
    border = taps // 2
    if kind == "pool":
        return ["%9 = window_reduce(%0) {kind = max, window = [3, 3], strides = [2, 2], "
                "pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1], "
                "count_include_pad = false, channels_last = false}"]
    results = channels if kind == "depthwise" else out
    weights = [results, channels // groups, taps, taps]
    return [f"%1 = iota() {{dtype = f32, shape = {weights}, axis = 0}}",
            f"%2 = conv(%0, %1) {{strides = [1, 1], pad_low = [{border}, {border}], "
            f"pad_high = [{border}, {border}], dilations = [1, 1], groups = {groups}, "
            "transposed = false, output_padding = [], channels_last = false}", "%9 = relu(%2)"]


def text_of(shape, lines):
    dims = ", ".join(map(str, shape))
    body = [f'%0 = input() {{name = "x", dtype = f32, shape = [{dims}]}}', *lines]
    return "rlx 1\ngraph {\n  " + "\n  ".join(body) + '\n  output "y" = %9\n}\n'


def write_graphs(folder):
    """Writes every graph into the folder; the paths."""
    texts = {}
    for a, b, c in SHAPES:
        for kind in MATRIX_KINDS:
            texts[f"{kind}_{a}_{b}_{c}"] = text_of((a, b), matrix_lines(kind, a, b, c))
    for channels, side, out in IMAGES:
        for kind in IMAGE_KINDS:
            texts[f"{kind}_{channels}_{side}_{out}"] = text_of(
                (1, channels, side, side), image_lines(kind, channels, out))
    for name, text in texts.items():
        with open(os.path.join(folder, name + ".rlx"), "w", encoding="utf-8") as file:
            file.write(text)
    return [os.path.join(folder, name + ".rlx") for name in texts]


class Maker:
    """Random graphs of a few ops, the same for the same seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.lines, self.count = [], 1

    def add(self, text, *operands, **fields):
        """One more op; `text` without its operands names it. The number of its value."""
        values = ", ".join(f"%{value}" for value in operands)
        rest = ", ".join(f"{key} = {value}" for key, value in fields.items())
        self.lines.append(f"%{self.count} = {text}({values})" + (f" {{{rest}}}" if rest else ""))
        self.count += 1
        return self.count - 1

    def iota(self, shape):
        return self.add("iota", dtype="f32", shape=shape, axis=0)

    def size(self, low, high):
        """Sizes spread evenly over magnitudes; half of them multiples of 16."""
        value = round(low * (high / low) ** self.random.random())
        return max(low, value // 16 * 16) if value > 16 and self.random.random() < 0.5 else value

    def maps(self, value, count, large=False):
        """`large`: of numbers in the thousands, whose powers leave the range of floats: what
        subnormal numbers take no shape tells."""
        for _ in range(count):
            kind = self.random.choice(["exp", "tanh", "relu", "abs", "sigmoid", "add", "mul"])
            if large and kind in ("exp", "sigmoid"):
                kind = "tanh"
            value = self.add(kind, value, value) if kind in ("add", "mul") else self.add(kind,
                                                                                         value)
        return value

    def rows(self):
        shape = [self.size(1, 512), self.size(8, 1024)]
        value = self.maps(0, self.random.randrange(3))
        axis = self.random.choice([1, 1, 0])
        if self.random.random() < 0.4:
            return shape, self.add("reduce", value, kind=self.random.choice(["sum", "max"]),
                                   axes=[axis], keep_dims="false")
        return shape, self.maps(self.add("softmax", value, axis=axis), self.random.randrange(2))

    def elementwise(self):
        return [self.size(1, 512), self.size(8, 1024)], self.maps(0, self.random.randrange(1, 6))

    def moves(self):
        a, b = self.size(4, 512), self.size(8, 512)
        left = self.add("transpose", 0, perm=[1, 0])
        right = self.add("transpose", self.maps(0, 1), perm=[1, 0])
        value = self.add("concat", left, right, axis=self.random.choice([0, 1]))
        return [a, b], self.maps(value, self.random.randrange(2))

    def product(self):
        m, k, n = self.size(1, 256), self.size(16, 512), self.size(8, 512)
        fields = {"a_batch": [], "b_batch": [], "a_contract": [1], "b_contract": [0]}
        value = self.add("dot_general", 0, self.iota([k, n]), **fields)
        value = self.maps(value, 1, large=True)
        if self.random.random() < 0.5:
            value = self.add("dot_general", value, self.iota([n, k]), **fields)
        return [m, k], self.add("softmax", value, axis=1)

    def image(self):
        channels, side = self.size(3, 128), self.size(6, 64)
        value = 0
        for _ in range(self.random.randrange(1, 4)):
            taps = self.random.choice([1, 3, 3, 5])
            out = self.size(8, 128)
            groups = channels if self.random.random() < 0.3 else 1
            out = channels if groups > 1 else out
            border = taps // 2
            value = self.add("conv", value, self.iota([out, channels // groups, taps, taps]),
                             strides=[1, 1], pad_low=[border] * 2, pad_high=[border] * 2,
                             dilations=[1, 1], groups=groups, transposed="false",
                             output_padding=[], channels_last="false")
            value = self.add("relu", value)
            self.shape = self.shape or [1, channels, side, side]
            channels = out
        if self.random.random() < 0.4:
            value = self.add("window_reduce", value, kind="max", window=[2, 2], strides=[2, 2],
                             pad_low=[0, 0], pad_high=[0, 0], dilations=[1, 1],
                             count_include_pad="false", channels_last="false")
        return self.shape, value

    shape = None

    def make(self):
        kind = self.random.choice(["rows", "elementwise", "moves", "product", "image", "image"])
        shape, value = getattr(self, kind)()
        return kind, text_of(shape, self.lines).replace("= %9\n", f"= %{value}\n")


def write_seeded(folder, seeds):
    """Writes a random graph for each seed; the paths, whose names end with the seed."""
    paths = []
    for seed in seeds:
        kind, text = Maker(seed).make()
        paths.append(os.path.join(folder, f"{kind}_seed_{seed}.rlx"))
        with open(paths[-1], "w", encoding="utf-8") as file:
            file.write(text)
    return paths
