package dataset

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
)

// ErrFormat is wrapped when the extension of a file's name is no known format.
var ErrFormat = errors.New("unknown format")

// extensionLines is the extension of a file with a JSON object on each line.
const extensionLines = ".jsonl"

// rowGroup is how many rows form a row group of a Parquet file.
const rowGroup = 1024

// sink takes rows of one kind.
type sink[T any] interface {
	put(row T) error
	close() error
}

// WriteFile writes the rows that read yields to a file, in the format of its extension:
// ".jsonl" or ".parquet". The file appears only when it is complete; until then, an
// earlier file with its name stays. WriteFile returns the number of rows.
//
// A pipe or a device, such as /dev/stdout, is written as the rows come, as JSONL if its name
// has no extension.
func WriteFile[T any](ctx context.Context, path string, read func(context.Context, func(T) error) error) (rows int, err error) {
	return writeFile(ctx, path, open[T], read)
}

// WriteLines does what WriteFile does, for rows that no table can hold: only ".jsonl" is a
// format of theirs.
func WriteLines[T any](ctx context.Context, path string, read func(context.Context, func(T) error) error) (rows int, err error) {
	return writeFile(ctx, path, func(extension string, w io.Writer) (sink[T], error) {
		if extension != extensionLines {
			return nil, fmt.Errorf("%w %q: give a name that ends in .jsonl", ErrFormat, extension)
		}
		return open[T](extension, w)
	}, read)
}

// opener begins a file in the format of an extension.
type opener[T any] func(extension string, w io.Writer) (sink[T], error)

func writeFile[T any](ctx context.Context, path string, open opener[T], read func(context.Context, func(T) error) error) (rows int, err error) {
	if IsStream(path) {
		return writeStream(ctx, path, open, read)
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return 0, fmt.Errorf("create %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, temporary.Close(), os.Remove(temporary.Name()))
		}
	}()
	if rows, err = write(ctx, filepath.Ext(path), path, temporary, open, read); err != nil {
		return rows, err
	}
	return rows, finish(temporary, path)
}

// IsStream reports whether a path is that of a pipe or a device.
func IsStream(path string) bool {
	if strings.HasPrefix(path, "/dev/") { // it may lead to a file to which a shell redirects the output
		return true
	}
	stat, err := os.Stat(path)
	return err == nil && !stat.Mode().IsRegular() && !stat.IsDir()
}

func writeStream[T any](ctx context.Context, path string, open opener[T], read func(context.Context, func(T) error) error) (int, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return 0, fmt.Errorf("open %s: %w", path, err)
	}
	rows, err := write(ctx, cmp.Or(filepath.Ext(path), extensionLines), path, f, open, read)
	return rows, errors.Join(err, f.Close())
}

// write writes the rows in the format of an extension.
func write[T any](ctx context.Context, extension, path string, to io.Writer, open opener[T], read func(context.Context, func(T) error) error) (rows int, err error) {
	out, err := open(extension, to)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	err = read(ctx, func(row T) error {
		rows++
		if err := out.put(row); err != nil {
			return fmt.Errorf("write row %d: %w", rows, err)
		}
		return ctx.Err()
	})
	if err = errors.Join(err, out.close()); err != nil {
		return rows, fmt.Errorf("write %s: %w", path, err)
	}
	return rows, nil
}

// finish gives a completely written file its name.
func finish(f *os.File, path string) error {
	if err := errors.Join(f.Chmod(0o644), f.Sync()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return f.Close()
}

func open[T any](extension string, w io.Writer) (sink[T], error) {
	switch extension {
	case extensionLines:
		buffered := bufio.NewWriter(w)
		encoder := json.NewEncoder(buffered)
		encoder.SetEscapeHTML(false)
		return lines[T]{encoder, buffered}, nil
	case ".parquet":
		return table[T]{parquet.NewGenericWriter[T](w, parquet.MaxRowsPerRowGroup(rowGroup), parquet.Compression(&parquet.Zstd))}, nil
	}
	return nil, fmt.Errorf("%w %q: give a name that ends in .jsonl or .parquet", ErrFormat, extension)
}

type lines[T any] struct {
	encoder  *json.Encoder
	buffered *bufio.Writer
}

func (l lines[T]) put(row T) error { return l.encoder.Encode(row) }
func (l lines[T]) close() error    { return l.buffered.Flush() }

type table[T any] struct{ *parquet.GenericWriter[T] }

func (t table[T]) put(row T) error {
	_, err := t.Write([]T{row})
	return err
}
func (t table[T]) close() error { return t.Close() }

// Transition is one model call of a trained attempt: state, action and what the action
// was worth.
type Transition struct {
	Run     string `json:"run" parquet:"run,dict"`
	Step    int    `json:"step" parquet:"step"`
	Group   int    `json:"group" parquet:"group"`     // ordinal in the step
	Attempt string `json:"attempt" parquet:"attempt"` // its address
	Call    int    `json:"call" parquet:"call"`       // its number in the attempt
	ID      string `json:"id" parquet:"id"`           // of the reply
	API     string `json:"api" parquet:"api,dict"`
	Agent   string `json:"agent" parquet:"agent,dict"`
	// AgentSource is the evidence that Agent comes from, an attribution.Source.
	AgentSource string `json:"agent_source" parquet:"agent_source,dict"`

	Policy      string  `json:"policy" parquet:"policy,dict"`
	Version     int     `json:"version" parquet:"version"` // the version that sampled
	Weights     string  `json:"weights" parquet:"weights,dict"`
	Temperature float64 `json:"temperature" parquet:"temperature"`

	PromptIDs []int32 `json:"prompt_ids" parquet:"prompt_ids"`
	// The next six lists have one element for each token of the completion, but Returns
	// is empty without a critic.
	CompletionIDs []int32   `json:"completion_ids" parquet:"completion_ids"`
	Logprobs      []float32 `json:"logprobs" parquet:"logprobs"`
	LossMask      []int32   `json:"loss_mask" parquet:"loss_mask"` // 1 if the token was trained
	Forced        []int32   `json:"forced" parquet:"forced"`       // 1 if the token had no alternative; it is then never trained
	Advantages    []float32 `json:"advantages" parquet:"advantages"`
	Returns       []float32 `json:"returns" parquet:"returns"`
	// Masked tells that the soft-max behind Logprobs included, for each token, only the
	// tokens that Form allowed. Form is a model.Form as JSON.
	Masked bool   `json:"masked" parquet:"masked"`
	Form   string `json:"form" parquet:"form"` // empty unless Masked

	Outcome string  `json:"outcome" parquet:"outcome,dict"` // of the attempt, a record.Outcome
	Failure string  `json:"failure" parquet:"failure,dict"` // how its agent failed, in a word; empty if it did not
	Reward  float64 `json:"reward" parquet:"reward"`        // of the trajectory, before shaping
	// Rewards are the attempt's rewards by name, CallRewards those of this call.
	Rewards     []NamedReward `json:"rewards" parquet:"rewards"`
	CallRewards []NamedReward `json:"call_rewards" parquet:"call_rewards"`
	// ShapedReward is the weighted sum of the rewards after shaping; nil if no credit could
	// be given.
	ShapedReward *float64 `json:"shaped_reward" parquet:"shaped_reward,optional"`
	Advantage    float64  `json:"advantage" parquet:"advantage"` // of the call's last trained token
	// Last marks the last call of the trajectory.
	Last bool `json:"last" parquet:"last"`

	Finish     string `json:"finish" parquet:"finish,dict"`
	ParseError string `json:"parse_error" parquet:"parse_error"`
	Request    string `json:"request" parquet:"request"`   // the JSON that the agent sent
	Response   string `json:"response" parquet:"response"` // the JSON that answered it
}

// Sequence is one row of a batch: calls that extend each other, merged.
type Sequence struct {
	Run     string `json:"run" parquet:"run,dict"`
	Step    int    `json:"step" parquet:"step"`
	Group   int    `json:"group" parquet:"group"`
	Attempt string `json:"attempt" parquet:"attempt"`
	Batch   string `json:"batch" parquet:"batch,dict"` // digest of the batch's blob

	Temperature float64 `json:"temperature" parquet:"temperature"`
	// These have one element for each token; Returns has none without a critic.
	InputIDs   []int32   `json:"input_ids" parquet:"input_ids"`
	LossMask   []int32   `json:"loss_mask" parquet:"loss_mask"`
	Logprobs   []float32 `json:"logprobs" parquet:"logprobs"`
	Advantages []float32 `json:"advantages" parquet:"advantages"`
	Returns    []float32 `json:"returns" parquet:"returns"`
	Calls      []int32   `json:"calls" parquet:"calls"`   // the call whose completion contains the token, -1 for context
	Forced     []int32   `json:"forced" parquet:"forced"` // 1 if the token had no alternative; it is then never trained
	Masked     []int32   `json:"masked" parquet:"masked"` // 1 if one of Forms restricted the soft-max
	// Forms holds the forms of the completions in the row, in order.
	Forms []SequenceForm `json:"forms" parquet:"forms"`

	// These are of the trajectory, as in a Transition.
	Outcome      string        `json:"outcome" parquet:"outcome,dict"`
	Failure      string        `json:"failure" parquet:"failure,dict"`
	Reward       float64       `json:"reward" parquet:"reward"`
	Rewards      []NamedReward `json:"rewards" parquet:"rewards"`
	ShapedReward *float64      `json:"shaped_reward" parquet:"shaped_reward,optional"`
	Advantage    float64       `json:"advantage" parquet:"advantage"`
}

// NamedReward is a reward under its name.
type NamedReward struct {
	Name  string  `json:"name" parquet:"name,dict"`
	Value float64 `json:"value" parquet:"value"`
}

// SequenceForm is the form that restricted a completion.
type SequenceForm struct {
	Start  int    `json:"start" parquet:"start"`   // of the completion in the row
	Length int    `json:"length" parquet:"length"` // in tokens
	Form   string `json:"form" parquet:"form"`     // a model.Form as JSON
}

// sequence returns a row of the batch for export. merged is the same row, made from its
// calls.
func sequence(run, digest string, b model.Batch, r model.BatchRow, a attempt, merged record.Sequence) (Sequence, error) {
	t, n := b.Trajectories[r.Trajectory], len(r.Tokens)
	out := Sequence{
		Run: run, Step: b.Step, Group: t.Group, Attempt: t.Attempt, Batch: digest, Temperature: r.Temperature,
		InputIDs: r.Tokens, LossMask: marks(r.Sampled), Logprobs: r.Logprobs, Advantages: r.Advantages, Returns: listed(r.Returns),
		Calls: make([]int32, n), Forced: make([]int32, n), Masked: make([]int32, n), Forms: []SequenceForm{},
		Outcome: string(a.Outcome), Failure: a.Failure, Reward: t.Reward, Rewards: a.rewards, ShapedReward: a.shaped, Advantage: t.Advantage,
	}
	next := make([]int, len(a.History))
	for i, call := range merged.Origin {
		if call < 0 {
			out.Calls[i] = -1
			continue
		}
		c := a.History[call]
		out.Calls[i] = int32(c.Seq)
		if c.Untrained != nil && c.Untrained[next[call]] {
			out.Forced[i] = 1
		}
		next[call]++
	}
	for _, f := range r.Forms {
		form, err := json.Marshal(f.Form)
		if err != nil {
			return out, fmt.Errorf("encode the form of %s at token %d: %w", t.Attempt, f.Start, err)
		}
		out.Forms = append(out.Forms, SequenceForm{f.Start, f.Length, string(form)})
		for i := f.Start; i < f.Start+f.Length; i++ {
			out.Masked[i] = 1
		}
	}
	return out, nil
}

// transition returns a call with the numbers with which its tokens were trained.
func transition(b model.Batch, t model.BatchTrajectory, c record.Exchange, by attribution.Name, a attempt, with training) (Transition, error) {
	out := Transition{
		Run: c.Run, Step: b.Step, Group: t.Group, Attempt: t.Attempt, Call: c.Seq, ID: c.ID, API: cmp.Or(c.API, "chat"),
		Agent: by.Agent, AgentSource: string(by.Source),
		Policy: c.Policy, Version: c.Version, Weights: c.Weights, Temperature: c.Temperature,
		PromptIDs: c.Prompt, CompletionIDs: c.Completion, Logprobs: c.Logprobs, LossMask: with.mask, Forced: make([]int32, len(c.Completion)),
		Advantages: with.advantages, Returns: listed(with.returns),
		Outcome: string(a.Outcome), Failure: a.Failure, Reward: t.Reward, Rewards: a.rewards, CallRewards: a.callRewards(c.ID), ShapedReward: a.shaped,
		Finish: c.Finish, ParseError: c.ParseError, Request: string(c.Request), Response: string(c.Response),
	}
	if c.Untrained != nil {
		out.Forced = marks(c.Untrained)
	}
	for i, trained := range with.mask {
		if trained == 1 {
			out.Advantage = float64(with.advantages[i])
		}
	}
	if len(c.Form) == 0 {
		return out, nil
	}
	var form model.Form
	if err := json.Unmarshal(c.Form, &form); err != nil {
		return out, fmt.Errorf("form of call %s: %w", c.ID, err)
	}
	if form.Masks() {
		out.Masked, out.Form = true, string(c.Form)
	}
	return out, nil
}

func marks(set []bool) []int32 {
	out := make([]int32, len(set))
	for i, s := range set {
		if s {
			out[i] = 1
		}
	}
	return out
}

// listed turns nil into an empty list, for readers of the JSON.
func listed(values []float32) []float32 { return append([]float32{}, values...) }
