package tasks

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fulgurite/fulgurite/internal/subprocess"
	"github.com/fulgurite/fulgurite/spec"
)

// The faults that a program of tasks.command may name when it grades.
const (
	// FaultTask: no result of this task can be graded.
	FaultTask = "task"
	// FaultMachine means that something is missing that the program needs. The program is
	// asked again.
	FaultMachine = "machine"
)

var (
	// ErrTask is wrapped when a program reports that a task can't be graded.
	ErrTask = errors.New("the program says that the task is at fault")
	// ErrMachine is wrapped when a program reports that something is missing that it
	// needs.
	ErrMachine = errors.New("the program says that this machine is at fault")
)

const (
	// listTime is the time limit for a program that lists a split.
	listTime = 10 * time.Minute
	// programSeconds is the default limit of an answer.
	programSeconds = 60
)

// programRequest is a line that a program reads. It has either List or Grade.
type programRequest struct {
	ID    string       `json:"id,omitempty"`   // the answer repeats it
	List  string       `json:"list,omitempty"` // the name of a split
	Grade *GraderInput `json:"grade,omitempty"`
}

// programAnswer is the line that answers a request to grade.
type programAnswer struct {
	ID      string   `json:"id"`
	Reward  *float64 `json:"reward"`
	Fault   string   `json:"fault"`
	Message string   `json:"message"`
}

// OpenSplit works like Open, but also reads "command:<split>": the tasks that the program
// of tasks.command lists.
func OpenSplit(ctx context.Context, t spec.Tasks, source string) ([]Task, error) {
	s, err := spec.ParseSource(source)
	if err != nil {
		return nil, err
	}
	switch {
	case s.Family == spec.Command:
		return listTasks(ctx, t, s.Split)
	case s.Family == spec.Harbor && t.Harbor != nil:
		return readHarbor(s.Path, *t.Harbor)
	}
	return Open(source)
}

// listTasks asks the program for the tasks of a split. The program reads {"list": split}
// on standard input, which then ends. It prints one task per line, in the format of
// ReadJSONL, and exits with 0.
func listTasks(ctx context.Context, t spec.Tasks, split string) ([]Task, error) {
	if len(t.Command) == 0 {
		return nil, fmt.Errorf("list tasks of %q: tasks.command is missing", split)
	}
	request, err := json.Marshal(programRequest{List: split})
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	var stdout bytes.Buffer
	stderr := subprocess.NewTail(keptError)
	command := exec.CommandContext(limited, t.Command[0], t.Command[1:]...)
	command.Dir, command.Stdin, command.Stdout, command.Stderr = t.Directory, bytes.NewReader(append(request, '\n')), &stdout, stderr
	command.Env = subprocess.Environment()
	subprocess.OwnGroup(command)
	err = run(command)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil && limited.Err() != nil:
		err = fmt.Errorf("not done within %s", listTime)
	}
	name := fmt.Sprintf("tasks.command, split %s", split)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w%s", name, t.Command[0], err, wrote(stderr))
	}
	list, err := ReadJSONL(&stdout, name)
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, wrote(stderr))
	}
	return list, nil
}

// reward returns the reward of an answer, or an error that says why there is none.
func (a programAnswer) reward() (float64, error) {
	switch {
	case a.Fault == FaultTask:
		return 0, fmt.Errorf("%w: %s", ErrTask, a.Message)
	case a.Fault == FaultMachine:
		return 0, fmt.Errorf("%w: %s", ErrMachine, a.Message)
	case a.Fault != "":
		return 0, fmt.Errorf("%w: fault %q is neither %q nor %q", ErrGraderReward, a.Fault, FaultTask, FaultMachine)
	case a.Reward == nil || math.IsNaN(*a.Reward) || math.IsInf(*a.Reward, 0):
		return 0, fmt.Errorf("%w: want {\"reward\": number} or {\"fault\": %q or %q, \"message\": text}", ErrGraderReward, FaultTask, FaultMachine)
	}
	return *a.Reward, nil
}

// longestAnswer is the largest number of bytes in a program's answer.
const longestAnswer = 1 << 20

// Programs grade results with the programs of tasks.command, and keep them running for
// the next result. The zero value is ready for use, by several goroutines at once.
type Programs struct {
	// Idle is how long a program is kept without a result to grade. 0 means a minute.
	Idle time.Duration

	mu    sync.Mutex
	idle  map[string][]*programProcess
	slots chan struct{} // one for each program that runs
}

// Grade lets the program grade a result. The program reads {"id": …, "grade": {"task": …,
// "result": …}} as a line on standard input. It answers with a line: {"id": …, "reward":
// number}, or {"id": …, "fault": …, "message": text}. Errors about the program are a
// *CommandError. Such an error wraps ErrTask or ErrMachine if the program reported that
// fault. If a program fails, it is ended, and another one is started for the next result.
func (p *Programs) Grade(ctx context.Context, t spec.Tasks, seconds float64, task Task, result string) (float64, error) {
	if len(t.Command) == 0 {
		return 0, &CommandError{Task: task.ID, Cause: fmt.Errorf("%w: no tasks.command", ErrGraderStart)}
	}
	if seconds == 0 {
		seconds = programSeconds
	}
	release, err := p.claim(ctx)
	if err != nil {
		return 0, fmt.Errorf("grade task %s: %w", task.ID, err)
	}
	defer release()
	limited, cancel := context.WithTimeout(ctx, time.Duration(seconds*float64(time.Second)))
	defer cancel()
	request := programRequest{Grade: &GraderInput{Task: task, Result: result}}
	answer, stderr, err := p.ask(limited, t, request)
	switch {
	case err != nil && ctx.Err() != nil:
		return 0, fmt.Errorf("grade task %s: %w", task.ID, ctx.Err())
	case err != nil && limited.Err() != nil:
		err = fmt.Errorf("%w of %g seconds", ErrGraderTime, seconds)
	}
	reward := 0.0
	if err == nil {
		reward, err = answer.reward()
	}
	if err != nil {
		return 0, &CommandError{Task: task.ID, Cause: err, Stderr: stderr}
	}
	return reward, nil
}

// claim waits until another program may run. There may be twice as many as processors,
// because a program may itself wait for something. The waiting does not count as the
// program's time.
func (p *Programs) claim(ctx context.Context) (release func(), err error) {
	p.mu.Lock()
	if p.slots == nil {
		p.slots = make(chan struct{}, 2*runtime.GOMAXPROCS(0))
	}
	slots := p.slots
	p.mu.Unlock()
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// ask asks an idle program or, if there is none, one that it starts. An idle program may
// have ended in the meantime; then ask tries the next one.
func (p *Programs) ask(ctx context.Context, t spec.Tasks, request programRequest) (programAnswer, string, error) {
	key := strings.Join(append([]string{t.Directory}, t.Command...), "\x00")
	for {
		process, fresh := p.take(key), false
		if process == nil {
			var err error
			if process, err = startProgram(t); err != nil {
				return programAnswer{}, "", err
			}
			fresh = true
		}
		answer, err := process.ask(ctx, request)
		if err == nil {
			p.put(key, process)
			return answer, "", nil
		}
		stderr := process.end()
		if fresh || ctx.Err() != nil {
			return programAnswer{}, stderr, err
		}
	}
}

func (p *Programs) take(key string) *programProcess {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.idle[key]
	if len(list) == 0 {
		return nil
	}
	last := list[len(list)-1]
	p.idle[key] = list[:len(list)-1]
	last.expiry.Stop() // if the timer has already fired, expire doesn't find the program in the list
	return last
}

// expire ends a program that was idle for too long.
func (p *Programs) expire(key string, process *programProcess) {
	p.mu.Lock()
	at := slices.Index(p.idle[key], process)
	if at >= 0 {
		p.idle[key] = slices.Delete(p.idle[key], at, at+1)
	}
	p.mu.Unlock()
	if at >= 0 {
		process.end()
	}
}

func (p *Programs) put(key string, process *programProcess) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle == nil {
		p.idle = map[string][]*programProcess{}
	}
	p.idle[key] = append(p.idle[key], process)
	process.expiry = time.AfterFunc(cmp.Or(p.Idle, time.Minute), func() { p.expire(key, process) })
}

// Close ends the programs that are idle.
func (p *Programs) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, list := range p.idle {
		for _, process := range list {
			process.expiry.Stop()
			process.end()
		}
	}
	p.idle = nil
	return nil
}

// programProcess is a program that was started. It ends when its standard input does, so
// also when this process is killed.
type programProcess struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	stderr  *subprocess.Tail // complete once the process has ended
	asked   int
	expiry  *time.Timer // runs while the program is idle
}

func startProgram(t spec.Tasks) (*programProcess, error) {
	p := &programProcess{command: exec.Command(t.Command[0], t.Command[1:]...), stderr: subprocess.NewTail(keptError)}
	p.command.Dir, p.command.Stderr = t.Directory, p.stderr
	p.command.Env = subprocess.Environment()
	subprocess.OwnGroup(p.command)
	p.command.Cancel = nil // the program is not tied to a context
	in, err := p.command.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrGraderStart, err)
	}
	out, err := p.command.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrGraderStart, err)
	}
	p.in, p.out = in, bufio.NewReader(out)
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrGraderStart, err)
	}
	return p, nil
}

// ask writes a request and reads the answer. When ctx ends, the program is killed.
func (p *programProcess) ask(ctx context.Context, request programRequest) (answer programAnswer, err error) {
	killed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(killed)
		subprocess.KillGroup(p.command)
	})
	defer func() {
		if !stop() {
			<-killed
		}
	}()
	p.asked++
	request.ID = strconv.Itoa(p.asked)
	text, err := json.Marshal(request)
	if err != nil {
		return answer, fmt.Errorf("encode request: %w", err)
	}
	if _, err := p.in.Write(append(text, '\n')); err != nil {
		return answer, fmt.Errorf("%w: it reads no request: %w", ErrGraderExit, err)
	}
	line, err := p.line()
	if err != nil {
		return answer, err
	}
	if err := json.Unmarshal(line, &answer); err != nil {
		return answer, fmt.Errorf("%w: it answered %.60q, which is not a JSON object of an answer: %w", ErrGraderReward, line, err)
	}
	if answer.ID != request.ID {
		return answer, fmt.Errorf("%w: it answered %.60q, which does not repeat the id %q of the request", ErrGraderReward, line, request.ID)
	}
	return answer, nil
}

// line returns the next line that is not blank.
func (p *programProcess) line() ([]byte, error) {
	var line []byte
	for {
		part, err := p.out.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > longestAnswer:
			return nil, fmt.Errorf("%w: it answered with more than %d bytes", ErrGraderReward, longestAnswer)
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil && len(strings.TrimSpace(string(line))) == 0:
			return nil, fmt.Errorf("%w: it ended without an answer", ErrGraderExit)
		case err != nil || len(strings.TrimSpace(string(line))) > 0:
			return line, nil
		default:
			line = line[:0]
		}
	}
}

// end kills the program and its children, and returns the end of its standard error.
func (p *programProcess) end() string {
	_ = p.in.Close()
	subprocess.KillGroup(p.command)
	_ = p.command.Wait()
	return p.stderr.String()
}

// wrote returns a text that quotes a program's standard error, or "" if that is empty.
func wrote(stderr *subprocess.Tail) string {
	if text := withoutTraces(strings.TrimSpace(stderr.String())); text != "" {
		return "; it wrote: " + text
	}
	return ""
}

// frame is a line of a list of calls that Python writes before an exception.
var frame = regexp.MustCompile(`^\s*File "(.*)", line (\d+)`)

// withoutTraces returns a text of standard error in which the lists of calls before
// Python's exceptions are left out: what went wrong would stand below twenty lines of
// where. An exception is followed by its own place, the last call's.
func withoutTraces(text string) string {
	var out []string
	inside, place := false, ""
	for line := range strings.SplitSeq(text, "\n") {
		trimmed := strings.TrimSpace(line)
		m := frame.FindStringSubmatch(line)
		switch {
		case m != nil:
			inside, place = true, m[1]+":"+m[2]
		case trimmed == "Traceback (most recent call last):":
			inside = true
		case inside && (trimmed == "" || line[0] == ' ' || line[0] == '\t'):
		case place != "":
			out = append(out, fmt.Sprintf("%s (%s)", line, place))
			inside, place = false, ""
		case trimmed == "During handling of the above exception, another exception occurred:",
			trimmed == "The above exception was the direct cause of the following exception:":
			for inside = true; len(out) > 0 && strings.TrimSpace(out[len(out)-1]) == ""; {
				out = out[:len(out)-1]
			}
		default:
			inside = false
			out = append(out, line)
		}
	}
	if kept := strings.TrimSpace(strings.Join(out, "\n")); kept != "" {
		return kept
	}
	return text // the exception itself is missing
}
