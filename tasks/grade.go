package tasks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/fulgurite/fulgurite/internal/subprocess"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks/numbers"
)

// ErrAnswer is wrapped when a grader can't use a task's answer.
var ErrAnswer = errors.New("unusable answer")

// ErrGrader is wrapped when Grade does not know a grader.
var ErrGrader = errors.New("unknown grader")

// Grade compares the result that an agent returned with the task's answer. The reward is
// 1 if the result is right, else 0; qa also gives rewards between them. White space
// around the result and the answer doesn't count.
//
//   - exact: the result equals the answer, byte for byte.
//   - numeric: both are numbers, as package numbers reads them, and differ by at most the
//     tolerance. They are compared exactly. Without grader.extract, the number of a result
//     is the one after the first "####" that a number follows, as in GSM8K, else the one
//     in the last \boxed{…}, else the last one. A result without a number is wrong.
//   - contains: the result contains the answer; upper and lower case differ.
//   - qa: the F1 of the words of result and answer or, with the metric "exact", 1 if
//     all words agree. Case, punctuation and articles don't count. Yes and no are right or
//     wrong as a whole, as in HotpotQA.
//
// If the answer is a JSON list of texts, each of them is right, and the best reward over
// them counts. With exact, numeric and qa, grader.extract says which part of the result is
// compared.
//
// For the graders "command", "agent", "harbor" and "sql" the error is ErrGrader: other
// code runs them.
func Grade(g spec.Grader, t Task, result string) (float64, error) {
	result, answer := strings.TrimSpace(result), strings.TrimSpace(t.Answer)
	if err := checkAnswer(g, t); err != nil {
		return 0, fmt.Errorf("task %s: %w", t.ID, err)
	}
	extraction, err := spec.ParseExtract(g.Extract)
	if err != nil {
		return 0, fmt.Errorf("grader.extract: %w", err)
	}
	if g.Type == spec.GraderNumeric {
		got, ok := numberIn(extraction, result)
		return reward(ok && slices.ContainsFunc(numericAnswers(answer), func(one string) bool {
			want, ok := numbers.Read(one)
			return ok && closeTo(got, want, g.Tolerance)
		})), nil
	}
	result, found := answerIn(extraction, result)
	switch g.Type {
	case spec.GraderExact:
		return reward(found && (result == answer || slices.ContainsFunc(splitAnswers(answer), func(one string) bool { return result == strings.TrimSpace(one) }))), nil
	case spec.GraderContains:
		return reward(slices.ContainsFunc(splitAnswers(answer), func(one string) bool { return strings.Contains(result, strings.TrimSpace(one)) })), nil
	case spec.GraderQA:
		if !found {
			return 0, nil
		}
		return gradeAnswers(g.Metric, answer, result), nil
	}
	return 0, fmt.Errorf("%w %q for task %s: want %s, %s, %s or %s", ErrGrader, g.Type, t.ID, spec.GraderExact, spec.GraderNumeric, spec.GraderContains, spec.GraderQA)
}

func reward(right bool) float64 {
	if right {
		return 1
	}
	return 0
}

// CheckAnswers returns a *ListError with the tasks whose answer is missing or that the
// grader can't use.
func CheckAnswers(g spec.Grader, list []Task) error {
	if g.Type == spec.GraderSQL && !slices.ContainsFunc(list, func(t Task) bool { return t.Metadata[MetadataDatabase] != nil }) {
		return fmt.Errorf("%w: grader %q needs tasks about a database, such as those of spider:FILE; none of these has metadata.%s", ErrAnswer, g.Type, MetadataDatabase)
	}
	faults := &ListError{}
	for _, t := range list {
		if err := checkAnswer(g, t); err != nil {
			faults.Add(t.ID, err)
		}
	}
	return faults.OrNil()
}

// checkAnswer does not name the task in its error; its caller does.
func checkAnswer(g spec.Grader, t Task) error {
	answer := strings.TrimSpace(t.Answer)
	switch g.Type {
	case spec.GraderExact, spec.GraderContains, spec.GraderNumeric, spec.GraderQA, spec.GraderSQL:
		if answer == "" {
			return fmt.Errorf("%w: grader %q needs one, and there is none", ErrAnswer, g.Type)
		}
	}
	if err := checkAlternatives(g.Type, answer); err != nil {
		return err
	}
	if g.Type == spec.GraderHarbor {
		if _, ok := t.Metadata[MetadataHarbor]; !ok {
			return fmt.Errorf("%w: grader %q needs a directory in Harbor's format", ErrAnswer, g.Type)
		}
	}
	if g.Type == spec.GraderSQL {
		if _, err := t.database(); err != nil {
			return err
		}
		if _, err := t.Metric(g); err != nil {
			return err
		}
	}
	return nil
}

// checkAlternatives checks the answers of which each is right.
func checkAlternatives(grader, answer string) error {
	switch grader {
	case spec.GraderNumeric:
		for _, one := range numericAnswers(answer) {
			if _, ok := numbers.Read(one); !ok {
				return fmt.Errorf("%w: grader %q needs a number, not %q", ErrAnswer, grader, one)
			}
		}
	case spec.GraderExact, spec.GraderContains, spec.GraderQA:
		if grader == spec.GraderQA && emptyList(answer) {
			return fmt.Errorf("%w: its list has no texts", ErrAnswer)
		}
		if slices.ContainsFunc(splitAnswers(answer), func(one string) bool { return strings.TrimSpace(one) == "" }) {
			return fmt.Errorf("%w: one of its texts is empty", ErrAnswer)
		}
	}
	return nil
}

// Faults of a grader command; a *CommandError wraps one of them.
var (
	ErrGraderStart  = errors.New("grader can't be started")
	ErrGraderExit   = errors.New("grader failed")
	ErrGraderTime   = errors.New("grader over its time limit")
	ErrGraderReward = errors.New("grader printed no usable reward")
)

// CommandError is the error of a grader command that gave no reward.
type CommandError struct {
	Task   string // the task's id
	Cause  error  // wraps one of the sentinels above
	Stderr string // the end of the command's standard error
}

// Error names the task and the cause, and quotes the end of standard error.
func (e *CommandError) Error() string {
	text := fmt.Sprintf("grade task %s: %v", e.Task, e.Cause)
	if tail := withoutTraces(strings.TrimSpace(e.Stderr)); tail != "" {
		text += "; it wrote: " + tail
	}
	return text
}

// Unwrap returns the cause.
func (e *CommandError) Unwrap() error { return e.Cause }

// GraderInput is the standard input of a grader command.
type GraderInput struct {
	Task   Task   `json:"task"`
	Result string `json:"result"`
	// Calls are the model calls of the attempt, in order. They are nil, and no part of the
	// JSON, unless the grader wants them.
	Calls []GraderCall `json:"calls,omitzero"`
}

// GraderCall is a model call of an attempt.
type GraderCall struct {
	// Agent is the agent's name in the base URL of the call; empty if it has none.
	Agent string `json:"agent,omitempty"`
	// Policy is the name of the policy that answered.
	Policy string `json:"policy"`
	// Request is the body as the agent sent it, and Response the body of the reply. If the
	// agent asked for a stream, Response is the reply as if it had not.
	Request  json.RawMessage `json:"request"`
	Response json.RawMessage `json:"response"`
}

// CommandGrade is what a grader command decides.
type CommandGrade struct {
	Reward float64
	// Rewards are those of the names in grader.rewards.
	Rewards map[string]float64
}

const (
	keptOutput = 64 << 10 // of the end of standard output
	keptError  = 4 << 10  // of the end of standard error
	// commandSeconds is a grader's default time limit.
	commandSeconds = 10
)

// GradeCommand runs the grader's command in its directory, with the environment of this
// process and with {"task": …, "result": …} as JSON on standard input. The last line that
// the command prints and that is not blank is the reward, a finite decimal number. Errors
// about the command are a *CommandError. If ctx ends first, the error is that of ctx,
// which says nothing about the command. At the end, the command and the processes that it
// started are killed.
func GradeCommand(ctx context.Context, g spec.Grader, in GraderInput) (CommandGrade, error) {
	t := in.Task
	input, err := json.Marshal(in)
	if err != nil {
		return CommandGrade{}, fmt.Errorf("encode task %s for its grader: %w", t.ID, err)
	}
	if len(g.Command) == 0 {
		return CommandGrade{}, &CommandError{Task: t.ID, Cause: fmt.Errorf("%w: no command", ErrGraderStart)}
	}
	seconds := g.Seconds
	if seconds == 0 {
		seconds = commandSeconds
	}
	limited, cancel := context.WithTimeout(ctx, time.Duration(seconds*float64(time.Second)))
	defer cancel()
	stdout, stderr := subprocess.NewTail(keptOutput), subprocess.NewTail(keptError)
	command := exec.CommandContext(limited, g.Command[0], g.Command[1:]...)
	command.Dir, command.Stdin, command.Stdout, command.Stderr = g.Directory, bytes.NewReader(input), stdout, stderr
	command.Env = subprocess.Environment()
	subprocess.OwnGroup(command)
	err = run(command)
	switch {
	case err != nil && ctx.Err() != nil:
		return CommandGrade{}, fmt.Errorf("grade task %s: %w", t.ID, ctx.Err())
	case err != nil && limited.Err() != nil:
		err = fmt.Errorf("%w of %g seconds", ErrGraderTime, seconds)
	}
	var grade CommandGrade
	if err == nil {
		grade, err = gradeIn(stdout, g.Rewards)
	}
	if err != nil {
		return CommandGrade{}, &CommandError{Task: t.ID, Cause: err, Stderr: stderr.String()}
	}
	return grade, nil
}

func run(command *exec.Cmd) error {
	switch started, err := subprocess.Run(command); {
	case err == nil:
		return nil
	case started:
		return fmt.Errorf("%w: %w", ErrGraderExit, err)
	default:
		return fmt.Errorf("%w: %w", ErrGraderStart, err)
	}
}

// gradeIn returns the grade on the last line: a number or, if the grader gives named rewards,
// an object with all of them. A line whose beginning is gone is refused, because the rest of it
// may be a number that nobody meant.
func gradeIn(stdout *subprocess.Tail, names []string) (CommandGrade, error) {
	output := strings.TrimRightFunc(stdout.String(), unicode.IsSpace)
	start := strings.LastIndexByte(output, '\n') + 1
	last := strings.TrimSpace(output[start:])
	switch {
	case start == 0 && stdout.Cut():
		return CommandGrade{}, fmt.Errorf("%w: its last line, or the white space after it, has more than %d bytes", ErrGraderReward, keptOutput)
	case last == "":
		return CommandGrade{}, fmt.Errorf("%w: it printed nothing", ErrGraderReward)
	case len(names) > 0:
		return namedGrade(last, names)
	}
	reward, err := strconv.ParseFloat(last, 64)
	if err != nil || math.IsNaN(reward) || math.IsInf(reward, 0) {
		return CommandGrade{}, fmt.Errorf("%w: its last line is %.60q, no finite number", ErrGraderReward, last)
	}
	return CommandGrade{Reward: reward}, nil
}

// namedGrade reads {"reward": NUMBER, "rewards": {NAME: NUMBER}}.
func namedGrade(line string, names []string) (CommandGrade, error) {
	var given struct {
		Reward  *float64            `json:"reward"`
		Rewards map[string]*float64 `json:"rewards"`
	}
	decoder := json.NewDecoder(strings.NewReader(line))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&given)
	if err == nil && decoder.More() {
		err = errors.New("there is more after the object")
	}
	if err != nil {
		return CommandGrade{}, fmt.Errorf(`%w: its last line is %.60q, and grader.rewards asks for {"reward": NUMBER, "rewards": {NAME: NUMBER}}: %w`, ErrGraderReward, line, err)
	}
	if given.Reward == nil {
		return CommandGrade{}, fmt.Errorf(`%w: its last line has no "reward"`, ErrGraderReward)
	}
	for _, name := range names {
		if given.Rewards[name] == nil {
			return CommandGrade{}, fmt.Errorf(`%w: its last line has no %q among "rewards", which grader.rewards names`, ErrGraderReward, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given.Rewards)) {
		if !slices.Contains(names, name) {
			return CommandGrade{}, fmt.Errorf(`%w: its last line has %q among "rewards", which grader.rewards does not name`, ErrGraderReward, name)
		}
	}
	out := CommandGrade{*given.Reward, map[string]float64{}}
	for _, name := range names {
		out.Rewards[name] = *given.Rewards[name]
	}
	return out, nil
}

// Result is what an agent returned for a task.
type Result struct {
	ID   json.RawMessage // the task's id, as it was written
	Task Task
	Text string // the result; JSON of another type than text is kept as its text
}

// ReadResults reads results of the tasks in a list, one JSON object per line:
//
//	{"id": "a1", "result": "33"}
//
// Its rules and errors are those of Open for such a file, except that an id may occur
// several times and that other keys are ignored.
func ReadResults(from io.Reader, name string, list []Task) ([]Result, error) {
	r, array, err := contents(from, name)
	switch {
	case err != nil:
		return nil, err
	case array:
		return nil, fmt.Errorf("read %s: it is one JSON array: write one result, a JSON object, on each line", name)
	}
	byID := make(map[string]Task, len(list))
	for _, t := range list {
		byID[t.ID] = t
	}
	return readLines(r, name, "results", func(text []byte, _ int) (Result, error) { return parseResult(text, byID) })
}

func parseResult(text []byte, byID map[string]Task) (Result, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) {
			return Result{}, fmt.Errorf(`want a JSON object {"id": …, "result": …}, not a JSON %s`, kind.Value)
		}
		return Result{}, fmt.Errorf(`want a JSON object {"id": …, "result": …}: %w`, err)
	}
	for _, key := range []string{"id", "result"} {
		if value, ok := fields[key]; !ok || string(value) == "null" {
			return Result{}, fmt.Errorf("no %s", key)
		}
	}
	r := Result{ID: fields["id"], Text: textOf(fields["result"])}
	id := textOf(r.ID)
	var known bool
	if r.Task, known = byID[id]; !known {
		return r, fmt.Errorf("no task has the id %q", id)
	}
	return r, nil
}
