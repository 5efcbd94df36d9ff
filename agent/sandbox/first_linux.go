package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// policyFD is the pipe from which the first process reads its policy.
const policyFD = controlFD + 1

// init makes this process the first one of a sandbox, or one that checks the machine, and
// doesn't return, if it was started as one.
func init() {
	if len(os.Args) == 2 && os.Args[1] == checkCommand {
		os.Exit(mainCheck())
	}
	if len(os.Args) == 3 && os.Args[1] == containerCommand && os.Getpid() == 1 {
		runtime.LockOSThread() // as below
		os.Exit(mainContainer(os.Args[2]))
	}
	if len(os.Args) < 2 || os.Args[1] != command || os.Getpid() != 1 {
		return
	}
	// The program gets nothing that the worker was started with, such as a directory.
	if err := unix.CloseRange(controlFD, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		unix.CloseOnExec(controlFD)
		os.Exit(first{control: os.NewFile(controlFD, "control")}.fail(message{Unavailable: fmt.Sprintf("close what it inherits: %v", err)}))
	}
	// Rights, and that there will be no new ones, belong to a thread. The program inherits
	// them from this one.
	runtime.LockOSThread()
	f := first{control: os.NewFile(controlFD, "control")}
	os.Exit(f.run(os.Args[2:]))
}

// first is the first process of a sandbox. It prepares the sandbox, gives its rights up,
// starts the program and reaps processes. When it exits, the kernel ends all others.
type first struct{ control *os.File }

func (f first) run(args []string) int {
	var p Policy
	text, err := io.ReadAll(os.NewFile(policyFD, "policy"))
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		return f.fail(message{Unavailable: fmt.Sprintf("read policy: %v", err)})
	}
	listeners, err := f.prepare(p, args)
	if bad := (impossible{}); errors.As(err, &bad) {
		return f.fail(message{Error: bad.Error()})
	}
	if err != nil {
		return f.fail(message{Unavailable: err.Error()})
	}
	if err := f.send(message{Ready: true}, listeners); err != nil {
		return 1
	}
	for _, l := range listeners {
		_ = l.Close() // accepted outside only
	}
	if len(args) == 0 {
		return 0 // only a check
	}
	if err := os.Chdir(p.Directory); err != nil {
		return f.fail(message{Error: fmt.Sprintf("enter agent.directory: %v", err)})
	}
	return f.start(args, nil, [3]*os.File{os.Stdin, os.Stdout, os.Stderr})
}

// prepare makes the sandbox around this process.
func (f first) prepare(p Policy, args []string) ([]*os.File, error) {
	// The kernel ends what is in the sandbox before anything else when memory runs out. The
	// program inherits this.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	machine, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	routes := distinct(p.Routes)
	listeners, err := network(routes)
	if err != nil {
		return nil, fmt.Errorf("make its network: %w", err)
	}
	if err := files(p, program(args), hosts(routes, machine)); err != nil {
		return nil, fmt.Errorf("make its files: %w", err)
	}
	// Without a session keyring of its own, it would have that of the worker. Containers may
	// forbid the call; the filter refuses to use keyrings in any case.
	_, _, no := unix.Syscall(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0)
	if no != 0 && no != unix.ENOSYS && no != unix.EPERM {
		return nil, fmt.Errorf("give it a keyring of its own: %w", no)
	}
	if err := p.Limits.apply(true); err != nil {
		return nil, fmt.Errorf("limit it: %w", err)
	}
	if err := giveUpRights(); err != nil {
		return nil, fmt.Errorf("give up rights: %w", err)
	}
	if err := filterSystemCalls(); err != nil {
		return nil, fmt.Errorf("filter its system calls: %w", err)
	}
	return listeners, nil
}

// start starts the program in its own process group, reaps until it has ended, and returns
// its exit code. Without an environment the program has that of this process.
func (f first) start(args, environment []string, files [3]*os.File) int {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	c := exec.Command(args[0], args[1:]...)
	c.Env, c.Stdin, c.Stdout, c.Stderr = environment, files[0], files[1], files[2]
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		return f.fail(message{Error: err.Error()})
	}
	if f.send(message{Started: true}, nil) != nil {
		return 1
	}
	// Only the program keeps its input and outputs open, so that their ends are noticed.
	for _, file := range files {
		_ = file.Close()
	}
	pid := c.Process.Pid
	go func() {
		for s := range signals { // of the supervisor, which asks the program to end
			_ = syscall.Kill(-pid, s.(syscall.Signal))
		}
	}()
	status, err := reap(pid)
	if err != nil {
		return 1
	}
	end := message{Ended: true, Code: status.ExitStatus()}
	if status.Signaled() {
		end.Code, end.Signal = 128+int(status.Signal()), int(status.Signal())
	}
	_ = f.send(end, nil)
	return end.Code
}

// reap waits for processes of the sandbox until the given one has ended.
func reap(pid int) (syscall.WaitStatus, error) {
	for {
		var status syscall.WaitStatus
		switch ended, err := syscall.Wait4(-1, &status, 0, nil); {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 0, err
		case ended == pid:
			return status, nil
		}
	}
}

func (f first) fail(m message) int {
	_ = f.send(m, nil) // nobody else could be told
	return 1
}

// send sends a message with open files.
func (f first) send(m message, files []*os.File) error {
	if len(m.Unavailable) > messageBytes/4 {
		m.Unavailable = m.Unavailable[:messageBytes/4]
	}
	if len(m.Error) > messageBytes/4 {
		m.Error = m.Error[:messageBytes/4]
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, file := range files {
			fds[i] = int(file.Fd()) //nolint:gosec // a descriptor is small
		}
		rights = unix.UnixRights(fds...)
	}
	for {
		err = unix.Sendmsg(int(f.control.Fd()), text, rights, nil, unix.MSG_NOSIGNAL) //nolint:gosec // a descriptor is small
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// network brings the loopback interface up, gives it the addresses of the routes, and
// returns a listener for each of them.
func network(routes []Route) ([]*os.File, error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(socket)
	up, err := unix.NewIfreq("lo")
	if err != nil {
		return nil, err
	}
	up.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, up); err != nil {
		return nil, fmt.Errorf("bring its loopback interface up: %w", err)
	}
	at := addresses(routes)
	added := map[string]bool{}
	for i, r := range routes {
		ip := at[r.Host]
		if !ip.IsLoopback() && !added[r.Host] {
			added[r.Host] = true
			if err := addAddress(socket, i, ip.AsSlice()); err != nil {
				return nil, fmt.Errorf("add address %s: %w", ip, err)
			}
		}
	}
	return listeners(routes)
}

// listeners returns a listener for each of the routes.
func listeners(routes []Route) ([]*os.File, error) {
	at := addresses(routes)
	var out []*os.File
	for _, r := range routes {
		ip := at[r.Host]
		l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: ip.AsSlice(), Port: r.Port})
		if err != nil {
			return nil, fmt.Errorf("listen for %s: %w", r, err)
		}
		file, err := l.File()
		if err = errors.Join(err, l.Close()); err != nil {
			return nil, fmt.Errorf("listen for %s: %w", r, err)
		}
		out = append(out, file)
	}
	return out, nil
}

// addAddress gives the loopback interface another address, without a network around it.
func addAddress(socket, index int, ip []byte) error {
	for _, set := range []struct {
		request uint
		value   []byte
	}{{unix.SIOCSIFADDR, ip}, {unix.SIOCSIFNETMASK, []byte{255, 255, 255, 255}}} {
		r, err := unix.NewIfreq(fmt.Sprintf("lo:%d", index))
		if err != nil {
			return err
		}
		if err := r.SetInet4Addr(set.value); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(socket, set.request, r); err != nil {
			return err
		}
	}
	return nil
}

// apply limits this process and what it will start. The kernel counts the processes of a
// user; they are limited by that only if ownUser says that the user is the sandbox's alone.
func (l Limits) apply(ownUser bool) error {
	bytes := uint64(l.fileBytes()) //nolint:gosec // validated
	for _, of := range []struct {
		what  string
		which int
		value uint64
	}{
		// The threads of the first process count, too.
		{"processes", unix.RLIMIT_NPROC, uint64(l.MaxProcesses() + ownThreads)}, //nolint:gosec // validated
		{"open files", unix.RLIMIT_NOFILE, openFiles},
		{"size of files", unix.RLIMIT_FSIZE, bytes},
		{"core dumps", unix.RLIMIT_CORE, 0},
	} {
		if of.which == unix.RLIMIT_NPROC && !ownUser {
			continue
		}
		var now syscall.Rlimit
		if err := syscall.Getrlimit(of.which, &now); err != nil {
			return fmt.Errorf("%s: %w", of.what, err)
		}
		value := min(of.value, now.Max)
		if err := syscall.Setrlimit(of.which, &syscall.Rlimit{Cur: value, Max: value}); err != nil {
			return fmt.Errorf("%s: %w", of.what, err)
		}
	}
	return nil
}

// ownThreads is how many threads the first process may have.
const ownThreads = 32

// giveUpRights leaves this thread, and what it starts, no right but those of its user.
// Other processes of the sandbox can't look into this one.
func giveUpRights() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		// A kernel that has fewer rights refuses the others.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	none := [2]unix.CapUserData{}
	if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}
