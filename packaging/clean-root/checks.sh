#!/bin/sh
# What a new user does, in a Debian root that has never seen the project: installs the wheel with pip, builds C programs
# with pkg-config, runs them. `cargo xtask clean-root` makes the root and calls this as its first process, as root of namespaces
# of its own, with the folder of what was copied in, the project's folder outside, and the glibc that the manual promises.
# Each check ends with a line `ok NAME` or `failed NAME`.
set -u
parcel=$1 project=$2 promised=$3
work=/opt/trial said=/opt/trial/said
mkdir -p "$work"
cd "$work" || exit 1

# check NAME FUNCTION: one check; what it printed is shown if it fails.
check() {
	# Not within the condition, where `set -e` would have no effect.
	(set -e; "$2") >"$said" 2>&1
	if [ $? = 0 ]; then
		echo "ok $1"
	else
		sed 's/^/  | /' "$said"
		echo "failed $1"
	fi
}

# refused COMMAND...: it must fail.
refused() {
	if "$@"; then
		echo "$*: this should have failed"
		return 1
	fi
}

# wants TEXT COMMAND...: the command ends well and prints a line with TEXT.
wants() {
	text=$1
	shift
	timeout 60 "$@" >out 2>&1 && grep -qF -- "$text" out && return
	cat out
	echo "$*: it failed, or did not say: $text"
	return 1
}

nothing_is_here() {
	[ ! -e "$project" ]
	[ ! -e /opt/outside ]
	refused python3 -c 'import utipc'
	refused pkg-config --exists utipc
	find / -path /proc -prune -o -path "$parcel" -prune -o -name '*utipc*' -print >found 2>/dev/null || true
	[ ! -s found ] || { cat found; return 1; }
	# Only this script and what it calls, and no network but the loopback.
	[ "$(cat /proc/1/cmdline | tr '\0' ' ' | cut -d' ' -f2)" = "$0" ]
	[ "$(grep -c : /proc/net/dev)" = 1 ]
}

# A server and a client as processes of their own, both given as words.
hello() {
	timeout 60 $1 >server 2>&1 &
	server=$!
	wants '"Uh ?" from' $2
	wait "$server" || { cat server; return 1; }
	grep -qF '"Hello World!!!" from' server
}

python() { "$work/venv/bin/python" "$@"; }

the_wheel_is_installed() {
	python3 -m venv "$work/venv"
	"$work/venv/bin/pip" install --no-index --disable-pip-version-check "$parcel"/wheel/*.whl
	"$work/venv/bin/pip" check
	python -c 'import utipc, sys; assert utipc.__file__.startswith("/opt/trial/venv/"), utipc.__file__'
}

python_talks() {
	wants '3. without waiting: connected to' "$work/venv/bin/python" "$parcel/examples/python/connections.py"
	wants 'the service is gone' "$work/venv/bin/python" "$parcel/examples/python/async_echo.py"
	hello "$work/venv/bin/python $parcel/examples/python/hello_server.py" \
		"$work/venv/bin/python $parcel/examples/python/hello_client.py"
}

the_library_is_installed() {
	cp -a "$parcel/c/usr/local/." /usr/local/
	ldconfig
	pkg-config --modversion utipc
}

# build FOLDER FLAG...: every example in C.
build() {
	folder=$1
	shift
	mkdir -p "$folder"
	for source in "$parcel"/examples/c/*.c; do
		cc -Wall -Werror -o "$folder/$(basename "$source" .c)" "$source" "$@"
	done
}

c_builds() { build c $(pkg-config --cflags --libs utipc) && ldd c/connections | grep -F libutipc.so.0; }

c_talks() {
	wants '3. without waiting: connected to' "$1/connections"
	wants 'archive: sun everywhere (sent to {1000,0,99})' "$1/multicast"
	hello "$1/hello_server" "$1/hello_client"
}

shared_c_talks() { c_talks c; }

static_c_builds() {
	build static -static $(pkg-config --cflags --libs --static utipc)
	refused ldd static/connections
}

static_c_talks() { c_talks static; }

# Everything again, and the languages with each other, with the node in a daemon.
all_talk_by_the_daemon() {
	for folder in c static; do
		c_talks "$folder"
		hello "$folder/hello_server" "$work/venv/bin/python $parcel/examples/python/hello_client.py"
		hello "$work/venv/bin/python $parcel/examples/python/hello_server.py" "$folder/hello_client"
	done
	python_talks
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

# glibc FILE: the newest version of the C library's symbols that it asks for.
glibc() { objdump -T "$1" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -uV | tail -1; }

# newest VERSION OTHER: the first one is not older.
newest() { [ "$(printf '%s\n' "$1" "$2" | sort -V | tail -1)" = "$1" ]; }

glibc_is_what_the_manual_says() {
	module=$(find "$work/venv" -name '_utipc*.so')
	for file in "$module" /usr/local/lib/libutipc.so "$parcel"/bin/*; do
		needed=$(glibc "$file")
		echo "$(basename "$file") needs glibc $needed"
		newest "$promised" "$needed"
	done
	# pip refuses the wheel where its library would not load.
	tag=$(ls "$parcel/wheel" | grep -o 'manylinux_[0-9]*_[0-9]*' | sed 's/manylinux_//; s/_/./')
	echo "the wheel's tag says $tag"
	newest "$tag" "$(glibc "$module")"
}

check "nothing of the project is here" nothing_is_here
check "pip installs the wheel without an index" the_wheel_is_installed
export UTIPC_ENGINE=embedded
check "Python programs talk on nodes of their own" python_talks
check "install-c's tree is copied to /usr/local" the_library_is_installed
check "pkg-config has what a C program is built with" c_builds
check "C programs talk on nodes of their own" shared_c_talks
check "pkg-config --static has what a static program is built with" static_c_builds
check "static C programs talk on nodes of their own" static_c_talks
unset UTIPC_ENGINE
check "AF_TIPC of Python's own library under utipc run" af_tipc
check "glibc is not newer than the manual says" glibc_is_what_the_manual_says
cat "$said"

mkfifo log
UTIPC_LOG=info "$parcel/bin/utipcd" 2>log &
daemon=$!
# What it says when it is ready; the end of the log if it is not to be.
exec 3<log
while read -r line <&3; do
	case $line in *"programs may attach"*) break ;; esac
done
export UTIPC_ENGINE=daemon
check "Python and C programs talk by the daemon" all_talk_by_the_daemon
kill "$daemon"
wait "$daemon"
