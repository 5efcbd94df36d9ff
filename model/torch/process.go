package torch

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fulgurite/fulgurite/model"
)

//go:embed program/*.py
var programFiles embed.FS

const (
	// startLimit is how long the libraries may take to load; a slow disk needs a minute.
	startLimit = 5 * time.Minute
	// leave is how long a request may go on once its caller has left.
	leave = 5 * time.Second
	// socketDescriptor is the first file that a child inherits after its standard ones.
	socketDescriptor = 3
)

// process is one start of the program.
type process struct {
	generation int
	limit      time.Duration
	dir        string // with the program and files under way; the program removes it too
	cmd        *exec.Cmd
	conn       net.Conn
	stderr     tail
	ended      chan struct{} // closed when the program has ended
	about      About

	mu       sync.Mutex // one request at a time
	sequence int
	lost     error // why nothing more can be asked
}

// start starts the program and waits until it has loaded its libraries, for at most
// within.
func start(o Options, generation int, within time.Duration) (*process, error) {
	dir, err := os.MkdirTemp("", "fulgurite-torch-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the program: %w", err)
	}
	p := &process{generation: generation, limit: o.Limit, dir: dir, ended: make(chan struct{})}
	if err := p.launch(o); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := p.greet(within); err != nil {
		p.kill()
		return nil, err
	}
	return p, nil
}

// launch executes the program with one end of a pair of sockets.
func (p *process) launch(o Options) error {
	if err := writeProgram(p.dir); err != nil {
		return err
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return fmt.Errorf("make a pair of sockets: %w", err)
	}
	defer func() { _ = theirs.Close() }() // the program has its own copy
	p.conn, err = net.FileConn(ours)
	if err := errors.Join(err, ours.Close()); err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	p.cmd = exec.Command(o.Python, "-u", filepath.Join(p.dir, "program"), strconv.Itoa(socketDescriptor), o.Device, strconv.Itoa(o.Threads))
	p.cmd.Env = append(os.Environ(), "HF_HUB_OFFLINE=1", "TRANSFORMERS_OFFLINE=1", "TOKENIZERS_PARALLELISM=false", "PYTHONDONTWRITEBYTECODE=1")
	p.cmd.ExtraFiles = []*os.File{theirs}
	p.cmd.Stdout, p.cmd.Stderr = &p.stderr, &p.stderr
	p.cmd.WaitDelay = leave // what the program started may hold these open
	if err := p.cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("start Python: %w: install Python 3.10 or later with torch, or name one that has it by %s", err, EnvPython), p.conn.Close())
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // how it ended stands in cmd.ProcessState
	}()
	return nil
}

func writeProgram(dir string) error {
	names, err := fs.Glob(programFiles, "program/*.py")
	if err == nil {
		err = os.Mkdir(filepath.Join(dir, "program"), 0o700)
	}
	if err != nil {
		return fmt.Errorf("write the program: %w", err)
	}
	for _, name := range names {
		text, err := programFiles.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), text, 0o600)
		}
		if err != nil {
			return fmt.Errorf("write the program: %w", err)
		}
	}
	return nil
}

// socketPair is a pair of connected sockets that no other child inherits.
func socketPair() (ours, theirs *os.File, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, err
	}
	for _, descriptor := range pair {
		syscall.CloseOnExec(descriptor)
	}
	return os.NewFile(uintptr(pair[0]), "engine"), os.NewFile(uintptr(pair[1]), "program"), nil
}

// greet reads what the program says of itself, or why it can't work.
func (p *process) greet(within time.Duration) error {
	if err := p.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		return p.lose(err)
	}
	hello, err := readFrame(p.conn)
	if err != nil {
		return p.lose(err)
	}
	if hello.Error != "" {
		return errors.New(hello.Error)
	}
	if err := json.Unmarshal(hello.Result, &p.about); err != nil {
		return fmt.Errorf("%w: %w", errFrame, err)
	}
	return nil
}

// ask sends a request and waits for its reply. An error that wraps model.ErrEngineLost ends
// the process; any other leaves it as it is.
func (p *process) ask(ctx context.Context, r request) (reply, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost != nil {
		return reply{}, p.lost
	}
	if err := ctx.Err(); err != nil {
		return reply{}, err
	}
	p.sequence++
	r.Generation, r.Sequence = p.generation, p.sequence
	left := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(left)
		_ = p.conn.SetDeadline(time.Now().Add(leave)) // a closed socket needs none
	})
	defer func() {
		if !stop() {
			<-left // or it would shorten the next request
		}
	}()
	if err := p.extend(ctx); err != nil {
		return reply{}, p.lose(err)
	}
	if err := writeFrame(p.conn, r); err != nil {
		return reply{}, p.lose(err)
	}
	for {
		got, err := readFrame(p.conn)
		if err == nil && (got.Generation != r.Generation || got.Sequence != r.Sequence) {
			err = fmt.Errorf("%w: reply %d of generation %d to request %d of generation %d", errFrame, got.Sequence, got.Generation, r.Sequence, r.Generation)
		}
		if err == nil && got.Progress {
			if err = p.extend(ctx); err == nil {
				continue
			}
		}
		switch {
		case err == nil:
			return got, failure(r.Verb, got)
		case ctx.Err() != nil:
			return reply{}, fmt.Errorf("%s: %w: %w", r.Verb, context.Cause(ctx), p.lose(fmt.Errorf("its caller left, and %v later: %w", leave, err)))
		}
		return reply{}, fmt.Errorf("%s: %w", r.Verb, p.lose(err))
	}
}

// extend gives the program another limit for a sign of life, or less if nobody waits.
func (p *process) extend(ctx context.Context) error {
	if err := p.conn.SetDeadline(time.Now().Add(p.limit)); err != nil {
		return err
	}
	if ctx.Err() != nil { // AfterFunc's deadline may have come before
		return p.conn.SetDeadline(time.Now().Add(leave))
	}
	return nil
}

// errMemory is wrapped where a request needs more memory than the device has.
var errMemory = errors.New("the device has too little memory")

// failure is the error that a reply tells.
func failure(verb string, r reply) error {
	switch {
	case r.Error == "":
		return nil
	case r.Kind == "memory":
		return fmt.Errorf("%s: %w: train an adapter (model.lora), lower its rank, or take a smaller model: %s", verb, errMemory, r.Error)
	}
	return fmt.Errorf("%s: %s", verb, r.Error)
}

// lose ends the process because of err, and gives the reason that is answered from now on.
func (p *process) lose(err error) error {
	var late net.Error
	silent := errors.As(err, &late) && late.Timeout()
	p.kill()
	what := "it ended by itself"
	switch {
	case silent:
		what = fmt.Sprintf("it gave no sign of life for %v and was killed", p.limit)
	case errors.Is(err, errFrame):
		what = "it sent what is no reply and was killed"
	default:
		if s := p.cmd.ProcessState.String(); s != "" {
			what = "it ended with " + s
		}
	}
	last := p.stderr.lastLines(3)
	if last == "" {
		last = "nothing"
	}
	p.lost = fmt.Errorf("%w: %s (%w); it wrote last: %s", model.ErrEngineLost, what, err, last)
	return p.lost
}

// kill ends the program, waits for its end, and removes its directory.
func (p *process) kill() {
	_ = p.conn.Close() // the program ends by itself when it sees that
	select {
	case <-p.ended:
	case <-time.After(leave / 10):
		_ = p.cmd.Process.Kill() // it may have ended just now
		<-p.ended
	}
	_ = os.RemoveAll(p.dir) // the program removes it too
}

// close ends the process; requests are answered with an error from then on.
func (p *process) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost == nil {
		p.lost = fmt.Errorf("%w: the engine is closed", model.ErrEngineLost)
		p.kill()
	}
}

// isLost reports whether the process can't be asked any more.
func (p *process) isLost() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost != nil
}

// fingerprint names what the numbers depend on.
func (p *process) fingerprint() string {
	a := p.about
	return strings.Join([]string{
		"torch/" + strconv.Itoa(version), "torch-" + a.Versions["torch"], "transformers-" + a.Versions["transformers"], "peft-" + a.Versions["peft"],
		a.Device, strings.ReplaceAll(a.Processor, " ", "-"), a.DType, a.Attention, "threads-" + strconv.Itoa(a.Threads), "ranks-1",
	}, " ")
}
