package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fulgurite/fulgurite/bench/memory"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/internal/wait"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/convert"
	"github.com/fulgurite/fulgurite/model/files/gguf"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

const (
	maxRequests = 32
	servedName  = "default"
)

// program is a server that this command starts: a group of processes.
type program struct {
	server

	command *exec.Cmd
	ended   chan struct{}
	log     string // its path
}

// startLlama starts llama.cpp's server with the model in a precision. Its file, and the
// server's log, are below work.
func startLlama(ctx context.Context, binary, base, work string, precision model.Precision, threads int) (*program, error) {
	kind, ok := map[model.Precision]gguf.Type{"": gguf.F32, model.F32: gguf.F32, model.BF16: gguf.BF16, model.Q8_0: gguf.Q8_0}[precision]
	if !ok {
		return nil, fmt.Errorf("-precision %s: llama.cpp takes f32, bf16 and q8_0", precision)
	}
	a, weights, err := hf.ReadDirectory(base)
	if err != nil {
		return nil, err
	}
	bundle, err := dialog.ReadBundle(base)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(work, "model.gguf")
	if err := convert.ToGGUF(file, servedName, a, weights, bundle, kind); err != nil {
		return nil, err
	}
	n := strconv.Itoa(threads)
	return startServer(ctx, work, nil, binary, "--model", file, "--alias", servedName, "--threads", n, "--threads-batch", n,
		"--parallel", strconv.Itoa(maxRequests), "--ctx-size", strconv.Itoa(2*maxRequests*(prompt+reply)))
}

// startVLLM starts vLLM on the CPU with the model in a precision.
func startVLLM(ctx context.Context, python, base, work string, precision model.Precision, threads int) (*program, error) {
	kind, ok := map[model.Precision]string{"": "float32", model.F32: "float32", model.BF16: "bfloat16"}[precision]
	if !ok {
		return nil, fmt.Errorf("-precision %s: vLLM takes f32 and bf16", precision)
	}
	environment := []string{
		"VLLM_CPU_OMP_THREADS_BIND=0-" + strconv.Itoa(threads-1), // otherwise it would leave one core to its other threads
		"VLLM_CPU_KVCACHE_SPACE=1", "HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1",
	}
	return startServer(ctx, work, environment, python, "-m", "vllm.entrypoints.openai.api_server", "--model", base, "--served-model-name", servedName,
		"--dtype", kind, "--max-model-len", strconv.Itoa(2*(prompt+reply)), "--max-num-seqs", strconv.Itoa(maxRequests), "--no-enable-prefix-caching")
}

// startServer starts a server on a free port and waits until it answers.
func startServer(ctx context.Context, work string, environment []string, binary string, arguments ...string) (*program, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err := errors.Join(err, listener.Close()); err != nil {
		return nil, err
	}
	p := &program{
		server:  server{"http://127.0.0.1:" + port, servedName},
		command: exec.Command(binary, append(arguments, "--host", "127.0.0.1", "--port", port)...), ended: make(chan struct{}), log: filepath.Join(work, "server.log"),
	}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the server has its own copy of the file
	p.command.Env = append(os.Environ(), environment...)
	p.command.Stdout, p.command.Stderr = log, log
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		_ = p.command.Wait() // it is killed
	}()
	if err := p.answers(ctx); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

// answers waits until the server answers.
func (p *program) answers(ctx context.Context) error {
	for {
		response, err := http.Get(p.url + "/health")
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-p.ended:
			text, _ := os.ReadFile(p.log) // what there is
			return fmt.Errorf("%s ended before it answered: %s", p.command.Path, text[max(0, len(text)-2000):])
		default:
		}
		if !wait.For(ctx, time.Second) {
			return ctx.Err()
		}
	}
}

// stop kills the server with all that it started.
func (p *program) stop() {
	_ = syscall.Kill(-p.command.Process.Pid, syscall.SIGKILL) // it may have ended
	<-p.ended
}

// ticks is the number of clock ticks per second in /proc.
const ticks = 100

// used returns what the server's processes have used so far: their processor time, and
// the sum of their peak memory.
func (p *program) used() (processor time.Duration, peak int64) {
	return usedBy(func(_, group string) bool { return group == strconv.Itoa(p.command.Process.Pid) })
}

// usedBy returns processor time and peak memory of the processes that counts selects by
// the ids of their parent and of their group.
func usedBy(counts func(parent, group string) bool) (processor time.Duration, peak int64) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is a right one
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it ended
		}
		// The name, in parentheses, may hold anything.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) < 13 || !counts(fields[1], fields[2]) {
			continue
		}
		for _, field := range fields[11:13] {
			n, _ := strconv.ParseInt(field, 10, 64) // the kernel writes numbers
			processor += time.Duration(n) * time.Second / ticks
		}
		_, most := memory.Of(strings.Split(path, "/")[2])
		peak += most
	}
	return processor, peak
}
