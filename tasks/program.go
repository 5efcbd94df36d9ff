package tasks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"time"

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
	Grade *graderInput `json:"grade,omitempty"`
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
	stderr := &tail{size: keptError}
	command := exec.CommandContext(limited, t.Command[0], t.Command[1:]...)
	command.Dir, command.Stdin, command.Stdout, command.Stderr = t.Directory, bytes.NewReader(append(request, '\n')), &stdout, stderr
	command.WaitDelay = grace
	ownGroup(command)
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
