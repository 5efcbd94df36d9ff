package reflector

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/internal/subprocess"
	"github.com/fulgurite/fulgurite/internal/wait"
)

// Tries is how often a command is run for one question until it replies. Between two tries
// there are one and then two seconds.
const Tries = 3

const (
	maxOutput  = 4 << 20 // of standard output
	keptErrors = 4 << 10 // of the end of standard error
)

// program is a reflector that is a command. It reads a Question as JSON on standard input,
// and prints its reply: a JSON object like a Reply, or the text alone. It has the
// environment of this process. What it left running is killed when it ends, and all of it
// when its time is over.
//
// A command that fails, takes too long, prints too much or prints JSON that is no reply is
// run again. If no try has a reply, the error wraps ErrFailed. A command that can't be
// started says nothing about the question: another worker may have it, so that error is not
// final.
type program struct {
	command    []string
	dir, model string
	timeout    time.Duration
	maxTokens  int
	pause      time.Duration
}

func newProgram(o Options) *program {
	return &program{o.Command, o.Dir, o.Model, o.Timeout, o.MaxTokens, time.Second}
}

// Reflect runs the command until it replies.
func (p *program) Reflect(ctx context.Context, q Question) (Reply, error) {
	input, err := json.Marshal(q.complete(p.maxTokens))
	if err != nil {
		return Reply{}, fmt.Errorf("encode question: %w", err)
	}
	for try := 1; ; try++ {
		reply, err := p.run(ctx, append(input, '\n'))
		switch {
		case err == nil:
			return storable(reply), nil
		case !errors.Is(err, ErrFailed):
			return Reply{}, err
		case try == Tries:
			return Reply{}, fmt.Errorf("run %s, %d times: %w", p.command[0], try, err)
		case !wait.For(ctx, p.pause<<(try-1)):
			return Reply{}, fmt.Errorf("run %s: %w: %w", p.command[0], context.Cause(ctx), errors.New(err.Error()))
		}
	}
}

// run runs the command once.
func (p *program) run(ctx context.Context, input []byte) (Reply, error) {
	limited, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	stdout, stderr := &limitedBuffer{exceeded: cancel}, subprocess.NewTail(keptErrors)
	command := exec.CommandContext(limited, p.command[0], p.command[1:]...)
	command.Dir, command.Stdin, command.Stdout, command.Stderr = p.dir, bytes.NewReader(input), stdout, stderr
	command.Env = subprocess.Environment()
	subprocess.OwnGroup(command)
	started, err := subprocess.Run(command)
	switch {
	case ctx.Err() != nil:
		return Reply{}, fmt.Errorf("run %s: %w", p.command[0], context.Cause(ctx))
	case !started:
		return Reply{}, fmt.Errorf("start the reflector's command %s: %w", p.command[0], err)
	case stdout.full:
		err = fmt.Errorf("it printed more than %d bytes", maxOutput)
	case limited.Err() != nil:
		err = fmt.Errorf("no reply within %s", p.timeout)
	}
	var reply Reply
	if err == nil {
		reply, err = readOutput(stdout.kept.Bytes())
	}
	if err != nil {
		return Reply{}, fmt.Errorf("%w: %w%s", ErrFailed, err, wrote(stderr))
	}
	return reply, nil
}

// readOutput returns the reply that a command printed. Output that only begins like JSON is
// a text, which may begin with a placeholder.
func readOutput(output []byte) (Reply, error) {
	object := bytes.TrimSpace(output)
	if !bytes.HasPrefix(object, []byte("{")) || !json.Valid(object) {
		return Reply{Text: string(output)}, nil
	}
	var printed struct {
		Text *string `json:"text"`
		Reply
	}
	if err := json.Unmarshal(object, &printed); err != nil {
		return Reply{}, fmt.Errorf("it printed a JSON object that is no reply: %w", err)
	}
	if printed.Text == nil {
		return Reply{}, errors.New(`it printed a JSON object without "text"`)
	}
	printed.Reply.Text = *printed.Text
	return printed.Reply, nil
}

// wrote quotes the end of what a command wrote to standard error.
func wrote(stderr *subprocess.Tail) string {
	if text := strings.TrimSpace(clean(stderr.String())); text != "" {
		return "; it wrote: " + text
	}
	return ""
}

// Key is that of the command's words and the model's name. It does not depend on the
// directory and on what the program's file contains: give another model name if the
// program replies otherwise than before.
func (p *program) Key(q Question) string {
	texts := append([]string{string(Command), p.model, strconv.Itoa(len(p.command))}, p.command...)
	return digest(append(texts, q.complete(p.maxTokens).texts()...)...)
}

// Close does nothing: no command runs between questions.
func (p *program) Close() {}

// limitedBuffer keeps what a command prints. When that is too much, it calls exceeded and
// keeps no more. It embeds no bytes.Buffer, whose ReadFrom would keep everything.
type limitedBuffer struct {
	kept     bytes.Buffer
	full     bool
	exceeded func()
}

// Write is part of io.Writer.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.full = b.full || b.kept.Len()+len(p) > maxOutput; b.full {
		b.exceeded()
		return len(p), nil
	}
	return b.kept.Write(p)
}
