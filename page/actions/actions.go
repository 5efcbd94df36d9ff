// Package actions holds the forms with which a person acts on runs from the page: pause,
// resume, stop, set, approve, reject, promote, roll back, pin, unpin, retry, export, and
// the start of a run from a spec, after its plan was shown. It also lists the actions on
// a run, with the person who asked for each.
//
// The package does not carry out actions. An [Operator], a [Starter] and an [Exporter] do
// that, with the same code as the commands. A GET request changes nothing. Forms work
// without scripts. Each form carries the id of its action, so that sending the form twice
// does the action once, and a token that only the page can have written into it (package
// access).
package actions

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/page/access"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/promptsearch"
	"github.com/fulgurite/fulgurite/spec"
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

const (
	// maxOfForm bounds what the form of an action sends, in bytes.
	maxOfForm = 64 << 10
	// actTimeout bounds an action. A run has half a minute to answer.
	actTimeout = 40 * time.Second
)

// formBody is the form of one action.
type formBody struct {
	kind
	Run      string
	Path     string // where it is sent
	Back     string
	ID       string
	Token    string
	Seen     string // the state that the form shows
	Version  string
	Format   string
	Policy   string   // the one of several whose files are exported
	Policies []string // from which it is chosen
	Values   string
	Why      string // the reason
	Promoted *int
	Settings []setting // that can be changed
	Steps    string
	Progress *progress // nil if the action takes no number of steps
	Evidence evidence
	Problem  string
}

// form shows the effect of an action and asks for its parameters. It changes nothing.
func (p *Pages) form(w http.ResponseWriter, r *http.Request) {
	if !p.operates(w, r, p.Operator != nil) {
		return
	}
	run, ok := p.run(w, r)
	if !ok {
		return
	}
	p.ask(w, r, run, formBody{ID: newID(), Version: r.URL.Query().Get("version")}, http.StatusOK)
}

// ask shows the form with the values entered so far.
func (p *Pages) ask(w http.ResponseWriter, r *http.Request, run record.Run, b formBody, code int) {
	k, ok := kindOf(record.ActionName(r.PathValue("action")))
	if !ok {
		p.Fail(w, r, http.StatusNotFound, fmt.Errorf("%w: there is no such action", record.ErrNotFound))
		return
	}
	b.kind, b.Run, b.Path = k, run.Name, Path(run.Name)+"/"+string(k.Name)
	b.Back = strings.TrimSuffix(Path(run.Name), "/actions")
	b.Token = p.Guard.FormToken(access.Of(r.Context()))
	if k.TakesVersion {
		promotion, err := p.Records.Promoted(r.Context(), run.Name, promptsearch.PolicyOf(run))
		switch {
		case err == nil:
			b.Promoted = &promotion.Version
		case !errors.Is(err, record.ErrNotFound):
			p.Fail(w, r, http.StatusInternalServerError, err)
			return
		}
		if b.Evidence, err = p.evidence(r.Context(), run, k, b); err != nil {
			p.Fail(w, r, http.StatusInternalServerError, err)
			return
		}
	}
	if s, err := spec.Stored(run.Spec); k.TakesFormat && err == nil { // the exporter says what is wrong with the spec
		b.Policies = s.PolicyNames()
	}
	if k.TakesNumbers {
		var err error
		if b.Settings, err = p.settings(r.Context(), run); err != nil {
			p.Fail(w, r, http.StatusInternalServerError, err)
			return
		}
	}
	if k.TakesSteps {
		var err error
		if b.Progress, err = p.progressOf(r.Context(), run); err != nil {
			p.Fail(w, r, http.StatusInternalServerError, err)
			return
		}
		if b.Progress != nil && b.Progress.Needed {
			b.Verb, b.Effect = "Continue", "The run goes on after its last step, until it has finished as many steps as you name. Keys of the spec can get other numbers for these steps."
		}
	}
	seen, err := p.state(r.Context(), run, k)
	if err != nil {
		p.Fail(w, r, http.StatusInternalServerError, err)
		return
	}
	b.Seen = seen.String()
	p.show(w, r, Page{Title: b.Verb, Run: run, Code: code}, "form", b)
}

// posted reads the form of a request and the run that it is about. Without either it
// answers the request and returns false.
func (p *Pages) posted(w http.ResponseWriter, r *http.Request) (record.Run, bool) {
	run, ok := p.run(w, r)
	if !ok {
		return run, false
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxOfForm)
	if err := r.ParseForm(); err != nil {
		p.Fail(w, r, http.StatusBadRequest, fmt.Errorf("the form can't be read: %w", err))
		return run, false
	}
	return run, true
}

// submit carries out the action of a form and redirects to its answer. It does the action
// once, even if the form is sent several times.
func (p *Pages) submit(w http.ResponseWriter, r *http.Request) {
	if !p.operates(w, r, p.Operator != nil) {
		return
	}
	run, ok := p.posted(w, r)
	if !ok {
		return
	}
	person := access.Of(r.Context())
	sent := formBody{
		ID: r.PostForm.Get("id"), Seen: r.PostForm.Get("seen"), Version: r.PostForm.Get("version"), Values: r.PostForm.Get("values"), Steps: r.PostForm.Get("steps"),
		Why: strings.TrimSpace(r.PostForm.Get("reason")),
	}
	if err := p.Guard.CheckForm(person, r.PostForm.Get("token")); err != nil {
		sent.Problem = err.Error() + ". Send it again."
		p.ask(w, r, run, sent, http.StatusForbidden)
		return
	}
	a, err := read(run, record.ActionName(r.PathValue("action")), sent)
	if err != nil {
		sent.Problem = err.Error()
		p.ask(w, r, run, sent, http.StatusUnprocessableEntity)
		return
	}
	a.By = person.Name
	moved, err := p.changed(r.Context(), run, &a, sent.Seen)
	if err != nil {
		p.Fail(w, r, http.StatusInternalServerError, err)
		return
	}
	if moved != "" {
		sent.Problem, sent.ID = moved, newID()
		p.ask(w, r, run, sent, http.StatusConflict)
		return
	}
	// The action is completed even if the browser does not wait for it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), actTimeout)
	defer cancel()
	a, err = p.Operator.Act(ctx, a)
	if a.Outcome != record.ActionDone && a.Outcome != record.ActionRefused {
		sent.Problem = fmt.Sprintf("It is not known whether this was done: %v. Send it again: it is done once.", err)
		p.ask(w, r, run, sent, http.StatusServiceUnavailable)
		return
	}
	if stored, err := p.Records.Action(ctx, a.ID); err != nil || !stored.Same(a) { // refused before it was put on record
		sent.Problem, sent.ID = a.Result.Message, newID()
		p.ask(w, r, run, sent, http.StatusUnprocessableEntity)
		return
	}
	http.Redirect(w, r, Path(run.Name)+"?answer="+a.ID, http.StatusSeeOther)
}

// read makes an action from a form. record.Action checks what read does not.
func read(run record.Run, name record.ActionName, sent formBody) (record.Action, error) {
	a := record.Action{ID: sent.ID, Run: run.Name, Name: name, Reason: sent.Why}
	k, ok := kindOf(name)
	if !ok {
		return a, errors.New("there is no such action")
	}
	if name == StopNow {
		a.Name, a.Input.Now = record.ActionStop, true
	}
	if k.TakesVersion && strings.TrimSpace(sent.Version) != "" {
		v, err := strconv.Atoi(strings.TrimSpace(sent.Version))
		if err != nil {
			return a, fmt.Errorf("version: %q is not a number", sent.Version)
		}
		a.Input.Version = &v
	}
	if !k.TakesNumbers {
		return a, nil
	}
	var err error
	if a.Input.Values, err = readNumbers(sent.Values); err != nil {
		return a, err
	}
	if len(a.Input.Values) == 0 && k.NeedsNumbers {
		return a, errors.New("nothing to set: give KEY=NUMBER, one a line")
	}
	if k.TakesSteps {
		err = readSteps(&a, run, strings.TrimSpace(sent.Steps))
	}
	return a, err
}

// readNumbers reads lines of KEY=NUMBER. It returns nil if there are none.
func readNumbers(text string) (map[string]float64, error) {
	var out map[string]float64
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		key, number, _ := strings.Cut(line, "=")
		key = strings.TrimSpace(key)
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil {
			return nil, fmt.Errorf("%q: want KEY=NUMBER, one a line", line)
		}
		if _, twice := out[key]; twice {
			return nil, fmt.Errorf("%s: given twice", key)
		}
		if out == nil {
			out = map[string]float64{}
		}
		out[key] = v
	}
	return out, nil
}

// readSteps adds the number of steps that a run is to have in all to the action. The run
// itself refuses a number that is no more than it has finished.
func readSteps(a *record.Action, run record.Run, text string) error {
	_, among := a.Input.Values[spec.KeySteps]
	switch {
	case text == "" && !among && endedWell(run):
		return fmt.Errorf("steps: missing: the run is %s, so it goes on only for more steps: give their number in all", run.Status)
	case text == "":
		return nil
	case among:
		return fmt.Errorf("%s: given twice, as a number and as the steps in all", spec.KeySteps)
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return fmt.Errorf("steps: %q: give the number of steps that the run has in all", text)
	}
	if a.Input.Values == nil {
		a.Input.Values = map[string]float64{}
	}
	a.Input.Values[spec.KeySteps] = float64(n)
	return nil
}
