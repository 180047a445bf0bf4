#!/bin/bash
# Builds the package on a machine without a package index, tests it there and measures it.
#
#   tools/gpu/run.sh [--wheels DIR] OUT STAGE[:SECONDS]...
#
#   wheels         unpack DIR/*.whl, what the machine's Python lacks, into $SITE
#   build          compile the native module in place
#   kernels-test   tests/kernels: every kernel against its reference
#   gpu-test       tests/gpu: the engine on the GPU
#   bench-kernels  time single kernels          -> OUT/kernels.jsonl
#   bench-steps    single steps, plain and full  -> OUT/engine.jsonl
#   bench          time the whole engine        -> OUT/engine.jsonl, lines as in benchmarks/h200.jsonl
#   all            these, in this order
#
# A stage that fails, or is ended after SECONDS, stops none of the others. All output is shown and kept in
# OUT/log; a table of the stages comes last, and in OUT/summary. The exit status is 1 if a stage failed.
#
# The machine has Python with torch, Triton, pytest and setuptools, and a C++20 compiler. Without a GPU the
# tests of the GPU skip and the benchmarks fail, unless BENCH_ARGS says --device cpu.
#
# Environment: PYTHON, SITE (build/site), JOBS, COMMIT, and what to add to commands, split at blanks: TEST_ARGS,
# KERNELS_ARGS, STEPS_ARGS, BENCH_ARGS.
set -uo pipefail

usage() { sed -n '2,/^set/{/^set/!s/^# \{0,1\}//p}' "$0" >&2; exit 2; }

stages_all=(wheels build kernels-test gpu-test bench-kernels bench-steps bench)
wheels=
while [ $# -gt 0 ]; do
  case $1 in
    --wheels) wheels=$(realpath -m "${2:?--wheels needs a folder}"); shift 2 ;;
    -*) usage ;;
    *) break ;;
  esac
done
[ $# -ge 2 ] || usage
out=$(realpath -m "$1"); shift
stages=()
for stage in "$@"; do
  [ "$stage" = all ] && stages+=("${stages_all[@]}") && continue
  [[ " ${stages_all[*]} " = *" ${stage%%:*} "* ]] || { echo "run.sh: there is no stage '$stage'" >&2; usage; }
  stages+=("$stage")
done

cd "$(dirname "$0")/../.."
mkdir -p "$out"
python=${PYTHON:-python3}
jobs=${JOBS:-$(nproc)}
site=${SITE:-$PWD/build/site}
commit=${COMMIT:-$(git rev-parse --short HEAD 2>/dev/null || echo unknown)}
export PYTHONPATH=$PWD:$PWD/kernels:$PWD/tools:$site PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
pytest=("$python" -m pytest -p no:cacheprovider --durations=15)

# Sets `words` to the command of the stage $1; fails with a reason if it cannot be run.
command_of() {
  case $1 in
    wheels)
      [ -n "$wheels" ] || { echo "run.sh: wheels needs --wheels DIR"; return 1; }
      words=("$python" -m pip --disable-pip-version-check install -q --no-index --no-deps --no-compile --no-cache-dir
        --upgrade --target "$site" "$wheels"/*.whl) ;;
    build) words=("$python" setup.py -q build_ext --inplace --parallel "$jobs") ;;
    kernels-test) words=("${pytest[@]}" tests/kernels ${TEST_ARGS:-}) ;;
    gpu-test) words=("${pytest[@]}" tests/gpu ${TEST_ARGS:-}) ;;
    bench-kernels)
      words=("$python" -m tokenspeed_tools.bench_kernels --jobs "$jobs" --json "$out/kernels.jsonl" ${KERNELS_ARGS:-}) ;;
    bench-steps)
      "$python" -m tokenspeed_tools.bench_gpu.shapes llama8b build/shapes/llama8b || return 1
      words=("$python" -m tokenspeed_tools.bench_gpu.steps build/shapes/llama8b --commit "$commit"
        --json "$out/engine.jsonl" ${STEPS_ARGS:-}) ;;
    bench)
      words=("$python" -m tokenspeed_tools.bench_gpu --commit "$commit" --json "$out/engine.jsonl" ${BENCH_ARGS:-}) ;;
  esac
}

# Runs the stage $1 for at most $2 seconds (0: no limit).
run_stage() {
  local words
  command_of "$1" || return 1
  printf '+'; printf ' %q' "${words[@]}"; echo
  timeout --signal=INT --kill-after=10 "$2" "${words[@]}"
}

rows=()
status=0
for stage in "${stages[@]}"; do
  name=${stage%%:*}
  limit_s=0
  [[ $stage = *:* ]] && limit_s=${stage#*:}
  echo "=== $name" | tee -a "$out/log"
  begin_ms=$(date +%s%3N)
  run_stage "$name" "$limit_s" 2>&1 | tee -a "$out/log"
  code=${PIPESTATUS[0]}
  took_ms=$(($(date +%s%3N) - begin_ms))
  word="failed ($code)"
  [ "$code" = 124 ] && word="ended after $limit_s s"
  if [ "$code" = 0 ]; then word=ok; else status=1; fi
  rows+=("$(printf '%-14s %7d.%d s  %s' "$name" $((took_ms / 1000)) $((took_ms % 1000 / 100)) "$word")")
done

{ echo "=== commit $commit"; printf '%s\n' "${rows[@]}"; } | tee "$out/summary" | tee -a "$out/log"
exit $status
