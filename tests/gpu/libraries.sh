# shellcheck shell=bash
# Finds the libraries and compute-sanitizer for tests/gpu/run. The script run sources this file, and
# sets: here, the folder of run; python, the Python whose packages are searched.

# Prints the folders that may hold the CUDA libraries, in search order.
library_folders() {
  local home
  for home in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda /usr/local/cuda-*; do
    [[ -n $home && -d $home ]] || continue
    printf '%s\n' "$home/lib64" "$home/lib" "$home/targets/x86_64-linux/lib"
  done
  "$python" -c 'import glob, os, sys
for path in sys.path:
    for folder in sorted(glob.glob(os.path.join(path, "nvidia", "*", "lib"))):
        print(folder)' 2>/dev/null
}

# Prints where library $1 is. If the loader doesn't find it, adds its folder to LD_LIBRARY_PATH.
find_library() {
  local folder loader_folders
  IFS=: read -ra loader_folders <<<"${LD_LIBRARY_PATH:-}"
  for folder in "${loader_folders[@]}"; do
    [[ -e ${folder:-.}/$1 ]] || continue
    echo "$1: $folder, which is in LD_LIBRARY_PATH" && return
  done
  # Not "grep -q": it exits at the first match, and ldconfig would then fail with a broken pipe.
  if PATH=$PATH:/sbin ldconfig -p 2>/dev/null | grep -F "$1 " >/dev/null; then
    echo "$1: in the loader's cache" && return
  fi
  while read -r folder; do
    [[ -e $folder/$1 ]] || continue
    [[ ":${LD_LIBRARY_PATH:-}:" == *":$folder:"* ]] ||
      export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
    echo "$1: $folder" && return
  done < <(library_folders)
  echo "$1: not found: set CUDA_HOME, or install the CUDA toolkit or Python's NVIDIA packages"
}

# Prints the path of compute-sanitizer; nothing if it isn't found.
find_sanitizer() {
  local candidate
  while read -r candidate; do
    if [[ -x $candidate && ! -d $candidate ]]; then
      echo "$candidate" && return
    fi
  done < <(
    printf '%s\n' "${TENSORD_COMPUTE_SANITIZER:-}" "$here/sanitizer/compute-sanitizer"
    command -v compute-sanitizer
    for home in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda /usr/local/cuda-*; do
      printf '%s\n' "$home/bin/compute-sanitizer" "$home/compute-sanitizer/compute-sanitizer"
    done
    library_folders | sed 's|/lib$|/bin/compute-sanitizer|'
  )
}
