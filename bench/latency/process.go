package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fulgurite/fulgurite/bench/memory"
)

// process is one of the programs that are measured together.
type process struct {
	url string
	cmd *exec.Cmd
}

// self starts this program again in another role and waits for its address.
func self(ctx context.Context, arguments ...string) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return start(ctx, program, arguments...)
}

// start starts a build of this program and waits for its address.
func start(ctx context.Context, program string, arguments ...string) (*process, error) {
	cmd := exec.CommandContext(ctx, program, arguments...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("%s did not start: %w", arguments, err)
	}
	return &process{strings.TrimSpace(line), cmd}, nil
}

// profileTo writes a CPU profile from now until the process is told to end; without a
// path it does nothing.
func profileTo(path string) error {
	if path == "" {
		return nil
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return err
	}
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, syscall.SIGTERM)
	go func() {
		<-terminate
		pprof.StopCPUProfile()
		os.Exit(0)
	}()
	return nil
}

// announce serves a handler on a free port and prints its address.
func announce(handler http.Handler) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + listener.Addr().String())
	return http.Serve(listener, handler)
}

// litellm starts LiteLLM's proxy in front of the upstream, with its own defaults
// but for logs and retries.
func litellm(ctx context.Context, program, upstream, directory string) (*process, error) {
	config := directory + "/litellm.yaml"
	text := fmt.Sprintf("model_list:\n  - model_name: canned\n    litellm_params: {model: openai/canned, api_base: %s/v1, api_key: none}\nlitellm_settings: {num_retries: 0, telemetry: false}\n", upstream)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, "--config", config, "--host", "127.0.0.1", "--port", strconv.Itoa(port))
	cmd.Env = append(os.Environ(), "LITELLM_LOG=ERROR", "LITELLM_LOCAL_MODEL_COST_MAP=True", "DISABLE_ADMIN_UI=True",
		"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY=true") // it listens on this machine alone
	log, err := os.Create(directory + "/litellm.log")
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{fmt.Sprintf("http://127.0.0.1:%d", port), cmd}
	return p, p.ready(ctx, "/health/liveliness")
}

// ready waits until the process answers.
func (p *process) ready(ctx context.Context, path string) error {
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline) && ctx.Err() == nil; <-time.After(200 * time.Millisecond) {
		response, err := http.Get(p.url + path)
		if err == nil && errors.Join(response.Body.Close()) == nil && response.StatusCode == http.StatusOK {
			return nil
		}
	}
	return fmt.Errorf("%s did not become ready", p.cmd.Path)
}

func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	go func() { <-time.After(5 * time.Second); _ = p.cmd.Process.Kill() }()
	_ = p.cmd.Wait()
}

// cpu returns the processor time that the process has used.
func (p *process) cpu() time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // a program's name may have spaces
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond // Linux counts in hundredths of a second
}

// resident returns the process's memory in MB: now, and the peak so far.
func (p *process) resident() (now, most float64) {
	resident, peak := memory.Of(strconv.Itoa(p.cmd.Process.Pid))
	return float64(resident) / (1 << 20), float64(peak) / (1 << 20)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}
