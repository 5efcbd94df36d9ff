package actions

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/fulgurite/fulgurite/record"
)

// StopNow names the form that stops a run at once. The action is record.ActionStop with its
// own input.
const StopNow record.ActionName = "stop-now"

// kind describes a kind of action in words.
type kind struct {
	Name   record.ActionName
	Verb   string // of the button, for example "Pause"
	Effect string // what will happen
	// TakesVersion says that a version can be named, NeedsVersion that it has to be.
	TakesVersion, NeedsVersion bool
	// TakesNumbers says that keys of the spec can get other numbers, NeedsNumbers that at
	// least one has to.
	TakesNumbers, NeedsNumbers bool
	Heavy                      bool // it can't be taken back by a click
	TakesFormat                bool // of the files of a version
	TakesSteps                 bool // how many the run has in all
}

// kinds returns all kinds of actions on a run, in the order in which the page offers
// them.
func kinds() []kind {
	return []kind{
		{Name: record.ActionPause, Verb: "Pause", Effect: "The steps that have begun finish. No other step begins until somebody resumes the run."},
		{Name: record.ActionResume, Verb: "Resume", Effect: "The run begins its next step."},
		{Name: record.ActionApprove, Verb: "Approve", Effect: "The version that waits for approval is promoted.", TakesVersion: true, NeedsVersion: true},
		{Name: record.ActionReject, Verb: "Reject", Effect: "The version that waits for approval is refused. The promoted one stays.", TakesVersion: true, NeedsVersion: true, Heavy: true},
		{Name: record.ActionSet, Verb: "Set", Effect: "Keys of the spec get other numbers, from the first step on that has not begun.", TakesNumbers: true, NeedsNumbers: true},
		{Name: record.ActionRetry, Verb: "Retry", Effect: "The run continues where it ended. What is on record is not done again. Keys of the spec can get other numbers, from the first step on that is not finished.", TakesNumbers: true, TakesSteps: true},
		{Name: record.ActionPromote, Verb: "Promote", Effect: "The version is served from now on. The run may promote another one later.", TakesVersion: true, NeedsVersion: true},
		{Name: record.ActionRollback, Verb: "Roll back", Effect: "An earlier version is served again instead of the promoted one.", TakesVersion: true},
		{Name: record.ActionPin, Verb: "Pin", Effect: "The version is promoted and held: the run promotes no other until somebody unpins it.", TakesVersion: true, NeedsVersion: true},
		{Name: record.ActionUnpin, Verb: "Unpin", Effect: "The promoted version stays, and the run may promote others again."},
		{Name: record.ActionStop, Verb: "Stop", Effect: "The run ends after the steps that have begun, with the evaluations that follow the last step. It can't be resumed.", Heavy: true},
		{Name: StopNow, Verb: "Stop now", Effect: "The run ends at once, whatever it waits for, even if no worker is there. What its unfinished steps did is lost; a retry makes them again.", Heavy: true},
		{Name: record.ActionExport, Verb: "Export", Effect: "The files of the version come as a tar archive, as `fulgurite export` writes them. Nothing about the run changes.", TakesVersion: true, NeedsVersion: true, TakesFormat: true},
	}
}

func kindOf(name record.ActionName) (kind, bool) {
	all := kinds()
	i := slices.IndexFunc(all, func(k kind) bool { return k.Name == name })
	if i < 0 {
		return kind{}, false
	}
	return all[i], true
}

// State has the facts that decide which actions a run is offered.
type State struct {
	Paused   bool
	Stopping bool // it ends after the steps that have begun
	Pending  int  // version that waits for approval, or -1
	Promoted bool // there is a promoted version
	Pinned   bool
	Only     bool // it evaluates and has no steps
}

// Offer holds the actions that are possible for a run now.
type Offer struct {
	Links []Link
	// Why says in words why no more actions are offered.
	Why string
	// export is the path of the form that exports a version. It is empty if this page
	// can't export.
	export string
}

// Link leads to a form.
type Link struct {
	Name       record.ActionName
	Text, Path string
	Heavy      bool
	version    int // version that the form then names, or -1
}

// About returns the offer with only those links whose action has one of the names.
func (o Offer) About(names ...record.ActionName) Offer {
	o.Links = slices.DeleteFunc(slices.Clone(o.Links), func(l Link) bool { return !slices.Contains(names, l.Name) })
	return o
}

// OfVersion returns the links for actions on one version, to forms that name it. now is
// true if the version is promoted, earlier if it was promoted before, and kept if its
// files still exist.
func (o Offer) OfVersion(number int, now, earlier, kept bool) []Link {
	out := o.moves(number, now, earlier)
	if kept && o.export != "" {
		out = append(out, Link{Name: record.ActionExport, Text: "Export", Path: o.export + "?version=" + strconv.Itoa(number)})
	}
	return out
}

func (o Offer) moves(number int, now, earlier bool) []Link {
	var out []Link
	for _, l := range o.Links {
		switch l.Name {
		case record.ActionPromote:
			if now {
				continue
			}
		case record.ActionRollback:
			if now || !earlier {
				continue
			}
			l.Text = "Roll back to it"
		case record.ActionPin:
		case record.ActionUnpin:
			if now {
				out = append(out, l)
			}
			continue
		case record.ActionApprove, record.ActionReject:
			if l.version == number {
				out = append(out, l)
			}
			continue
		default:
			continue
		}
		l.Path += "?version=" + strconv.Itoa(number)
		out = append(out, l)
	}
	return out
}

// Offer returns the actions that are possible for a run now. The run would refuse all
// others.
func (p *Pages) Offer(ctx context.Context, run record.Run, s State) Offer {
	if p.Operator == nil {
		return Offer{Why: p.Why}
	}
	if run.Status == record.Refused {
		return Offer{}
	}
	var out Offer
	if p.Exporter != nil {
		out.export = Path(run.Name) + "/" + string(record.ActionExport)
	}
	away := p.Operator.Reach(ctx)
	if away != nil {
		out.Why = fmt.Sprintf("Its workflow can't be asked anything: %v", away)
	}
	for _, k := range kinds() {
		if away != nil && !MovesPointer(k.Name) || !offered(k.Name, run, s) {
			continue
		}
		link := Link{Name: k.Name, Text: k.Verb, Path: Path(run.Name) + "/" + string(k.Name), Heavy: k.Heavy, version: -1}
		if k.Name == record.ActionRetry && !run.CanRetry() {
			link.Text = "Continue with more steps"
		}
		if k.Name == record.ActionApprove || k.Name == record.ActionReject {
			link.Text += " version " + strconv.Itoa(s.Pending)
			link.Path += "?version=" + strconv.Itoa(s.Pending)
			link.version = s.Pending
		}
		out.Links = append(out.Links, link)
	}
	return out
}

// MovesPointer reports whether an action moves the promoted pointer. Such an action needs
// only the store.
func MovesPointer(name record.ActionName) bool {
	switch name {
	case record.ActionPromote, record.ActionRollback, record.ActionPin, record.ActionUnpin:
		return true
	}
	return false
}

func offered(name record.ActionName, run record.Run, s State) bool {
	going := run.Status == record.Running
	switch name {
	case record.ActionPause:
		return going && !s.Paused && !s.Stopping && !s.Only
	case record.ActionResume:
		return going && s.Paused
	case StopNow:
		return going
	case record.ActionStop:
		return going && !s.Stopping && !s.Only
	case record.ActionSet:
		return going && !s.Only
	case record.ActionApprove, record.ActionReject:
		return going && s.Pending >= 0
	case record.ActionRetry:
		return run.CanRetry() || !s.Only && endedWell(run)
	case record.ActionPromote, record.ActionRollback:
		return s.Promoted && !s.Pinned
	case record.ActionPin:
		return s.Promoted
	case record.ActionUnpin:
		return s.Pinned
	}
	return false
}

// endedWell reports whether a run did what it was asked to do. It goes on only for more steps.
func endedWell(run record.Run) bool {
	return run.Status == record.Completed || run.Status == record.Stopped
}
