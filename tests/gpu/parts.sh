# shellcheck shell=bash
# The parts of tests/gpu/run, which sources this file. Each appends its cases to $work/cases, its
# failures to $work/failures, and what to repeat to $work/again: "PART", "PART ROW", "PART PROGRAM"
# or "PART PROGRAM CASE".

# add_case STATE NAME REASON
add_case() {
  printf '%s\t%s\t%s\t%s\n' "$part" "$1" "$2" "$3" >>"$work/cases"
  [[ $1 != failed ]] || echo "$2: $3" >>"$work/failures"
}

# run_cases NAME FILTER COMMAND…: runs a program that prints its cases as GoogleTest does, and adds
# them.
run_cases() {
  local name=$1 filter=$2 code=0 failed
  shift 2
  echo "--- $part: $name" >>"$log"
  GTEST_FILTER=${GTEST_FILTER:-$filter} bounded "$@" >"$work/output" 2>&1 || code=$?
  cat "$work/output" >>"$log"
  echo "--- $name ended with $code" >>"$log"
  local unfinished="the program ended with $code"
  ((code != 124 && code != 137)) || unfinished="was running when the part's $limit s were over"
  [[ -z $cut ]] || unfinished="was running when $cut ended the run"
  awk -v program="$name" -v failures="$work/failures" -v unfinished="$unfinished" -v max_lines=14 \
    -f "$here/results.awk" "$work/output" >"$work/new_cases"
  sed "s/^/$part\t/" "$work/new_cases" >>"$work/cases"
  failed=$(grep -c '^failed' "$work/new_cases")
  if ((code && failed == 0)); then
    add_case failed "$name" "$unfinished"
    tail -n 14 "$work/output" | sed 's/^/    /' >>"$work/failures"
    return 1
  elif [[ ! -s $work/new_cases && -z ${GTEST_FILTER:-} ]]; then
    add_case failed "$name" "the program ran no case"
    return 1
  fi
}

# Prints the names that --repeat lists for the part after a prefix, one a line.
repeated() { sed -n "s/^$part $1\(.\)/\1/p" <<<"$repeat"; }
# Returns whether there is no --repeat, or it names one of the lines.
names_all() {
  local line
  [[ -n $repeat ]] || return 0
  for line in "$@"; do ! grep -q -x -F -e "$line" <<<"$repeat" || return 0; done
  return 1
}

# run_program NAME FILTER: runs the cases of a GoogleTest program that the filter selects, or those
# that --repeat names.
run_program() {
  local filter=$2 again="$part $1" code=0
  if ! names_all "$part" "$part $1"; then
    filter=$(repeated "$1 " | paste -s -d :)
    [[ -n $filter ]] || return 0
  fi
  run_cases "$1" "$filter" "$programs/$1$suffix" || code=1
  if ((code)) || [[ -n $cut ]]; then
    echo "$again" >>"$work/again"
  else
    sed -n "s/^failed\t\([^\t]*\)\t.*/$again \1/p" "$work/new_cases" >>"$work/again"
  fi
}

# run_rows NAME COMMAND…: runs gpu_bench or torch_rows.py, or its rows that --repeat names. Adds its
# rows as cases, and its table to the report.
run_rows() {
  local name=$1 selected=()
  shift
  if ! names_all "$part"; then
    repeated '' >"$work/only"
    selected=(--only "$work/only")
  fi
  rm -f "$work/table" "$work/rows"
  run_cases "$name" '*' "$@" --table "$work/table" --repeat "$work/rows" "${selected[@]}" ||
    [[ -s $work/rows ]] || echo "$part" >>"$work/again"
  [[ ! -s $work/table ]] || { echo "Results of $part:"; cat "$work/table"; echo; } >>"$work/tables"
  [[ -s $work/rows ]] || return 0
  sed "s/^/$part /" "$work/rows" >>"$work/again"
  [[ $part == bench ]] || slow_rows >>"$work/slow"
}

# Prints the lines of the table whose rows are in the list to repeat, and which didn't fail.
slow_rows() {
  awk -v part="$part" '
    NR == FNR { again[$0]; next }
    / failed: / { next }
    { for (name in again)
        if (index($0, name " ") == 1) { print "  " part " " $0; next } }' "$work/rows" "$work/table"
}

# pick ALL FEW: prints FEW with --quick, otherwise ALL.
pick() { if [[ -n $quick ]]; then echo "$2"; else echo "$1"; fi; }

# The command that runs the Python that has PyTorch. PyTorch has its own CUDA libraries, so it gets the
# caller's LD_LIBRARY_PATH.
python_path=${PYTHONPATH:-}
[[ ! -d $here/python ]] || python_path=$here/python${PYTHONPATH:+:$PYTHONPATH}
torch_python=(env "LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}" "PYTHONPATH=$python_path"
  TORCH_DEVICE_BACKEND_AUTOLOAD=0 "$python")

# Sets `torch_problem`: why torch_rows.py can't run; empty if it can. Writes the versions to
# $work/pytorch. The first import of PyTorch may take long, so no part's limit includes it. If it
# takes longer than 120 s, the rows still run: the next import finds the files in memory.
check_torch() {
  local answer tag code=0
  torch_problem='' tag=$(manifest python)
  if [[ ! -x $programs/tensord$suffix ]]; then
    torch_problem="there is no $programs/tensord$suffix; tests/gpu/pack --torch packs it"
  elif ! command -v "$python" >/dev/null; then
    torch_problem="there is no $python"
  else
    answer=$(timeout 120 "${torch_python[@]}" torch_check.py ${tag:+"$tag" "$(manifest torch)"} \
      2>>"$log" </dev/null) || code=$?
    case $code in
      0) echo "$answer" >"$work/pytorch" ;;
      124) echo "the import took longer than 120 s" >"$work/pytorch" ;;
      *) torch_problem=${answer:-"torch_check.py fails, see log.txt"} ;;
    esac
  fi
}

# run_torch OPTION…: runs torch_rows.py. It ends a row that runs when the part's time is over.
run_torch() {
  local left
  if [[ -n $torch_problem ]]; then
    add_case skipped torch_rows.py "$torch_problem"
    return
  fi
  left=$(remaining)
  run_rows torch_rows.py "${torch_python[@]}" torch_rows.py --daemon "$programs/tensord$suffix" \
    ${LD_LIBRARY_PATH:+--library-path "$LD_LIBRARY_PATH"} --log "$log" \
    --seconds $((left > 10 ? left - 5 : left)) ${quick:+--tiny --rounds 1} "$@"
}

part_smoke() {
  run_program cuda_device_test 'CudaTest.Matmul*:CudaTest.SumsAndMeans:CudaGraphTest.Elementwise*'
  [[ -n $cut ]] || run_torch --smoke --rounds 1
}

part_torch() { run_torch --json "$out/torch.json"; }

part_device() {
  local few='CudaTest.Matmul*:CudaTest.SumsAndMeans:CudaTest.BringsBack*:CudaTest.CopiesBetweenGpus'
  run_program cuda_device_test "$(pick '*' "$few:CudaGraphTest.Elementwise*")"
  run_program cuda_backend_test "$(pick '*' 'ReduceTile*:FusedSourceTest.Where*')"
  if [[ -z $quick ]]; then
    run_program cuda_value_check_test '*'
    run_program cuda_residue_test '*'
  fi
  run_program cuda_fault_test '*'
}

# A plan has time for an eighth of each op's rows. Fused kernels take longer to compile.
part_conformance() {
  local rows=0/1 fused=0/12
  [[ -z $plan ]] || rows=0/8 fused=0/96
  TENSORD_CONFORMANCE_PART=$rows run_program conformance_in_process "$(pick 'Cuda*:RandomOps*' 'RandomOps*')"
  [[ -n $quick ]] || TENSORD_CONFORMANCE_PART=$fused run_program conformance_fused 'Cuda*:RandomOps*'
}

# sanitize TOOL FILTER: runs cuda_device_test under a tool of compute-sanitizer. Adds one case. It
# fails if the tool reports an error or a test fails.
sanitize() {
  local tool=$1 filter=$2 code=0 races=--track-stream-ordered-races
  if [[ -z $sanitizer ]]; then
    add_case skipped "$tool" "compute-sanitizer was not found"
    return
  fi
  if [[ -n $suffix && -z ${TENSORD_COMPUTE_SANITIZER:-} ]]; then
    add_case skipped "$tool" "compute-sanitizer can't check emulated programs"
    return
  fi
  # The tests provoke CUDA errors on purpose, such as an allocation that is too large. So errors of
  # API calls aren't reported.
  local options=(--tool "$tool" --error-exitcode 99 --report-api-errors no --print-limit 20)
  if [[ $tool == memcheck ]] && "$sanitizer" --help 2>/dev/null | grep -e "$races" >/dev/null; then
    options+=("$races" all)
  fi
  echo "--- $part: $sanitizer ${options[*]} cuda_device_test, $filter" >>"$log"
  GTEST_FILTER=${GTEST_FILTER:-$filter} bounded "$sanitizer" "${options[@]}" \
    "$programs/cuda_device_test$suffix" >"$work/output" 2>&1 || code=$?
  cat "$work/output" >>"$log"
  echo "--- $tool ended with $code" >>"$log"
  local tests summary
  tests=$(grep -c '^\[       OK \]' "$work/output")
  summary=$(grep -E '(ERROR|RACECHECK) SUMMARY' "$work/output" | tail -n 1 | sed 's/^=* *//')
  if ((code == 0 && tests > 0)) && [[ $summary == *SUMMARY:\ 0\ * ]]; then
    add_case passed "$tool over $tests tests" ""
    return
  fi
  local why="ended with $code after $tests tests: ${summary:-without a summary}"
  ((code != 124 && code != 137)) ||
    why="wasn't done after $limit s and $tests tests; select fewer tests with GTEST_FILTER"
  add_case failed "$tool" "$why"
  echo "$part" >>"$work/again"
  grep -E -A 6 '^=+ (Invalid|Error|Warning|Race|Program hit|Internal)|^\[  FAILED  \]' \
    "$work/output" | head -n 40 | sed 's/^/    /' >>"$work/failures"
}

part_memcheck() { sanitize memcheck "$(pick '*' 'CudaTest.Sums*:CudaGraphTest.Elementwise*')"; }

# The tests of kernels with shared memory: reductions, softmax, permute, transpose, integer matmul;
# and the tests of fused kernels and of concatenation.
part_racecheck() {
  local tests='SumsAndMeans:Extrema*:Norms*:Softmax*:Permutes*:Transposes*:MatmulOf*:Concatenates*'
  sanitize racecheck "$(pick "CudaTest.${tests//:/:CudaTest.}:FusedCudaTest.*" 'CudaTest.Sums*')"
}

# measure OPTION…: runs gpu_bench. The row that starts last gets a fifth of the time, or a minute.
measure() {
  local left last
  left=$(remaining) last=$((left / 5))
  run_rows gpu_bench "$bench" ${quick:+--quick} --json "$out/$part.json" \
    --seconds $((left - (last < 60 ? last : 60))) "$@"
}

part_bench() { measure; }

part_compare() {
  local cpu=() greeting
  [[ -z $suffix ]] || cpu=(--cpu)
  if ! command -v "$python" >/dev/null; then
    add_case skipped compare "there is no $python"
    return
  fi
  # With empty input, torch_peer.py prints its greeting and ends.
  greeting=$(bounded "${torch_python[@]}" torch_peer.py "${cpu[@]}" 2>>"$log")
  if [[ $greeting != ready* ]]; then
    add_case skipped compare "no PyTorch with a GPU: ${greeting:-"the script fails, see log.txt"}"
    return
  fi
  measure --torch "${torch_python[*]} torch_peer.py ${cpu[*]}"
}
