package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// machineOnly returns directories with which the kernel tells root about itself.
func machineOnly() []string {
	return []string{"/sys/firmware", "/sys/fs/bpf", "/sys/kernel/debug", "/sys/kernel/security", "/sys/kernel/tracing"}
}

// memoryFiles bounds what a program keeps in /tmp and /dev/shm, each.
const memoryFiles = "size=256m,mode=1777"

// below reports whether a path is one of the directories or below one.
func below(path string, directories []string) bool {
	return slices.ContainsFunc(directories, func(d string) bool {
		return path == d || strings.HasPrefix(path, strings.TrimSuffix(d, "/")+"/")
	})
}

// place is a path that the sandbox shows in a different way than the machine.
type place struct {
	path string
	kind kind
	tree int // of a visible place: its mount, not yet attached
	file bool
}

type kind int

// The kinds of places, in the order in which they apply to one path.
const (
	hidden   kind = iota
	scratch       // empty and writable
	readable      // visible below what is hidden
	writable
)

// program returns the files that a command line names by absolute paths, and the program
// itself. They stay visible also below /tmp.
func program(args []string) []string {
	var out []string
	for i, word := range args {
		if i == 0 {
			if path, err := exec.LookPath(word); err == nil {
				word = path
			}
		}
		if stat, err := os.Stat(word); filepath.IsAbs(word) && err == nil && stat.Mode().IsRegular() {
			out = append(out, word)
		}
	}
	return out
}

// impossible is an error of a policy, not of the machine.
type impossible struct{ error }

// places returns the places of a policy, ordered so that each comes after those above it.
func places(p Policy, programs []string) ([]place, error) {
	var out []place
	add := func(path string, k kind, required bool) error {
		target, err := filepath.EvalSymlinks(path)
		if errors.Is(err, fs.ErrNotExist) && !required || errors.Is(err, fs.ErrPermission) && k == hidden {
			return nil // what can't be reached needs not be hidden
		}
		if err != nil {
			return err
		}
		if target == "/" && k == hidden {
			return impossible{fmt.Errorf("%s is to be hidden from an isolated agent: put the store into a directory of its own", target)}
		}
		stat, err := os.Stat(target)
		if err != nil {
			return err
		}
		one := place{path: target, kind: k, file: !stat.IsDir()}
		if !slices.Contains(out, one) {
			out = append(out, one)
		}
		return nil
	}
	for _, path := range emptied() {
		k := hidden
		if path == "/tmp" || path == "/var/tmp" {
			k = scratch
		}
		if err := add(path, k, false); err != nil {
			return nil, err
		}
	}
	for _, path := range slices.Concat(machineOnly(), p.Hidden) {
		if err := add(path, hidden, false); err != nil {
			return nil, err
		}
	}
	visible := append([]string{p.Directory}, programs...)
	for _, path := range visible {
		if err := add(path, readable, true); err != nil {
			return nil, err
		}
	}
	for _, path := range append([]string{p.Home}, p.Writable...) {
		if err := add(path, writable, true); err != nil {
			return nil, fmt.Errorf("make %s writable for the agent: %w", path, err)
		}
	}
	slices.SortStableFunc(out, func(a, b place) int {
		return cmp.Or(strings.Compare(a.path, b.path), cmp.Compare(a.kind, b.kind))
	})
	return necessary(out)
}

// necessary removes places that change nothing. A working directory is visible already
// unless something above it is hidden. It is an error if a visible place is itself hidden.
func necessary(all []place) ([]place, error) {
	var out []place
	for _, one := range all {
		i := slices.IndexFunc(out, func(o place) bool { return o.path == one.path })
		switch {
		case i < 0:
		case out[i].kind == hidden && one.kind != hidden && one.kind != scratch:
			return nil, fmt.Errorf("%s has to be visible and is hidden at the same time: choose another directory for what it holds", one.path)
		case out[i].kind == scratch:
			return nil, fmt.Errorf("%s is empty in a sandbox, so it can't be the agent's directory: choose one below it", one.path)
		case one.kind <= out[i].kind:
			continue // shown already
		default:
			out = slices.Delete(out, i, i+1) // writable as well as readable
		}
		covered := slices.ContainsFunc(all, func(o place) bool {
			return o.kind <= scratch && o.path != one.path && below(one.path, []string{o.path})
		})
		if one.kind == readable && !covered {
			continue
		}
		out = append(out, one)
	}
	return out, nil
}

// devices returns the devices that every program may expect.
func devices() []string { return []string{"null", "zero", "full", "random", "urandom", "tty"} }

// files makes the sandbox's view of the machine's files.
func files(p Policy, programs []string, hosts string) error {
	// Later mounts of the machine don't come in.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("leave the mounts of the machine: %w", err)
	}
	all, err := places(p, programs)
	if err != nil {
		return impossible{err}
	}
	for i, one := range all {
		if one.kind < readable {
			continue
		}
		attributes := uint64(unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV)
		if one.kind == readable {
			attributes |= unix.MOUNT_ATTR_RDONLY
		}
		if all[i].tree, err = treeOf(one.path, attributes); err != nil {
			return err
		}
	}
	nodes := map[string]int{}
	for _, name := range devices() {
		if nodes[name], err = treeOf("/dev/"+name, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	if err := setAttributes(unix.AT_FDCWD, "/", unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV); err != nil {
		return fmt.Errorf("make the machine's files read-only: %w", err)
	}
	if err := proc(); err != nil {
		return err
	}
	if err := dev(nodes, hosts); err != nil {
		return err
	}
	var emptied []string
	for _, one := range all {
		mounted, err := one.apply()
		if err != nil {
			return err
		}
		if mounted && one.kind == hidden && !one.file {
			emptied = append(emptied, one.path)
		}
	}
	for _, path := range emptied { // now that visible places are mounted below them
		if err := setReadOnly(path); err != nil {
			return err
		}
	}
	return nil
}

// treeOf returns a copy of the mounts at a path, with further attributes.
func treeOf(path string, attributes uint64) (int, error) {
	tree, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return -1, fmt.Errorf("mount %s: %w", path, err)
	}
	if err := setAttributes(tree, "", attributes); err != nil {
		return -1, fmt.Errorf("mount %s: %w", path, err)
	}
	return tree, nil
}

// setAttributes adds attributes to all mounts at a path.
func setAttributes(fd int, path string, attributes uint64) error {
	return unix.MountSetattr(fd, path, unix.AT_RECURSIVE|unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: attributes})
}

func setReadOnly(path string) error {
	err := unix.MountSetattr(unix.AT_FDCWD, path, 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	if err != nil {
		return fmt.Errorf("make %s read-only: %w", path, err)
	}
	return nil
}

func attach(tree int, path string) error {
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount %s: %w", path, err)
	}
	_ = unix.Close(tree)
	return nil
}

// apply changes what is at the place's path. It reports whether it mounted anything.
func (one place) apply() (bool, error) {
	_, err := os.Lstat(one.path)
	absent := errors.Is(err, fs.ErrNotExist)
	switch {
	case one.kind <= scratch && absent:
		return false, nil // below another hidden place
	case one.kind == scratch:
		return true, temporary(one.path, memoryFiles)
	case one.kind == hidden && one.file:
		empty, err := treeOf("/dev/null", 0)
		if err != nil {
			return false, err
		}
		return true, attach(empty, one.path)
	case one.kind == hidden:
		return true, temporary(one.path, "size=1m,mode=755")
	case absent: // what is hidden above it has no place to mount it at
		if err := makePlace(one); err != nil {
			return false, err
		}
	}
	return true, attach(one.tree, one.path)
}

func makePlace(one place) error {
	if !one.file {
		return os.MkdirAll(one.path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(one.path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(one.path, nil, 0o600)
}

// temporary mounts an empty directory in memory.
func temporary(path, options string) error {
	if err := unix.Mount("tmpfs", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("hide %s: %w", path, err)
	}
	return nil
}

// proc shows the sandbox's own processes. Root's files there change the whole machine, and
// root may be the user of the worker, so nothing in it can be written.
func proc() error {
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if err := unix.Mount("proc", "/proc", "proc", flags, ""); err != nil {
		return fmt.Errorf("mount its own /proc: %w", err)
	}
	// A namespace of its own would give a program rights in it.
	if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
		return fmt.Errorf("forbid further namespaces: %w", err)
	}
	return setReadOnly("/proc")
}

// dev makes a /dev with the usual devices.
func dev(nodes map[string]int, hosts string) error {
	if err := unix.Mount("tmpfs", "/dev", "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "size=1m,mode=755"); err != nil {
		return fmt.Errorf("make its own /dev: %w", err)
	}
	for _, name := range devices() {
		if nodes[name] <= 0 {
			continue
		}
		path := "/dev/" + name
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			return err
		}
		if err := attach(nodes[name], path); err != nil {
			return err
		}
	}
	for _, link := range [][2]string{
		{"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"}, {"/proc/self/fd/2", "stderr"}, {"pts/ptmx", "ptmx"},
	} {
		if err := os.Symlink(link[0], "/dev/"+link[1]); err != nil {
			return err
		}
	}
	for _, directory := range []string{"/dev/pts", "/dev/shm"} {
		if err := os.Mkdir(directory, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("devpts", "/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"); err != nil {
		return fmt.Errorf("make its own terminals: %w", err)
	}
	if err := temporary("/dev/shm", memoryFiles); err != nil {
		return err
	}
	if err := hostsFile(hosts); err != nil {
		return err
	}
	return setReadOnly("/dev")
}

// hostsFile puts the names of the routes into /etc/hosts. Only the mount of the file stays.
func hostsFile(text string) error {
	target, err := filepath.EvalSymlinks("/etc/hosts")
	if err != nil {
		return fmt.Errorf("find /etc/hosts: %w", err)
	}
	const file = "/dev/hosts"
	if err := os.WriteFile(file, []byte(text), 0o444); err != nil {
		return err
	}
	tree, err := treeOf(file, unix.MOUNT_ATTR_RDONLY)
	if err == nil {
		err = attach(tree, target)
	}
	return errors.Join(err, os.Remove(file))
}
