package sandbox

import (
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fulgurite/fulgurite/agent/container"
)

const (
	// containerStart is how long podman or docker may take to start a container.
	containerStart = 2 * time.Minute
	// containerEnd is how long they may take to remove it after its first process has ended.
	containerEnd = 30 * time.Second
)

// engine is podman or docker while it runs the container of a sandbox. It is a child of
// this process, and ends when the container has been removed.
type engine struct {
	policy  Policy
	command *exec.Cmd
	stderr  *os.File // in memory
	gone    chan struct{}
	watched chan struct{} // closed when nothing is left to supervise
	first   int           // a descriptor of the first process, by which it can be signalled; 0 while there is none
}

// startContainer is Start for a policy with a container.
func startContainer(p Policy, args []string, files [3]*os.File) (*Sandbox, error) {
	if _, err := p.Container.command(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	program, err := ownProgram()
	if err != nil {
		return nil, err
	}
	if err := giveHome(p.Home, files); err != nil {
		return nil, err
	}
	s, err := enterContainer(p, program, args, files)
	if errors.Is(err, errLeftOver) {
		s, err = enterContainer(p, program, args, files)
	}
	return s, err
}

// errLeftOver is wrapped when an earlier attempt at the rollout had left a container. It is
// removed then.
var errLeftOver = errors.New("another container has the name")

// enterContainer starts a container and a program in it.
func enterContainer(p Policy, program string, args []string, files [3]*os.File) (*Sandbox, error) {
	control, err := listen(p)
	if err != nil {
		return nil, err
	}
	defer control.close()
	e, err := control.start(p, program)
	if err != nil {
		return nil, err
	}
	s, err := e.enter(control, args, files)
	if err != nil {
		return nil, e.abandon(err)
	}
	go s.report()
	go e.supervise(s.reported)
	return s, nil
}

// ownProgram returns the path of this executable, which becomes the first process of the
// container and so has to work without the libraries of this machine.
func ownProgram() (string, error) {
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return "", fmt.Errorf("find own executable: %w", err)
	}
	f, err := elf.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%w: the worker's program %s was replaced: start the worker again", ErrUnavailable, strings.TrimSuffix(path, " (deleted)"))
	}
	if err != nil {
		return "", fmt.Errorf("read own executable: %w", err)
	}
	defer f.Close()
	for _, part := range f.Progs {
		if part.Type == elf.PT_INTERP {
			return "", fmt.Errorf("%w: the worker's program %s needs libraries that an image may not have: build it with CGO_ENABLED=0", ErrUnavailable, path)
		}
	}
	return path, nil
}

// giveHome gives a home of root, and the pipes that are its inputs and outputs, to the user
// of the program. The program can then also open them by name, as /dev/stderr.
func giveHome(home string, files [3]*os.File) error {
	if os.Geteuid() != 0 {
		return nil
	}
	u := user{0, 0}.inContainer()
	for _, file := range files {
		if stat, err := file.Stat(); err != nil || stat.Mode()&fs.ModeNamedPipe == 0 {
			continue // /dev/null is everybody's
		}
		if err := file.Chown(u.id, u.group); err != nil {
			return fmt.Errorf("give a pipe to the agent's user: %w", err)
		}
	}
	return filepath.WalkDir(home, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = os.Lchown(path, u.id, u.group)
		}
		if err != nil {
			return fmt.Errorf("give the home to the agent's user: %w", err)
		}
		return nil
	})
}

// controlDirectory is a directory in the home with what the first process of a container
// needs. It is removed before the program begins.
type controlDirectory struct {
	path     string
	opened   *os.File
	listener *net.UnixListener
}

// listen makes the control of a container.
func listen(p Policy) (*controlDirectory, error) {
	c := &controlDirectory{path: filepath.Join(p.Home, ".fulgurite-control")}
	err := c.make(hosts(distinct(p.Routes), hostName))
	if err != nil {
		c.close()
		return nil, fmt.Errorf("make the control of a container: %w", err)
	}
	return c, nil
}

func (c *controlDirectory) make(hosts string) (err error) {
	if err := os.Mkdir(c.path, 0o700); err != nil {
		return err
	}
	for name, text := range map[string]string{hostsName: hosts, emptyName: ""} {
		path := filepath.Join(c.path, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
		if err := os.Chmod(path, 0o444); err != nil { //nolint:gosec // nothing in it is secret
			return err
		}
	}
	if c.opened, err = os.Open(c.path); err != nil {
		return err
	}
	// The address of a socket is short, and the path of a home may be long.
	address := fmt.Sprintf("/proc/self/fd/%d/%s", c.opened.Fd(), socketName)
	if c.listener, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: address, Net: "unixpacket"}); err != nil {
		return err
	}
	if err := os.Chmod(filepath.Join(c.path, socketName), 0o666); err != nil { //nolint:gosec // the directory is closed on this machine
		return err
	}
	return os.Chmod(c.path, 0o755) //nolint:gosec // in the container, the program's user has to find the socket; the home is closed
}

// close removes the control. The container goes on showing its directory, which is empty.
func (c *controlDirectory) close() {
	if c.listener != nil {
		_ = c.listener.Close()
	}
	if c.opened != nil {
		_ = c.opened.Close()
	}
	_ = os.RemoveAll(c.path)
}

// start starts podman or docker. An earlier attempt may have left a container.
func (c *controlDirectory) start(p Policy, program string) (*engine, error) {
	args, err := runArguments(p, program, c.path, user{os.Geteuid(), os.Getegid()}, inherited{hardLimit(unix.RLIMIT_NOFILE), hardLimit(unix.RLIMIT_NPROC)})
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("stderr", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file for what %s says: %w", p.Container.Program, err)
	}
	e := &engine{policy: p, stderr: os.NewFile(uintptr(fd), "stderr")} //nolint:gosec // a descriptor is small
	e.command, err = p.Container.command(args...)
	if err == nil {
		e.command.Stderr = e.stderr
		err = e.command.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: start a container: %w", ErrUnavailable, err), e.stderr.Close())
	}
	e.gone, e.watched = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(e.gone)
		for { // the shim takes its status
			err := unix.Waitid(unix.P_PID, e.command.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
			if !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}()
	return e, nil
}

// hardLimit returns a limit that this process can't raise, 0 if there is none.
func hardLimit(which int) uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(which, &limit); err != nil || limit.Max == unix.RLIM_INFINITY {
		return 0
	}
	return limit.Max
}

// command returns a command of podman or docker. It does not end with this process, which
// may be killed, so that it can still remove the container.
func (c *Container) command(args ...string) (*exec.Cmd, error) {
	program, err := lookPath(c.Program, c.Environment)
	if err != nil {
		return nil, err
	}
	out := exec.Command(program, args...)
	out.Env, out.Dir = c.Environment, "/"
	out.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return out, nil
}

// lookPath finds a program in the PATH of an environment.
func lookPath(name string, environment []string) (string, error) {
	for _, one := range environment {
		list, ok := strings.CutPrefix(one, "PATH=")
		if !ok {
			continue
		}
		for _, directory := range filepath.SplitList(list) {
			if path, err := exec.LookPath(filepath.Join(directory, name)); err == nil && filepath.IsAbs(path) {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("there is no program %s", name)
}

// containerSetup is what the first process of a container gets to know.
type containerSetup struct {
	Policy      Policy   `json:"policy"`
	Args        []string `json:"args"`
	Environment []string `json:"environment"`
}

// enter waits for the first process of the container, gives it the program and its inputs
// and outputs, and returns when the program runs.
func (e *engine) enter(c *controlDirectory, args []string, files [3]*os.File) (*Sandbox, error) {
	control, err := e.accept(c)
	if err != nil {
		return nil, err
	}
	c.close() // nobody else can connect
	pid, err := e.identify(control)
	if err == nil {
		err = giveSetup(control, containerSetup{e.inside(), args, os.Environ()}, files)
	}
	if err != nil {
		return nil, errors.Join(err, control.Close())
	}
	s := &Sandbox{Pid: pid, control: control, engine: e, reported: make(chan struct{})}
	if err := s.establish(e.policy.Routes); err != nil {
		return nil, errors.Join(err, control.Close())
	}
	return s, nil
}

// inside returns what the first process needs of the policy.
func (e *engine) inside() Policy {
	return Policy{Directory: e.policy.Directory, Routes: e.policy.Routes, Limits: e.policy.Limits}
}

// accept returns the connection of the first process.
func (e *engine) accept(c *controlDirectory) (*net.UnixConn, error) {
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-e.gone:
			_ = c.listener.SetDeadline(time.Unix(1, 0)) // nobody will connect
		case <-ended:
		}
	}()
	if err := c.listener.SetDeadline(time.Now().Add(containerStart)); err != nil {
		return nil, err
	}
	conn, err := c.listener.AcceptUnix()
	if err != nil {
		select {
		case <-e.gone:
			said := e.said()
			if text := strings.ToLower(said); strings.Contains(text, "already in use") {
				return nil, fmt.Errorf("%w: %w: %s", ErrUnavailable, errLeftOver, said)
			}
			return nil, fmt.Errorf("%w: %s", ErrUnavailable, said)
		default:
			return nil, fmt.Errorf("%w: %s has started no container within %s: %s", ErrUnavailable, e.policy.Container.Program, containerStart, e.said())
		}
	}
	return conn, nil
}

// said returns the end of what podman or docker has written to standard error.
func (e *engine) said() string {
	const most = 1000
	stat, err := e.stderr.Stat()
	if err != nil {
		return err.Error()
	}
	text := make([]byte, min(most, stat.Size()))
	n, _ := e.stderr.ReadAt(text, stat.Size()-int64(len(text)))
	if words := strings.Join(strings.Fields(string(text[:n])), " "); words != "" {
		return e.policy.Container.Program + ": " + words
	}
	return e.policy.Container.Program + " says nothing"
}

// identify returns the process id of the first process on this machine.
func (e *engine) identify(control *net.UnixConn) (int, error) {
	raw, err := control.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	if failure := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) //nolint:gosec // a descriptor is small
	}); err == nil {
		err = failure
	}
	if err != nil {
		return 0, fmt.Errorf("ask who the first process of a container is: %w", err)
	}
	if peer.Pid <= 0 {
		return 0, fmt.Errorf("%w: %s runs its containers where this worker does not see their processes: run the worker beside it", ErrUnavailable, e.policy.Container.Program)
	}
	if e.first, err = unix.PidfdOpen(int(peer.Pid), 0); err != nil {
		return 0, fmt.Errorf("open the first process of a container: %w", err)
	}
	return int(peer.Pid), nil
}

// giveSetup sends the setup and open files to the first process.
func giveSetup(control *net.UnixConn, setup containerSetup, files [3]*os.File) error {
	text, err := json.Marshal(setup)
	if err != nil {
		return fmt.Errorf("encode setup of a container: %w", err)
	}
	reading, writing, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make the pipe for a setup: %w", err)
	}
	defer reading.Close()
	rights := unix.UnixRights(int(files[0].Fd()), int(files[1].Fd()), int(files[2].Fd()), int(reading.Fd()))
	if _, _, err := control.WriteMsgUnix([]byte("{}"), rights, nil); err != nil {
		return errors.Join(fmt.Errorf("give a container its setup: %w", err), writing.Close())
	}
	go func() { // if the process dies, its end is noticed on the control
		_, _ = writing.Write(text)
		_ = writing.Close()
	}()
	return nil
}

// signal sends a signal to the first process. It passes signals on to the program; SIGKILL
// ends all processes of the container.
func (e *engine) signal(s syscall.Signal) { _ = unix.PidfdSendSignal(e.first, s, nil, 0) }

// supervise ends podman or docker if it does not end by itself after the first process has.
func (e *engine) supervise(reported <-chan struct{}) {
	defer close(e.watched)
	<-reported
	e.signal(syscall.SIGKILL) // it has lost its control if it still runs
	timer := time.NewTimer(containerEnd)
	defer timer.Stop()
	select {
	case <-e.gone:
	case <-timer.C:
		_ = e.command.Process.Kill()
	}
}

// abandon ends a container that could not be entered or is no longer needed, and returns
// why.
func (e *engine) abandon(why error) error {
	if e.first > 0 {
		e.signal(syscall.SIGKILL)
	}
	timer := time.NewTimer(containerEnd)
	defer timer.Stop()
	select {
	case <-e.gone:
	case <-timer.C:
		_ = e.command.Process.Kill()
	}
	_ = e.command.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), containerEnd)
	defer cancel()
	if errors.Is(why, ErrUnavailable) {
		why = e.explain(why)
	}
	_ = e.remove(ctx)
	return errors.Join(why, e.close())
}

// explain adds that the image is missing, if it is.
func (e *engine) explain(why error) error {
	c := e.policy.Container
	find, err := c.command("image", "inspect", "--format", "{{.Id}}", c.Image)
	if err != nil || find.Run() == nil {
		return why
	}
	here := "there is none of that name here"
	if find, err = c.command("image", "inspect", "--format", "{{.Id}}", c.ImageName); err == nil {
		if text, err := find.Output(); err == nil {
			here = "here that name means " + strings.TrimSpace(string(text))
		}
	}
	return fmt.Errorf("%w: %s has no image %s, which the run recorded for agent.image %s; %s: give this machine the same image", ErrUnavailable, c.Program, c.Image, c.ImageName, here)
}

// remove removes the container, if it is still there.
func (e *engine) remove(ctx context.Context) error {
	rm, err := e.policy.Container.command("rm", "--force", "--volumes", container.Name(e.policy.Home))
	if err != nil {
		return err
	}
	if err := rm.Start(); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = rm.Process.Kill() })()
	return rm.Wait()
}

func (e *engine) close() error {
	if e.first > 0 {
		_ = unix.Close(e.first)
		e.first = 0
	}
	return e.stderr.Close()
}

// CheckContainer starts a container with nothing in it and returns why that does not work,
// if so. Package process starts the others.
func CheckContainer(ctx context.Context, c Container) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	home, err := os.MkdirTemp("", "fulgurite-check-")
	if err != nil {
		return fmt.Errorf("make a directory for a container: %w", err)
	}
	defer os.RemoveAll(home)
	program, err := ownProgram()
	if err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	p := Policy{Home: home, Directory: home, Container: &c}
	files := [3]*os.File{null, null, null}
	if err := giveHome(home, files); err != nil {
		return err
	}
	control, err := listen(p)
	if err != nil {
		return err
	}
	defer control.close()
	e, err := control.start(p, program)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = e.command.Process.Kill() })()
	return e.abandon(e.check(control, files))
}

// check waits until the first process says that a program could begin.
func (e *engine) check(c *controlDirectory, files [3]*os.File) error {
	control, err := e.accept(c)
	if err != nil {
		return err
	}
	defer control.Close()
	if _, err := e.identify(control); err != nil {
		return err
	}
	if err := giveSetup(control, containerSetup{Policy: e.inside()}, files); err != nil {
		return err
	}
	m, opened, err := receive(control)
	for _, f := range opened {
		_ = f.Close()
	}
	switch {
	case err != nil:
		return fmt.Errorf("%w: its first process died before it began: %w", ErrUnavailable, err)
	case m.Unavailable+m.Error != "":
		return fmt.Errorf("%w: %s", ErrUnavailable, m.Unavailable+m.Error)
	}
	return nil
}
