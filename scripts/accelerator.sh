#!/usr/bin/env bash
# What only a machine with a GPU or a TPU can tell: whether it computes what a CPU does, the benchmarks, and the experiments at sizes that
# need one. In pieces of at most ten minutes, of which each that ended well is kept: call it again until nothing is left.
#
#   scripts/accelerator.sh [--smoke] [DIR]     # output of every piece in DIR (default: accelerator), all of them in DIR/accelerator.json
#
# With --smoke and JAX_PLATFORMS=cpu it shows, without an accelerator and in about ten minutes on two cores, that every piece runs;
# DIR is then accelerator-smoke if none is given.
set -uo pipefail
smoke= folder=
for argument; do
  case "$argument" in
    --smoke) smoke=--smoke ;;
    -*) echo "There is no flag '$argument'; write $0 [--smoke] [DIR]." >&2 && exit 2 ;;
    *)
      if [[ -n "$folder" ]]; then echo "There is no place for '$argument'; write $0 [--smoke] [DIR]." >&2 && exit 2; fi
      folder=$argument
      ;;
  esac
done
folder=${folder:-accelerator${smoke:+-smoke}}
# Without a folder nothing may run: its pieces would write elsewhere.
mkdir -p "$folder" && out=$(cd "$folder" && pwd) || exit 2
cd "$(dirname "$0")/.." || exit 2
scale=${smoke:+smoke}
scale=${scale:-paper}
# Else a run in earnest would take the pieces of a trial for its own.
if [[ -e "$out/scale" && $(<"$out/scale") != "$scale" ]]; then
  echo "$out has pieces of scale $(<"$out/scale"); name another folder." >&2 && exit 2
fi
echo "$scale" >"$out/scale"

finish() {
  python - "$out" <<'PYTHON'
import json
import sys
from pathlib import Path

out = Path(sys.argv[1])
found = {}
for path in sorted(out.glob("*.code")):
    name = path.stem
    texts = {part: (out / f"{name}.{part}").read_text().strip() for part in ("command", "code", "seconds", "out")}
    found[name] = {**texts, "code": int(texts["code"]), "seconds": int(texts["seconds"])}
(out / "accelerator.json").write_text(json.dumps(found, indent=1))
failed = [name for name, piece in found.items() if piece["code"]]
print(f"{out / 'accelerator.json'}: {len(found) - len(failed)} pieces done" + (f"; not {', '.join(failed)}" if failed else ""))
sys.exit(bool(failed))
PYTHON
  exit $?
}
# Also where it is interrupted.
trap finish EXIT

piece() {
  local name=$1 began=$SECONDS code
  shift
  if [[ -e "$out/$name.code" && $(<"$out/$name.code") == 0 ]]; then return; fi
  echo "$name: $*"
  printf '%s\n' "$*" >"$out/$name.command"
  timeout --kill-after=20 "${LIMIT:-600}" "$@" >"$out/$name.out" 2>&1
  code=$?
  echo "$((SECONDS - began))" >"$out/$name.seconds"
  echo "$code" >"$out/$name.code"
  echo "$name: exit code $code after $((SECONDS - began)) s"
}

piece device python -c 'import jax; print(jax.__version__, *jax.devices())'
piece tests python -m pytest -n 0 -q -m accelerator tests/accelerator
piece roofline python scripts/benchmarks/roofline.py $smoke
piece polar python scripts/benchmarks/polar.py $smoke
piece sweep python scripts/benchmarks/sweep.py $smoke
piece grids python scripts/benchmarks/grids.py $smoke
piece recovery python scripts/benchmarks/recovery.py $smoke
piece outer-product python scripts/benchmarks/outer_product.py $smoke
# Interrupted after ten minutes, an experiment goes on from there in the next call.
for experiment in memory-one-step recall-transformer figures-3-and-11 gpt-telemetry gpt-ablation rank-switch; do
  piece "$experiment" specjax run "$experiment" --scale "$scale" --out "$out/results"
done
