package retention

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
)

// UserReport says what a user had left. The keys of its JSON are a public contract.
type UserReport struct {
	// User is the keyed hash of the user.
	User string `json:"user"`
	// Runs are those from which it is removed, by name.
	Runs []record.ForgottenUserReport `json:"runs"`
	// UnderWay are runs of which a step that is not finished learns from the user. Nothing of
	// them is removed.
	UnderWay []string `json:"under_way"`
	DryRun   bool     `json:"dry_run"`
}

// storedUserReport is what the tombstone of a user holds: the report, and what an interrupted
// removal needs to go on.
type storedUserReport struct {
	record.ForgottenUserReport
	// Files are the blobs that have something of the user.
	Files []string `json:"files"`
}

// ForgetUser removes what a user, named by the keyed hash, said to the versions of all runs,
// or of one of them, and of their replies: conversations with everything that is on record of
// them, feedback, and the batches of the steps whose segments have some of it. A run that is
// under way keeps serving; it is left out only while a step that is not finished learns from
// the user, because the step needs its batch. On a dry run nothing changes.
func (f *Forgetter) ForgetUser(ctx context.Context, user, in, by, reason string, dryRun bool) (UserReport, error) {
	out := UserReport{User: user, Runs: []record.ForgottenUserReport{}, UnderWay: []string{}, DryRun: dryRun}
	if user == "" {
		return out, errors.New("forget a user: the hash is empty")
	}
	names, err := f.Store.RunsOfUser(ctx, user)
	if err != nil {
		return out, err
	}
	type planned struct {
		run   record.Run
		stone *record.Forgotten
		plan  storedUserReport
	}
	var all []planned
	for _, name := range names {
		if in != "" && name != in {
			continue
		}
		run, err := f.Store.Run(ctx, name)
		if errors.Is(err, record.ErrForgotten) {
			continue // all of it goes
		}
		if err != nil {
			return out, err
		}
		one := planned{run: run}
		if one.stone, err = f.begunUser(ctx, name, user); err != nil {
			return out, err
		}
		if one.plan, err = f.planUser(ctx, run, user, one.stone); err != nil {
			return out, fmt.Errorf("forget a user in run %s: %w", name, err)
		}
		learns, err := f.learns(ctx, run, one.plan.Steps)
		if err != nil {
			return out, err
		}
		if learns {
			out.UnderWay = append(out.UnderWay, name)
			continue
		}
		all = append(all, one)
	}
	switch {
	case len(all) > 0:
	case len(out.UnderWay) > 0:
		return out, fmt.Errorf("%w: a step that is not finished learns from the user (of %s): give the command again when it is", ErrRefused, strings.Join(out.UnderWay, ", "))
	case in != "":
		return out, fmt.Errorf("%w: run %s has nothing of this user", record.ErrNotFound, in)
	default:
		return out, fmt.Errorf("%w: no run has anything of this user", record.ErrNotFound)
	}
	for _, one := range all {
		if !dryRun {
			if err := f.forgetUserIn(ctx, one.run, user, by, reason, one.stone, one.plan); err != nil {
				return out, fmt.Errorf("forget a user in run %s: %w", one.run.Name, err)
			}
		}
		out.Runs = append(out.Runs, one.plan.ForgottenUserReport)
	}
	return out, nil
}

// learns reports whether a run is still making one of the steps: it then needs the batch.
func (f *Forgetter) learns(ctx context.Context, run record.Run, steps []int) (bool, error) {
	if run.Status != record.Running || len(steps) == 0 {
		return false, nil
	}
	last, err := f.Store.LastStep(ctx, run.Name, model.DefaultPolicy)
	if err != nil && !errors.Is(err, record.ErrNotFound) {
		return false, err
	}
	return slices.Max(steps) > last.Step, nil
}

// begunUser returns the tombstone of a removal of the user that has not ended, nil if there is
// none.
func (f *Forgetter) begunUser(ctx context.Context, run, user string) (*record.Forgotten, error) {
	all, err := f.Store.Forgotten(ctx, run)
	for _, one := range all {
		if one.What == record.ForgottenUser && one.Ended.IsZero() && strings.HasPrefix(one.Task, user+"/") {
			return &one, nil
		}
	}
	return nil, err
}

// planUser finds what a user left in a run. What an interrupted removal has found is part of
// it.
func (f *Forgetter) planUser(ctx context.Context, run record.Run, user string, stone *record.Forgotten) (storedUserReport, error) {
	p := storedUserReport{ForgottenUserReport: record.ForgottenUserReport{Run: run.Name, Conversations: []int{}, Steps: []int{}, Versions: []string{}}, Files: []string{}}
	conversations, err := f.Store.ConversationsOfUser(ctx, run.Name, user)
	if err != nil {
		return p, err
	}
	p.Conversations = append(p.Conversations, conversations...)
	for _, n := range conversations {
		a, err := f.Store.Attempt(ctx, record.ConversationAddress(run.Name, n))
		if errors.Is(err, record.ErrNotFound) {
			continue // its removal was interrupted
		}
		if err != nil {
			return p, err
		}
		p.Calls, p.Tokens = p.Calls+a.Calls, p.Tokens+a.Tokens
	}
	feedback, err := f.Store.FeedbackOfUser(ctx, run.Name, user)
	if err != nil {
		return p, err
	}
	p.Feedback = len(feedback)
	segments, err := f.Store.Segments(ctx, run.Name, model.DefaultPolicy)
	if err != nil {
		return p, err
	}
	steps := map[int]bool{}
	for _, s := range segments {
		if slices.ContainsFunc(s.Conversations, func(n int) bool { return slices.Contains(conversations, n) }) ||
			slices.ContainsFunc(s.Feedback, func(id string) bool { return slices.Contains(feedback, id) }) {
			steps[s.Step] = true
			p.Steps = append(p.Steps, s.Step)
		}
	}
	found, err := f.batchesWith(ctx, run.Name, steps, func(model.Batch) bool { return true }) // the segment says so
	p.Files, p.Versions = append(p.Files, found.files...), append(p.Versions, found.versions...)
	if err != nil || stone == nil {
		return p, err
	}
	var before storedUserReport
	if err := json.Unmarshal(stone.Report, &before); err != nil {
		return p, fmt.Errorf("decode its report: %w", err)
	}
	return before.and(p), nil
}

// and returns what an interrupted removal had found together with what is there still, or has
// come since.
func (p storedUserReport) and(now storedUserReport) storedUserReport {
	p.Conversations, p.Steps = union(p.Conversations, now.Conversations), union(p.Steps, now.Steps)
	p.Versions, p.Files = union(p.Versions, now.Versions), union(p.Files, now.Files)
	p.Calls, p.Tokens, p.Feedback = max(p.Calls, now.Calls), max(p.Tokens, now.Tokens), max(p.Feedback, now.Feedback)
	return p
}

func union[T cmp.Ordered](a, b []T) []T {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return append([]T{}, slices.Compact(all)...)
}

// forgetUserIn removes what a user left in a run. The files go first, because they are found
// by rows that go later.
func (f *Forgetter) forgetUserIn(ctx context.Context, run record.Run, user, by, reason string, stone *record.Forgotten, p storedUserReport) error {
	if stone == nil {
		text, err := json.Marshal(p)
		if err != nil {
			return fmt.Errorf("encode its report: %w", err)
		}
		before, err := f.Store.Forgotten(ctx, run.Name)
		if err != nil {
			return err
		}
		number := 1
		for _, one := range before {
			if one.What == record.ForgottenUser && strings.HasPrefix(one.Task, user+"/") {
				number++
			}
		}
		begun, _, err := f.Store.BeginForgetting(ctx, run, record.Forgotten{Run: run.Name, What: record.ForgottenUser, Task: fmt.Sprintf("%s/%d", user, number), By: by, Reason: reason, Report: text})
		if errors.Is(err, record.ErrConflict) {
			return fmt.Errorf("%w: %w", ErrRefused, err)
		}
		if err != nil {
			return err
		}
		stone = &begun
		// A segment may have been made after the plan, and before the tombstone.
		if p, err = f.planUser(ctx, run, user, stone); err != nil {
			return err
		}
		learns, err := f.learns(ctx, run, p.Steps)
		if err != nil {
			return err
		}
		if learns {
			return fmt.Errorf("%w: a step that is not finished learns from the user: give the command again when it is", ErrRefused)
		}
	}
	if len(p.Files) > 0 {
		_, needed, err := f.candidates(ctx, run.Name)
		if err != nil {
			return err
		}
		if err := f.removeUnneeded(ctx, run.Name, p.Files, needed); err != nil {
			return err
		}
	}
	for _, n := range p.Conversations {
		if err := f.Store.RemoveConversation(ctx, run.Name, n); err != nil {
			return err
		}
	}
	if err := f.Store.RemoveFeedbackOf(ctx, run.Name, user); err != nil {
		return err
	}
	stone.Ended = time.Now().UTC()
	var err error
	if stone.Report, err = json.Marshal(p); err != nil {
		return fmt.Errorf("encode its report: %w", err)
	}
	return f.Store.EndForgetting(ctx, *stone)
}
