# Converts ctest's JUnit report to lines "passed|failed|skipped <tab> case <tab> reason", one per case.
# If an entry has written a GoogleTest report (results/ENTRY.xml), prints the cases of this report. If all of
# these cases passed but the program failed (a sanitizer's report at its end, a crash), prints one more line.
# Any other entry is one case.
# Variable: results, the folder of the reports.

function attribute(line, name) {
  if (!match(line, " " name "=\"[^\"]*\"")) return ""
  return substr(line, RSTART + length(name) + 3, RLENGTH - length(name) - 4)
}

function plain(text) {
  gsub(/&quot;/, "\"", text); gsub(/&apos;/, "'", text)
  gsub(/&lt;/, "<", text); gsub(/&gt;/, ">", text); gsub(/&amp;/, "\\&", text)
  return text
}

# Prints the cases of a GoogleTest report. Returns the number of failed cases, or -1 if there is no report.
function print_report(path,    line, name, state, reason, failures, found) {
  failures = 0
  while ((getline line < path) > 0) {
    found = 1
    if (line ~ /^ *<testcase /) {
      if (state != "") print state "\t" name "\t" reason
      name = plain(attribute(line, "classname") "." attribute(line, "name"))
      state = attribute(line, "status") != "run" ? "" : attribute(line, "result") == "skipped" ? "skipped" : "passed"
      reason = ""
    } else if (line ~ /^ *<skipped /) {
      reason = attribute(line, "message")
      sub(/^[^&]*:[0-9]+&#x0A;/, "", reason); gsub(/&#x0A;/, " ", reason)
      reason = plain(reason)
    } else if (line ~ /^ *<failure /) {
      if (state == "passed") failures++
      state = "failed"
    }
  }
  close(path)
  if (state != "") print state "\t" name "\t" reason
  return found ? failures : -1
}

function finish_entry(    failures) {
  if (entry == "") return
  failures = print_report(results "/" entry ".xml")
  if (failures < 0) {
    if (status == "run") print "passed\t" entry "\t"
    else if (status == "notrun") print "skipped\t" entry "\t" (reason == "" ? "ctest did not run it" : reason)
    else if (status != "disabled") print "failed\t" entry "\t"
  } else if (failures == 0 && status == "fail") {
    print "failed\t" entry "\tits cases passed, but the program failed"
  }
  entry = ""
}

/^\t<testcase / {
  finish_entry()
  entry = plain(attribute($0, "name")); status = attribute($0, "status")
  reason = ""; reason_follows = 0
}
reason_follows { reason = plain($0); reason_follows = 0 }
/: Skipped$/ && reason == "" { reason_follows = 1 }
/(^|>)skipped: / && reason == "" { reason = plain($0); sub(/^.*skipped: /, "", reason); sub(/<.*/, "", reason) }
END { finish_entry() }
