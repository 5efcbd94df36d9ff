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
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fulgurite/fulgurite/agent/container"
)

const (
	// containerStart is how long podman may take to start a container.
	containerStart = 2 * time.Minute
	// containerEnd is how long this process waits for podman to remove one after its first
	// process has ended.
	containerEnd = 30 * time.Second
	// killed is how long the kernel may take to end all processes of a container.
	killed = 5 * time.Second
	// hurried is how long podman may take to give up when the container is no longer wanted.
	hurried = 2 * time.Second
)

// engine is podman while it runs the container of a sandbox. It is a child of this process,
// and ends when the container has been removed.
type engine struct {
	policy    Policy
	mounts    []mount
	variables chan imageVariables // once
	command   *exec.Cmd
	stderr    *os.File // in memory
	gone      chan struct{}
	watched   chan struct{} // closed when nothing is left to supervise
	first     int           // a descriptor of the first process, by which it can be signalled; 0 while there is none
}

// startContainer is Start for a policy with a container.
func startContainer(ctx context.Context, p Policy, args []string, files [3]*os.File) (*Sandbox, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: the worker is not root, and then nothing bounds the processes of a container: start it as root", ErrUnavailable)
	}
	if _, err := p.Container.podman().Command(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	program, err := ownProgram()
	if err != nil {
		return nil, err
	}
	if err := giveHome(p.Home, files); err != nil {
		return nil, err
	}
	control, err := listen(p)
	if err != nil {
		return nil, err
	}
	defer control.close()
	e, err := control.start(ctx, p, program)
	if err != nil {
		return nil, err
	}
	s, err := e.enter(ctx, control, args, files)
	if err != nil {
		control.close() // what podman may still start ends at once
		return nil, e.abandon(ctx, err)
	}
	go s.report()
	go e.supervise(s.reported)
	return s, nil
}

// ownProgram returns the path of this executable, which becomes the first process of the
// container. So it has to be shown there, and to work without the libraries of this machine.
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
	if !showable(path) {
		return "", fmt.Errorf("%w: the worker's program %q can't be shown in a container, because %s: move it", ErrUnavailable, path, whyNotShowable)
	}
	for _, part := range f.Progs {
		if part.Type == elf.PT_INTERP {
			return "", fmt.Errorf("%w: the worker's program %s needs libraries that an image may not have: build it with CGO_ENABLED=0", ErrUnavailable, path)
		}
	}
	return path, nil
}

// giveHome gives a home, and the pipes that are its inputs and outputs, to the user
// of the program. The program can then also open them by name, as /dev/stderr.
func giveHome(home string, files [3]*os.File) error {
	for _, file := range files {
		if stat, err := file.Stat(); err != nil || stat.Mode()&fs.ModeNamedPipe == 0 {
			continue // /dev/null is everybody's
		}
		if err := file.Chown(nobody, nobody); err != nil {
			return fmt.Errorf("give a pipe to the agent's user: %w", err)
		}
	}
	return filepath.WalkDir(home, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = os.Lchown(path, nobody, nobody)
		}
		if err != nil {
			return fmt.Errorf("give the home to the agent's user: %w", err)
		}
		return nil
	})
}

// controlDirectory is a directory in the home with what the first process of a container
// needs. It is removed before the program begins. Each container has another one, so that
// one that podman starts late, for an earlier attempt, finds nothing.
type controlDirectory struct {
	path     string
	opened   *os.File
	listener *net.UnixListener
}

// listen makes the control of a container.
func listen(p Policy) (*controlDirectory, error) {
	path, err := os.MkdirTemp(p.Home, ".fulgurite-control-")
	if err != nil {
		return nil, fmt.Errorf("make the control of a container: %w", err)
	}
	c := &controlDirectory{path: path}
	if err := c.fill(hosts(distinct(p.Routes), hostName)); err != nil {
		c.close()
		return nil, fmt.Errorf("make the control of a container: %w", err)
	}
	return c, nil
}

// fill makes the files of the control, and the socket on which the first process connects.
func (c *controlDirectory) fill(hosts string) (err error) {
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
	_ = os.RemoveAll(c.path) // the home is removed in any case
}

// start starts podman. It asks for the variables of the image until ctx ends.
func (c *controlDirectory) start(ctx context.Context, p Policy, program string) (*engine, error) {
	list, err := mounts(p, c.path)
	if err != nil {
		return nil, err
	}
	args, err := runArguments(p, list, program, c.path, inherited{hardLimit(unix.RLIMIT_NOFILE), hardLimit(unix.RLIMIT_NPROC)})
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("stderr", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file for what podman says: %w", err)
	}
	e := &engine{
		policy: p, mounts: list, variables: make(chan imageVariables, 1), stderr: os.NewFile(uintptr(fd), "stderr"), //nolint:gosec // a descriptor is small
		gone: make(chan struct{}), watched: make(chan struct{}),
	}
	podman := p.Container.podman()
	e.command, err = podman.Command(context.Background(), args...) // it outlives this process, to remove the container
	if err == nil {
		e.command.Stderr = e.stderr
		err = e.command.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: start a container: %w", ErrUnavailable, err), e.stderr.Close())
	}
	go func() {
		defer close(e.gone)
		for { // the shim takes its status
			err := unix.Waitid(unix.P_PID, e.command.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
			if !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}()
	go func() {
		list, err := podman.Variables(ctx, p.Container.Image)
		e.variables <- imageVariables{list, err}
	}()
	return e, nil
}

// hardLimit returns a limit that this process can't raise without a right.
func hardLimit(which int) uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(which, &limit); err != nil {
		return unix.RLIM_INFINITY
	}
	return limit.Max
}

// imageVariables are the environment variables of the image.
type imageVariables struct {
	list []string
	err  error
}

// unavailable returns why they are not known.
func (v imageVariables) unavailable() error {
	if v.err != nil {
		return fmt.Errorf("%w: find the variables of the image: %w", ErrUnavailable, v.err)
	}
	return nil
}

// usualPath is the PATH of a program in an image that has none.
const usualPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// withImage returns the environment of the program: what it is given, and the variables of
// the image that are not given.
func withImage(given, image []string) []string {
	out := slices.Clone(given)
	for _, one := range append(slices.Clone(image), usualPath) {
		name, _, _ := strings.Cut(one, "=")
		if !slices.ContainsFunc(out, func(other string) bool { return strings.HasPrefix(other, name+"=") }) {
			out = append(out, one)
		}
	}
	slices.Sort(out)
	return out
}

// containerSetup is what the first process of a container gets to know.
type containerSetup struct {
	Policy Policy `json:"policy"`
	// Writable are the directories in which the container may have file systems that can be
	// written.
	Writable    []string `json:"writable"`
	Args        []string `json:"args"`
	Environment []string `json:"environment"`
}

// enter waits for the first process of the container, gives it the program and its inputs
// and outputs, and returns when the program runs.
func (e *engine) enter(ctx context.Context, c *controlDirectory, args []string, files [3]*os.File) (*Sandbox, error) {
	control, err := e.connect(ctx, c)
	if err != nil {
		return nil, err
	}
	c.close() // nobody else can connect
	ended := make(chan struct{})
	dontEnd := context.AfterFunc(ctx, func() {
		defer close(ended)
		e.signal(syscall.SIGKILL)
	})
	defer func() {
		if !dontEnd() {
			<-ended
		}
	}()
	image := <-e.variables
	if err = image.unavailable(); err == nil {
		err = giveSetup(control.conn, e.setup(args, withImage(os.Environ(), image.list)), files)
	}
	if err != nil {
		return nil, errors.Join(err, control.conn.Close())
	}
	s := &Sandbox{Pid: control.pid, control: control.conn, engine: e, reported: make(chan struct{})}
	if err := s.establish(e.policy.Routes); err != nil {
		return nil, errors.Join(err, control.conn.Close())
	}
	if ctx.Err() != nil { // it has been killed, or is about to be
		s.relay.Close()
		return nil, errors.Join(context.Cause(ctx), control.conn.Close())
	}
	return s, nil
}

// connection is that of the first process.
type connection struct {
	conn *net.UnixConn
	pid  int
}

// connect waits until the first process has connected, and finds out which one it is.
func (e *engine) connect(ctx context.Context, c *controlDirectory) (connection, error) {
	conn, err := e.accept(ctx, c)
	if err != nil {
		return connection{}, err
	}
	pid, err := e.identify(conn)
	if err != nil {
		return connection{}, errors.Join(err, conn.Close())
	}
	return connection{conn, pid}, nil
}

// setup returns what the first process gets to know.
func (e *engine) setup(args, environment []string) containerSetup {
	out := containerSetup{Policy: e.inside(), Args: args, Environment: environment}
	for _, one := range e.mounts {
		if one.writable || one.source == "" {
			out.Writable = append(out.Writable, one.target)
		}
	}
	return out
}

// inside returns what the first process needs of the policy.
func (e *engine) inside() Policy {
	return Policy{Home: e.policy.Home, Directory: e.policy.Directory, Routes: e.policy.Routes, Limits: e.policy.Limits}
}

// accept returns the connection of the first process.
func (e *engine) accept(ctx context.Context, c *controlDirectory) (*net.UnixConn, error) {
	limited, cancel := context.WithTimeout(ctx, containerStart)
	defer cancel()
	go func() {
		select {
		case <-e.gone:
		case <-limited.Done():
		}
		_ = c.listener.SetDeadline(time.Unix(1, 0)) // nobody will connect
	}()
	conn, err := c.listener.AcceptUnix()
	if err == nil {
		return conn, nil
	}
	select {
	case <-e.gone:
	default:
		return nil, fmt.Errorf("%w: podman has started no container within %s: %s", ErrUnavailable, containerStart, e.said())
	}
	return nil, fmt.Errorf("%w: %s", ErrUnavailable, e.said())
}

// said returns the end of what podman has written to standard error.
func (e *engine) said() string {
	const most = 1000
	stat, err := e.stderr.Stat()
	if err != nil {
		return err.Error()
	}
	text := make([]byte, min(most, stat.Size()))
	n, _ := e.stderr.ReadAt(text, stat.Size()-int64(len(text)))
	if words := strings.Join(strings.Fields(string(text[:n])), " "); words != "" {
		return "podman: " + words
	}
	return "podman says nothing"
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
		return 0, fmt.Errorf("%w: podman runs its containers where this worker does not see their processes: run the worker beside it", ErrUnavailable)
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

// end ends all processes of the container, and waits until they have ended.
func (e *engine) end() {
	e.signal(syscall.SIGKILL)
	for deadline := time.Now().Add(killed); ; { // the first process ends after all others
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(e.first), Events: unix.POLLIN}}, int(max(0, time.Until(deadline).Milliseconds()))) //nolint:gosec // a descriptor is small
		if !errors.Is(err, unix.EINTR) || time.Now().After(deadline) {
			return
		}
	}
}

// supervise waits until the container has been removed. If podman has died, it ends and
// removes the container itself. If podman takes long, it goes on with that by itself.
func (e *engine) supervise(reported <-chan struct{}) {
	defer close(e.watched)
	select {
	case <-reported:
		e.await(containerEnd)
	case <-e.gone:
		e.signal(syscall.SIGKILL)
		<-reported
		_ = e.remove()
	}
}

// await waits until podman has ended, and reports whether it has.
func (e *engine) await(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-e.gone:
		return true
	case <-timer.C:
		return false
	}
}

// abandon ends a container that could not be entered or is no longer needed, and returns
// why. When ctx has ended, it does not wait long for podman.
func (e *engine) abandon(ctx context.Context, why error) error {
	limit := containerEnd
	if ctx.Err() != nil {
		limit, why = hurried, context.Cause(ctx)
	}
	if e.first > 0 {
		e.signal(syscall.SIGKILL)
	}
	if !e.await(limit) {
		_ = e.command.Process.Kill()
	}
	_ = e.command.Wait()
	if errors.Is(why, ErrUnavailable) {
		why = e.explain(why)
	}
	_ = e.remove()
	return errors.Join(why, e.close())
}

// explain adds that the image is missing, if podman says so.
func (e *engine) explain(why error) error {
	c, ctx := e.policy.Container, context.Background()
	if has, err := c.podman().HasImage(ctx, c.Image); has || err != nil {
		return why
	}
	here := "there is none of that name here"
	if id, err := c.podman().ImageID(ctx, c.ImageName); err == nil {
		here = "here that name means " + id
	}
	return fmt.Errorf("%w: podman has no image %s, which the run recorded for agent.image %s; %s: give this machine the same image", ErrUnavailable, c.Image, c.ImageName, here)
}

// remove removes the container, if it is still there.
func (e *engine) remove() error {
	name, err := container.Name(e.policy.Home)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), containerEnd)
	defer cancel()
	return e.policy.Container.podman().Remove(ctx, name)
}

func (e *engine) close() error {
	if e.first > 0 {
		_ = unix.Close(e.first)
		e.first = 0
	}
	return e.stderr.Close()
}

// CheckContainer starts a container with nothing in it and returns why that does not work,
// if so, or why ctx has ended. Package process starts the others.
func CheckContainer(ctx context.Context, c Container) error {
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
	e, err := control.start(ctx, p, program)
	if err != nil {
		return err
	}
	why := e.check(ctx, control, files)
	control.close()
	return e.abandon(ctx, why)
}

// check waits until the first process says that a program could begin.
func (e *engine) check(ctx context.Context, c *controlDirectory, files [3]*os.File) error {
	control, err := e.connect(ctx, c)
	if err != nil {
		return err
	}
	defer control.conn.Close()
	dontEnd := context.AfterFunc(ctx, func() { _ = control.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer dontEnd()
	image := <-e.variables
	if err := image.unavailable(); err != nil {
		return err
	}
	if err := giveSetup(control.conn, e.setup(nil, nil), files); err != nil {
		return err
	}
	m, opened, err := receive(control.conn)
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
