package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// mainContainer makes this process the first one of a container. It connects to the
// worker's side, which gives it the program.
func mainContainer(socket string) int {
	control, conn, err := connect(socket)
	if err != nil {
		fmt.Fprintln(os.Stderr, "connect to the worker:", err) // podman passes it on
		return 1
	}
	f := first{control: control}
	setup, files, err := takeSetup(conn)
	if err != nil {
		return f.fail(message{Unavailable: fmt.Sprintf("read setup: %v", err)})
	}
	opened, err := prepareContainer(setup)
	if bad := (impossible{}); errors.As(err, &bad) {
		return f.fail(message{Error: bad.Error()})
	}
	if err != nil {
		return f.fail(message{Unavailable: err.Error()})
	}
	if err := f.send(message{Ready: true}, opened); err != nil {
		return 1
	}
	for _, l := range opened {
		_ = l.Close() // accepted outside only
	}
	if len(setup.Args) == 0 {
		return 0 // only a check
	}
	if err := os.Chdir(setup.Policy.Directory); err != nil {
		return f.fail(message{Error: fmt.Sprintf("enter agent.directory: %v", err)})
	}
	for _, one := range setup.Environment {
		if path, ok := strings.CutPrefix(one, "PATH="); ok { // in which the program is found
			if err := os.Setenv("PATH", path); err != nil {
				return f.fail(message{Error: err.Error()})
			}
		}
	}
	go func() {
		_, _, _ = receive(conn) // returns when the worker's side has ended
		os.Exit(1)              // and with it all processes of the container
	}()
	return f.start(setup.Args, setup.Environment, files)
}

// connect connects to the worker's side.
func connect(path string) (*os.File, *net.UnixConn, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	control := os.NewFile(uintptr(fd), "control") //nolint:gosec // a descriptor is small
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		return nil, nil, errors.Join(err, control.Close())
	}
	conn, err := net.FileConn(control)
	if err != nil {
		return nil, nil, errors.Join(err, control.Close())
	}
	return control, conn.(*net.UnixConn), nil
}

// takeSetup returns the setup, and the input and the outputs of the program.
func takeSetup(conn *net.UnixConn) (setup containerSetup, files [3]*os.File, err error) {
	_, got, err := receive(conn)
	if err != nil {
		return setup, files, err
	}
	if len(got) != len(files)+1 {
		return setup, files, fmt.Errorf("%d open files instead of %d", len(got), len(files)+1)
	}
	copy(files[:], got)
	text, err := io.ReadAll(got[len(files)])
	if err == nil {
		err = json.Unmarshal(text, &setup)
	}
	return setup, files, errors.Join(err, got[len(files)].Close())
}

// prepareContainer checks what podman has made, and adds what it can't.
func prepareContainer(setup containerSetup) ([]*os.File, error) {
	p := setup.Policy
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0) // as in other sandboxes
	if err := refuseRights(); err != nil {
		return nil, err
	}
	if err := refuseNetworks(); err != nil {
		return nil, err
	}
	if err := refuseWritable(p.Directory, setup.Writable); err != nil {
		return nil, err
	}
	if err := unix.Access(p.Home, unix.W_OK|unix.X_OK); err != nil {
		return nil, impossible{fmt.Errorf("the agent's user %d can't reach its home %s, which agent.directory or agent.writable shows with the rights that directories have on this machine: choose others, which are not above it: %w", nobody, p.Home, err)}
	}
	routes := distinct(p.Routes)
	at := addresses(routes)
	for _, r := range routes {
		if !at[r.Host].IsLoopback() {
			return nil, impossible{fmt.Errorf("%s can't be reached from a container, which has no address but those of its loopback interface: give a name instead of the address", r)}
		}
	}
	opened, err := listeners(routes)
	if err != nil {
		return nil, fmt.Errorf("make its network: %w", err)
	}
	if err := p.Limits.apply(false); err != nil { // control groups bound its processes
		return nil, fmt.Errorf("limit it: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil { // the program can't look into this process
		return nil, err
	}
	if err := filterSystemCalls(); err != nil {
		return nil, fmt.Errorf("filter its system calls: %w", err)
	}
	return opened, nil
}

// refuseRights returns an error if this process has a right that its program would get, or
// could make each system call.
func refuseRights() error {
	if os.Geteuid() == 0 {
		return errors.New("the container has made its program root")
	}
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return fmt.Errorf("find its rights: %w", err)
	}
	const filtered = "2"
	want := map[string]string{"CapInh": "", "CapPrm": "", "CapEff": "", "CapBnd": "", "CapAmb": "", "NoNewPrivs": "1", "Seccomp": filtered}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if value = strings.TrimSpace(value); strings.HasPrefix(name, "Cap") {
			value = strings.Trim(value, "0")
		}
		wanted, ok := want[name]
		switch {
		case !ok:
			continue
		case value != wanted && name == "Seccomp":
			return errors.New("podman filters no system calls in the container: let it use its seccomp profile")
		case value != wanted:
			return fmt.Errorf("the container has left it rights: %s %s", name, value)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		return errors.New("the kernel does not say which rights it has")
	}
	return nil
}

// refuseWritable returns an error if there is a file system at or below a directory that
// the program could write, and that is not at or below one of the writable paths: a mount
// is read-only without those below it.
func refuseWritable(directory string, writable []string) error {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("find its file systems: %w", err)
	}
	directory = resolved(directory)
	var inside []string
	for _, path := range writable {
		if path = resolved(path); below(path, []string{directory}) {
			inside = append(inside, path)
		}
	}
	for line := range strings.Lines(string(text)) {
		point, ok := writableMount(line)
		if ok && below(point, []string{directory}) && !below(point, inside) {
			return impossible{fmt.Errorf("%s is a file system of its own below agent.directory, which a container can't show read-only: mount it read-only, name it in agent.writable, or choose another agent.directory", point)}
		}
	}
	return nil
}

// writableMount returns where a line of /proc/self/mountinfo has a file system that can be
// written: "id parent device root point options [fields…] - type source options".
func writableMount(line string) (point string, ok bool) {
	mount, system, _ := strings.Cut(strings.TrimSpace(line), " - ")
	words, last := strings.Fields(mount), strings.Fields(system)
	if len(words) < 6 || len(last) == 0 {
		return "", false
	}
	readOnly := func(options string) bool { return slices.Contains(strings.Split(options, ","), "ro") }
	point = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(words[4])
	return point, !readOnly(words[5]) && !readOnly(last[len(last)-1])
}

// refuseNetworks returns an error if the container is connected to any network.
func refuseNetworks() error {
	interfaces, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("find its networks: %w", err)
	}
	for _, one := range interfaces {
		if one.Flags&net.FlagLoopback == 0 && one.Flags&net.FlagUp != 0 {
			return fmt.Errorf("the container is connected to a network by %s", one.Name)
		}
	}
	return nil
}
