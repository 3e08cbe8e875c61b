# Prints the last lines of output of the failed entries in ctest's JUnit report.
# Variables: max_entries, the number of entries to print; max_lines, the number of lines of each.

function plain(text) {
  gsub(/&quot;/, "\"", text); gsub(/&apos;/, "'", text)
  gsub(/&lt;/, "<", text); gsub(/&gt;/, ">", text); gsub(/&amp;/, "\\&", text)
  return text
}

/^\t<testcase / {
  failed = / status="fail"/ && ++entries <= max_entries
  match($0, / name="[^"]*"/)
  name = plain(substr($0, RSTART + 7, RLENGTH - 8))
}
failed && /<system-out>/ { output = 1; n = 0; sub(/^.*<system-out>/, "") }
output && /<\/system-out>/ { last = 1; sub(/<\/system-out>.*/, "") }
output { lines[n++] = $0 }
last {
  print "the end of " name ":"
  for (i = n > max_lines ? n - max_lines : 0; i < n; i++) print "  | " plain(lines[i])
  output = last = failed = 0
}
