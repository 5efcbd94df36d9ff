package trace

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Kind says what a rollout is for. Only rollouts of the kinds Train and Reserve are
// trained on.
type Kind string

// The kinds of rollout.
const (
	Train Kind = "train" // feeds a training step
	// Reserve replaces a group of a training step whose task was quarantined, or which
	// would teach nothing.
	Reserve Kind = "reserve"
	Gate    Kind = "gate" // decides about promotion
	Test    Kind = "test" // reported before and after, never used to choose
	Try     Kind = "try"  // made by `fulgurite try`
)

// Valid reports whether k is one of the kinds above.
func (k Kind) Valid() bool {
	switch k {
	case Train, Reserve, Gate, Test, Try:
		return true
	}
	return false
}

// ErrAddress is wrapped by every error of ParseAddress and CheckRunName.
var ErrAddress = errors.New("bad address")

// RolloutID names one sample of one task: run / kind-step / task / sample.
// Step counts from 0 for evaluations of the start and from 1 for training;
// Task and Sample are ordinals from 0, never a user's text.
type RolloutID struct {
	Run    string `json:"run"`
	Kind   Kind   `json:"kind"`
	Step   int    `json:"step"`
	Task   int    `json:"task"`
	Sample int    `json:"sample"`
}

// String returns the rollout's path, for example "demo/train-3/17/2".
func (r RolloutID) String() string {
	return fmt.Sprintf("%s/%s-%d/%d/%d", r.Run, r.Kind, r.Step, r.Task, r.Sample)
}

// Address names one attempt at a rollout. Attempts count from 1; the store
// allocates them.
type Address struct {
	RolloutID
	Attempt int `json:"attempt"`
}

// String returns the attempt's path, for example "demo/train-3/17/2/1".
func (a Address) String() string { return a.RolloutID.String() + "/" + strconv.Itoa(a.Attempt) }

// ParseAddress reads what Address.String wrote and nothing else.
func ParseAddress(s string) (Address, error) {
	parts := strings.Split(s, "/")
	if len(parts) != 5 {
		return Address{}, fmt.Errorf("%w %q: want run/kind-step/task/sample/attempt", ErrAddress, s)
	}
	kind, step, ok := strings.Cut(parts[1], "-")
	if !ok || !Kind(kind).Valid() {
		return Address{}, fmt.Errorf("%w %q: %q is not kind-step", ErrAddress, s, parts[1])
	}
	var n [4]int
	for i, p := range []string{step, parts[2], parts[3], parts[4]} {
		v, err := strconv.Atoi(p)
		if err != nil || v < 0 || strconv.Itoa(v) != p {
			return Address{}, fmt.Errorf("%w %q: %q is not an ordinal", ErrAddress, s, p)
		}
		n[i] = v
	}
	a := Address{RolloutID{parts[0], Kind(kind), n[0], n[1], n[2]}, n[3]}
	if a.Attempt < 1 {
		return Address{}, fmt.Errorf("%w %q: attempts count from 1", ErrAddress, s)
	}
	return a, CheckRunName(a.Run)
}

var runName = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$`)

// CheckRunName reports whether s can name a run: 1 to 63 of a–z, 0–9, dot,
// dash and underscore, with a letter or digit at both ends, because it becomes
// a URL path, a file name and a workflow id.
func CheckRunName(s string) error {
	if !runName.MatchString(s) {
		return fmt.Errorf("%w: run name %q: use 1 to 63 of a-z, 0-9, '.', '_' and '-', with a letter or digit at both ends", ErrAddress, s)
	}
	return nil
}
