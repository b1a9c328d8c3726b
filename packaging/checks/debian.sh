#!/bin/sh
# Installs, starts, upgrades, removes and purges the Debian packages, as the first process of a clean Debian root.
# `cargo xtask packages` makes the root and runs this. Arguments: the folders of the first and of the second version.
# Each check ends with a line `ok NAME` or `failed NAME`; lines `measured …` are figures.
set -u
one=$1 two=$2
. "${0%/*}/common.sh"
cd "$work" || exit 1
daemon=

# until COMMAND...: waits up to 30 s until the command succeeds.
until_true() {
	for _ in $(seq 300); do
		"$@" >/dev/null 2>&1 && return
		sleep 0.1
	done
	"$@"
}

# message USER: one program of the user sends a message to another one's service address.
message() {
	rm -f "$work/got"
	: >"$work/got"
	chmod 666 "$work/got"
	as "$1" timeout 60 utipc-pipe -s -d 7 >"$work/got" &
	server=$!
	echo hello | as "$1" timeout 60 utipc-pipe -w 30000 7
	wait "$server"
	grep -qx hello "$work/got"
}

# start: starts the daemon as the unit does.
start() {
	command=$(sed -n 's/^ExecStart=//p' /usr/lib/systemd/system/utipcd.service)
	# systemd makes these folders.
	install -d -o utipc -g utipc -m 0755 /run/utipc
	install -d -o utipc -g utipc -m 0700 /var/lib/utipc
	as utipc env RUNTIME_DIRECTORY=/run/utipc STATE_DIRECTORY=/var/lib/utipc $command 2>"$work/log" &
	daemon=$!
	until_true test -S /run/utipc/default.sock || cat "$work/log"
}

stop() {
	kill "$daemon"
	wait "$daemon"
}

absent() {
	! command -v utipc && ! command -v cc && ! command -v cargo && ! getent passwd utipc
}

install_one() { dpkg -i "$one"/utipc_*.deb; }
embedded() { message alice; }

install_market_data() { dpkg -i "$one"/mdist_*.deb; }
# Two commands of an ordinary user: a server with its own data, and the display of an item.
first_tick() {
	as alice p2ps --demo --listen 14002 >"$work/p2ps" 2>&1 &
	server=$!
	until_true grep -q 127.0.0.1:14002 "$work/p2ps"
	as alice timeout 30 rmdsview --count 2 TRI.N >"$work/tick" || true
	kill "$server"
	wait "$server" || true
	cat "$work/tick" "$work/p2ps"
	grep -q update "$work/tick"
}

install_rest() { dpkg -i "$one"/libutipc*.deb "$one"/utipc-lab*.deb "$one"/utipc-preload*.deb "$one"/utipc-cpg*.deb "$one"/mdist*.deb; }

user_exists() {
	getent passwd utipc | grep -q nologin
	getent group utipc
	[ "$(stat -c %U:%a /var/lib/utipc)" = utipc:700 ]
}

enabled() {
	if command -v systemctl; then test -L /etc/systemd/system/multi-user.target.wants/utipcd.service; fi
	test -f /usr/lib/systemd/system/utipcd.service
}

configured() { utipcd --check --config /etc/utipc/utipcd.toml; }

socket_is_for_the_group() { [ "$(stat -c %G:%a /run/utipc/default.sock)" = utipc:660 ]; }

by_daemon() {
	as alice env UTIPC_ENGINE=daemon utipc node list
	UTIPC_ENGINE=daemon message alice
}

stranger_is_refused() {
	if UTIPC_ENGINE=daemon as bob timeout 60 utipc-pipe -s -d 8 2>"$work/why"; then return 1; fi
	cat "$work/why"
	grep -q . "$work/why"
}

programs_run() {
	for program in utipc utipcd utipc-pipe utipc-lab p2ps src_dist rmdsview; do "$program" --version; done
	# Programs of the project's own tests are for its developers.
	for program in utipc-soak utipc-interop rmdstestclient sink_driven_src mdist-bench; do
		! command -v "$program" || return 1
	done
	utipc bench --help
	! ldd /usr/bin/utipcd | grep 'not found'
}

shim_is_found() { [ "$(utipc run --private -- cat /proc/self/maps | grep -c 'x.*libutipc_preload.so')" -ge 1 ]; }

groups_are_found() {
	[ "$(utipc run --cpg --private -- cat /proc/self/maps | grep -c 'x.*libcpg.so.4')" -ge 1 ]
	! ldd /usr/lib/*/utipc/libcpg.so.4 | grep 'not found'
}

identity() { sha256sum /var/lib/utipc/default.node | cut -d' ' -f1; }

upgrade() {
	echo '# changed by the administrator' >>/etc/utipc/utipcd.toml
	before=$(identity)
	dpkg -i "$two"/utipc_*.deb "$two"/libutipc*.deb "$two"/utipc-lab*.deb "$two"/utipc-preload*.deb "$two"/utipc-cpg*.deb "$two"/mdist*.deb
	[ "$(dpkg-query -W -f '${Version}' utipc)" != "$(cat "$work/version")" ]
	grep -q 'changed by the administrator' /etc/utipc/utipcd.toml
	[ "$(identity)" = "$before" ]
}

remove() {
	dpkg -r utipc-lab utipc-preload utipc-cpg mdist utipc libutipc-dev libutipc0
	! command -v utipc
	test -f /etc/utipc/utipcd.toml
}

purge() {
	dpkg -P utipc utipc-lab utipc-preload utipc-cpg mdist libutipc-dev libutipc0
	test ! -e /etc/utipc
	test ! -e /var/lib/utipc
	test ! -e /run/utipc
	# Runtime folders of users are in /tmp.
	find / -xdev \( -path /proc -o -path /tmp -o -path "$work" -o -path "${one%/*}" \) -prune -o -iname '*utipc*' -print >"$work/left"
	cat "$work/left"
	test ! -s "$work/left"
}

useradd alice
useradd bob
check "nothing of the project and no toolchain is here" absent
began=$(date +%s%N)
check "dpkg -i installs utipc on a bare system" install_one
check "an ordinary user's programs exchange a message" embedded
echo "measured $release: from dpkg -i to the first message, without a daemon: $((($(date +%s%N) - began) / 1000000)) ms, then 2 commands"
began=$(date +%s%N)
check "dpkg -i installs mdist" install_market_data
check "an ordinary user sees the first update of an item in rmdsview" first_tick
echo "measured $release: from dpkg -i of mdist to the first update: $((($(date +%s%N) - began) / 1000000)) ms, then 2 commands"
check "the other packages install" install_rest
dpkg-query -W -f '${Version}' utipc >"$work/version"
check "the user, the group and the state folder exist" user_exists
check "the unit is installed" enabled
check "the installed configuration is valid" configured
usermod -aG utipc alice
start
check "members of the group utipc may attach, by a socket of mode 0660" socket_is_for_the_group
check "programs of a member exchange a message by the daemon" by_daemon
check "a user outside the group is refused" stranger_is_refused
check "every program runs, and no test tool is installed" programs_run
check "utipc run finds the shim" shim_is_found
check "utipc run finds the library of Corosync's groups" groups_are_found
stop
check "an upgrade keeps the configuration and the identity" upgrade
start
check "the upgraded daemon serves" by_daemon
stop
check "removal keeps the configuration" remove
check "purge leaves nothing but the user" purge
