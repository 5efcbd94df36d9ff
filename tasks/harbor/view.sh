# Arguments: the root to make, the home, this machine's search path, the working directory,
# pairs of a directory or file and its place, --, directories and files to hide, --, and the
# command.
set -eu
root=$1 home=$2 wanted=${PATH-} PATH=$3 directory=$4
shift 4
mount -t tmpfs -o mode=755 fulgurite "$root"
for path in /*; do
	if [ -L "$path" ]; then
		ln -s "$(readlink "$path")" "$root$path"
	elif [ -d "$path" ]; then
		mkdir "$root$path"
		mount --rbind "$path" "$root$path"
	fi
done
# What a mount's options forbid already, a user namespace must not allow again.
while read -r _ _ _ _ point options _; do
	case $point in
	"$root" | "$root"/proc* | "$root"/sys* | "$root"/dev* | "$root"/tmp* | "$root"/run*) ;;
	"$root"/*) mount -o "remount,bind,ro,${options#rw,}" "$point" 2>/dev/null || true ;;
	esac
done </proc/self/mountinfo
mount --bind "$home" "$root$home"
while [ "$1" != -- ]; do
	if [ -d "$1" ]; then
		[ -d "$root$2" ] || mkdir -p "$root$2"
	else
		: >"$root$2"
	fi
	mount --bind "$1" "$root$2"
	shift 2
done
shift
while [ "$1" != -- ]; do
	if [ -d "$root$1" ]; then
		mount -t tmpfs -o ro fulgurite "$root$1"
	else
		mount --bind /dev/null "$root$1"
	fi
	shift
done
shift
exec chroot "$root" /bin/sh -c 'PATH=$0 && cd "$1" && shift && exec "$@"' "$wanted" "$directory" "$@"
