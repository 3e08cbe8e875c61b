# Shows the end of what each failed entry of ctest's JUnit report has said, of the first few.
# Variables: most_entries, most_lines (of each).

function plain(text) {
  gsub(/&quot;/, "\"", text); gsub(/&apos;/, "'", text)
  gsub(/&lt;/, "<", text); gsub(/&gt;/, ">", text); gsub(/&amp;/, "\\&", text)
  return text
}

/^\t<testcase / {
  failed = / status="fail"/ && ++entries <= most_entries
  match($0, / name="[^"]*"/)
  name = plain(substr($0, RSTART + 7, RLENGTH - 8))
}
failed && /<system-out>/ { output = 1; n = 0; sub(/^.*<system-out>/, "") }
output && /<\/system-out>/ { last = 1; sub(/<\/system-out>.*/, "") }
output { lines[n++] = $0 }
last {
  print "the end of " name ":"
  for (i = n > most_lines ? n - most_lines : 0; i < n; i++) print "  | " plain(lines[i])
  output = last = failed = 0
}
