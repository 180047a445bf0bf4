#!/bin/bash
# Shows that tools/doctor finds each missing piece in a minimal Debian system.
#
#   tests/house/minimal_root.sh [FOLDER]     needs root, debootstrap, a Debian mirror, 700 MB of disk
#
# Builds a Debian 12 root with exactly what the README asks for (FOLDER is made, used again if it
# holds one, and removed at the end only if it was not given). In private mount namespaces it then
# takes one piece away at a time and expects that piece's line and no other. Prints one line a case,
# last a line "PROOF {json}". The root itself is never changed: every case sees a throw-away overlay.
set -euo pipefail
repository=$(cd "$(dirname "$0")/../.." && pwd)
given=${1:-}
work=$(mktemp -d "${TMPDIR:-/var/tmp}/minimal-root.XXXXXX")
base=${given:-$work/base}
trap 'rm -rf --one-file-system "$work"' EXIT

if [ ! -f "$base/complete" ]; then
  debootstrap --variant=minbase --include=python3,python3-venv,python3-dev,g++,make bookworm "$base" >"$work/log" 2>&1 ||
    { tail -n 5 "$work/log" >&2; exit 1; }
  rm -rf "$base"/var/cache/apt/archives/*.deb
  touch "$base/complete"
fi

# enter CHANGE COMMAND: in a fresh overlay of the base, run the shell text CHANGE outside (the root
# is $root there), then COMMAND inside.
enter() {
  unshare --mount --fork bash -euc '
    base=$1 work=$2 repository=$3 change=$4 command=$5
    mount --make-rprivate /
    mkdir -p "$work/over" "$work/root"
    mount -t tmpfs -o size=512M tmpfs "$work/over"
    mkdir "$work/over/upper" "$work/over/work"
    root=$work/root
    mount -t overlay -o "lowerdir=$base,upperdir=$work/over/upper,workdir=$work/over/work" overlay "$root"
    mount -t proc proc "$root/proc"
    mount -t tmpfs -o size=1M,mode=755 tmpfs "$root/dev"
    for device in null zero urandom; do touch "$root/dev/$device"; mount --bind "/dev/$device" "$root/dev/$device"; done
    mkdir "$root/dev/shm"
    mount -t tmpfs -o size=64M,mode=1777 tmpfs "$root/dev/shm"
    mkdir "$root/repository"
    mount -t tmpfs -o size=4G tmpfs "$root/repository"
    cp -r "$repository/tools" "$repository/constraints.txt" "$root/repository/"
    eval "$change"
    exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root sh -c "$command"
  ' enter "$base" "$work" "$repository" "$1" "$2"
}

# What a case takes is told twice: by the clock, and in processor time, which a busy machine does not stretch.
passed=0 failed=0 slowest_ms=0 slowest_cpu_ms=0
# shows NAME PATTERN CHANGE [COMMAND]: the report has exactly one finding, and it matches PATTERN.
shows() {
  local name=$1 pattern=$2 change=$3 command=${4:-/repository/tools/doctor} said status=0 findings ms cpu_ms
  said=$(enter "$change" "s=\$(date +%s%N); $command; code=\$?; echo \"ms \$(((\$(date +%s%N) - s) / 1000000))\"; times; exit \$code" 2>&1) || status=$?
  ms=$(sed -n 's/^ms //p' <<<"$said")
  [ "${ms:-0}" -le "$slowest_ms" ] || slowest_ms=$ms
  # The second line of `times` is that of the children: user and system time, as 0m0.25s 0m0.08s.
  cpu_ms=$(sed -n '/^ms /,$p' <<<"$said" | tail -n 1 | awk -F'[ms ]+' '{ printf "%d", ($1 * 60 + $2 + $3 * 60 + $4) * 1000 }')
  [ "${cpu_ms:-0}" -le "$slowest_cpu_ms" ] || slowest_cpu_ms=$cpu_ms
  said=$(sed '/^ms /,$d' <<<"$said")
  findings=$(grep -vE 'to mend, then run' <<<"$said" || true)
  if [ -z "$pattern" ] && [ "$status" = 0 ] && [ -z "$said" ]; then
    echo "ok    $name: no finding (${ms} ms, ${cpu_ms} of the processor)"
    passed=$((passed + 1))
  elif [ -n "$pattern" ] && [ "$status" = 1 ] && [ "$(wc -l <<<"$findings")" = 1 ] && grep -qE "$pattern" <<<"$findings"; then
    echo "ok    $name (${ms} ms, ${cpu_ms} of the processor): $findings"
    passed=$((passed + 1))
  else
    echo "FAIL  $name: status $status, wanted /$pattern/, saw:"
    printf '%s\n' "$said"
    failed=$((failed + 1))
  fi
}

fake() { # fake PATH TEXT: the shell text that puts a script at PATH
  printf 'rm -f "$root%s"; printf "%%s\\n" "#!/bin/sh" %q >"$root%s"; chmod +x "$root%s"' "$1" "$2" "$1" "$1"
}

shows "complete system" "" ":"
shows "no python" "python3 is not on the PATH.*apt-get install -y python3 " 'rm -f "$root"/usr/bin/python3*'
shows "old python" "is Python 3\.9\.2, 3\.11 or newer is needed: apt-get" \
  'cat >"$root/usr/local/sitecustomize.py" <<<"import sys; sys.version_info = (3, 9, 2)"; mv "$root/usr/bin/python3.11" "$root/usr/bin/real"; '"$(fake /usr/bin/python3.11 'exec /usr/bin/real -c "import sys; sys.version_info = (3, 9, 2); a = [x for x in sys.argv[1:] if x != chr(45) + chr(83)]
if a[0] == chr(45) + chr(99): exec(a[1])
else: sys.argv = a; exec(open(a[0]).read())" "$@"')"
shows "no venv" "cannot make virtual environments.*apt-get install -y python3-venv" \
  'chroot "$root" dpkg --remove --force-depends python3.11-venv >/dev/null 2>&1'
shows "no headers" "has no C headers .*Python.h is missing.*apt-get install -y python3-dev" \
  'chroot "$root" dpkg --remove --force-depends libpython3.11-dev >/dev/null 2>&1'
shows "no compiler" "no C\+\+ compiler is on the PATH: apt-get install -y g\+\+" 'rm -f "$root"/usr/bin/*++*'
shows "no C++ library" "does not build a ten-line C\+\+20 program .*apt-get install -y g\+\+" \
  'chroot "$root" dpkg --remove --force-depends libstdc++-12-dev >/dev/null 2>&1'
shows "old compiler" "does not build a ten-line C\+\+20 program \(.*std=c\+\+20.*apt-get install -y g\+\+" \
  'rm -f "$root"/usr/bin/*++*; '"$(fake /usr/bin/g++ 'echo "g++: error: unrecognized command line option -std=c++20" >&2; exit 1')"
shows "CXX set to nothing there" "CXX is nowhere/c\+\+, which is not on the PATH" ":" "CXX=nowhere/c++ /repository/tools/doctor"
shows "no make" "make is not on the PATH: apt-get install -y make" 'rm -f "$root/usr/bin/make"'
shows "no /dev/shm" "/dev/shm does not exist" 'umount "$root/dev/shm"; rmdir "$root/dev/shm"'
shows "/dev/shm read only" "/dev/shm is not writable: chmod 1777" 'mount -o remount,ro "$root/dev/shm"'
shows "/dev/shm too small" "/dev/shm has 16 MB free, 56 MB are needed: mount -o remount,size=1G" 'mount -o remount,size=16M "$root/dev/shm"'
shows "disk full" "/repository has [0-9]+ MB of disk free, 2500 MB are needed" 'mount -o remount,size=1G "$root/repository"'
shows "little memory" "512 MB of memory are available, 1500 MB are needed" \
  'echo "MemAvailable: 524288 kB" >"$root/run/meminfo"; mount --bind "$root/run/meminfo" "$root/proc/meminfo"'
shows "port in use" "port 8000 on 127.0.0.1 is in use by python3 \(pid [0-9]+\).*PORT=" ":" \
  'ip link set lo up 2>/dev/null; python3 -c "import socket, time; s = socket.create_server((\"127.0.0.1\", 8000)); open(\"/run/up\", \"w\"); time.sleep(60)" & while [ ! -e /run/up ]; do sleep 0.05; done; /repository/tools/doctor --serve 127.0.0.1 8000; code=$?; kill $!; (exit $code)'
shows "Fedora" "no C\+\+ compiler is on the PATH: dnf install -y gcc-c\+\+" \
  'rm -f "$root"/usr/bin/*++*; rm -f "$root/etc/os-release"; echo "ID=fedora" >"$root/etc/os-release"'
shows "macOS" "this is Darwin and TokenSpeed runs on Linux: work in a Linux container" "$(fake /usr/bin/uname 'echo Darwin')"
shows "Windows" "this is MINGW64_NT.*WSL2 \(wsl --install\) or in a Linux container" "$(fake /usr/bin/uname 'echo MINGW64_NT-10.0')"

echo "PROOF {\"cases_passed\": $passed, \"cases_failed\": $failed, \"slowest_ms\": $slowest_ms, \"slowest_cpu_ms\": $slowest_cpu_ms}"
[ "$failed" = 0 ]
