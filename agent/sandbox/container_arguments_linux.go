package sandbox

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/agent/container"
)

// Where the container has what the first process needs.
const (
	insideProgram = "/fulgurite/program"
	insideControl = "/fulgurite/control"
	socketName    = "socket"
	hostsName     = "hosts"
	emptyName     = "empty"
)

// containerCommand is the hidden subcommand under which an executable is the first process
// of a container: "/fulgurite/program agent-container /fulgurite/control/socket".
const containerCommand = "agent-container"

// nobody is the user and the group of a program in a container.
const nobody = 65534

// spareMemory is how much more than its limit a container may take: the limit counts
// resident memory, and the container's also what is in /tmp, /var/tmp, /dev/shm and the
// cache of files. So the kernel ends only what grows too fast to be measured.
func spareMemory(limit int64) int64 { return limit/4 + 1<<30 }

// inherited are the limits of a worker, which may lack the right to give more.
type inherited struct{ maxFiles, maxProcesses uint64 }

// mount is a path of the machine that a container shows, or, without a source, an empty
// directory in memory.
type mount struct {
	source, target string
	writable       bool
	// parent says that something is mounted below it, for which it has to be writable at
	// first.
	parent bool
}

// mounts returns what the container of a policy shows of the machine, apart from the
// control and the program of the first process. control is the directory of the control.
func mounts(p Policy, control string) ([]mount, error) {
	out := []mount{{source: filepath.Join(control, hostsName), target: "/etc/hosts"}}
	shown := []mount{{source: p.Directory, target: p.Directory}, {source: p.Home, target: p.Home, writable: true}}
	for _, path := range p.Writable {
		shown = append(shown, mount{source: path, target: path, writable: true})
	}
	for _, one := range shown {
		one.target = filepath.Clean(one.target)
		switch i := slices.IndexFunc(out, func(o mount) bool { return o.target == one.target }); {
		case one.target == "/":
			return nil, impossible{fmt.Errorf("%s can't be shown in a container: choose another agent.directory", one.target)}
		case i >= 0:
			out[i].writable = out[i].writable || one.writable
		default:
			out = append(out, one)
		}
	}
	visible := slices.Clone(out[1:])
	for _, path := range p.Hidden {
		masked, err := masks(path, visible, control)
		if err != nil {
			return nil, err
		}
		for _, one := range masked {
			if !slices.ContainsFunc(out, func(o mount) bool { return o.target == one.target }) {
				out = append(out, one)
			}
		}
	}
	for _, path := range []string{"/tmp", "/var/tmp"} {
		if !slices.ContainsFunc(out, func(o mount) bool { return o.target == path }) {
			out = append(out, mount{target: path, writable: true})
		}
	}
	slices.SortStableFunc(out, func(a, b mount) int { return cmp.Compare(a.target, b.target) }) // each after those above it
	for i, one := range out {
		out[i].parent = slices.ContainsFunc(out[i+1:], func(o mount) bool { return below(o.target, []string{one.target}) })
		if !showable(one.source + one.target) {
			return nil, impossible{fmt.Errorf("%q can't be shown in a container, because %s: choose another path", one.target, whyNotShowable)}
		}
	}
	return out, nil
}

// whyNotShowable says why a container can't show some paths.
const whyNotShowable = "the options of podman take no path with a comma, a colon, a quotation mark or a line break"

// showable reports whether a container can show a path of the machine.
func showable(path string) bool { return !strings.ContainsAny(path, ",:\"\r\n") }

// masks returns the mounts that hide a path of the machine wherever visible mounts show it.
func masks(path string, visible []mount, control string) ([]mount, error) {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, nil //nolint:nilerr // what does not exist, or can't be reached, needs not be hidden
	}
	var out []mount
	for _, one := range visible {
		below, ok := strings.CutPrefix(target, strings.TrimSuffix(resolved(one.source), "/"))
		switch {
		case !ok || below != "" && below[0] != '/':
			continue
		case below == "":
			return nil, impossible{fmt.Errorf("%s has to be visible and is hidden at the same time: choose another directory for what it holds", one.target)}
		}
		mask := mount{target: filepath.Join(one.target, below)}
		if !isDirectory(target) {
			mask.source = filepath.Join(control, emptyName)
		}
		out = append(out, mask)
	}
	return out, nil
}

// option returns the words of podman's command line for a mount.
func (m mount) option() []string {
	if m.source != "" {
		text := "type=bind,source=" + m.source + ",target=" + m.target
		if !m.writable {
			text += ",readonly"
		}
		return []string{"--mount", text}
	}
	// An OCI runtime gives it the mode of the directory that it hides, so that others may be
	// able to write it.
	options := "ro,nosuid,nodev,noexec,size=64k,mode=755"
	switch {
	case m.writable:
		options = "rw,nosuid,nodev,exec,size=256m,mode=1777"
	case m.parent:
		options = "rw,nosuid,nodev,noexec,size=64k,mode=755"
	}
	return []string{"--tmpfs", m.target + ":" + options + ",notmpcopyup"} // what is hidden is not copied
}

// runArguments returns the arguments of podman that start the container of a policy with
// these mounts. program is the path of this executable, control the directory of the
// control.
func runArguments(p Policy, list []mount, program, control string, worker inherited) ([]string, error) {
	c := p.Container
	labels, err := container.Labels(c.Attempt, p.Home)
	if err != nil {
		return nil, err
	}
	name, err := container.Name(p.Home)
	if err != nil {
		return nil, err
	}
	args := []string{"run", "--rm", "--name", name, "--replace"} // an earlier attempt may have left one
	for _, label := range labels {
		args = append(args, "--label", label)
	}
	files, processes := min(openFiles, worker.maxFiles), min(userProcesses, worker.maxProcesses)
	args = append(args,
		"--pull", "never", "--network", "none", "--ipc", "private", "--pid", "private", "--uts", "private", "--cgroupns", "private", "--init=false",
		"--read-only", "--read-only-tmpfs=false", "--image-volume", "ignore", "--http-proxy=false",
		"--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--security-opt", "label=disable", "--user", fmt.Sprintf("%d:%d", nobody, nobody),
		"--hostname", hostName, "--workdir", "/", "--log-driver", "none", "--no-healthcheck", "--sysctl", "net.ipv4.ip_unprivileged_port_start=0",
		"--shm-size", "256m", "--ulimit", fmt.Sprintf("nofile=%d:%d", files, files), "--ulimit", fmt.Sprintf("nproc=%d:%d", processes, processes),
		"--cgroups", "enabled", "--pids-limit", strconv.Itoa(p.Limits.MaxProcesses()+ownThreads))
	if c.Memory > 0 {
		memory := strconv.FormatInt(c.Memory+spareMemory(c.Memory), 10)
		args = append(args, "--memory", memory, "--memory-swap", memory)
	}
	for _, one := range append(list, mount{source: program, target: insideProgram}, mount{source: control, target: insideControl}) {
		args = append(args, one.option()...)
	}
	return append(args, "--entrypoint", insideProgram, c.Image, containerCommand, insideControl+"/"+socketName), nil
}

// userProcesses is how many processes and threads the user of all containers may have
// together. Some versions of podman can give a container no more than that.
const userProcesses = 32768

// hostName is the name of the machine that a container shows.
const hostName = "agent"

// isDirectory reports whether a path is a directory.
func isDirectory(path string) bool {
	stat, err := os.Stat(path)
	return err == nil && stat.IsDir()
}
