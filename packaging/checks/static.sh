#!/bin/sh
# Runs the static programs of each tarball, and those of the container image as a container engine does: another root
# without anything else, read-only, as the image's user, without capabilities. Arguments: the folder of packages, a
# folder for scratch files. Needs root for the namespaces. Each check ends with a line `ok NAME` or `failed NAME`.
set -u
packages=$1 work=$2
mkdir -p "$work"
. "${0%/*}/common.sh"
release=static

# A program for another processor runs by qemu's interpreter.
runs_on() {
	mkdir -p "$work/$1"
	tar -xzf "$packages"/utipc-*-"$1"-linux-musl.tar.gz -C "$work/$1" --strip-components=1
	for program in utipc utipcd utipc-pipe utipc-lab p2ps src_dist rmdsview; do
		if [ "$(uname -m)" = "$1" ]; then
			"$work/$1/bin/$program" --version
		else
			"qemu-$1-static" "$work/$1/bin/$program" --version
		fi
		if [ "$(stat -c %s "$work/$1/bin/utipcd")" -gt 5000000 ]; then echo "utipcd is too large"; return 1; fi
	done
	# ldd says "statically linked", or that it is not a dynamic program.
	if ldd "$work/$1/bin/utipcd" 2>&1 | grep '=>'; then return 1; fi
}
x86_64() { runs_on x86_64; }
aarch64() { runs_on aarch64; }

# The daemon of the other processor starts and stops.
aarch64_daemon() {
	socket=$work/arm.sock
	UTIPC_LOG=info qemu-aarch64-static "$work/aarch64/bin/utipcd" --socket "$socket" 2>"$work/arm.log" &
	daemon=$!
	for _ in $(seq 300); do
		test -S "$socket" && break
		sleep 0.1
	done
	cat "$work/arm.log"
	test -S "$socket"
	kill "$daemon"
	wait "$daemon"
}

unpack() {
	image=$(ls "$packages"/utipc-*-amd64.oci.tar)
	[ "$(stat -c %s "$image")" -le 12000000 ]
	mkdir -p "$work/image" "$work/root"
	tar -xf "$image" -C "$work/image"
	# Every blob is what its name says.
	(cd "$work/image/blobs/sha256" && for blob in *; do echo "$blob  $blob"; done | sha256sum --check --quiet)
	layer=$(sed 's/.*"Layers":\["\([^"]*\)".*/\1/' "$work/image/manifest.json")
	tar -xzf "$work/image/$layer" -C "$work/root"
	cat "$work/image/index.json"
}

# inside PROGRAM...: runs programs of the image, the first as its first process.
inside() {
	unshare --mount --pid --fork --kill-child --net --ipc sh -c '
		root=$1; shift
		mount --bind "$root" "$root"
		mount -t tmpfs -o mode=0777 none "$root/run/utipc"
		mount -o remount,bind,ro "$root"
		cd "$root"
		run() { chroot --userspec=10000:10000 . "$@"; }
		run /utipcd --socket /run/utipc/default.sock &
		daemon=$!
		n=0
		until [ -S run/utipc/default.sock ]; do n=$((n + 1)); [ $n -lt 300 ] || exit 1; sleep 0.1; done
		run /utipc-pipe -s -d 7 >"$1" &
		echo hello | run /utipc-pipe -w 30000 7
		wait $!
		run /utipc node list
		kill $daemon
	' sh "$work/root" "$work/got"
	cat "$work/got"
	grep -qx hello "$work/got"
}

check "x86_64: each program runs, and utipcd has at most 5 MB" x86_64
if command -v qemu-aarch64-static >/dev/null; then
	check "aarch64: each program runs, and utipcd has at most 5 MB" aarch64
	check "aarch64: the daemon starts and stops" aarch64_daemon
else
	echo "skipped: static programs for aarch64: no qemu-aarch64-static (sudo apt-get install qemu-user-static)"
fi
check "the image is a valid OCI layout of at most 12 MB" unpack
check "programs of the image exchange a message: read-only root, ordinary user" inside
rm -rf "$work"
