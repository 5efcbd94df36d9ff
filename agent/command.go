package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fulgurite/fulgurite/agent/process"
	"github.com/fulgurite/fulgurite/internal/truncate"
)

// ErrNotStarted is wrapped when the program could not be started: on this worker, it does
// not exist or isn't executable. The attempt then says nothing about the agent, so this
// is a fault and no failure.
var ErrNotStarted = process.ErrNotStarted

// Command is an agent that is a program, run once for each attempt.
//
// It finds its task as JSON on standard input (and in FULGURITE_TASK, up to
// 96 KiB), and the address and key of its model in the variables that the usual
// clients read. Its result is the last line of standard output that isn't blank; an exit
// code other than 0 is a failure, except for 75, which asks for another attempt. Processes that it leaves running are ended.
//
// A program that uses Command runs itself again beside each agent, as its supervisor, which
// ends before the main function: variables and init functions of packages that are prepared
// before this one act there too.
type Command struct {
	// Args are the program, found through PATH if it has no slash, and its
	// arguments.
	Args []string
	// Scratch is the directory below which each rollout has its home. If it is empty,
	// that is a directory of the user below the system's directory for temporary files.
	Scratch string
	// Isolation puts the program into a sandbox; nil does not. Its hooks and the tests of
	// a workspace are not in it.
	Isolation *Isolation
}

// Conceal keeps other processes of the user, such as agents, from reading this one's
// environment and memory, where keys and passwords are. It works only on Linux.
func Conceal() error { return process.Conceal() }

// Launch runs the program under a shim.
func (c Command) Launch(ctx context.Context, job Job) (Result, error) {
	if len(c.Args) == 0 {
		return Result{}, job.infrastructure(fmt.Errorf("%w: no program given", ErrNotStarted))
	}
	if ctx.Err() != nil {
		return Result{}, job.infrastructure(context.Cause(ctx))
	}
	task, err := json.Marshal(job.Task)
	if err != nil {
		return Result{}, job.infrastructure(fmt.Errorf("encode task: %w", err))
	}
	home := job.home
	if home == nil {
		home, err = process.OpenHome(ctx, c.Scratch, process.Owner{Execution: job.Execution, Attempt: job.Address.Attempt}, job.Address.RolloutID)
		if err != nil {
			return Result{}, job.infrastructure(err)
		}
		// A home that can't be removed doesn't change the result; the next attempt
		// reports it.
		defer func() { _ = home.Close() }()
	}
	result, err := c.run(ctx, job, home, task)
	if err != nil {
		return Result{Output: result.Output}, job.infrastructure(err)
	}
	return result, nil
}

// run starts the shim and has it end the agent when its context ends.
func (c Command) run(ctx context.Context, job Job, home *process.Home, task []byte) (result Result, err error) {
	tooMuch := &LimitError{OutputLimit, fmt.Sprintf("wrote more than %d bytes", job.Limits.OutputBytes)}
	bounded, end := context.WithCancelCause(ctx)
	defer end(context.Canceled)
	output := process.NewOutput(job.Limits.OutputBytes, job.progressed, func() { end(tooMuch) })
	bounded, stop := limited(bounded, job, output.Quiet)
	defer stop()

	args, err := wrapped(c.Args, job)
	if err != nil {
		return Result{}, err
	}
	directory := cmp.Or(job.Directory, home.Path)
	terms := process.Terms{Memory: job.Limits.MemoryBytes}
	if c.Isolation != nil {
		if job, terms.Sandbox, err = c.Isolation.policy(job, home.Path, directory); err != nil {
			return Result{}, err
		}
	}
	shim, err := process.Start(args, terms, home, func(cmd *exec.Cmd) {
		cmd.Env, cmd.Dir = environment(job, home.Path, task), directory
		if c.Isolation != nil && c.Isolation.Container != nil {
			cmd.Env = withoutPath(cmd.Env, job)
		}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(task), output.Stdout, output.Stderr
	})
	if err != nil {
		return Result{}, err
	}
	if err := home.Record(shim); err != nil {
		end(err)
	}
	report, err := shim.Wait(bounded)
	// The output is complete now.
	defer func() {
		printed := output.Record()
		result.Output.Stdout, result.Output.Stderr = printed.Stdout, printed.Stderr
	}()
	failure := func(f Failure, message string) (Result, error) {
		code := report.Code
		if report.Signal != 0 {
			code = 128 + report.Signal
		}
		return Result{Failure: f, Message: message, Stderr: output.StderrEnd(), ExitCode: code}, nil
	}
	var over *LimitError
	switch cause := report.Cause; {
	case errors.As(cause, &over) && err == nil:
		return failure(over.Failure, over.Message)
	case cause != nil:
		return Result{}, cause
	case err != nil:
		return Result{}, err
	case output.Exceeded():
		return failure(tooMuch.Failure, tooMuch.Message)
	case report.Memory > 0:
		return failure(MemoryLimit, fmt.Sprintf("took %d bytes of memory, %d are allowed", report.Memory, job.Limits.MemoryBytes))
	case report.Processes > 0:
		return failure(ProcessLimit, fmt.Sprintf("ran %d processes and threads, %d are allowed", report.Processes, terms.Sandbox.Limits.MaxProcesses()))
	case report.CPU > 0:
		return failure(CPULimit, fmt.Sprintf("took %s of processor time, %s are allowed", report.CPU.Round(10*time.Millisecond), job.Limits.CPU))
	case report.Signal != 0:
		signal := syscall.Signal(report.Signal)
		return failure(signalFailure(signal), "ended by signal: "+signal.String())
	case report.Code == retryCode:
		return failure(Retry, lastWords(output))
	case report.Code != 0:
		return failure(Exit, fmt.Sprintf("exit code %d", report.Code))
	}
	result = resultOf(output.LastLine())
	result.Stderr, result.Output.LinesBefore = output.StderrEnd(), output.LinesBefore()
	return result, nil
}

// lastWords returns the reason of a program that asks for another attempt: its last line on
// standard error, or else on standard output.
func lastWords(output *process.Output) string {
	for _, text := range []string{output.StderrEnd(), resultOf(output.LastLine()).Text} {
		lines := strings.Split(strings.TrimSpace(text), "\n")
		if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
			return truncate.Head(strings.ToValidUTF8(last, "\uFFFD"), messageBytes)
		}
	}
	return fmt.Sprintf("exit code %d, without a reason on standard error", retryCode)
}

// wrapped returns the command line of a job with the words that its workspace puts before
// it. The command may then see files at other paths and begin in another directory. So
// the program is looked up here, and arguments that name files of the job's directory
// become absolute.
func wrapped(args []string, job Job) ([]string, error) {
	if len(job.Wrap) == 0 {
		return args, nil
	}
	out := slices.Concat(job.Wrap, args)
	for i, word := range args[1:] {
		path := filepath.Join(job.Directory, word)
		if stat, err := os.Stat(path); job.Directory != "" && !filepath.IsAbs(word) && err == nil && stat.Mode().IsRegular() {
			out[len(job.Wrap)+1+i] = path
		}
	}
	program, err := exec.LookPath(args[0])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotStarted, err)
	}
	out[len(job.Wrap)] = program
	return out, nil
}

// signalFailure classifies the end of an agent by a signal that was not ours. Some
// signals come from the program's own faults, others from people and from a kernel that
// is short of memory.
func signalFailure(s syscall.Signal) Failure {
	switch s {
	case syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP:
		return Killed
	}
	return Exit
}

// taskVariable is the most bytes of FULGURITE_TASK; a longer task is on
// standard input only, since Linux refuses variables of 128 KiB.
const taskVariable = 96 << 10

// environment returns all variables that a command sees, sorted by name. Only PATH is the
// worker's. Between attempts at a rollout, only the attempt's address (in URLs) and its
// key differ. The job's own variables take precedence.
func environment(job Job, home string, task []byte) []string {
	vars := map[string]string{}
	tables := []map[string]string{baseVariables(home), modelClients(job), tracers(job), privacy(), lightning(job), ownVariables(job, home, task), job.Environment}
	if job.BaseURL == "" { // a grader has no model
		tables = []map[string]string{baseVariables(home), privacy(), job.Environment}
	}
	for _, table := range tables {
		maps.Copy(vars, table)
	}
	env := make([]string, 0, len(vars))
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		env = append(env, name+"="+vars[name])
	}
	return env
}

// withoutPath returns variables without the worker's PATH, since an image has its own.
func withoutPath(env []string, job Job) []string {
	if _, ok := job.Environment["PATH"]; ok {
		return env
	}
	return slices.DeleteFunc(env, func(one string) bool { return strings.HasPrefix(one, "PATH=") })
}

// baseVariables returns the variables that programs expect on any machine.
func baseVariables(home string) map[string]string {
	return map[string]string{
		"PATH":   searchPath(),
		"HOME":   home,
		"TMPDIR": filepath.Join(home, "tmp"),
		"LANG":   "C.UTF-8",
		"TZ":     "UTC",
		// Python then orders sets and dictionaries of strings alike in each attempt.
		"PYTHONHASHSEED": "0",
	}
}

// modelClients returns the variables in which clients look for their model.
func modelClients(job Job) map[string]string {
	return map[string]string{
		"OPENAI_BASE_URL":           job.BaseURL,
		"OPENAI_API_BASE":           job.BaseURL, // older clients and LangChain
		"OPENAI_API_KEY":            job.Key,
		"OPENAI_MODEL_NAME":         job.model(),
		"OPENAI_DEFAULT_MODEL":      job.model(), // OpenAI's Agents SDK
		"OPENAI_CHAT_MODEL_ID":      job.model(), // Semantic Kernel
		"OPENAI_RESPONSES_MODEL_ID": job.model(), // Semantic Kernel
		"ANTHROPIC_BASE_URL":        job.root(),  // its clients add /v1
		"ANTHROPIC_API_KEY":         job.Key,
	}
}

// tracers returns the variables in which instrumentations look for where to send spans.
// Only spans are accepted, so exporters are told not to send the rest.
func tracers(job Job) map[string]string {
	return map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT":        job.spansURL(), // exporters add /v1/traces
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": job.spansURL() + "/v1/traces",
		"OTEL_EXPORTER_OTLP_PROTOCOL":        "http/protobuf",
		"OTEL_EXPORTER_OTLP_HEADERS":         "Authorization=Bearer%20" + job.Key,
		"OTEL_RESOURCE_ATTRIBUTES":           "fulgurite.rollout=" + job.Address.String(),
		"OTEL_METRICS_EXPORTER":              "none",
		"OTEL_LOGS_EXPORTER":                 "none",
		"TRACELOOP_BASE_URL":                 job.spansURL(),
		"TRACELOOP_API_KEY":                  job.Key,
	}
}

// privacy returns variables that keep frameworks from telling third parties about a
// training run.
func privacy() map[string]string {
	return map[string]string{
		"OPENAI_AGENTS_DISABLE_TRACING":            "1",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
		"CREWAI_DISABLE_TELEMETRY":                 "true",
		"TRACELOOP_TELEMETRY":                      "false",
		"DO_NOT_TRACK":                             "1",
	}
}

// ownVariables returns the variables that only agents for Fulgurite know.
func ownVariables(job Job, home string, task []byte) map[string]string {
	vars := map[string]string{
		"FULGURITE_ROLLOUT":    job.Address.RolloutID.String(),
		"FULGURITE_HOME":       home,
		"FULGURITE_REWARD_URL": job.rewardURL(),
		"FULGURITE_EVENT_URL":  job.eventURL(),
	}
	if len(task) <= taskVariable {
		vars["FULGURITE_TASK"] = string(task)
	}
	return vars
}

// searchPath returns the path in which programs are found: the worker's own.
func searchPath() string {
	if p := os.Getenv("PATH"); p != "" {
		return p
	}
	return "/usr/local/bin:/usr/bin:/bin"
}

// lightning returns the variables of Agent Lightning 1.0, so that an agent that was
// written for it runs unchanged: the model's address, the key, and the URL for the
// reward. Such an agent reads its task as the fields of one JSON object.
func lightning(job Job) map[string]string {
	vars := map[string]string{
		"AGL_OPENAI_BASE_URL": job.BaseURL,
		"AGL_KEY":             job.Key,
		"AGL_EVENT_URL":       job.eventURL(),
		"AGL_ROLLOUT_ID":      job.Address.RolloutID.String(),
		"AGL_ATTEMPT_ID":      strconv.Itoa(job.Address.Attempt),
		"AGL_MODEL_NAME":      job.model(),
	}
	fields := map[string]any{}
	maps.Copy(fields, job.Task.Metadata)
	fields["id"], fields["input"] = job.Task.ID, job.Task.Input
	// A task that was read from JSON can be written as JSON.
	if text, err := json.Marshal(fields); err == nil && len(text) <= taskVariable {
		vars["AGL_TASK_INPUT"] = string(text)
	}
	return vars
}
