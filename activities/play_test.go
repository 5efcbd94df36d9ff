package activities_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/spec"
)

// commands launches the programs that specs name, in homes below a directory.
type commands string

func (c commands) Launcher(s spec.Spec) (agent.Launcher, error) {
	return agent.Command{Args: s.Agent.Command, Scratch: string(c)}, nil
}

// play is a program that fails in the way of its role, except for the task "b", which it
// solves. If the role begins with "ask", it first makes a model call.
func play(role []string) {
	var task agent.Task
	must(json.NewDecoder(os.Stdin).Decode(&task))
	if task.ID == "b" {
		fmt.Println("-3")
		return
	}
	if role[0] == "ask" {
		must(askModel("first"))
		role = role[1:]
	}
	switch role[0] {
	case "exit":
		fmt.Fprintln(os.Stderr, "the reason")
		syscall.Exit(3)
	case "crash":
		panic("a bug of mine")
	case "hang":
		hang(role[1])
	case "hang-once":
		if _, err := os.Stat(role[1]); err != nil {
			must(os.WriteFile(role[1], nil, 0o600))
			hang("0")
		}
		fmt.Println("42")
	case "suicide":
		must(syscall.Kill(os.Getpid(), syscall.SIGKILL))
		select {}
	case "flood":
		page := bytes.Repeat([]byte("x"), 1<<20)
		for range 1 << 10 {
			if _, err := os.Stdout.Write(page); err != nil {
				syscall.Exit(9)
			}
		}
	case "eat":
		var meals bytes.Buffer
		for {
			meals.Write(bytes.Repeat([]byte("x"), 1<<20))
		}
	case "orphan":
		self, err := os.Executable()
		must(err)
		c := exec.Command(self, "play", "hang", "0")
		c.Stdin = strings.NewReader("{}")
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		must(c.Start())
		fmt.Println("42")
	case "insist":
		for {
			_ = askModel("more")
		}
	case "slam":
		closeSocketEarly()
		fmt.Println("42")
	case "post":
		must(postTo(os.Getenv("FULGURITE_REWARD_URL"), role[1]))
	case "surroundings":
		directory, err := os.Getwd()
		must(err)
		host, err := os.Hostname()
		must(err)
		must(json.NewEncoder(os.Stdout).Encode(append(os.Environ(), "CWD="+directory, "HOST="+host)))
	default:
		panic("no role " + role[0])
	}
}

// hang makes calls and then does nothing more. calls is their number, or a file; with a
// file it makes one more call each time that it runs.
func hang(calls string) {
	n, err := strconv.Atoi(calls)
	if err != nil {
		ran, err := os.OpenFile(calls, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		must(err)
		_, err = ran.WriteString(".")
		must(err)
		stat, err := ran.Stat()
		must(err)
		n = int(stat.Size())
	}
	for i := range n {
		must(askModel(strconv.Itoa(i)))
	}
	for { // the runtime would report an empty select as a deadlock
		<-time.After(time.Hour)
	}
}

// closeSocketEarly makes two calls and closes its socket before the reply of the first and in
// the middle of that of the second.
func closeSocketEarly() {
	base, err := url.Parse(os.Getenv("OPENAI_BASE_URL"))
	must(err)
	for read := range 2 {
		conn, err := net.Dial("tcp", base.Host)
		must(err)
		body := `{"messages":[{"role":"user","content":"slam"}]}`
		_, err = fmt.Fprintf(conn, "POST %s/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
			base.Path, os.Getenv("OPENAI_API_KEY"), len(body), body)
		must(err)
		_, err = io.ReadFull(conn, make([]byte, read))
		must(err)
		must(conn.(*net.TCPConn).SetLinger(0)) // a reset, not an orderly end
		must(conn.Close())
	}
}

func askModel(content string) error {
	return postTo(os.Getenv("OPENAI_BASE_URL")+"/chat/completions", `{"messages":[{"role":"user","content":"`+content+`"}]}`)
}

func postTo(url, body string) error {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("OPENAI_API_KEY"))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", response.StatusCode, text)
	}
	return err
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		syscall.Exit(8)
	}
}
