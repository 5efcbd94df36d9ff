package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Sandbox is a program in a sandbox. When its first process, Pid, ends, which it does with
// the program, nothing of the sandbox runs any more. The caller reaps the children of this
// process.
type Sandbox struct {
	Pid int

	control  *net.UnixConn
	engine   *engine // runs the container; nil without one
	relay    *relay
	reported chan struct{} // closed after the last message
	ended    atomic.Bool   // the first process has said how the program ended
	code     atomic.Int32
	signal   atomic.Int32
}

// Start starts a program in a sandbox, in its own process group, and returns when it runs.
// The calling thread has to stay: when it ends, the kernel ends a sandbox that is no
// container. A program in a container gets the environment of this process and the
// variables of the image that are not in it. If ctx ends while podman still starts a
// container, Start ends that and returns why ctx has ended. The error wraps ErrUnavailable
// if the machine can't isolate.
func Start(ctx context.Context, p Policy, args []string, stdin, stdout, stderr *os.File) (*Sandbox, error) {
	p.Hidden = slices.Concat(p.Hidden, sockets())
	if p.Container != nil {
		return startContainer(ctx, p, args, [3]*os.File{stdin, stdout, stderr})
	}
	first := exec.Command("/proc/self/exe")
	first.Args = slices.Concat([]string{"fulgurite-sandbox", command}, args)
	first.Stdin, first.Stdout, first.Stderr = stdin, stdout, stderr
	first.SysProcAttr = attributes()
	control, err := begin(first, p)
	if err != nil {
		return nil, err
	}
	s := &Sandbox{Pid: first.Process.Pid, control: control, reported: make(chan struct{})}
	if err := s.establish(p.Routes); err != nil {
		_ = syscall.Kill(s.Pid, syscall.SIGKILL)
		_ = first.Wait()
		return nil, errors.Join(err, control.Close())
	}
	go s.report()
	return s, nil
}

// begin starts the first process of a sandbox and gives it its policy.
func begin(first *exec.Cmd, p Policy) (*net.UnixConn, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode policy of sandbox: %w", err)
	}
	control, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	policy, policyIn, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the pipe for a policy: %w", err), control.Close(), theirs.Close())
	}
	first.ExtraFiles = []*os.File{theirs, policy}
	err = first.Start()
	// From here on, both end with the first process.
	_, _ = theirs.Close(), policy.Close()
	if err != nil {
		err = fmt.Errorf("make the namespaces of a sandbox: %w", err)
		if !exhausted(err) {
			err = fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		return nil, errors.Join(err, control.Close(), policyIn.Close())
	}
	// If the process has died, its end is noticed on the control.
	_, _ = policyIn.Write(text)
	_ = policyIn.Close()
	return control, nil
}

// attributes returns those of the first process: new namespaces, the same user, and the
// rights inside them that it needs to prepare the sandbox.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE, unix.CAP_SETPCAP, unix.CAP_SYS_RESOURCE},
		Setpgid:     true,
		Pdeathsig:   syscall.SIGKILL,
	}
}

// establish waits until the program runs, and starts the relay of its routes. If it fails,
// there is no relay.
func (s *Sandbox) establish(routes []Route) (err error) {
	defer func() {
		if err != nil && s.relay != nil {
			s.relay.Close()
		}
	}()
	for {
		m, files, err := receive(s.control)
		switch {
		case err != nil:
			return fmt.Errorf("%w: its first process died before it began: %w", ErrUnavailable, err)
		case m.Unavailable != "":
			return fmt.Errorf("%w: %s", ErrUnavailable, m.Unavailable)
		case m.Error != "":
			return errors.New(m.Error)
		case m.Started:
			return nil
		case !m.Ready:
			return fmt.Errorf("start sandbox: unexpected message %+v", m)
		}
		listeners, err := listenersOf(files)
		if err != nil {
			return err
		}
		s.relay = startRelay(listeners, distinct(routes))
	}
}

// listenersOf makes listeners of open files.
func listenersOf(files []*os.File) ([]net.Listener, error) {
	var out []net.Listener
	for _, f := range files {
		l, err := net.FileListener(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("take over a listener of the sandbox: %w", err)
		}
		out = append(out, l)
	}
	return out, nil
}

// report reads how the program ended.
func (s *Sandbox) report() {
	defer close(s.reported)
	defer func() {
		if s.engine != nil {
			s.engine.end()
		}
	}()
	for {
		m, _, err := receive(s.control)
		if err != nil {
			return
		}
		if m.Ended {
			s.signal.Store(int32(m.Signal)) //nolint:gosec // the number of a signal
			s.code.Store(int32(m.Code))     //nolint:gosec // an exit code
			s.ended.Store(true)
		}
	}
}

// Contained reports whether the sandbox is a container. Pid is then no child of this
// process, and podman removes the container after it has ended.
func (s *Sandbox) Contained() bool { return s.engine != nil }

// Send sends a signal to the program. SIGKILL ends the whole sandbox.
func (s *Sandbox) Send(signal syscall.Signal) {
	if s.engine != nil {
		s.engine.signal(signal)
		return
	}
	_ = syscall.Kill(-s.Pid, signal)
}

// Over is closed when the first process has ended. Nothing of a container runs then any more.
func (s *Sandbox) Over() <-chan struct{} { return s.reported }

// Signal returns the signal that ended the program, 0 if it ended by itself. A container
// that was ended with its program ended by SIGKILL. Call it after the first process has
// ended.
func (s *Sandbox) Signal() int {
	<-s.reported
	if s.engine != nil && !s.ended.Load() {
		return int(syscall.SIGKILL)
	}
	return int(s.signal.Load())
}

// Code returns the exit code of a program that ended by itself.
func (s *Sandbox) Code() int {
	<-s.reported
	return int(s.code.Load())
}

// Close ends the connections of a sandbox whose first process has ended.
func (s *Sandbox) Close() {
	if s.relay != nil {
		s.relay.Close()
	}
	_ = s.control.Close()
	<-s.reported
	if s.engine != nil {
		<-s.engine.watched
		_ = s.engine.close()
	}
}

// Check starts a sandbox with nothing in it. It returns nil if that works, and an error
// that wraps ErrUnavailable if it does not.
func Check(ctx context.Context) error {
	if concealed() {
		return checkApart(ctx)
	}
	return check(ctx)
}

func check(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	home, err := os.MkdirTemp("", "fulgurite-check-")
	if errors.Is(err, unix.EROFS) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%w: make a directory for a sandbox: %w", ErrUnavailable, err)
	}
	if err != nil {
		return fmt.Errorf("make a directory for a sandbox: %w", err)
	}
	defer os.RemoveAll(home)
	first := exec.CommandContext(ctx, "/proc/self/exe")
	first.Args = []string{"fulgurite-sandbox", command}
	first.SysProcAttr = attributes()
	first.SysProcAttr.Pdeathsig = 0 // the thread may end
	control, err := begin(first, Policy{Home: home, Directory: "/", Routes: []Route{{Host: "example.invalid", Port: 443}, {Host: "192.0.2.1", Port: 80}}})
	if err != nil {
		return err
	}
	defer control.Close()
	m, files, err := receive(control)
	for _, f := range files {
		_ = f.Close()
	}
	_ = first.Wait()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("check for sandboxes: the first process died: %w", err)
	case m.Unavailable != "":
		return fmt.Errorf("%w: %s", ErrUnavailable, m.Unavailable)
	case m.Error != "":
		return fmt.Errorf("%w: %s", ErrUnavailable, m.Error)
	}
	return nil
}

// exhausted reports whether a process could not be started for a reason that passes: this
// says nothing about what the machine can do.
func exhausted(err error) bool {
	for _, passing := range []error{unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE} {
		if errors.Is(err, passing) {
			return true
		}
	}
	return false
}

// concealed reports whether others of its user can't see into this process. Such a process
// can't give its children the identities of a user namespace, because their files in /proc
// belong to root.
func concealed() bool {
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	return err == nil && dumpable != 1
}

// checkCommand is the hidden subcommand under which an executable checks the machine and
// prints a message: "fulgurite-sandbox agent-sandbox-check".
const checkCommand = "agent-sandbox-check"

// checkApart checks the machine in a process of its own, so that this one stays concealed
// all the time: agents may run meanwhile.
func checkApart(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	c := exec.CommandContext(ctx, "/proc/self/exe")
	c.Args = []string{"fulgurite-sandbox", checkCommand}
	text, err := c.Output()
	var m message
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("check for sandboxes: %w", err)
	case m.Unavailable != "":
		return fmt.Errorf("%w: %s", ErrUnavailable, m.Unavailable)
	case m.Error != "":
		return errors.New(m.Error)
	}
	return nil
}

// mainCheck checks the machine for checkApart.
func mainCheck() int {
	var m message
	if err := check(context.Background()); errors.Is(err, ErrUnavailable) {
		m.Unavailable = strings.TrimPrefix(err.Error(), ErrUnavailable.Error()+": ")
	} else if err != nil {
		m.Error = err.Error()
	}
	if json.NewEncoder(os.Stdout).Encode(m) != nil {
		return 1
	}
	return 0
}

// LimitedBy says what enforces limits on this machine for this user. The kernel does not
// bound the number of root's processes.
func LimitedBy() string {
	if os.Geteuid() == 0 {
		return "rlimits and a look ten times a second, since the kernel bounds no number of processes for root"
	}
	return "rlimits and a look ten times a second"
}

// Fix returns what may let a machine isolate programs for which Check returned err, with
// commands for its administrator.
func Fix(err error) []string {
	var out []string
	if value, ok := setting("user/max_user_namespaces"); ok && value == 0 {
		out = append(out, "sudo sysctl -w user.max_user_namespaces=10000")
	}
	if value, ok := setting("kernel/unprivileged_userns_clone"); ok && value == 0 {
		out = append(out, "sudo sysctl -w kernel.unprivileged_userns_clone=1")
	}
	if value, ok := setting("kernel/apparmor_restrict_unprivileged_userns"); ok && value != 0 {
		out = append(out, "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0")
	}
	if len(out) == 0 && (errors.Is(err, syscall.EPERM) || errors.Is(err, ErrUnavailable)) {
		out = append(out, "in a container: let it make user namespaces and mount /proc (with docker: --security-opt seccomp=unconfined --security-opt systempaths=unconfined)")
	}
	return out
}

// setting reads a number below /proc/sys.
func setting(name string) (value int, ok bool) {
	text, err := os.ReadFile(filepath.Join("/proc/sys", name))
	if err != nil {
		return 0, false
	}
	value, err = strconv.Atoi(string(bytes.TrimSpace(text)))
	return value, err == nil
}

// socketPair returns this process's end and the file of the other end.
func socketPair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make the control of a sandbox: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("make the control of a sandbox: %w", err), theirs.Close())
	}
	return conn.(*net.UnixConn), theirs, nil
}

// receive returns the next message and the files that came with it.
func receive(c *net.UnixConn) (m message, files []*os.File, err error) {
	text, rights := make([]byte, messageBytes), make([]byte, unix.CmsgSpace(4*maxRoutes))
	n, nr, _, _, err := c.ReadMsgUnix(text, rights)
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return m, nil, err
	}
	parts, err := unix.ParseSocketControlMessage(rights[:nr])
	if err != nil {
		return m, nil, err
	}
	for _, part := range parts {
		fds, err := unix.ParseUnixRights(&part)
		if err != nil {
			return m, files, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "listener"))
		}
	}
	return m, files, json.Unmarshal(text[:n], &m)
}

// maxRoutes is how many files one message can carry (SCM_MAX_FD).
const maxRoutes = 253

// sockets returns the paths of the machine's Unix sockets, which a network namespace does
// not isolate. A service behind such a socket, such as a container engine, may act for
// whoever asks.
func sockets() []string {
	table, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return nil
	}
	var out []string
	for line := range bytes.Lines(table) {
		fields := bytes.Fields(line)
		if len(fields) < 8 || fields[7][0] != '/' {
			continue
		}
		path := string(bytes.TrimRight(line[bytes.IndexByte(line, '/'):], "\n"))
		if stat, err := os.Stat(path); err == nil && stat.Mode()&os.ModeSocket != 0 && !slices.Contains(out, path) {
			out = append(out, path)
		}
	}
	return out
}
