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

	"github.com/fulgurite/fulgurite/internal/access"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/trace"
)

//go:embed templates/*.html
var embedded embed.FS

// Operator does what people want of runs.
type Operator interface {
	// Act does what an action says and returns it with its outcome. One id is done once. If
	// the outcome is asked, the error says why it is not known.
	Act(ctx context.Context, a record.Action) (record.Action, error)
	// Reach is why runs can't be asked anything at the moment, nil if they can. What only
	// moves a promoted pointer needs no run to answer.
	Reach(ctx context.Context) error
}

// Records is the part of a store that the forms read.
type Records interface {
	Run(ctx context.Context, name string) (record.Run, error)
	Promoted(ctx context.Context, run, policy string) (record.Promotion, error)
	Promotions(ctx context.Context, run, policy string) ([]record.Promotion, error)
	EvaluationsBetween(ctx context.Context, run, policy string, from, to int) ([]record.Evaluation, error)
	Actions(ctx context.Context, run string, most int) ([]record.Action, error)
	Action(ctx context.Context, id string) (record.Action, error)
}

// Page is the frame of a body.
type Page struct {
	Title string
	Run   record.Run // whose page it is; without a name it is none's
	Here  bool       // it is the run's own list of actions
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
	// Why there is nothing to do without an operator.
	Why string
	// Find is the run of a request, with the status that it has now.
	Find func(r *http.Request) (record.Run, error)
	// Show answers with a page, Fail with an error.
	Show func(w http.ResponseWriter, r *http.Request, p Page)
	Fail func(w http.ResponseWriter, r *http.Request, code int, err error)
	// Functions are the templates' functions; "clean" makes a text of somebody's harmless.
	Functions template.FuncMap
}

// Pages are the forms. Make them with New.
type Pages struct {
	Options
	templates *template.Template
}

// New makes the forms.
func New(o Options) (*Pages, error) {
	t, err := template.New("actions").Funcs(o.Functions).ParseFS(embedded, "templates/*.html")
	if err != nil {
		return nil, fmt.Errorf("read the templates of actions: %w", err)
	}
	return &Pages{o, t}, nil
}

// Register adds the forms to a mux.
func (p *Pages) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /runs/{run}/actions", p.history)
	mux.HandleFunc("GET /runs/{run}/actions/{action}", p.form)
	mux.HandleFunc("POST /runs/{run}/actions/{action}", p.submit)
	mux.HandleFunc("POST /runs/{run}/actions/export", p.export)
	mux.HandleFunc("GET /start", p.startForm)
	mux.HandleFunc("POST /start/plan", p.plan)
	mux.HandleFunc("POST /start", p.start)
	mux.HandleFunc("GET /started/{run}", p.started)
}

// Path is where the list of a run's actions is, and the form of one below it.
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

// errReadOnly is the answer to who may only read.
var errReadOnly = errors.New("your token may only read: ask whoever made it for one that may operate")

// operates refuses who may not act, and says whether the request may go on.
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

// newID is the id of an action that nobody has asked for yet.
func newID() string { return rand.Text() }
