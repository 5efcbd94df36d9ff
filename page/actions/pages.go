package actions

import (
	"bytes"
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"

	"github.com/fulgurite/fulgurite/page/access"
	"github.com/fulgurite/fulgurite/page/listing"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/trace"
)

//go:embed templates/*.html
var embedded embed.FS

// Operator carries out the actions that a person asks for.
type Operator interface {
	// Act carries out an action and returns it with its outcome. An id is carried out
	// only once. If the outcome is ActionAsked, the error says why the result is not
	// known.
	Act(ctx context.Context, a record.Action) (record.Action, error)
	// Reach returns nil if runs can be asked now, or else an error that says why not.
	// Actions that only move the promoted pointer work even then.
	Reach(ctx context.Context) error
}

// Records is the part of a store that the forms read.
type Records interface {
	Run(ctx context.Context, name string) (record.Run, error)
	Promoted(ctx context.Context, run, policy string) (record.Promotion, error)
	Promotions(ctx context.Context, run, policy string) ([]record.Promotion, error)
	EvaluationsBetween(ctx context.Context, run, policy string, from, to int) ([]record.Evaluation, error)
	LastStep(ctx context.Context, run, policy string) (record.Step, error)
	Actions(ctx context.Context, run string, most int) ([]record.Action, error)
	Action(ctx context.Context, id string) (record.Action, error)
}

// Page is the content of a page, around which Show puts the frame.
type Page struct {
	Title string
	Run   record.Run // the run that the page is about; its name is empty for other pages
	Here  bool       // true for the run's own list of actions
	Body  template.HTML
	Code  int
}

// Options say what the forms act with.
type Options struct {
	Records  Records
	Operator Operator // nil: nothing can be done, and Why says so
	Starter  Starter  // nil: no run can be started
	Exporter Exporter // nil: no version is given out
	Guard    *access.Guard
	// Why says why no action is possible. It is used if Operator is nil.
	Why string
	// Find returns the run that a request names, with its current status.
	Find func(r *http.Request) (record.Run, error)
	// Fractions reports whether all rewards of a run lie between 0 and 1.
	Fractions func(ctx context.Context, run record.Run) (bool, error)
	// Show answers with a page, Fail with an error.
	Show func(w http.ResponseWriter, r *http.Request, p Page)
	Fail func(w http.ResponseWriter, r *http.Request, code int, err error)
	// Functions are the functions of the templates. Function "clean" makes other people's
	// text harmless.
	Functions template.FuncMap
}

// Pages are the forms. Make them with New.
type Pages struct {
	Options
	templates *template.Template
	drafts    drafts
}

// New makes the forms.
func New(o Options) (*Pages, error) {
	t, err := template.New("actions").Funcs(o.Functions).ParseFS(embedded, "templates/*.html")
	if err == nil {
		t, err = t.Parse(listing.Template)
	}
	if err != nil {
		return nil, fmt.Errorf("read the templates of actions: %w", err)
	}
	return &Pages{Options: o, templates: t}, nil
}

// Register adds the forms to a mux.
func (p *Pages) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /runs/{run}/actions", p.history)
	mux.HandleFunc("GET /runs/{run}/actions/{action}", p.form)
	mux.HandleFunc("POST /runs/{run}/actions/{action}", p.submit)
	mux.HandleFunc("POST /runs/{run}/actions/export", p.export)
	mux.HandleFunc("GET /start", p.startForm)
	mux.HandleFunc("GET /start/plan", p.planned)
	mux.HandleFunc("POST /start/plan", p.plan)
	mux.HandleFunc("POST /start", p.start)
	mux.HandleFunc("GET /started/{run}", p.started)
}

// Path returns the path of the list of a run's actions. The path of an action's form is
// below it.
func Path(run string) string { return "/runs/" + url.PathEscape(run) + "/actions" }

// show renders a template of this package as a page.
func (p *Pages) show(w http.ResponseWriter, r *http.Request, page Page, name string, body any) {
	var b bytes.Buffer
	if err := p.templates.ExecuteTemplate(&b, name, body); err != nil {
		p.Fail(w, r, http.StatusInternalServerError, fmt.Errorf("render %s: %w", name, err))
		return
	}
	page.Body = template.HTML(b.String()) // html/template has escaped it
	if page.Code == 0 {
		page.Code = http.StatusOK
	}
	p.Show(w, r, page)
}

// errReadOnly is the error for a token that does not permit actions.
var errReadOnly = errors.New("your token may only read: ask for one that may operate")

// operates reports whether the request may act and whether the action is possible at all.
// If it returns false, it has answered the request.
func (p *Pages) operates(w http.ResponseWriter, r *http.Request, there bool) bool {
	switch {
	case !access.Of(r.Context()).May(access.Operate):
		p.Fail(w, r, http.StatusForbidden, errReadOnly)
	case !there:
		why := p.Why
		if why == "" {
			why = "this page only shows"
		}
		p.Fail(w, r, http.StatusForbidden, errors.New(why))
	default:
		return true
	}
	return false
}

// run finds the run of a request, or answers why not.
func (p *Pages) run(w http.ResponseWriter, r *http.Request) (record.Run, bool) {
	run, err := p.Find(r)
	switch {
	case err == nil:
		return run, true
	case errors.Is(err, trace.ErrNotFound), errors.Is(err, trace.ErrAddress):
		p.Fail(w, r, http.StatusNotFound, err)
	default:
		p.Fail(w, r, http.StatusInternalServerError, err)
	}
	return run, false
}

// newID returns an id for a new action.
func newID() string { return rand.Text() }
