# Functions of the checks of the packages; debian.sh, static.sh and systemd.sh read this file.
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin
unset UTIPC_ENGINE UTIPC_SOCKET UTIPC_INSTANCE
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
# The folder for scratch files, unless the script has one.
: "${work:=$(mktemp -d)}"
chmod 755 "$work"

# check NAME FUNCTION: runs a check; shows its output if it fails.
check() {
	# A separate command, because in a condition `set -e` would have no effect.
	(set -e; "$2") >"$work/output" 2>&1
	if [ $? = 0 ]; then
		echo "ok $release: $1"
	else
		sed 's/^/  | /' "$work/output"
		echo "failed $release: $1"
	fi
}

# as USER COMMAND...: runs a command with the groups of a user.
as() {
	user=$1
	shift
	setpriv --reuid "$user" --regid "$(id -g "$user")" --init-groups env -u XDG_RUNTIME_DIR HOME=/ "$@"
}
