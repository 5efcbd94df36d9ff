package actions

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/page/access"
	"github.com/fulgurite/fulgurite/page/listing"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/promptsearch"
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
	case errors.Is(err, record.ErrNotFound), errors.Is(err, record.ErrAddress):
		p.Fail(w, r, http.StatusNotFound, err)
	default:
		p.Fail(w, r, http.StatusInternalServerError, err)
	}
	return run, false
}

// newID returns an id for a new action.
func newID() string { return rand.Text() }

const (
	// maxActions is how many actions of a run are read, the newest first.
	maxActions = 10_000
	// actionsPerPage is how many a list has.
	actionsPerPage = 100
)

// historyBody is the list of the actions on a run.
type historyBody struct {
	Actions []row
	Search  *listing.Form
	// Answer is the action that was just done.
	Answer *row
	Full   bool // there may be earlier ones
	Most   int
}

// row is an action in the list.
type row struct {
	record.Action
	What string
}

func (p *Pages) history(w http.ResponseWriter, r *http.Request) {
	run, ok := p.run(w, r)
	if !ok {
		return
	}
	ctx := r.Context()
	all, err := p.Records.Actions(ctx, run.Name, maxActions)
	if err != nil {
		p.Fail(w, r, http.StatusInternalServerError, err)
		return
	}
	b := historyBody{Full: len(all) == maxActions, Most: maxActions}
	rows := make([]row, len(all))
	for i, a := range all {
		rows[i] = rowOf(a)
	}
	b.Actions, b.Search = listing.Narrow(r, rows, actionsPerPage, order())
	if id := r.URL.Query().Get("answer"); id != "" {
		a, err := p.Records.Action(ctx, id)
		switch {
		case err == nil && a.Run == run.Name:
			one := rowOf(a)
			b.Answer = &one
		case err != nil && !errors.Is(err, record.ErrNotFound):
			p.Fail(w, r, http.StatusInternalServerError, err)
			return
		}
	}
	p.show(w, r, Page{Title: "Actions", Run: run, Here: true}, "history", b)
}

// order says how actions can be searched, filtered and sorted.
func order() listing.Order[row] {
	ended := func(as record.ActionOutcome) func(row) bool {
		return func(a row) bool { return a.Outcome == as }
	}
	return listing.Order[row]{
		Text: func(a row) string { return strings.Join([]string{a.What, a.By, a.Reason, a.Result.Message}, " ") },
		Filters: []listing.Filter[row]{
			{Text: "all"},
			{Name: "done", Text: "done", Keep: ended(record.ActionDone)},
			{Name: "refused", Text: "refused", Keep: ended(record.ActionRefused)},
			{Name: "asked", Text: "no answer on record", Keep: ended(record.ActionAsked)},
		},
		Sorts: []listing.Sort[row]{
			{Text: "newest"},
			{Name: "oldest", Text: "oldest", Compare: func(a, b row) int { return a.At.Compare(b.At) }},
			{Name: "what", Text: "what", Compare: func(a, b row) int { return cmp.Compare(a.What, b.What) }},
			{Name: "by", Text: "by whom", Compare: func(a, b row) int { return cmp.Compare(a.By, b.By) }},
		},
	}
}

// rowOf describes an action in words.
func rowOf(a record.Action) row {
	what := "Start"
	name := a.Name
	if a.Input.Now {
		name = StopNow
	}
	if k, ok := kindOf(name); ok {
		what = k.Verb
	}
	if a.Input.Version != nil {
		what += " version " + strconv.Itoa(*a.Input.Version)
	}
	if a.Input.Policy != "" {
		what += " of " + a.Input.Policy
	}
	if a.Input.Format != "" {
		what += " as " + a.Input.Format
	}
	keys := make([]string, 0, len(a.Input.Values))
	for key, v := range a.Input.Values {
		keys = append(keys, key+"="+strconv.FormatFloat(v, 'f', -1, 64))
	}
	slices.Sort(keys)
	if len(keys) > 0 {
		what += " " + strings.Join(keys, ", ")
	}
	return row{a, what}
}

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
		history, err := p.Records.Promotions(ctx, run.Name, promptsearch.PolicyOf(run))
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
	} else if !errors.Is(err, record.ErrNotFound) {
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

// exportTimeout bounds how long the files of a version are written, and how long they are
// sent.
const exportTimeout = 30 * time.Minute

// Exporter writes the files of versions.
type Exporter interface {
	// Export writes the files of the version that an action names into a new directory, which
	// done removes, and puts the action on record. One id is on record once.
	Export(ctx context.Context, a record.Action) (dir string, done func() error, out record.Action, err error)
}

// export sends the files of a version as a tar archive.
func (p *Pages) export(w http.ResponseWriter, r *http.Request) {
	r.SetPathValue("action", string(record.ActionExport))
	if !p.operates(w, r, p.Operator != nil) {
		return
	}
	if p.Exporter == nil {
		p.Fail(w, r, http.StatusForbidden, errors.New("this page sends no files: use `fulgurite export VERSION DIRECTORY`"))
		return
	}
	run, ok := p.posted(w, r)
	if !ok {
		return
	}
	person := access.Of(r.Context())
	sent := formBody{ID: r.PostForm.Get("id"), Version: r.PostForm.Get("version"), Format: r.PostForm.Get("format"), Policy: r.PostForm.Get("policy"), Why: strings.TrimSpace(r.PostForm.Get("reason"))}
	again := func(code int, problem string) {
		sent.Problem = problem
		p.ask(w, r, run, sent, code)
	}
	if err := p.Guard.CheckForm(person, r.PostForm.Get("token")); err != nil {
		again(http.StatusForbidden, err.Error()+". Send it again.")
		return
	}
	a, err := read(run, record.ActionExport, sent)
	if err != nil {
		again(http.StatusUnprocessableEntity, err.Error())
		return
	}
	a.By, a.Input.Format, a.Input.Policy = person.Name, sent.Format, sent.Policy
	ctx, cancel := context.WithTimeout(r.Context(), exportTimeout)
	defer cancel()
	dir, done, a, err := p.Exporter.Export(ctx, a)
	switch {
	case a.Outcome == record.ActionRefused:
		sent.ID = newID()
		again(http.StatusUnprocessableEntity, a.Result.Message)
		return
	case err != nil:
		again(http.StatusServiceUnavailable, fmt.Sprintf("Nothing was written: %v. Send it again.", err))
		return
	}
	defer func() { _ = done() }() // what stays is in the folder of temporary files
	name := fmt.Sprintf("%s-%d.tar", run.Name, *a.Input.Version)
	if sent.Policy != "" {
		name = fmt.Sprintf("%s-%s-%d.tar", run.Name, sent.Policy, *a.Input.Version)
	}
	w.Header().Set("Content-Type", "application/x-tar")
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	archive := tar.NewWriter(w)
	if err := errors.Join(archive.AddFS(os.DirFS(dir)), archive.Close()); err != nil {
		panic(http.ErrAbortHandler) // an archive that was cut off must not look whole
	}
}
