#!/bin/sh
# Installs the command-line tools and the shim with cargo into an empty folder, as docs/installing.md says, and runs a
# program for AF_TIPC on them. Arguments: the project's folder, cargo's target folder, a folder for scratch files. Each
# check ends with a line `ok NAME` or `failed NAME`.
set -u
project=$1 target=$2 work=$3
mkdir -p "$work"
# The path of the user, who has installed Rust.
path=$PATH
. "${0%/*}/common.sh"
PATH=$path
release=cargo
cd "$project" || exit 1

# install PACKAGE TARGET: debug builds, which other suites have made already.
install() { cargo install --quiet --debug --locked --path "$1" --root "$work/root" --target-dir "$2"; }

tools() {
	install crates/tools "$target"
	# And no test programs of the project.
	[ "$(ls "$work/root/bin" | tr '\n' ' ')" = "utipc utipc-pipe utipcd " ]
	test ! -e "$work/root/lib"
}

shim() {
	UTIPC_SHIM_BUILD="$target" install packaging/shim "$work/target"
	test -x "$work/root/bin/utipc-shim"
}

laboratory() {
	install crates/lab "$target"
	"$work/root/bin/utipc" bench --help
}

market_data() {
	install mdist/mdist "$target"
	for program in p2ps src_dist rmdsview; do "$work/root/bin/$program" --version; done
}

af_tipc() {
	cat >"$work/af_tipc.py" <<-'END'
		import socket
		one, other = (socket.socket(socket.AF_TIPC, socket.SOCK_RDM) for _ in range(2))
		one.bind((socket.TIPC_ADDR_NAME, 4242, 7, 0, socket.TIPC_CLUSTER_SCOPE))
		other.sendto(b"hello", (socket.TIPC_ADDR_NAME, 4242, 7, 0))
		print(one.recvfrom(100)[0])
		print([line.split()[-1] for line in open("/proc/self/maps") if "libutipc_preload" in line][0])
	END
	timeout 60 "$work/root/bin/utipc" run --private -- python3 "$work/af_tipc.py" >"$work/said"
	cat "$work/said"
	printf "b'hello'\n%s\n" "$(realpath "$work/root")/lib/utipc/libutipc_preload.so" | cmp - "$work/said"
}

check "cargo install puts the command-line tools into an empty folder" tools
check "cargo install puts the shim beside them" shim
check "cargo install puts the benchmarks beside them, and utipc bench finds them" laboratory
check "cargo install puts the market data programs beside them" market_data
check "utipc run finds the shim, and a program for AF_TIPC runs on it" af_tipc
rm -rf "$work"
