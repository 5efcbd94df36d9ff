package page

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/credit/compare"
	"github.com/fulgurite/fulgurite/internal/health"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/access"
	"github.com/fulgurite/fulgurite/page/actions"
	"github.com/fulgurite/fulgurite/page/cache"
	"github.com/fulgurite/fulgurite/page/listing"
	"github.com/fulgurite/fulgurite/page/login"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/promptsearch"
	"github.com/fulgurite/fulgurite/run/report"
	"github.com/fulgurite/fulgurite/tasks"
)

// policy is the content security policy of all pages.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// defaultWait is how long a page waits for an account.
const defaultWait = 25 * time.Millisecond

// defaultPoll is how often an open page checks whether its run has made progress.
const defaultPoll = time.Second / 2

// Options configure a page.
type Options struct {
	Records Records
	Blobs   Blobs
	Codecs  Codecs
	// Live is nil if there is no Temporal to ask.
	Live Live
	// Fleet is nil if only the page runs.
	Fleet Fleet
	// Guard decides whom the page answers. If it is nil, the page only answers this
	// machine.
	Guard *access.Guard
	// Operator carries out actions on runs, and Starter starts runs. Either may be nil.
	// Why then says why, as a text for the reader.
	Operator actions.Operator
	Starter  actions.Starter
	// Exporter writes the files of versions. If it is nil, no version can be exported.
	Exporter actions.Exporter
	Why      string
	// Poll is how often the records are checked for pages that follow a run. 0 means half
	// a second.
	Poll time.Duration
	// Patience is how long a page waits for a report. After that the page is shown
	// without the report and loads it later. 0 means 25 ms.
	Patience time.Duration
	// TLS says which certificates the gateway may have; nil is what the system accepts.
	// ServingKey is what the gateway wants from those who ask versions; it may be empty.
	TLS        *tls.Config
	ServingKey string
	// Place is where the commands that the page shows find the runs.
	Place shell.Place
	Log   *zap.Logger // nil is silent
}

// Server is the page. It is safe for concurrent use. Make one with New and end it with
// Close.
type Server struct {
	Options
	mux       *http.ServeMux
	files     assets
	templates map[string]*template.Template
	actions   *actions.Pages
	admitted  http.Handler // handles the requests that login admits

	histories cache.Cache[*history]
	accounts  cache.Background[*report.Report]
	results   cache.Background[[]splitTasks]
	opened    cache.Background[*compare.Step]
	lagging   cache.Background[map[int]float64]
	batches   cache.Cache[model.Batch]
	scores    cache.Cache[model.Scores]
	splits    cache.Cache[map[string]tasks.Task]
	drawn     cache.Cache[drawn]
	looks     cache.Cache[string]
	states    cache.Cache[stateAnswer]
	lives     cache.Cache[record.Run]
	documents cache.Cache[document]
	failures  cache.Cache[bool] // whether every agent of a run failed
	readers   cache.Cache[*promptsearch.Reader]
	searched  cache.Background[*promptsearch.Search]
	ordered   cache.Cache[[]tasks.Task] // splits

	acted   atomic.Int64    // counts requests that may have changed something
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	closing sync.Mutex // held while work begins, and while it is cancelled
	work    sync.WaitGroup
	// following is how many pages follow a run.
	following chan struct{}
	// replying is how many replies of the playground are being streamed.
	replying chan struct{}
	client   *http.Client // that asks the gateway
}

// maxDocuments is how many documents are kept. Each has at most about 300 KiB.
const maxDocuments = 32

// New makes a page.
func New(o Options) (*Server, error) {
	if o.Poll == 0 {
		o.Poll = defaultPoll
	}
	if o.Patience == 0 {
		o.Patience = defaultWait
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	s := &Server{Options: o, mux: http.NewServeMux(), following: make(chan struct{}, maxFollowing), replying: make(chan struct{}, maxReplies)}
	s.client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Transport: health.NewTransport(o.TLS)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.histories.Most, s.batches.Most, s.scores.Most, s.splits.Most, s.states.Most, s.lives.Most, s.looks.Most, s.drawn.Most = 64, 2, 2, 8, 256, 256, 256, 64
	s.documents.Most, s.failures.Most = maxDocuments, 256
	s.accounts.Most, s.accounts.Begin, s.accounts.Done = maxAccounts, s.begin, s.work.Done
	s.results.Most, s.results.Begin, s.results.Done = maxAccounts, s.begin, s.work.Done
	s.readers.Most, s.ordered.Most = maxSearches, 8
	s.searched.Most, s.searched.Begin, s.searched.Done = maxSearches, s.begin, s.work.Done
	s.opened.Most, s.opened.Begin, s.opened.Done = 2, s.begin, s.work.Done
	s.lagging.Most, s.lagging.Begin, s.lagging.Done = maxAccounts, s.begin, s.work.Done
	var err error
	if s.Guard == nil {
		if s.Guard, err = access.New(access.Options{}); err != nil {
			return nil, err
		}
	}
	if s.files, err = readAssets(); err != nil {
		return nil, err
	}
	if s.templates, err = readTemplates(s.files, s.Place); err != nil {
		return nil, err
	}
	s.mux.HandleFunc("GET /assets/{digest}/{name}", s.files.serve)
	for pattern, show := range map[string]func(*http.Request) (view, error){
		"/{$}":        s.runs,
		"/fleet":      s.fleet,
		"/playground": s.playground,
		"/runs/{run}/{step}/{task}/{sample}/{attempt}/credit": s.estimators,
		"/compare":                                     s.compareRuns,
		"/runs/{run}":                                  s.run,
		"/runs/{run}/steps":                            s.steps,
		"/runs/{run}/versions":                         s.versions,
		"/runs/{run}/versions/compare":                 s.pair,
		"/runs/{run}/versions/compare/task":            s.taskBeside,
		"/runs/{run}/cut-off":                          s.cutOff,
		"/runs/{run}/conversations":                    s.conversations,
		"/runs/{run}/experiments":                      s.experiments,
		"/runs/{run}/segments":                         s.segments,
		"/runs/{run}/versions/{version}":               s.version,
		"/runs/{run}/prompts":                          s.prompts,
		"/runs/{run}/prompts/{candidate}":              s.candidate,
		"/runs/{run}/tasks":                            s.tasks,
		"/runs/{run}/{step}":                           s.step,
		"/runs/{run}/{step}/{task}":                    s.group,
		"/runs/{run}/{step}/{task}/{sample}/{attempt}": s.attempt,
	} {
		s.mux.HandleFunc("GET "+pattern, s.page(show))
	}
	s.mux.HandleFunc("GET /runs/{run}/live", s.live)
	s.mux.HandleFunc("GET /runs/{run}/reply", s.findReply)
	s.mux.HandleFunc("GET /runs/{run}/served-0", s.redirectServed)
	s.mux.HandleFunc("GET /runs/{run}/served-0/{task}", s.redirectServed)
	s.mux.HandleFunc("GET /runs/{run}/{step}/{task}/{sample}/{attempt}/calls/{call}/{part}", s.callPart)
	s.mux.HandleFunc("POST "+replyPath, s.reply)
	s.mux.HandleFunc("GET /", s.nowhere)
	return s, s.serveActions()
}

// Close ends the streams of pages that follow a run, and waits for work under way.
func (s *Server) Close() {
	s.closing.Lock()
	s.cancel()
	s.closing.Unlock()
	s.work.Wait()
	s.client.CloseIdleConnections()
}

// begin registers work that Close waits for. It returns false if Close was called before.
func (s *Server) begin() bool {
	s.closing.Lock()
	defer s.closing.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.work.Add(1)
	return true
}

// ServeHTTP answers the requests that the guard admits.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer, a form's origin could not be checked
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if err := s.Guard.CheckRequest(r); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
		return
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		s.admitted.ServeHTTP(w, r)
	case http.MethodPost:
		defer s.acted.Add(1)
		s.admitted.ServeHTTP(w, r)
	default:
		h.Set("Allow", "GET, HEAD, POST")
		http.Error(w, "this page takes no such request", http.StatusMethodNotAllowed)
	}
}

// page answers with what show returns, or the error. All readers who ask for the same within
// a moment get the same answer: pages that follow a run ask together.
func (s *Server) page(show func(*http.Request) (view, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		d, err := s.documents.Of(r.Context(), s.documentKey(r), func(ctx context.Context) (document, error) { return s.document(r.WithContext(ctx), show), nil })
		if err == nil { // an error means that the client has left
			d.write(w)
		}
	}
}

// documentKey returns a key that is equal for requests with equal documents: those of one
// reader for one address, while nobody acts and the run's progress stays the same. So no
// document is older than the event that announces it.
func (s *Server) documentKey(r *http.Request) string {
	p := access.Of(r.Context())
	reached := ""
	if r.PathValue("run") != "" {
		reached, _ = s.progress(r) // the document says what is wrong
	}
	return fmt.Sprintf("%d %d %q %q %v %s %s", s.now(), s.acted.Load(), reached, p.Name, p.May(access.Operate), s.Guard.FormToken(p), r.URL)
}

// now returns a number that changes twice in the time between two polls.
func (s *Server) now() int64 { return time.Now().UnixNano() / max(1, int64(s.Poll/2)) }

func (s *Server) document(r *http.Request, show func(*http.Request) (view, error)) document {
	v, err := show(r)
	code := http.StatusOK
	switch {
	case err == nil:
	case errors.Is(err, record.ErrNotFound), errors.Is(err, record.ErrAddress):
		code, v = http.StatusNotFound, s.missing(r)
	default:
		s.Log.Error("page", zap.String("path", r.URL.Path), zap.Error(err))
		code, v = http.StatusInternalServerError, failed("This page can't be shown", err.Error())
	}
	return s.rendered(r, code, v)
}

// document is a page as it is sent.
type document struct {
	code int
	html []byte
}

func (d document) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(d.code)
	_, _ = w.Write(d.html) // it is no error if the reader has left
}

func (s *Server) rendered(r *http.Request, code int, v view) document {
	v.Reader = s.readerOf(r)
	var b bytes.Buffer
	if err := s.templates[v.template].ExecuteTemplate(&b, "layout", v); err != nil {
		s.Log.Error("render", zap.String("path", r.URL.Path), zap.Error(err))
		return document{http.StatusInternalServerError, []byte("the page could not be rendered")}
	}
	return document{code, b.Bytes()}
}

// render answers with a view.
func (s *Server) render(w http.ResponseWriter, r *http.Request, code int, v view) {
	s.rendered(r, code, v).write(w)
}

// view is the data of a template.
type view struct {
	template string
	Title    string
	// Crumbs are the links from the list of runs to this page.
	Crumbs []link
	// Tabs are the main pages of a run. Whole is true if this page is one of them, and
	// false if it is below one.
	Tabs  []link
	Whole bool
	// Follow is the path of the events that tell when to load again. It is empty if the
	// page follows no run.
	Follow string
	// Every is the number of milliseconds after which a page that follows no run loads
	// again. 0 means never.
	Every int
	// Section is the path of the page among those that belong to no run. Script is a
	// further script that the page needs.
	Section, Script string
	// Reader is the person who reads the page, if that person has logged in.
	Reader reader
	Body   any
}

// reader is the person who reads a page.
type reader struct {
	Name     string // empty without a login
	ReadOnly bool
	Token    string // for the form that logs out
	Starts   bool   // may start runs here
}

func (s *Server) readerOf(r *http.Request) reader {
	p := access.Of(r.Context())
	out := reader{Starts: s.Starter != nil && p.May(access.Operate)}
	if p.Name != "" && !p.Local {
		out.Name, out.ReadOnly, out.Token = p.Name, !p.May(access.Operate), s.Guard.FormToken(p)
	}
	return out
}

// link leads to a page; Here marks the one that is shown.
type link struct {
	Text, Path string
	Here       bool
}

// runView returns the view of a page of a run.
func runView(template string, run record.Run, here string, crumbs ...link) view {
	v := view{template: template, Crumbs: append([]link{{Text: run.Name, Path: runPath(run.Name)}}, crumbs...)}
	work := link{Text: "Steps", Path: "/steps"}
	if searches(run) {
		work = link{Text: "Prompts", Path: "/prompts"}
	}
	for _, t := range []link{{Text: "Overview"}, work, {Text: "Versions", Path: "/versions"}, {Text: "Tasks", Path: "/tasks"}, {Text: "Conversations", Path: "/conversations"}, {Text: "Actions", Path: "/actions"}} {
		v.Tabs = append(v.Tabs, link{t.Text, runPath(run.Name) + t.Path, t.Text == here})
	}
	v.Whole = len(crumbs) == 0 || len(crumbs) == 1 && crumbs[0].Path == ""
	v.Title = run.Name
	for _, c := range crumbs {
		v.Title = c.Text + " · " + v.Title
	}
	if run.Status == record.Running {
		v.Follow = runPath(run.Name) + "/live"
	}
	return v
}

// serveActions adds the login and the forms for actions.
func (s *Server) serveActions() (err error) {
	doors := &login.Pages{Guard: s.Guard, Log: s.Log, Fail: s.fail, Show: func(w http.ResponseWriter, r *http.Request, code int, b login.Body) {
		s.render(w, r, code, view{template: "login", Title: "Log in", Body: b})
	}}
	s.admitted = doors.Before(s.mux)
	s.mux.HandleFunc("POST /logout", doors.LogOut)
	s.actions, err = actions.New(actions.Options{
		Records: s.Records, Operator: s.Operator, Starter: s.Starter, Exporter: s.Exporter, Guard: s.Guard, Why: s.Why, Find: s.findNow, Fractions: s.fractions, Functions: functions(s.Place),
		Show: func(w http.ResponseWriter, r *http.Request, p actions.Page) {
			v := view{template: "raw", Title: p.Title}
			switch {
			case p.Run.Name != "" && p.Here:
				v = runView("raw", p.Run, "Actions", link{Text: "Actions"})
			case p.Run.Name != "":
				v = runView("raw", p.Run, "Actions", link{Text: "Actions", Path: actions.Path(p.Run.Name)}, link{Text: p.Title})
				v.Title = p.Title + " · " + p.Run.Name
			}
			v.Follow = "" // reloading would remove what the reader has typed
			v.Body = p.Body
			s.render(w, r, p.Code, v)
		},
		Fail: s.fail,
	})
	if err == nil {
		s.actions.Register(s.mux)
	}
	return err
}

// fail answers with an error.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, code int, err error) {
	if code >= http.StatusInternalServerError {
		s.Log.Error("act", zap.String("path", r.URL.Path), zap.Error(err))
	}
	if code == http.StatusNotFound {
		s.render(w, r, code, s.missing(r))
		return
	}
	title := map[int]string{http.StatusForbidden: "Not allowed"}[code]
	s.render(w, r, code, failed(cmp.Or(title, "This can't be done"), err.Error()))
}

// find reads the run of a request, with the status that Temporal has or had a moment ago.
func (s *Server) find(r *http.Request) (record.Run, error) {
	run, err := s.Records.Run(r.Context(), r.PathValue("run"))
	if err != nil || s.Live == nil {
		return run, err
	}
	return s.liveRun(r.Context(), run)
}

// findNow does what find does, but always asks Temporal, because it serves actions.
func (s *Server) findNow(r *http.Request) (record.Run, error) {
	run, err := s.Records.Run(r.Context(), r.PathValue("run"))
	if err != nil || s.Live == nil {
		return run, err
	}
	return s.liveRunNow(r.Context(), run), nil
}

var _ report.Store = Records(nil)

//go:embed assets/* templates/*.html
var embedded embed.FS

// assets are the files that pages load, under the digest of their content, so that a
// browser keeps them until they change.
type assets map[string]asset // by name

type asset struct {
	digest, kind string
	content      []byte
}

func readAssets() (assets, error) {
	out := assets{}
	entries, err := fs.ReadDir(embedded, "assets")
	if err != nil {
		return nil, fmt.Errorf("read the assets of the page: %w", err)
	}
	for _, e := range entries {
		content, err := fs.ReadFile(embedded, path.Join("assets", e.Name()))
		if err != nil {
			return nil, fmt.Errorf("read asset %s of the page: %w", e.Name(), err)
		}
		sum := sha256.Sum256(content)
		out[e.Name()] = asset{hex.EncodeToString(sum[:8]), mime.TypeByExtension(path.Ext(e.Name())), content}
	}
	return out, nil
}

// path returns the path of an asset.
func (a assets) path(name string) string { return "/assets/" + a[name].digest + "/" + name }

func (a assets) serve(w http.ResponseWriter, r *http.Request) {
	one, ok := a[r.PathValue("name")]
	if !ok || one.digest != r.PathValue("digest") {
		http.Error(w, "there is no such file: load the page again", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", one.kind)
	w.Header().Set("Cache-Control", "max-age=31536000, immutable")
	_, _ = w.Write(one.content) // it is no error if the reader has left
}

// readTemplates makes the template of each page, by its name.
func readTemplates(a assets, place shell.Place) (map[string]*template.Template, error) {
	base, err := template.New("layout").Funcs(functions(place)).Funcs(template.FuncMap{"asset": a.path}).ParseFS(embedded, "templates/layout.html", "templates/parts.html")
	if err == nil {
		base, err = base.Parse(listing.Template)
	}
	if err != nil {
		return nil, fmt.Errorf("read the templates of the page: %w", err)
	}
	out := map[string]*template.Template{}
	files, err := fs.Glob(embedded, "templates/*.html")
	if err != nil {
		return nil, fmt.Errorf("list the templates of the page: %w", err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(path.Base(f), ".html")
		if name == "layout" || name == "parts" {
			continue
		}
		t, err := base.Clone()
		if err == nil {
			t, err = t.ParseFS(embedded, f)
		}
		if err != nil {
			return nil, fmt.Errorf("read template %s of the page: %w", name, err)
		}
		out[name] = t
	}
	return out, nil
}
