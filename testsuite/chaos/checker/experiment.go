package checker

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"
)

// The statuses of an experiment, as the store has them.
const (
	experimentPromoted  = "promoted"
	experimentWithdrawn = "withdrawn"
	experimentEnded     = "ended"
)

// verdictRefused is the verdict on a version that the gate refused, which nobody was answered by.
const verdictRefused = "refused"

// Arm is what the last look at an experiment counted of one version.
type Arm struct {
	Conversations int `json:"conversations"`
}

// ExperimentRow is an experiment's row. The arms are those of the last look, which saw feedback
// until a time; the time is zero if nothing was judged.
type ExperimentRow struct {
	ID                 int // of its candidate
	Control            int
	Status             string
	Begun, Ended       time.Time
	Candidate, Against Arm
	Until              time.Time
}

// arm returns the arm of the candidate or of the control.
func (e ExperimentRow) arm(candidate bool) Arm {
	if candidate {
		return e.Candidate
	}
	return e.Against
}

// Decision is the row of a decision that moved no pointer.
type Decision struct {
	Candidate int
	Verdict   string
}

// checkDecisions checks that each version was decided on once, and, if versions are compared in
// use, that it was refused before that or as its experiment ended.
func checkDecisions(f *Findings, e TrafficEvidence) {
	verdicts := map[int][]string{}
	for _, d := range e.Records.Decisions {
		verdicts[d.Candidate] = append(verdicts[d.Candidate], d.Verdict)
	}
	for _, p := range e.Records.Promotions {
		if p.Version > 0 { // version 0 is promoted without a decision
			verdicts[p.Version] = append(verdicts[p.Version], experimentPromoted)
		}
	}
	experiments := map[int]ExperimentRow{}
	for _, x := range e.Records.Experiments {
		experiments[x.ID] = x
	}
	for _, v := range e.Records.Versions {
		if v.Number == 0 {
			continue
		}
		all := verdicts[v.Number]
		if len(all) != 1 {
			f.wrong("version %d was decided on %d times: %s", v.Number, len(all), strings.Join(all, ", "))
			continue
		}
		if len(experiments) == 0 {
			continue
		}
		x, ok := experiments[v.Number]
		if refused := all[0] == verdictRefused; refused && ok || !refused && x.Status != all[0] {
			f.wrong("version %d is %s, its experiment is %q", v.Number, all[0], x.Status)
		}
	}
}

// checkExperiments checks who was answered by candidates, and what was counted of them.
func checkExperiments(f *Findings, e TrafficEvidence) {
	all := e.Records.Experiments
	for i, x := range all {
		switch x.Status {
		case experimentPromoted:
			f.Traffic.Promoted++
		case experimentWithdrawn:
			f.Traffic.Withdrawn++
		case experimentEnded:
			f.Traffic.Undecided++
		default:
			f.wrong("the experiment with version %d is %q after the end of the run", x.ID, x.Status)
		}
		if i > 0 && x.Begun.Before(all[i-1].Ended) {
			f.wrong("the experiment with version %d began before that with version %d had ended", x.ID, all[i-1].ID)
		}
		checkJudgedArms(f, e, x)
	}
	checkAssignment(f, e)
}

// checkAssignment checks that each conversation is answered by the version of its part in an
// experiment, that a user has the same part in all conversations of one, and that versions which
// nobody promoted answer no others.
func checkAssignment(f *Findings, e TrafficEvidence) {
	type unit struct {
		experiment int
		person     string
	}
	parts := map[unit]bool{}
	for _, c := range e.Records.Conversations {
		if c.Experiment == 0 {
			if !slices.ContainsFunc(e.Records.Promotions, func(p Promotion) bool { return p.Version == c.Version }) {
				f.wrong("conversation %d is answered by version %d, which nobody promoted", c.Number, c.Version)
			}
			continue
		}
		at := slices.IndexFunc(e.Records.Experiments, func(x ExperimentRow) bool { return x.ID == c.Experiment })
		if at < 0 {
			f.wrong("conversation %d takes part in an experiment with version %d, which is not on record", c.Number, c.Experiment)
			continue
		}
		f.Traffic.InExperiments++
		want := e.Records.Experiments[at].Control
		if c.Candidate {
			want = c.Experiment
		}
		if c.Version != want {
			f.wrong("conversation %d is answered by version %d, its part in the experiment is version %d", c.Number, c.Version, want)
		}
		key := unit{c.Experiment, c.Person}
		if part, ok := parts[key]; ok && c.Person != "" && part != c.Candidate {
			f.wrong("a user of conversation %d has both versions of the experiment with version %d", c.Number, c.Experiment)
		}
		parts[key] = c.Candidate
	}
	answered := map[int]int{}
	for _, r := range e.Requests {
		if !r.Consents || r.Reply.ID == "" {
			continue
		}
		if v, ok := answered[r.Dialog]; ok && v != r.Reply.Version {
			f.wrong("request %q was answered by version %d, the conversation before it by version %d", r.Text, r.Reply.Version, v)
		}
		answered[r.Dialog] = r.Reply.Version
	}
}

// checkJudgedArms compares what the last look at an experiment counted with the feedback on
// record. A look counts the conversations with feedback that is on record by then. It was no
// earlier than the last feedback that it saw. So it counted all conversations whose feedback a
// client knew to be accepted at that time, and none whose feedback is all later. What a
// forgotten user said or judged may have been counted and is on record no more.
func checkJudgedArms(f *Findings, e TrafficEvidence, x ExperimentRow) {
	if x.Until.IsZero() {
		return
	}
	answered := map[string]time.Time{}
	for _, g := range e.Feedback {
		if g.accepted() {
			answered[g.row()] = g.Answered
		}
	}
	known, seen := map[int]bool{}, map[int]bool{}
	sums, values := map[bool]float64{}, map[bool]float64{}
	for _, r := range e.Records.Feedback {
		if r.Reward == nil || r.At.After(x.Until) {
			continue
		}
		c, ok := e.Records.conversation(r.Conversation)
		if !ok || c.Experiment != x.ID {
			continue
		}
		seen[c.Number] = true
		if at, ok := answered[r.ID]; ok && at.Before(x.Until) {
			known[c.Number] = true
		}
		sums[c.Candidate] += *r.Reward
		values[c.Candidate]++
	}
	for _, candidate := range []bool{true, false} {
		least, most := 0, e.forgottenConversations()
		for _, c := range e.Records.Conversations {
			if c.Candidate != candidate {
				continue
			}
			if known[c.Number] {
				least++
			}
			if seen[c.Number] {
				most++
			}
		}
		if n := x.arm(candidate).Conversations; n < least || n > most {
			f.wrong("the experiment with version %d counts %d judged conversations (of the candidate: %v), on record are %d to %d", x.ID, n, candidate, least, most)
		}
	}
	if values[true] == 0 || values[false] == 0 || x.ID%2 == x.Control%2 {
		return // all is gone of one of them, or people like both as much, and chance decided
	}
	better := sums[true]*values[false] - sums[false]*values[true] // the sign of the difference of means
	if x.Status == experimentPromoted && better <= 0 || x.Status == experimentWithdrawn && better >= 0 {
		f.wrong("version %d was %s, and the means of what was said of it and of version %d say otherwise", x.ID, x.Status, x.Control)
	}
}

// experiments reads experiments, and the decisions that moved no pointer.
func (d *Database) experiments(ctx context.Context, r *TrafficRecords) error {
	decisions := d.list(ctx, `SELECT candidate, verdict FROM decisions WHERE run = $1 AND policy = 'main' ORDER BY at`, r.Run, func(scan func(...any) error) error {
		var one Decision
		err := scan(&one.Candidate, &one.Verdict)
		r.Decisions = append(r.Decisions, one)
		return err
	})
	const query = `SELECT candidate, control, status, result, begun, ended FROM experiments WHERE run = $1 AND policy = 'main' ORDER BY begun`
	experiments := d.list(ctx, query, r.Run, func(scan func(...any) error) error {
		var x ExperimentRow
		var text string
		var begun, ended int64
		if err := scan(&x.ID, &x.Control, &x.Status, &text, &begun, &ended); err != nil {
			return err
		}
		x.Begun, x.Ended = time.Unix(0, begun), time.Unix(0, ended)
		var result struct {
			Candidate Arm       `json:"candidate"`
			Control   Arm       `json:"control"`
			Until     time.Time `json:"until"`
		}
		if text != "" {
			if err := json.Unmarshal([]byte(text), &result); err != nil {
				return err
			}
		}
		x.Candidate, x.Against, x.Until = result.Candidate, result.Control, result.Until
		r.Experiments = append(r.Experiments, x)
		return nil
	})
	return errors.Join(decisions, experiments)
}

// Compared returns how many experiments of a run have ended, and how many of them by feedback.
func (d *Database) Compared(ctx context.Context, run string) (ended, decided int, err error) {
	const query = `SELECT COUNT(*), COUNT(CASE WHEN status IN ($2, $3) THEN 1 END) FROM experiments WHERE run = $1 AND ended > 0`
	err = d.db.QueryRowContext(ctx, query, run, experimentPromoted, experimentWithdrawn).Scan(&ended, &decided)
	return ended, decided, err
}
