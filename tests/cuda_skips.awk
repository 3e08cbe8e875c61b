# Prints the cases that tests/run --cuda has skipped: first those that it permits, then the others.
# Exits with 1 if a skip is not permitted.
# Input: lines "passed|failed|skipped <tab> case <tab> reason" of the CUDA backend's tests (cases.awk).
BEGIN { FS = "\t" }
$1 != "skipped" { next }
$3 ~ /there is one GPU/ { permitted[++p] = $2 ": there is no second GPU"; next }
$3 == "there is a GPU" { permitted[++p] = $2 ": the test needs a machine without a GPU"; next }
{ unexpected[++u] = $2 ": " $3 }
END {
  if (p) print "skips that --cuda permits:"
  for (i = 1; i <= p; i++) print "  " permitted[i]
  if (u) print "skips that --cuda doesn't permit:"
  for (i = 1; i <= u; i++) print "  " unexpected[i]
  exit u > 0
}
