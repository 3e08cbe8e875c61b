# Sorts the skipped cases of tests/run --cuda: prints them, and exits with 1 if one is not permitted.
# Input: lines "passed|failed|skipped <tab> case <tab> reason" of the CUDA backend's tests (cases.awk).
BEGIN { FS = "\t" }
$1 != "skipped" { next }
$3 ~ /there is one GPU/ { permitted[++p] = $2 ": there is no second GPU"; next }
$3 == "there is a GPU" { permitted[++p] = $2 ": it is for machines without a GPU"; next }
{ unexpected[++u] = $2 ": " $3 }
END {
  if (p) print "skips that --cuda permits:"
  for (i = 1; i <= p; i++) print "  " permitted[i]
  if (u) print "skips that --cuda doesn't permit:"
  for (i = 1; i <= u; i++) print "  " unexpected[i]
  exit u > 0
}
