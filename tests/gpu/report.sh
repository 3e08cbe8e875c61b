# shellcheck shell=bash
# Writes the report of tests/gpu/run, which sources this file.

max_log_bytes=$((12 << 20))

# Leaves the beginning and the end of a log that is too long.
shorten_log() {
  (($(stat -c %s "$log") > max_log_bytes)) || return 0
  {
    head -c $((max_log_bytes / 3)) "$log"
    printf '\n--- some output is left out here ---\n'
    tail -c $((max_log_bytes / 3)) "$log"
  } >"$work/log" && cp "$work/log" "$log"
}

# count PART STATE: prints the number of cases of a part in a state. An empty PART means all parts.
count() {
  awk -F'\t' -v part="$1" -v state="$2" '
    (part == "" || $1 == part) && $2 == state { n++ }
    END { print n + 0 }' "$work/cases"
}

machine() {
  echo "tensord: report of the CUDA backend, $(date -u '+%Y-%m-%d %H:%M UTC')"
  echo
  echo "GPU:       $gpu"
  if [[ -z $suffix ]] && command -v nvidia-smi >/dev/null; then
    local fields=index,name,driver_version,memory.total,memory.used,clocks.max.sm,clocks.max.mem
    timeout 30 nvidia-smi --query-gpu="$fields,power.limit,mig.mode.current" --format=csv 2>&1 |
      sed '1,16s/^/           /'
  fi
  local name processor
  name=$(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release 2>/dev/null)
  processor=$(awk -F': ' '/^model name/ && !seen++ { print $2 }' /proc/cpuinfo)
  echo "system:    $name, kernel $(uname -r), glibc ${glibc:-unknown}, $(getconf _NPROCESSORS_ONLN) x $processor"
  echo "programs:  $programs${suffix:+, emulated}${quick:+, quick}"
  [[ ! -e $here/MANIFEST ]] || sed 's/^/           /' "$here/MANIFEST"
  sed '1s/^/libraries: /;2,$s/^/           /' "$work/libraries"
  echo "sanitizer: ${sanitizer:-not found}"
  [[ ! -s $work/pytorch ]] || sed '1s/^/PyTorch:   /;2,$s/^/           /' "$work/pytorch"
}

# Prints how many cases were skipped for each reason, and one of them.
skips() {
  awk -F'\t' '$2 == "skipped" { if (!($4 in n)) order[++k] = $4; n[$4]++; example[$4] = $3 }
    END { for (i = 1; i <= k; i++) { r = order[i]
      printf("  %d x %s (%s%s)\n", n[r], r, example[r], (n[r] > 1 ? ", …" : "")) } }' "$work/cases"
}

# Writes the report and the list to repeat. Parts that have not run yet are in both.
write_report() {
  {
    machine
    echo
    printf '%-12s %7s %7s %8s %8s\n' part passed failed skipped seconds
    cat "$work/parts"
    [[ -z $cut ]] || printf '\nThe run was ended by %s.\n' "$cut"
    ((${#waiting[@]} == 0)) || printf '\nParts that have not run: %s\n' "${waiting[*]}"
    [[ ! -s $work/failures ]] || { echo && echo "Failures (log.txt has all output):" &&
      cat "$work/failures"; }
    [[ ! -s $work/slow ]] || { echo && echo "Slower than PyTorch (columns as below):" && cat "$work/slow"; }
    [[ $(count "" skipped) == 0 ]] || { echo && echo "Skipped:" && skips; }
    if [[ -s $work/tables ]]; then
      echo
      cat "$work/tables"
      echo "ours, reference: medians over rounds; in each round, both run one after the other"
      echo "ratio: the reference's time divided by ours; above 1, ours is faster"
      echo "GB/s: bytes of all inputs and of the output, each counted once, divided by the time"
      echo "peak: share of 2 x memory clock x bus width, or of clock x operations per clock"
    fi
    echo
    local passed failed skipped
    passed=$(count "" passed) failed=$(count "" failed) skipped=$(count "" skipped)
    echo "$passed passed, $failed failed$( ((skipped == 0)) || echo ", $skipped skipped")"
  } >"$work/report" && cp "$work/report" "$report.part" && mv "$report.part" "$report"
  {
    cat "$work/again"
    ((${#waiting[@]} == 0)) || printf '%s\n' "${waiting[@]}"
  } >"$out/repeat.txt"
}
