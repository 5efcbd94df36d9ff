package actions

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/trace"
)

// state is what the form of an action shows of a run and what the action depends on. A
// form posts the state that it showed, so that nobody acts on another one: the promotion
// rule, another tab or another person may have changed it meanwhile.
type state struct {
	moves    int    // of the promoted pointer, for actions that move it; else 0
	promoted int    // the version that is promoted after these moves, or -1
	back     int    // the version that a rollback leads to if the form names none, or -1
	run      string // status and execution, for actions that the workflow does
	settings string // a digest of the values that can be set
}

// String is the form of a state in a form's hidden field.
func (s state) String() string {
	return fmt.Sprintf("%d.%d.%d.%s.%s", s.moves, s.promoted, s.back, s.run, s.settings)
}

// parseState reads what String wrote.
func parseState(text string) (state, error) {
	parts := strings.Split(text, ".")
	if len(parts) != 5 {
		return state{}, errors.New("seen: not from a form of this page")
	}
	s := state{run: parts[3], settings: parts[4]}
	for i, to := range []*int{&s.moves, &s.promoted, &s.back} {
		n, err := strconv.Atoi(parts[i])
		if err != nil {
			return state{}, errors.New("seen: not from a form of this page")
		}
		*to = n
	}
	return s, nil
}

// state returns the state of a run as far as actions of a kind depend on it.
func (p *Pages) state(ctx context.Context, run record.Run, k kind) (state, error) {
	out := state{promoted: -1, back: -1}
	switch {
	case MovesPointer(k.Name):
		history, err := p.Records.Promotions(ctx, run.Name, model.DefaultPolicy)
		if err != nil {
			return out, err
		}
		if out.moves = len(history); out.moves > 0 {
			out.promoted = history[out.moves-1].Version
		}
		if v, ok := record.Before(history); ok && k.Name == record.ActionRollback {
			out.back = v
		}
	case k.Name != record.ActionExport:
		out.run = digest(string(run.Status), run.ExecutionID)
	}
	if k.TakesNumbers {
		settings, err := p.settings(ctx, run)
		if err != nil {
			return out, err
		}
		out.settings = digest(fmt.Sprint(settings))
	}
	return out, nil
}

// digest names texts in few characters.
func digest(texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return hex.EncodeToString(sum[:6])
}

// changed reports, in words, how the state differs from the one that the form of an action
// showed; it returns "" if it does not, or if the action is on record already, because an
// action that is sent twice is answered twice. Otherwise it binds the action to the state
// that was shown. Programs, which show nobody a form, send no state and act on the one
// that is.
func (p *Pages) changed(ctx context.Context, run record.Run, a *record.Action, seen string) (string, error) {
	if seen == "" {
		return "", nil
	}
	shown, err := parseState(seen)
	if err != nil {
		return err.Error() + ". Nothing was done. Send the form again.", nil
	}
	if MovesPointer(a.Name) {
		a.Input.Moves = &shown.moves
		if a.Name == record.ActionRollback && a.Input.Version == nil && shown.back >= 0 {
			a.Input.Version = &shown.back
		}
	}
	if _, err := p.Records.Action(ctx, a.ID); err == nil {
		return "", nil
	} else if !errors.Is(err, trace.ErrNotFound) {
		return "", err
	}
	k, _ := kindOf(a.Name)
	now, err := p.state(ctx, run, k)
	if err != nil {
		return "", err
	}
	const again = " Nothing was done. This is the state now: send the form again if it is still what you want."
	switch {
	case now.moves != shown.moves && now.promoted != shown.promoted:
		return fmt.Sprintf("Version %d was promoted when this form was shown, and version %d is promoted now.", shown.promoted, now.promoted) + again, nil
	case now.moves != shown.moves:
		return "The promoted version was moved, pinned or unpinned after this form was shown." + again, nil
	case now.run != shown.run:
		return fmt.Sprintf("The run has gone on or ended after this form was shown: it is %s now.", run.Status) + again, nil
	case now.settings != shown.settings:
		return "Keys were set after this form was shown." + again, nil
	}
	return "", nil
}
