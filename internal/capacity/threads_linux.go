package capacity

import (
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// freeThreads returns how many threads may be started, and 0 if nothing limits them.
func freeThreads() int {
	return least(ofGroups(os.DirFS("/")), ofUser())
}

// least returns the smaller of two limits.
func least(a, b int) int {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// ofGroups returns how many threads the control groups of this process still allow. A
// container often sees its own group as the top group, under a path that differs from the
// one in /proc/self/cgroup. So all groups up to the top are read.
func ofGroups(root fs.FS) int {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	free := 0
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // number:controllers:path
		if len(parts) != 3 || parts[1] != "" && parts[1] != "pids" {
			continue
		}
		top := path.Join("sys/fs/cgroup", parts[1])
		for at := path.Clean("/" + parts[2]); ; at = path.Dir(at) {
			if most := readNumber(root, path.Join(top, at, "pids.max")); most > 0 {
				free = least(free, max(most-readNumber(root, path.Join(top, at, "pids.current")), 1))
			}
			if at == "/" {
				break
			}
		}
	}
	return free
}

// readNumber returns the number in a file, 0 if there is none, as for "max".
func readNumber(root fs.FS, name string) int {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return n
}

// ofUser returns how many threads this user may still start. The limit does not hold for
// the superuser.
func ofUser() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(unix.RLIMIT_NPROC, &limit); err != nil || os.Geteuid() == 0 || limit.Cur >= 1<<30 {
		return 0
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	threads := 0
	for _, p := range processes {
		var stat syscall.Stat_t
		folder := "/proc/" + p.Name()
		if _, err := strconv.Atoi(p.Name()); err != nil || syscall.Stat(folder, &stat) != nil || int(stat.Uid) != os.Getuid() {
			continue
		}
		if tasks, err := os.ReadDir(folder + "/task"); err == nil {
			threads += len(tasks)
		}
	}
	return max(int(limit.Cur)-threads, 1) //nolint:gosec // it is below 2^30
}
