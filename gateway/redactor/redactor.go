// Package redactor runs programs that rewrite texts before they are stored, such as one that
// takes out names and numbers of people.
//
// A program is started with the first text, and stays: it reads one JSON object a line from
// its standard input, {"text": "…"}, and writes one a line in the same order. A program that
// takes too long, ends or writes anything else is killed with all that it started, and the
// next text starts it again. Its standard error is that of this process.
//
// The package does not know what a program should change, and keeps no text.
package redactor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/fulgurite/fulgurite/internal/subprocess"
)

// maxLine is the most bytes of a line that a program writes.
const maxLine = 64 << 20

// Set holds the programs of a process, by their commands. Its zero value is ready for use, and
// it is safe for concurrent use. Close ends the programs.
type Set struct {
	mu       sync.Mutex
	programs map[string]*program
	closed   bool
}

// Redact returns what the program of a command makes of a text. The error says which program
// failed, and how.
func (s *Set) Redact(ctx context.Context, command []string, timeout time.Duration, text string) (string, error) {
	p, err := s.program(command)
	if err != nil {
		return "", err
	}
	out, err := p.redact(ctx, timeout, text)
	if err != nil {
		return "", fmt.Errorf("redact by %q: %w", command[0], err)
	}
	return out, nil
}

func (s *Set) program(command []string) (*program, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, errors.New("redact: this process ends")
	case len(command) == 0:
		return nil, errors.New("redact: the command is empty")
	}
	key := strings.Join(command, "\x00")
	p, ok := s.programs[key]
	if !ok {
		p = &program{command: command, turn: make(chan struct{}, 1)}
		if s.programs == nil {
			s.programs = map[string]*program{}
		}
		s.programs[key] = p
	}
	return p, nil
}

// Close ends the programs. Texts that wait for one are refused.
func (s *Set) Close() {
	s.mu.Lock()
	s.closed = true
	programs := s.programs
	s.mu.Unlock()
	for _, p := range programs {
		p.turn <- struct{}{} // a text that is being rewritten ends within its timeout
		p.stop()
		p.closed = true
		<-p.turn
	}
}

// program is a command that may be running. Whoever has put a value into turn may use the
// other fields.
type program struct {
	command []string
	turn    chan struct{}
	closed  bool

	running *exec.Cmd // nil if it is not
	kill    context.CancelFunc
	in      io.WriteCloser
	out     io.ReadCloser
	lines   *bufio.Reader
}

func (p *program) redact(ctx context.Context, timeout time.Duration, text string) (string, error) {
	limited, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
	defer cancel()
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-limited.Done():
		return "", context.Cause(limited)
	}
	if p.closed {
		return "", errors.New("this process ends")
	}
	if p.running == nil {
		if err := p.start(); err != nil {
			return "", err
		}
	}
	done := make(chan struct{})
	var out string
	var err error
	go func() {
		defer close(done)
		out, err = p.exchange(text)
	}()
	select {
	case <-done:
	case <-limited.Done():
		p.stop() // which ends the exchange
		<-done
		return "", context.Cause(limited)
	}
	if err != nil {
		p.stop()
	}
	return out, err
}

func (p *program) start() error {
	ctx, kill := context.WithCancel(context.Background())               // it outlives the request for which it is started
	command := exec.CommandContext(ctx, p.command[0], p.command[1:]...) //nolint:gosec // it is the command of the run's spec
	command.Env, command.Stderr = subprocess.Environment(), os.Stderr
	subprocess.OwnGroup(command)
	in, err := command.StdinPipe()
	var out io.ReadCloser
	if err == nil {
		out, err = command.StdoutPipe()
	}
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		kill()
		return fmt.Errorf("start: %w", err)
	}
	p.running, p.kill, p.in, p.out, p.lines = command, kill, in, out, bufio.NewReaderSize(out, 64<<10)
	return nil
}

// line is what goes to a program and comes from it.
type line struct {
	Text *string `json:"text"`
}

func (p *program) exchange(text string) (string, error) {
	encoded, err := json.Marshal(line{&text})
	if err != nil {
		return "", fmt.Errorf("encode text: %w", err)
	}
	if p.lines.Buffered() > 0 { // the answers would no longer be those of their texts
		return "", errors.New("it wrote more than one line for a text")
	}
	if _, err := p.in.Write(append(encoded, '\n')); err != nil {
		return "", fmt.Errorf("it takes no text: %w", err)
	}
	answer, err := p.read()
	if err != nil {
		return "", err
	}
	var got line
	if err := json.Unmarshal(answer, &got); err != nil || got.Text == nil {
		return "", errors.New(`it wrote a line that is not {"text": "…"}`)
	}
	return *got.Text, nil
}

func (p *program) read() ([]byte, error) {
	var all []byte
	for {
		part, err := p.lines.ReadSlice('\n')
		all = append(all, part...)
		switch {
		case len(all) > maxLine:
			return nil, fmt.Errorf("it wrote a line of more than %d bytes", maxLine)
		case err == nil:
			return all, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, fmt.Errorf("it ended without an answer: %w", err)
		}
	}
}

// stop ends the program and all that it started.
func (p *program) stop() {
	if p.running == nil {
		return
	}
	p.kill()
	_ = p.in.Close() // the program is gone either way
	_ = p.out.Close()
	_ = p.running.Wait()
	subprocess.KillGroup(p.running)
	p.running = nil
}
