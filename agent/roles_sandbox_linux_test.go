package agent_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/agent/sandbox"
)

// playAttempts tries each "verb argument" and prints as JSON what came of it: "done", or
// what it read, or the error.
func playAttempts(tries []string) {
	out := map[string]string{}
	for _, try := range tries {
		verb, argument, _ := strings.Cut(try, " ")
		text, err := escapes()[verb](argument)
		if err != nil {
			text = "error: " + err.Error()
		}
		out[try] = text
	}
	must(json.NewEncoder(os.Stdout).Encode(out))
}

// escapes returns what an agent may try, by verb.
func escapes() map[string]func(string) (string, error) {
	return map[string]func(string) (string, error){
		"read": func(path string) (string, error) {
			text, err := os.ReadFile(path)
			return string(text), err
		},
		"list": func(path string) (string, error) {
			entries, err := os.ReadDir(path)
			var names []string
			for _, e := range entries {
				names = append(names, e.Name())
			}
			return strings.Join(names, " "), err
		},
		"write":    write,
		"dial":     func(address string) (string, error) { return dial("tcp", address) },
		"unix":     func(path string) (string, error) { return dial("unix", path) },
		"send":     send,
		"environs": findEnvironment,
		"pids": func(string) (string, error) {
			pids, _ := filepath.Glob("/proc/[0-9]*")
			return strconv.Itoa(len(pids)), nil
		},
		"kill": func(pid string) (string, error) {
			n, err := strconv.Atoi(pid)
			must(err)
			return "done", syscall.Kill(n, 0)
		},
		"trace": func(pid string) (string, error) {
			n, err := strconv.Atoi(pid)
			must(err)
			return "done", syscall.PtraceAttach(n)
		},
		"remount": func(path string) (string, error) {
			return "done", unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_BIND, "")
		},
		"unmount": func(path string) (string, error) { return "done", unix.Unmount(path, unix.MNT_DETACH) },
		"node": func(path string) (string, error) {
			return "done", unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(1, 0)))
		},
		"namespace": func(string) (string, error) {
			c := exec.Command("/bin/true")
			c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
			return "done", c.Run()
		},
		"variable": func(name string) (string, error) {
			value, ok := os.LookupEnv(name)
			if !ok {
				return "", errors.New("there is no variable " + name)
			}
			return value, nil
		},
		"uid": func(string) (string, error) { return strconv.Itoa(os.Getuid()), nil },
		"rights": func(string) (string, error) {
			status, err := os.ReadFile("/proc/self/status")
			var out []string
			for line := range strings.Lines(string(status)) {
				if strings.HasPrefix(line, "Cap") || strings.HasPrefix(line, "NoNewPrivs") {
					out = append(out, strings.Join(strings.Fields(line), ""))
				}
			}
			return strings.Join(out, " "), err
		},
		"files": func(string) (string, error) {
			var limit syscall.Rlimit
			err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
			return strconv.FormatUint(limit.Max, 10), err
		},
		"big": func(size string) (string, error) {
			n, err := strconv.ParseInt(size, 10, 64)
			must(err)
			path := filepath.Join(os.Getenv("HOME"), "big")
			f, err := os.Create(path)
			must(err)
			_, err = f.WriteAt([]byte{1}, n-1)
			return "done", err
		},
		"socket": func(family string) (string, error) {
			n, err := strconv.Atoi(family)
			must(err)
			fd, err := unix.Socket(n, unix.SOCK_STREAM, 0)
			if err == nil {
				_ = unix.Close(fd)
			}
			return "done", err
		},
		"call": func(number string) (string, error) {
			n, err := strconv.Atoi(number)
			must(err)
			if _, _, no := unix.Syscall(uintptr(n), 0, 0, 0); no != 0 {
				return "", no
			}
			return "done", nil
		},
		"lookup": func(name string) (string, error) {
			began := time.Now()
			_, err := net.LookupHost(name)
			if took := time.Since(began); took > 2*time.Second {
				return "", fmt.Errorf("it took %s", took)
			}
			return "done", err
		},
	}
}

func write(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return "", err
	}
	defer f.Close()
	_, err = f.WriteString("x")
	return "done", err
}

// dial connects, sends a line and returns the line that comes back.
func dial(network, address string) (string, error) {
	c, err := net.DialTimeout(network, address, 5*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	must(c.SetDeadline(time.Now().Add(5 * time.Second)))
	if _, err := io.WriteString(c, "ping\n"); err != nil {
		return "", err
	}
	reply := make([]byte, 64)
	n, err := c.Read(reply)
	return strings.TrimSpace(string(reply[:n])), err
}

// send sends some bytes and their end, and returns what comes back.
func send(address string) (string, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	must(c.SetDeadline(time.Now().Add(5 * time.Second)))
	if _, err := c.Write(make([]byte, 3_000_000)); err != nil {
		return "", err
	}
	must(c.(*net.TCPConn).CloseWrite())
	reply, err := io.ReadAll(c)
	return strings.TrimSpace(string(reply)), err
}

// findEnvironment looks for a text in the environment of every process but its own.
func findEnvironment(text string) (string, error) {
	paths, _ := filepath.Glob("/proc/[0-9]*/environ")
	own := "/proc/" + strconv.Itoa(os.Getpid()) + "/environ"
	for _, path := range slices.DeleteFunc(paths, func(p string) bool { return p == own }) {
		if environment, err := os.ReadFile(path); err == nil && bytes.Contains(environment, []byte(text)) {
			return path, nil
		}
	}
	return "", os.ErrNotExist
}

// playBomb starts processes that start processes, until none can be started any more, and
// hangs.
func playBomb() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM) // before no thread can be started any more; waiting for nothing would end the process
	for {
		args := acting("bomb")
		if exec.Command(args[0], args[1:]...).Start() != nil {
			<-asked
			return
		}
	}
}

// playUnable is a worker on a machine that can't isolate. It prints what came of an isolated
// agent, which would make a file, and what would help.
func playUnable(scratch, file string) {
	c := agent.Command{Args: []string{"touch", file}, Scratch: scratch, Isolation: &agent.Isolation{}}
	_, err := c.Launch(context.Background(), job("unable"))
	fmt.Println(err)
	fmt.Println(sandbox.Fix(sandbox.Check(context.Background())))
}

// playIsolate is the worker of an isolated agent that says who it is, whether it could write,
// and how many processes it sees.
func playIsolate() {
	scratch, err := os.MkdirTemp("", "fulgurite-isolate")
	must(err)
	defer func() { must(os.RemoveAll(scratch)) }()
	script := `echo user $(id -u), wrote $(touch /var/tmp/../fulgurite-test 2>/dev/null && echo yes || echo no), home $(touch here && echo yes), processes $(cd /proc && echo [0-9]* | wc -w)`
	got := <-start(context.Background(), agent.Command{Args: sh(script), Scratch: scratch, Isolation: &agent.Isolation{}}, job("isolate"))
	must(got.err)
	// The commands that check a machine are concealed from the agents that they start.
	must(agent.Conceal())
	stop := watchConcealed()
	must(sandbox.Check(context.Background()))
	must(stop())
	fmt.Println(got.result.Text, got.result.Message)
}

// watchConcealed looks whether others could see into this process at any time until the
// returned function is called, which says so.
func watchConcealed() (stop func() error) {
	ended, result := make(chan struct{}), make(chan error)
	go func() {
		for {
			select {
			case <-ended:
				result <- nil
				return
			default:
			}
			if dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err == nil && dumpable == 1 {
				<-ended
				result <- errors.New("others could see into the process")
				return
			}
		}
	}()
	return func() error {
		close(ended)
		return <-result
	}
}

// playStream reads the first line of a streamed reply, says so to the server, and then
// reads the rest or closes the connection.
func playStream(then string) {
	reply, err := http.Get(os.Getenv("OPENAI_BASE_URL") + "/stream")
	must(err)
	lines := bufio.NewReader(reply.Body)
	first, err := lines.ReadString('\n')
	must(err)
	if then == "close" {
		must(reply.Body.Close())
		return
	}
	seen, err := http.Post(os.Getenv("OPENAI_BASE_URL")+"/seen", "text/plain", strings.NewReader(first))
	must(err)
	must(seen.Body.Close())
	rest, err := io.ReadAll(lines)
	must(err)
	fmt.Println(strings.TrimSpace(first), len(rest))
}

// playSpin uses a processor in two processes.
func playSpin() {
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			c := exec.Command("/bin/sh", "-c", "while :; do :; done")
			_ = c.Run()
		})
	}
	both.Wait()
}
