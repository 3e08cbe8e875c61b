# Turns a GoogleTest XML report into lines "passed|failed|skipped <tab> Suite.Case <tab> reason".
# Where the program failed although every case passed (a sanitizer's report at its end, a crash on the
# way out) one more line says so. Variables: entry, the ctest name; entry_status, "run" where it passed.
function attribute(name, value) {
  if (!match($0, " " name "=\"[^\"]*\"")) return ""
  return substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 4)
}
function plain(text) {
  sub(/^.*&#x0A;/, "", text)
  gsub(/&quot;/, "\"", text); gsub(/&apos;/, "'", text)
  gsub(/&lt;/, "<", text); gsub(/&gt;/, ">", text); gsub(/&amp;/, "\\&", text)
  return text
}
function finish() {
  if (state == "") return
  print state "\t" name "\t" reason
  if (state == "failed") failures++
  state = ""
}
/^ *<testcase / {
  finish()
  if (attribute("status") != "run") next
  name = attribute("classname") "." attribute("name")
  state = attribute("result") == "skipped" ? "skipped" : "passed"
  reason = ""
}
/^ *<skipped / { sub(/&#x0A;$/, "", $0); reason = plain(attribute("message")) }
/^ *<failure / { state = "failed" }
END {
  finish()
  if (entry_status != "run" && failures == 0)
    print "failed\t" entry "\tits cases passed, but the program failed; see above"
}
