#!/bin/sh
# Starts systemd as the first process of the root $1, with the packages $2 as /packages; runs in separate namespaces for
# mounts, processes, control groups and the rest.
set -e
root=$1 packages=$2
mount --make-rprivate /
mount --bind "$root" "$root"
cd "$root"
mkdir -p packages
mount --bind "$packages" packages
mount -t tmpfs -o mode=755 none dev
for device in null zero full random urandom tty; do
	: >"dev/$device"
	mount --bind "/dev/$device" "dev/$device"
done
mkdir dev/pts dev/shm
: >dev/console
# PrivateDevices= of the unit copies these.
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount -t devpts -o newinstance,ptmxmode=0666 none dev/pts
mount -t tmpfs -o mode=1777 none dev/shm
mount -t tmpfs -o mode=755 none run
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 none sys/fs/cgroup
ip link set lo up
mkdir -p opt/outside
pivot_root . opt/outside
exec chroot . sh -c 'umount -l /opt/outside
	exec env -i container=utipc PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --unit=multi-user.target \
		--log-target=null --show-status=0'
