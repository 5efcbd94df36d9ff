// Package redactor runs programs that rewrite texts before they are stored, such as one that
// takes out names and numbers of people.
//
// A program is started with the first text, and stays: it reads one JSON object a line from
// its standard input, {"text": "…"}, and writes one a line in the same order. Until it has
// answered its first text, it has a minute more than for other texts, because it may have to
// load a model. A program that takes too long, ends or writes anything else is killed with all
// that it started, and the next text starts it again. Its standard error is that of this
// process.
//
// The package does not know what a program should change, and keeps no text.
package redactor

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fulgurite/fulgurite/internal/subprocess"
)

// maxLine is the most bytes of a line that a program writes.
const maxLine = 64 << 20

// maxStart is how long a program may take to start, in addition to what it may take for its
// first text.
const maxStart = time.Minute

// Set holds the programs of a process, by their commands. Its zero value is ready for use, and
// it is safe for concurrent use. Close ends the programs.
type Set struct {
	// MaxStart replaces maxStart; 0 does not. It may not change after the first text.
	MaxStart time.Duration

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
		p = &program{command: command, maxStart: cmp.Or(s.MaxStart, maxStart), turn: make(chan struct{}, 1), quit: make(chan struct{})}
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
	s.programs = nil // a second Close has nothing to do
	s.mu.Unlock()
	for _, p := range programs {
		close(p.quit)        // a program that is starting is not waited for
		p.turn <- struct{}{} // a text that is being rewritten ends within its timeout
		p.stop()
		p.closed = true
		<-p.turn
	}
}

// program is a command that may be running. Whoever has put a value into turn may use the
// fields from closed on.
type program struct {
	command  []string
	maxStart time.Duration
	turn     chan struct{}
	quit     chan struct{} // closed by Close
	ready    atomic.Bool   // it has answered a text since it was started

	closed  bool
	running *exec.Cmd // nil if it is not
	kill    context.CancelFunc
	in      io.WriteCloser
	out     io.ReadCloser
	lines   *bufio.Reader
}

// redact has a text rewritten.
func (p *program) redact(ctx context.Context, timeout time.Duration, text string) (string, error) {
	waiting, cancel := p.within(ctx, timeout)
	defer cancel()
	select {
	case p.turn <- struct{}{}:
	case <-waiting.Done():
		return "", context.Cause(waiting)
	}
	if p.closed {
		<-p.turn
		return "", errEnds
	}
	if p.running == nil {
		if err := p.start(); err != nil {
			<-p.turn
			return "", err
		}
	}
	// From here on the program itself has its time, whatever the wait for it took.
	own, cancelOwn := p.within(context.Background(), timeout)
	asked := p.ask(text)
	var quit chan struct{}
	if !p.ready.Load() { // it is starting
		quit = p.quit
	}
	select {
	case <-asked.done:
	case <-own.Done():
	case <-quit:
	case <-waiting.Done():
		// Only the text is given up. A program that is killed whenever a text does not wait for
		// it would start anew for the next one, which waits longer still.
		go func() {
			defer cancelOwn()
			select {
			case <-asked.done:
			case <-own.Done():
			case <-quit:
			}
			_, _ = p.finish(asked, errEnds) // nobody waits for the text
		}()
		return "", context.Cause(waiting)
	}
	defer cancelOwn()
	return p.finish(asked, cmp.Or(context.Cause(own), errEnds))
}

// errEnds refuses texts once Close was called.
var errEnds = errors.New("this process ends")

// within bounds the time for a text, which is longer until the program has started.
func (p *program) within(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if !p.ready.Load() {
		timeout += p.maxStart
	}
	return context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %s", timeout))
}

// question is a text that the program was asked about. text and err are set before done is
// closed.
type question struct {
	done chan struct{}
	text string
	err  error
}

func (p *program) ask(text string) *question {
	asked := &question{done: make(chan struct{})}
	go func() {
		defer close(asked.done)
		asked.text, asked.err = p.exchange(text)
	}()
	return asked
}

// finish returns the answer to a question, and gives the turn to the next text. If there is no
// answer yet, it stops the program and returns late.
func (p *program) finish(asked *question, late error) (string, error) {
	defer func() { <-p.turn }()
	select {
	case <-asked.done:
	default:
		p.stop() // which ends the exchange
		<-asked.done
		return "", late
	}
	if asked.err != nil {
		p.stop()
	} else {
		p.ready.Store(true)
	}
	return asked.text, asked.err
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
	p.ready.Store(false)
}
