#!/bin/sh
# Runs as the first process of a node, in new network, mount and process namespaces.
# Nothing that is mounted, or written to /etc, /var, /run and /proc/sys here, is seen by the host.
# usage: node_init.sh CLUSTER_FOLDER CACHE_FOLDER PAUSE_PROGRAM
set -eu
cluster=$1 cache=$2 pause=$3

mount --make-rslave / # mounts of the host come in, none goes out
mount --make-rshared / # containers see what the kubelet mounts
mount -t proc proc /proc

exec 8<"$cache" 9<"$cluster" # still reachable when they lie under /var or /run
mount --bind "$cluster/var" /var
mount -t tmpfs -o mode=755,size=256m tmpfs /run
mkdir -p "$cache" "$cluster"
[ "$cache" -ef /proc/self/fd/8 ] || mount --bind /proc/self/fd/8 "$cache"
[ "$cluster" -ef /proc/self/fd/9 ] || mount --bind /proc/self/fd/9 "$cluster"
exec 8<&- 9<&-

# An /etc whose changes are the node's own. Names are the cluster's: a pull of an image fails at once instead of
# after the timeouts of the host's name server. Some hosts have no /etc/hosts, which containerd copies to pods.
mkdir /run/etc /run/etc/upper /run/etc/work
mount -t overlay -o lowerdir=/etc,upperdir=/run/etc/upper,workdir=/run/etc/work overlay /etc
rm -f /etc/resolv.conf /etc/hosts # on some hosts links into /run
cp "$cluster/resolv.conf" /etc/resolv.conf
printf '127.0.0.1 localhost\n::1 localhost\n' >/etc/hosts

# The kubelet sets these for the whole machine unless it finds them set; it finds them set here only.
while read -r name value; do
	file="$cluster/sysctl/$(echo "$name" | tr / .)"
	echo "$value" >"$file"
	[ ! -e "/proc/sys/$name" ] || mount --bind "$file" "/proc/sys/$name"
done <<-END
	vm/overcommit_memory 1
	vm/panic_on_oom 0
	kernel/panic 10
	kernel/panic_on_oops 1
	kernel/keys/root_maxkeys 1000000
	kernel/keys/root_maxbytes 25000000
END

# Of this network namespace only.
echo 1 >/proc/sys/net/ipv4/ip_forward

# Overlay mounts are refused where the cluster's folder itself is on one (in most containers).
mkdir -p /run/overlay/lower /run/overlay/merged "$cluster/overlay/upper" "$cluster/overlay/work"
if mount -t overlay -o "lowerdir=/run/overlay/lower,upperdir=$cluster/overlay/upper,workdir=$cluster/overlay/work" \
	overlay /run/overlay/merged; then
	umount /run/overlay/merged
	echo overlayfs >"$cluster/node-ready.part"
else
	echo native >"$cluster/node-ready.part"
fi
mv "$cluster/node-ready.part" "$cluster/node-ready"
exec "$pause"
