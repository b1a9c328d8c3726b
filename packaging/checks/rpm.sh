#!/bin/sh
# Installs, verifies and erases the rpms by `rpm --root` in a Debian root, whose shell runs their scripts. Their
# dependencies are not installed as rpms, hence --nodeps. Arguments: the root, the folder of packages, a folder for
# scratch files. Each check ends with a line `ok NAME` or `failed NAME`.
set -u
root=$1 packages=$2 work=$3
mkdir -p "$work"

check() {
	(set -e; "$2") >"$work/output" 2>&1
	if [ $? = 0 ]; then
		echo "ok rpm: $1"
	else
		sed 's/^/  | /' "$work/output"
		echo "failed rpm: $1"
	fi
}

in_root() { rpm --root "$root" --dbpath /var/lib/rpm "$@"; }

names="utipc utipc-lab libutipc libutipc-devel utipc-preload utipc-cpg python3-utipc mdist"

checked() { rpm --checksig --nosignature "$packages"/*.rpm; }

installed() {
	in_root --install --nodeps "$packages"/*.rpm
	for name in $names; do in_root -q "$name"; done
	chroot "$root" getent group utipc
	[ "$(chroot "$root" stat -c %U:%a /var/lib/utipc)" = utipc:700 ]
	for program in utipc utipcd utipc-pipe utipc-lab p2ps src_dist rmdsview; do chroot "$root" "$program" --version; done
	test -f "$root/usr/lib64/libutipc.so.0"
	test -f "$root/usr/lib64/utipc/libcpg.so.4"
}

verified() {
	for name in $names; do in_root --verify --nodeps "$name"; done
	[ "$(in_root -q --configfiles utipc)" = /etc/utipc/utipcd.toml ]
	in_root -q --requires utipc | grep -F 'libc.so.6(GLIBC_2.34)(64bit)'
}

erased() {
	echo '# changed' >>"$root/etc/utipc/utipcd.toml"
	in_root --erase --nodeps $names
	test ! -e "$root/usr/bin/utipcd"
	test ! -e "$root/usr/lib/utipc"
	# As rpm keeps a changed configuration.
	test -f "$root/etc/utipc/utipcd.toml.rpmsave"
}

check "digests are right" checked
check "rpm --root installs all packages, and their programs run" installed
check "rpm --verify finds no difference" verified
check "rpm --erase removes them and keeps a changed configuration" erased
rm -rf "$work"
