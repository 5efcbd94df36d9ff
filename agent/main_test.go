package agent_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/agent/process"
)

// The test binary is also the shim, the agents and the worker of its tests.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "play" {
		play(os.Args[2:])
		syscall.Exit(0) // without a word about coverage on standard error
	}
	goleak.VerifyTestMain(m)
}

// acting returns the command line of this binary in one of its roles.
func acting(role ...string) []string {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return append([]string{self, "play"}, role...)
}

func play(role []string) {
	switch role[0] {
	case "echo":
		var task agent.Task
		must(json.NewDecoder(os.Stdin).Decode(&task))
		fmt.Printf("thinking about %s\n%s \n\n  \n", task.ID, task.Input)
		fmt.Fprint(os.Stderr, "a remark")
	case "surroundings":
		directory, err := os.Getwd()
		must(err)
		must(json.NewEncoder(os.Stdout).Encode(append(os.Environ(), "CWD="+directory)))
	case "descriptors":
		for fd := 3; fd < 10; fd++ {
			file, err := os.Readlink(fmt.Sprint("/proc/self/fd/", fd))
			if err == nil && (strings.HasPrefix(file, "pipe:") || strings.HasSuffix(file, ".lock")) {
				fmt.Println("inherited", file)
			}
		}
	case "litter":
		home := os.Getenv("HOME")
		entries, err := os.ReadDir(home)
		must(err)
		must(os.MkdirAll(home+"/locked", 0o700))
		must(os.WriteFile(home+"/locked/file", nil, 0o600))
		must(os.Chmod(home+"/locked", 0o500))
		fmt.Println(len(entries))
	case "exit":
		code, err := strconv.Atoi(role[1])
		must(err)
		fmt.Println("not an answer")
		fmt.Fprintln(os.Stderr, strings.Repeat("noise ", 5000)+"the reason")
		syscall.Exit(code)
	case "signal":
		must(syscall.Kill(os.Getpid(), syscall.SIGSEGV))
		select {}
	case "suicide":
		must(syscall.Kill(os.Getpid(), syscall.SIGKILL))
		select {}
	case "tools":
		playTools(role[1])
	case "eat":
		eat(role[1], role[2])
	case "share":
		share(role[1])
	case "daemon":
		playDaemon(role[1])
	case "flood":
		page := []byte(strings.Repeat("x", 1<<20))
		for range 1 << 10 {
			if _, err := os.Stdout.Write(page); err != nil {
				os.Exit(9)
			}
		}
	case "hang":
		hang(reportAlive("hang"))
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		hang(reportAlive("stubborn"))
	case "parent":
		playParent(role[1])
	case "child":
		hang(reportAlive(role[1]))
	case "worker":
		playWorker(role[1])
	case "closer":
		playCloser(role[1])
	case "launch":
		playLaunch()
	case "concealed", "plain":
		playConceal(role[0] == "concealed")
	case "attempts":
		playAttempts(role[1:])
	case "bomb":
		playBomb()
	case "stream":
		playStream(role[1])
	case "isolate":
		playIsolate()
	case "unable":
		playUnable(role[1], role[2])
	case "spin":
		playSpin()
	case "remain":
		conn, err := net.Dial("tcp", os.Getenv("LIVENESS"))
		must(err)
		_, err = fmt.Fprintln(conn, "remain", os.Getppid())
		must(err)
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		<-asked // it goes on when nobody is connected any more
		must(conn.Close())
	case "work":
		for { //nolint:staticcheck // it uses a processor
		}
	case "peek":
		playPeek(role[1])
	default:
		panic("no role " + role[0])
	}
}

// playParent starts a child in its group and one in a new session, waits until both have
// reported, and then returns or hangs.
func playParent(then string) {
	for _, name := range []string{"child", "runaway"} {
		args := acting("child", name)
		c := exec.Command(args[0], args[1:]...)
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: name == "runaway"}
		out, err := c.StdoutPipe()
		must(err)
		must(c.Start())
		_, err = bufio.NewReader(out).ReadString('\n')
		must(err)
	}
	conn := reportAlive("parent")
	if then == "hang" {
		hang(conn)
	}
	fmt.Println("done")
}

// playDaemon forks twice, each time into a new session, and leaves its grandchild
// orphaned.
func playDaemon(generation string) {
	if generation == "3" {
		hang(reportAlive("daemon"))
		return
	}
	next := map[string]string{"1": "2", "2": "3"}[generation]
	args := acting("daemon", next)
	c := exec.Command(args[0], args[1:]...)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if generation == "1" {
		must(c.Run()) // until no process is left between it and the grandchild
		hang(reportAlive("parent"))
		return
	}
	must(c.Start())
}

// eat takes MiB of memory in each of n processes, and holds on to it.
func eat(n, mib string) {
	count, err := strconv.Atoi(n)
	must(err)
	size, err := strconv.Atoi(mib)
	must(err)
	for range count - 1 {
		args := acting("eat", "1", mib)
		c := exec.Command(args[0], args[1:]...)
		must(c.Start())
	}
	meal := make([]byte, size<<20)
	for i := 0; i < len(meal); i += 4 << 10 {
		meal[i] = 1
	}
	hang(reportAlive("eater"))
	meal[0] = 2
}

// share maps one file of 128 MiB in six processes, and ends when all have read it.
func share(path string) {
	child := path == "child"
	path = os.Getenv("HOME") + "/shared"
	if !child {
		file, err := os.Create(path)
		must(err)
		page := make([]byte, 1<<20) // the detector takes several times what is written at once
		for range 128 {
			_, err = file.Write(page)
			must(err)
		}
		must(file.Close())
		for range 5 {
			args := acting("share", "child")
			c := exec.Command(args[0], args[1:]...)
			must(c.Start())
		}
	}
	f, err := os.Open(path)
	must(err)
	pages, err := syscall.Mmap(int(f.Fd()), 0, 128<<20, syscall.PROT_READ, syscall.MAP_SHARED)
	must(err)
	for i := 0; i < len(pages); i += 4 << 10 {
		if pages[i] != 0 {
			panic("not what was written")
		}
	}
	hang(reportAlive("sharer" + strconv.Itoa(os.Getpid())))
}

// playWorker launches an agent that hangs, and is killed while it does.
func playWorker(scratch string) {
	c := agent.Command{Args: acting("parent", "hang"), Scratch: scratch}
	if os.Getenv("ISOLATED") != "" {
		c.Isolation = &agent.Isolation{Reach: []string{os.Getenv("LIVENESS")}}
	}
	if image := os.Getenv("IMAGE"); image != "" {
		c.Args = []string{"agent", "play", "remain"}
		c.Isolation.Container = &agent.Container{Image: image, Name: image}
	}
	j := job("worker")
	j.Environment = map[string]string{"LIVENESS": os.Getenv("LIVENESS")}
	_, err := c.Launch(context.Background(), j)
	fmt.Println(err)
}

// playCloser has a home with many files, and closes it.
func playCloser(scratch string) {
	home, err := process.OpenHome(context.Background(), scratch, process.Owner{Attempt: 1}, job("closer").Address.RolloutID)
	must(err)
	for i := range 20_000 {
		must(os.WriteFile(filepath.Join(home.Path, strconv.Itoa(i)), nil, 0o600))
	}
	fmt.Println("closing")
	fmt.Println(home.Close())
}

// reportAlive tells the test that this process is alive, by a connection that ends with
// it.
func reportAlive(name string) net.Conn {
	conn, err := net.Dial("tcp", os.Getenv("LIVENESS"))
	must(err)
	_, err = fmt.Fprintln(conn, name, os.Getppid())
	must(err)
	_, err = bufio.NewReader(conn).ReadString('\n') // the test has seen it
	must(err)
	fmt.Println("reported")
	return conn
}

// hang does nothing for as long as the test lives.
func hang(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

func must(err error) {
	if err != nil {
		panic(err)
	}
}
