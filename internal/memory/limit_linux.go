package memory

import (
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
)

// containerLimit returns the least limit of the control groups that contain this process,
// and 0 if there is no limit.
func containerLimit() int64 { return groupLimit(os.DirFS("/")) }

// groupLimit reads control groups of both versions below root. A container often sees its
// own group as the top group, under a path that differs from the one in
// /proc/self/cgroup. So all groups up to the top are read.
func groupLimit(root fs.FS) int64 {
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	least := int64(0)
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3) // number:controllers:path
		if len(parts) != 3 {
			continue
		}
		top, file := "sys/fs/cgroup", "memory.max"
		switch {
		case parts[1] == "memory":
			top, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		case parts[1] != "":
			continue
		}
		for at := path.Clean("/" + parts[2]); ; at = path.Dir(at) {
			if n := readBytes(root, path.Join(top, at, file)); n > 0 && (least == 0 || n < least) {
				least = n
			}
			if at == "/" {
				break
			}
		}
	}
	return least
}

// readBytes returns the number in a file, 0 if there is none, as for "max".
func readBytes(root fs.FS, name string) int64 {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
