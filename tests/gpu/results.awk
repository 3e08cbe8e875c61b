# Reads the output of a GoogleTest program, or of gpu_bench, and prints one line for each case:
#   passed|failed|skipped <tab> case <tab> reason
# Appends each failed case, with the last lines that it printed, to the file `failures`. A case that
# didn't end counts as failed.
# Variables: program, its name; failures, a file name; unfinished, the reason for a case that didn't
# end; max_lines, the number of lines to keep of a failed case.

function report(state, reason) {
  print state "\t" name "\t" reason
  if (state == "failed") {
    print program ": " name (reason == "" ? "" : ": " reason) >> failures
    for (i = n > max_lines ? n - max_lines : 0; i < n; i++) print "    " lines[i] >> failures
  }
  name = ""
}

{ sub(/\r$/, "") }
/^\[ RUN      \] / {
  if (name != "") report("failed", unfinished)
  name = substr($0, 14)
  n = 0; reason = ""; reason_follows = 0
  next
}
name == "" { next }
/^\[       OK \] / { report("passed", ""); next }
/^\[  FAILED  \] / { report("failed", ""); next }
/^\[  SKIPPED \] / { report("skipped", reason); next }
{ lines[n++] = $0 }
reason_follows && reason == "" { reason = $0 }
/: Skipped$/ { reason_follows = 1 }
END { if (name != "") report("failed", unfinished) }
