#!/bin/sh
# The packages under systemd: `cargo xtask packages` boots a Debian root with it and runs this inside. Arguments: the
# folders of the first and of the second version. Each check ends with a line `ok NAME` or `failed NAME`.
set -u
one=$1 two=$2
. "${0%/*}/common.sh"
export UTIPC_ENGINE=daemon
release="$release with systemd"

message() {
	as alice timeout 60 utipc-pipe -s -d 7 >"$work/got" &
	server=$!
	echo hello | as alice timeout 60 utipc-pipe -w 30000 7
	wait "$server"
	grep -qx hello "$work/got"
}

two_commands() {
	dpkg -i "$one"/utipc_*.deb
	usermod -aG utipc alice
}

runs() {
	systemctl is-active utipcd
	systemctl is-enabled utipcd
	[ "$(stat -c %G:%a /run/utipc/default.sock)" = utipc:660 ]
}

accepted() {
	if systemd-analyze verify /usr/lib/systemd/system/utipcd.service 2>&1 | grep utipcd.service; then return 1; fi
	if journalctl --boot --no-pager | grep -E 'utipcd.service.*(Failed to parse|Unknown)'; then return 1; fi
}

# python3 comes from Debian; the package brings the rest.
python() {
	dpkg -i "$one"/python3-utipc_*.deb
	as alice timeout 60 python3 - <<'END'
import utipc
with utipc.Node() as node, node.rdm() as server, node.rdm() as client:
    hello = utipc.ServiceAddress(18888, 1)
    server.bind(hello)
    client.send_to(b"Hello World", hello)
    assert server.receive().data == b"Hello World"
END
	dpkg -P python3-utipc
}

reload() {
	before=$(systemctl show --property MainPID utipcd)
	systemctl reload utipcd
	[ "$(systemctl show --property MainPID utipcd)" = "$before" ]
	systemctl is-active utipcd
}

upgrade() {
	before=$(systemctl show --property MainPID utipcd)
	dpkg -i "$two"/utipc_*.deb
	systemctl is-active utipcd
	[ "$(systemctl show --property MainPID utipcd)" != "$before" ]
	message
}

remove() {
	dpkg -r utipc
	if systemctl is-active utipcd; then return 1; fi
	dpkg -P utipc
	test ! -e /etc/systemd/system/multi-user.target.wants/utipcd.service
	test ! -e /var/lib/utipc
}

id alice >/dev/null 2>&1 || useradd alice
began=$(date +%s%N)
check "two commands install the package and admit a user" two_commands
check "programs of an ordinary user exchange a message by the daemon" message
echo "measured $release: from dpkg -i to the first message by the daemon:" \
	"$((($(date +%s%N) - began) / 1000000)) ms, 2 commands"
check "the unit is enabled and runs, and its socket is for the group" runs
check "systemd accepts every line of the unit" accepted
check "python3-utipc installs, and a program of an ordinary user exchanges a message" python
check "systemctl reload keeps the process" reload
check "an upgrade restarts the daemon" upgrade
check "removal stops the daemon, and purge removes its files" remove
rm -rf "$work"
