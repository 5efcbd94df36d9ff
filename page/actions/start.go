package actions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fulgurite/fulgurite/page/access"
	"github.com/fulgurite/fulgurite/record"
)

const (
	// maxOfSpec bounds a spec that is sent, in bytes.
	maxOfSpec = 1 << 20
	// planTimeout bounds a plan, which reads tasks and a model's files.
	planTimeout = 2 * time.Minute
)

// Starter plans runs and starts them.
type Starter interface {
	// Plan describes what a spec will run, as `fulgurite plan` does. An error names the
	// key and the line.
	Plan(ctx context.Context, text []byte, name string) (Plan, error)
	// Start starts the run of a spec that was planned; an action is done once. Its run and
	// its digest are those of the plan.
	Start(ctx context.Context, a record.Action, text []byte) (record.Action, error)
	// Folder returns the directory to which relative paths in a spec refer.
	Folder() string
}

// Plan describes what a spec will run.
type Plan struct {
	Name   string // of the run
	Digest string // of the spec
	Text   string // in words
}

// startBody is the form of a spec, or its plan.
type startBody struct {
	ID, Token, Folder string
	Draft             string // the key of the draft, or ""
	Spec, Name        string
	Plan              *Plan
	Problem           string
}

// startForm asks for a spec. With the key of a draft it shows that draft again.
func (p *Pages) startForm(w http.ResponseWriter, r *http.Request) {
	if !p.operates(w, r, p.Starter != nil) {
		return
	}
	key := r.URL.Query().Get("draft")
	d, ok := p.drafts.find(key, access.Of(r.Context()).Name)
	if key != "" && !ok {
		d = draft{code: http.StatusOK, problem: "This page no longer has that spec: it keeps the last ones that were planned until it is started again. Paste the spec again."}
	}
	p.askSpec(w, r, startBody{Spec: d.spec, Name: d.name, Problem: d.problem}, cmp.Or(d.code, http.StatusOK))
}

// planned shows the plan of a draft. It starts nothing, so that a reload, or the way back
// from the run that was started, shows it again.
func (p *Pages) planned(w http.ResponseWriter, r *http.Request) {
	if !p.operates(w, r, p.Starter != nil) {
		return
	}
	key := r.URL.Query().Get("draft")
	d, ok := p.drafts.find(key, access.Of(r.Context()).Name)
	if !ok || d.plan == nil {
		http.Redirect(w, r, "/start?draft="+url.QueryEscape(key), http.StatusSeeOther)
		return
	}
	p.askSpec(w, r, startBody{ID: d.id, Draft: key, Spec: d.spec, Name: d.name, Plan: d.plan, Problem: d.problem}, http.StatusOK)
}

func (p *Pages) askSpec(w http.ResponseWriter, r *http.Request, b startBody, code int) {
	b.Token, b.Folder = p.Guard.FormToken(access.Of(r.Context())), p.Starter.Folder()
	title := "Start a run"
	if b.Plan != nil {
		title = "Plan of " + b.Plan.Name
	}
	p.show(w, r, Page{Title: title, Code: code}, "start", b)
}

// keep keeps a draft and leads to it: to its plan, or without one to its form.
func (p *Pages) keep(w http.ResponseWriter, r *http.Request, d draft) {
	d.person = access.Of(r.Context()).Name
	path := "/start?draft="
	if d.plan != nil {
		path = "/start/plan?draft="
	}
	http.Redirect(w, r, path+p.drafts.add(d), http.StatusSeeOther)
}

// readSpec reads a form that holds a spec as text or as a file. If it returns false, it
// has answered the request.
func (p *Pages) readSpec(w http.ResponseWriter, r *http.Request) (startBody, bool) {
	var b startBody
	if !p.operates(w, r, p.Starter != nil) {
		return b, false
	}
	r.Body = http.MaxBytesReader(w, r.Body, 3*maxOfSpec) // a text and a file, as a form encodes them
	err := r.ParseMultipartForm(maxOfSpec)
	if errors.Is(err, http.ErrNotMultipart) {
		err = r.ParseForm()
	}
	if err != nil {
		p.Fail(w, r, http.StatusBadRequest, fmt.Errorf("the form can't be read: %w", err))
		return b, false
	}
	b = startBody{ID: r.PostFormValue("id"), Spec: r.PostFormValue("spec"), Name: strings.TrimSpace(r.PostFormValue("name"))}
	if file, _, err := r.FormFile("file"); err == nil {
		data, err := io.ReadAll(io.LimitReader(file, maxOfSpec+1))
		if err = errors.Join(err, file.Close()); err != nil {
			p.Fail(w, r, http.StatusBadRequest, fmt.Errorf("the file can't be read: %w", err))
			return b, false
		}
		if len(data) > 0 {
			b.Spec = string(data)
		}
	}
	b.Spec = strings.ReplaceAll(b.Spec, "\r\n", "\n") // forms send lines that end with \r\n
	switch {
	case p.Guard.CheckForm(access.Of(r.Context()), r.PostFormValue("token")) != nil:
		b.Problem = access.ErrForm.Error() + ". Send it again."
		p.askSpec(w, r, b, http.StatusForbidden)
	case strings.TrimSpace(b.Spec) == "":
		b.Problem = "spec: missing: paste one, or choose a file"
		p.askSpec(w, r, b, http.StatusUnprocessableEntity)
	case len(b.Spec) > maxOfSpec:
		b.Problem = fmt.Sprintf("spec: more than %d bytes", maxOfSpec)
		b.Spec = ""
		p.askSpec(w, r, b, http.StatusRequestEntityTooLarge)
	default:
		return b, true
	}
	return b, false
}

// plan plans a spec and leads to its plan. It starts nothing.
func (p *Pages) plan(w http.ResponseWriter, r *http.Request) {
	b, ok := p.readSpec(w, r)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), planTimeout)
	defer cancel()
	d := draft{id: newID(), spec: b.Spec, name: b.Name}
	plan, err := p.Starter.Plan(ctx, []byte(b.Spec), b.Name)
	if err != nil {
		d.problem, d.code = err.Error(), http.StatusUnprocessableEntity
	} else {
		d.plan = &plan
	}
	p.keep(w, r, d)
}

// start starts the run of the plan that was shown. What keeps it from starting is shown
// beside the spec.
func (p *Pages) start(w http.ResponseWriter, r *http.Request) {
	b, ok := p.readSpec(w, r)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), planTimeout)
	defer cancel()
	a, err := p.Starter.Start(ctx, record.Action{
		ID: b.ID, Run: b.Name, Name: record.ActionStart, By: access.Of(r.Context()).Name, Input: record.ActionInput{Digest: r.PostFormValue("digest")},
	}, []byte(b.Spec))
	d := draft{id: newID(), spec: b.Spec, name: b.Name}
	switch a.Outcome {
	case record.ActionDone:
		http.Redirect(w, r, "/started/"+a.Run, http.StatusSeeOther)
		return
	case record.ActionRefused:
		d.problem, d.code = a.Result.Message, http.StatusUnprocessableEntity
	default:
		d.problem = fmt.Sprintf("It is not known whether the run was started: %v. Plan it again and start it: one name is started once.", err)
		d.code = http.StatusServiceUnavailable
	}
	p.keep(w, r, d)
}

// startedBody says that a run was started that may not be on record yet.
type startedBody struct{ Name, Path string }

// started leads to the page of a run, once the run is on record.
func (p *Pages) started(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("run")
	if err := record.CheckRunName(name); err != nil {
		p.Fail(w, r, http.StatusNotFound, err)
		return
	}
	path := strings.TrimSuffix(Path(name), "/actions")
	_, err := p.Records.Run(r.Context(), name)
	switch {
	case err == nil:
		http.Redirect(w, r, path, http.StatusSeeOther)
		return
	case !errors.Is(err, record.ErrNotFound):
		p.Fail(w, r, http.StatusInternalServerError, err)
		return
	}
	w.Header().Set("Refresh", "2")
	p.show(w, r, Page{Title: "Started " + name}, "started", startedBody{name, path})
}

// maxDrafts bounds the specs that are kept, each of at most maxOfSpec bytes. The oldest
// makes room.
const maxDrafts = 32

// draft is a spec that a person sent to be planned, with what became of it. It has an
// address of its own, so that reloads and the browser's way back lose nothing of what was
// typed.
type draft struct {
	key    string
	person string // who alone may see it
	id     string // of the action that starts it
	spec   string
	name   string
	plan   *Plan
	// problem says why there is no plan, or why the run was not started; code is the
	// status that goes with it.
	problem string
	code    int
}

// drafts are the specs that were planned last, in memory. Its zero value is empty. It is
// safe for concurrent use.
type drafts struct {
	mu   sync.Mutex
	kept []draft // the oldest first
}

// add keeps a draft and returns its key.
func (d *drafts) add(one draft) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	one.key = newID()
	d.kept = append(d.kept, one)
	if len(d.kept) > maxDrafts {
		d.kept = slices.Delete(d.kept, 0, 1)
	}
	return one.key
}

// find returns the draft of a person.
func (d *drafts) find(key, person string) (draft, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.kept, func(one draft) bool { return one.key == key && one.person == person })
	if i < 0 {
		return draft{}, false
	}
	return d.kept[i], true
}
