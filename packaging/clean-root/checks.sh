#!/bin/sh
# The steps of a new user, in a Debian root that has never seen the project: install the wheel with pip, build C
# programs with pkg-config, run them. `cargo xtask clean-root` makes the root and runs this script as its first process,
# as root of its own namespaces. Arguments: the directory with everything copied in, the project's directory outside,
# and the glibc version that the manual promises. Each check ends with a line `ok NAME` or `failed NAME`.
set -u
parcel=$1 project=$2 promised=$3
work=/opt/trial output=/opt/trial/output
mkdir -p "$work"
cd "$work" || exit 1

# check NAME FUNCTION: runs a check; shows its output if it fails.
check() {
	# A separate command, because in a condition `set -e` would have no effect.
	(set -e; "$2") >"$output" 2>&1
	if [ $? = 0 ]; then
		echo "ok $1"
	else
		sed 's/^/  | /' "$output"
		echo "failed $1"
	fi
}

# refused COMMAND...: checks that the command fails.
refused() {
	if "$@"; then
		echo "$*: this should have failed"
		return 1
	fi
}

# wants TEXT COMMAND...: checks that the command succeeds and prints a line with TEXT.
wants() {
	text=$1
	shift
	timeout 60 "$@" >out 2>&1 && grep -qF -- "$text" out && return
	cat out
	echo "$*: it failed, or did not print: $text"
	return 1
}

project_is_absent() {
	[ ! -e "$project" ]
	[ ! -e /opt/outside ]
	refused python3 -c 'import utipc'
	refused pkg-config --exists utipc
	find / -path /proc -prune -o -path "$parcel" -prune -o -name '*utipc*' -print >found 2>/dev/null || true
	[ ! -s found ] || { cat found; return 1; }
	# Only this script and its commands, and no network but the loopback.
	[ "$(cat /proc/1/cmdline | tr '\0' ' ' | cut -d' ' -f2)" = "$0" ]
	[ "$(grep -c : /proc/net/dev)" = 1 ]
}

# hello SERVER CLIENT: runs a server and a client as separate processes.
hello() {
	timeout 60 $1 >server 2>&1 &
	server=$!
	wants '"Uh ?" from' $2
	wait "$server" || { cat server; return 1; }
	grep -qF '"Hello World!!!" from' server
}

python() { "$work/venv/bin/python" "$@"; }

install_wheel() {
	python3 -m venv "$work/venv"
	"$work/venv/bin/pip" install --no-index --disable-pip-version-check "$parcel"/wheel/*.whl
	"$work/venv/bin/pip" check
	python -c 'import utipc, sys; assert utipc.__file__.startswith("/opt/trial/venv/"), utipc.__file__'
}

run_python() {
	wants '3. without waiting: connected to' "$work/venv/bin/python" "$parcel/examples/python/connections.py"
	wants 'the service is gone' "$work/venv/bin/python" "$parcel/examples/python/async_echo.py"
	hello "$work/venv/bin/python $parcel/examples/python/hello_server.py" \
		"$work/venv/bin/python $parcel/examples/python/hello_client.py"
}

install_library() {
	cp -a "$parcel/c/usr/local/." /usr/local/
	ldconfig
	pkg-config --modversion utipc
}

# build DIRECTORY FLAG...: builds all C examples.
build() {
	folder=$1
	shift
	mkdir -p "$folder"
	for source in "$parcel"/examples/c/*.c; do
		cc -Wall -Werror -o "$folder/$(basename "$source" .c)" "$source" "$@"
	done
}

build_c() { build c $(pkg-config --cflags --libs utipc) && ldd c/connections | grep -F libutipc.so.0; }

run_c() {
	wants '3. without waiting: connected to' "$1/connections"
	wants 'archive: sun everywhere (sent to {1000,0,99})' "$1/multicast"
	hello "$1/hello_server" "$1/hello_client"
}

run_shared_c() { run_c c; }

build_static_c() {
	build static -static $(pkg-config --cflags --libs --static utipc)
	refused ldd static/connections
}

run_static_c() { run_c static; }

# All programs again, and the languages with each other, with the daemon's node.
run_all_with_daemon() {
	for folder in c static; do
		run_c "$folder"
		hello "$folder/hello_server" "$work/venv/bin/python $parcel/examples/python/hello_client.py"
		hello "$work/venv/bin/python $parcel/examples/python/hello_server.py" "$folder/hello_client"
	done
	run_python
}

af_tipc() {
	cat >af_tipc.py <<-'END'
		import socket
		one, other = (socket.socket(socket.AF_TIPC, socket.SOCK_RDM) for _ in range(2))
		one.bind((socket.TIPC_ADDR_NAME, 4242, 7, 0, socket.TIPC_CLUSTER_SCOPE))
		other.sendto(b"hello", (socket.TIPC_ADDR_NAME, 4242, 7, 0))
		print(one.recvfrom(100))
	END
	wants "(b'hello', " "$parcel/bin/utipc" run -- python3 af_tipc.py
}

# glibc FILE: the newest version of glibc symbols that the file needs.
glibc() { objdump -T "$1" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -uV | tail -1; }

# newest VERSION OTHER: succeeds if VERSION is not older than OTHER.
newest() { [ "$(printf '%s\n' "$1" "$2" | sort -V | tail -1)" = "$1" ]; }

glibc_matches_manual() {
	module=$(find "$work/venv" -name '_utipc*.so')
	for file in "$module" /usr/local/lib/libutipc.so "$parcel"/bin/*; do
		needed=$(glibc "$file")
		echo "$(basename "$file") needs glibc $needed"
		newest "$promised" "$needed"
	done
	# pip refuses the wheel on systems where its library would not load.
	tag=$(ls "$parcel/wheel" | grep -o 'manylinux_[0-9]*_[0-9]*' | sed 's/manylinux_//; s/_/./')
	echo "the wheel's tag says $tag"
	newest "$tag" "$(glibc "$module")"
}

check "nothing of the project is here" project_is_absent
check "pip installs the wheel without an index" install_wheel
export UTIPC_ENGINE=embedded
check "Python programs talk on nodes of their own" run_python
check "install-c's tree is copied to /usr/local" install_library
check "pkg-config has what a C program is built with" build_c
check "C programs talk on nodes of their own" run_shared_c
check "pkg-config --static has what a static program is built with" build_static_c
check "static C programs talk on nodes of their own" run_static_c
unset UTIPC_ENGINE
check "AF_TIPC of Python's own library under utipc run" af_tipc
check "glibc is not newer than the manual says" glibc_matches_manual
cat "$output"

mkfifo log
UTIPC_LOG=info "$parcel/bin/utipcd" 2>log &
daemon=$!
# Wait for the line that reports readiness, or for the end of the log.
exec 3<log
while read -r line <&3; do
	case $line in *"programs may attach"*) break ;; esac
done
export UTIPC_ENGINE=daemon
check "Python and C programs talk by the daemon" run_all_with_daemon
kill "$daemon"
wait "$daemon"
