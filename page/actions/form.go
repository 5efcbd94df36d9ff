package actions

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/access"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

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
		p.Fail(w, r, http.StatusNotFound, fmt.Errorf("%w: there is no such action", trace.ErrNotFound))
		return
	}
	b.kind, b.Run, b.Path = k, run.Name, Path(run.Name)+"/"+string(k.Name)
	b.Back = strings.TrimSuffix(Path(run.Name), "/actions")
	b.Token = p.Guard.FormToken(access.Of(r.Context()))
	if k.TakesVersion {
		promotion, err := p.Records.Promoted(r.Context(), run.Name, model.DefaultPolicy)
		switch {
		case err == nil:
			b.Promoted = &promotion.Version
		case !errors.Is(err, trace.ErrNotFound):
			p.Fail(w, r, http.StatusInternalServerError, err)
			return
		}
		if b.Evidence, err = p.evidence(r.Context(), run, k, b); err != nil {
			p.Fail(w, r, http.StatusInternalServerError, err)
			return
		}
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
