package main

import (
	"bufio"
	"bytes"
	"context"
	"html"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

// waiting is a run whose candidates wait for a person. Some of its rollouts succeed from the
// start, and it learns so little that this stays so: before long one is better by luck.
const waiting = `name: acted
seed: 7
model: {warm_start: {demonstrations: arithmetic, updates: 400, batch: 32}}
agent: {func: calculator}
tasks: {train: "arithmetic:train:64", gate: "arithmetic:gate:10"}
grader: {type: exact}
training: {steps: 1000, tasks_per_step: 4, samples_per_task: 4, optimizer: {learning_rate: 1e-4}}
evaluation: {every: 1}
promotion: {significance: 1, approval: true, approval_hours: 10}
`

// served is a command that serves a page, as a person's browser without a script meets it.
type served struct {
	t    *testing.T
	dir  string
	url  string
	end  func()
	http http.Client
}

// servePage runs a command until its page can be reached.
func servePage(t *testing.T, dir string, args ...string) *served {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	var errs bytes.Buffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, append(args, "--dir", dir), &terminal.Terminal{Out: in, Err: &errs})
		_ = in.Close()
	}()
	s := &served{t: t, dir: dir}
	s.end = sync.OnceFunc(func() {
		cancel()
		require.Zero(t, <-code, errs.String())
	})
	t.Cleanup(s.end)
	s.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	address := regexp.MustCompile(`(?:Page +|are at )(https?://\S+)`)
	for lines := bufio.NewScanner(out); s.url == "" && lines.Scan(); {
		if m := address.FindStringSubmatch(lines.Text()); m != nil {
			s.url = m[1]
		}
	}
	require.NotEmpty(t, s.url, "it ended: %s", errs.String())
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return s
}

// reply is what a request got.
type reply struct {
	Code int
	To   string // the target of a redirect
	Body string
}

func (s *served) ask(method, path string, form url.Values, headers ...string) reply {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(form.Encode()))
	require.NoError(s.t, err)
	request.Header.Set("Accept", "text/html")
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	r, err := s.http.Do(request)
	require.NoError(s.t, err)
	body, err := io.ReadAll(r.Body)
	require.NoError(s.t, err)
	require.NoError(s.t, r.Body.Close())
	return reply{r.StatusCode, r.Header.Get("Location"), string(body)}
}

func (s *served) get(path string) reply {
	s.t.Helper()
	return s.ask(http.MethodGet, path, nil)
}

// form returns the values that the form at a path would send.
func (s *served) form(path string, fields ...string) url.Values {
	s.t.Helper()
	r := s.get(path)
	require.Equal(s.t, http.StatusOK, r.Code, r.Body)
	return formOf(r, fields...)
}

func formOf(r reply, fields ...string) url.Values {
	out := url.Values{}
	for _, m := range regexp.MustCompile(`name="(token|id|seen|name|digest|version)" [^>]*?value="([^"]*)"`).FindAllStringSubmatch(r.Body, -1) {
		out.Set(m[1], html.UnescapeString(m[2]))
	}
	for i := 0; i < len(fields); i += 2 {
		out.Set(fields[i], fields[i+1])
	}
	return out
}

// answer follows a form's redirect and returns the answer that the page shows there.
func (s *served) answer(r reply) string {
	s.t.Helper()
	require.Equal(s.t, http.StatusSeeOther, r.Code, r.Body)
	text := regexp.MustCompile(`(?s)<p class="answer[^>]*>(.*?)</p>`).FindStringSubmatch(s.get(r.To).Body)
	require.NotNil(s.t, text)
	return html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(text[1], ""))
}

// act performs one action with its form.
func (s *served) act(name string, fields ...string) string {
	s.t.Helper()
	path := "/runs/acted/actions/" + name
	return s.answer(s.ask(http.MethodPost, path, s.form(path, fields...)))
}

// await waits until the page of the run says something, and returns what matched.
func (s *served) await(pattern string) []string {
	s.t.Helper()
	var found []string
	require.Eventually(s.t, func() bool {
		found = regexp.MustCompile(pattern).FindStringSubmatch(s.get("/runs/acted").Body)
		return found != nil
	}, 5*time.Minute, 50*time.Millisecond, pattern)
	return found
}

// recorded returns the recorded actions, the newest first.
func (s *served) recorded() []record.Action {
	s.t.Helper()
	db, err := store.Open(s.t.Context(), filepath.Join(s.dir, "fulgurite.db"), nil)
	require.NoError(s.t, err)
	all, err := db.Actions(s.t.Context(), "acted", 1000)
	require.NoError(s.t, err)
	require.NoError(s.t, db.Close())
	return all
}

// start plans and starts the run, twice at once.
func (s *served) start() {
	s.t.Helper()
	form := s.form("/start", "spec", strings.Replace(waiting, "learning_rate", "learning_rte", 1))
	r := s.followed("/start/plan", form)
	require.Equal(s.t, http.StatusUnprocessableEntity, r.Code)
	require.Contains(s.t, r.Body, "training.optimizer.learning_rte (line 7): unknown key")
	require.Contains(s.t, r.Body, "learning_rte: 1e-4", "what was typed is kept")
	form.Set("spec", waiting)
	planned := s.ask(http.MethodPost, "/start/plan", form)
	require.Equal(s.t, http.StatusSeeOther, planned.Code, planned.Body)
	r = s.get(planned.To)
	require.Equal(s.t, http.StatusOK, r.Code, r.Body)
	require.Contains(s.t, r.Body, "1000 steps")
	require.Contains(s.t, s.get("/").Body, "No runs yet", "a plan starts nothing")
	change := regexp.MustCompile(`<a href="(/start\?draft=\w+)">Change`).FindStringSubmatch(r.Body)
	require.NotNil(s.t, change, "the spec can be changed from its plan")
	require.Contains(s.t, s.get(change[1]).Body, "learning_rate: 1e-4")
	gone := s.get("/start/plan?draft=unknown")
	require.Equal(s.t, "/start?draft=unknown", gone.To)
	require.Contains(s.t, s.get(gone.To).Body, "Paste the spec again")

	changed := formOf(r, "spec", strings.Replace(waiting, "1000", "999", 1))
	require.Contains(s.t, s.followed("/start", changed).Body, "not what was shown")
	once := formOf(r, "spec", waiting)
	for _, r := range s.atOnce("/start", once) {
		require.Equal(s.t, http.StatusSeeOther, r.Code, r.Body)
		require.Equal(s.t, "/started/acted", r.To)
	}
	again := s.get(planned.To)
	require.Equal(s.t, http.StatusOK, again.Code, "the way back from the run shows its plan")
	require.Equal(s.t, "/started/acted", s.ask(http.MethodPost, "/start", formOf(again, "spec", waiting)).To, "it is started once")
}

// followed sends a form and returns the page that the answer leads to.
func (s *served) followed(path string, form url.Values) reply {
	s.t.Helper()
	r := s.ask(http.MethodPost, path, form)
	require.Equal(s.t, http.StatusSeeOther, r.Code, r.Body)
	return s.get(r.To)
}

// atOnce sends a form twice at once, as a double click does.
func (s *served) atOnce(path string, form url.Values) [2]reply {
	var out [2]reply
	var both sync.WaitGroup
	for i := range out {
		both.Go(func() { out[i] = s.ask(http.MethodPost, path, form) })
	}
	both.Wait()
	return out
}

func TestPeopleActOnARunFromThePage(t *testing.T) {
	t.Setenv("TEMPORAL_ADDRESS", "")
	if testing.Short() {
		t.Skip("a run takes long under the race detector")
	}
	dir := t.TempDir()
	s := servePage(t, dir, "dev", "--page-port", "0", "--gateway-port", "0")
	s.start()
	s.await(`/runs/acted/actions/pause`)

	// Requests that don't come from the page's own form do nothing.
	pause := "/runs/acted/actions/pause"
	form := s.form(pause, "reason", "<b>look</b>")
	require.Equal(t, http.StatusForbidden, s.ask(http.MethodPost, pause, form, "Origin", "http://evil.example").Code)
	require.Equal(t, http.StatusForbidden, s.ask(http.MethodPost, pause, form, "Sec-Fetch-Site", "cross-site").Code)
	require.Equal(t, http.StatusForbidden, s.ask(http.MethodPost, pause, form, "Host", "evil.example", "Origin", "http://127.0.0.1").Code)
	forged := url.Values{"token": {"forged"}, "id": form["id"]}
	require.Contains(t, s.ask(http.MethodPost, pause, forged).Body, "nothing was done. Send it again.")
	require.Equal(t, http.StatusOK, s.get(pause+"?token="+form.Get("token")+"&id="+form.Get("id")).Code)
	require.Len(t, s.recorded(), 1, "the start alone")

	// A double click, a reload and the back button cause one action only.
	for _, r := range s.atOnce(pause, form) {
		require.Regexp(t, `^Done: paused by .+@.+ after step \d+$`, s.answer(r))
	}
	require.Contains(t, s.answer(s.ask(http.MethodPost, pause, form)), "Done: paused by")
	require.Len(t, s.recorded(), 2)
	changed := url.Values{"token": form["token"], "id": form["id"], "reason": {"another"}}
	require.Contains(t, s.ask(http.MethodPost, pause, changed).Body, "with this id but other contents")
	require.Equal(t, "Refused: the run is paused already", s.act("pause"))
	require.Contains(t, s.get("/runs/acted/actions").Body, "&lt;b&gt;look&lt;/b&gt;")

	set := "/runs/acted/actions/set"
	r := s.ask(http.MethodPost, set, s.form(set, "values", "training.steps: 3"))
	require.Equal(t, http.StatusUnprocessableEntity, r.Code)
	require.Contains(t, r.Body, "want KEY=NUMBER, one a line")
	require.Contains(t, s.act("set", "values", "training.steps=3"), "Refused: training.steps can't be set while this run is under way")
	require.Regexp(t, `^Done: set by .* from step \d+$`, s.act("set", "values", "training.optimizer.weight_decay=0.02\nloss.clip_low=0.1\n", "reason", "a try"))
	require.Regexp(t, `^Done: resumed by`, s.act("resume"))

	// Commands act by the same code, and are on the same record.
	var out, errs bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"pause", "acted", "--dir", dir, "--by", "bob@desk"}, &terminal.Terminal{Out: &out, Err: &errs}), errs.String())
	require.Contains(t, s.get("/runs/acted/actions").Body, "paused by bob@desk")
	require.Regexp(t, `^Done: resumed by`, s.act("resume"))

	s.decide()

	require.Regexp(t, `^Done: stops after step`, s.act("stop"))
	require.Contains(t, s.act("stop"), "Refused: ")
	s.ends("stopped")
	require.Contains(t, s.act("pause"), "Refused: it is not under way")
	s.continues()
	s.end()

	// The stack of the directory has ended. Actions that need no Temporal still work, and
	// the page says why the others don't.
	s = servePage(t, dir, "page", "--port", "0")
	require.Contains(t, s.get("/runs/acted").Body, "can&#39;t be asked anything: no stack runs")
	require.NotContains(t, s.get("/runs/acted").Body, "/actions/retry")
	r = s.ask(http.MethodPost, "/runs/acted/actions/pause", s.form("/runs/acted/actions/pause"))
	require.Contains(t, r.Body, "nothing was done: no stack runs")
	require.Contains(t, s.act("pin", "version", "1"), "Done: pin: version")
}

// ends waits until the run has ended. A candidate of its last step waits for a person all the
// same, and is rejected.
func (s *served) ends(status string) {
	s.t.Helper()
	for {
		waits := s.await(`status ` + status + `|/actions/reject\?version=(\d+)`)[1]
		if waits == "" {
			return
		}
		s.act("reject", "version", waits)
	}
}

// continues lets the run that was stopped go on for one more step.
func (s *served) continues() {
	t := s.t
	t.Helper()
	const path = "/runs/acted/actions/retry"
	require.Regexp(t, path+`"[^>]*>Continue with more steps<`, s.get("/runs/acted").Body)
	least := regexp.MustCompile(`name="steps" min="(\d+)"[^>]* required`).FindStringSubmatch(s.get(path).Body)
	require.NotNil(t, least, "its steps are asked for")
	r := s.ask(http.MethodPost, path, s.form(path))
	require.Equal(t, http.StatusUnprocessableEntity, r.Code)
	require.Contains(t, html.UnescapeString(r.Body), "steps: missing: the run is stopped, so it goes on only for more steps")
	require.Regexp(t, `^Refused: .*its last finished step is \d+, and training\.steps 1 is not more`, s.act("retry", "steps", "1"))
	require.Regexp(t, `^Done: it goes on with step `+least[1]+`,`, s.act("retry", "steps", least[1]))
	s.ends("completed")
	require.Contains(t, s.get("/runs/acted/actions").Body, "Retry training.steps="+least[1])
}

// decide approves and rejects candidates, and moves the pointer by hand.
func (s *served) decide() {
	t := s.t
	t.Helper()
	s.await(`/actions/approve\?version=`)
	require.Regexp(t, `^Refused: version \d+ waits for approval, not version 999`, s.act("approve", "version", "999"))
	version := s.answerCandidate("approve", func(version string) string { return s.act("approve", "version", version) })
	require.Contains(t, s.act("promote", "version", version), "is promoted already")
	require.Contains(t, s.act("promote", "version", "999"), "has no version 999")
	promote := "/runs/acted/actions/promote"
	require.Contains(t, s.ask(http.MethodPost, promote, s.form(promote, "version", "two")).Body, "is not a number")
	require.Contains(t, s.ask(http.MethodPost, promote, s.form(promote)).Body, "version: missing")
	require.Regexp(t, `^Done: promote: version `+version+` → 0 by .+@.+ \(it is calmer\)$`, s.act("promote", "version", "0", "reason", "it is calmer"))

	// One rollback, however often it is sent: each would lead to another version.
	back := "/runs/acted/actions/rollback"
	form := s.form(back, "reason", "it was not")
	for _, r := range s.atOnce(back, form) {
		require.Contains(t, s.answer(r), "Done: rollback: version 0 → "+version)
	}
	require.Contains(t, s.answer(s.ask(http.MethodPost, back, form)), "Done: rollback: version 0 → "+version)
	require.Contains(t, s.act("pin", "version", "0"), "Done: pin: version "+version+" → 0")
	require.Contains(t, s.act("pin", "version", "0"), "pinned already")
	require.Contains(t, s.act("promote", "version", version), "unpin it first")
	require.Contains(t, s.act("unpin"), "Done: unpin: version 0, as before")

	// Against version 0 the next candidates are better again.
	s.answerCandidate("reject", func(version string) string { return s.act("reject", "version", version, "reason", "not today") })
}

// answerCandidate approves or rejects the candidate that waits, and returns its version. A
// later, better one may take its place before the answer comes.
func (s *served) answerCandidate(action string, act func(version string) string) string {
	s.t.Helper()
	done := map[string]string{"approve": `^Done: version (\d+) promoted, approved by .+@`, "reject": `^Done: version (\d+) rejected by .+@`}[action]
	for {
		text := act(s.await(`/actions/` + action + `\?version=(\d+)`)[1])
		if found := regexp.MustCompile(done).FindStringSubmatch(text); found != nil {
			return found[1]
		}
		require.Regexp(s.t, `^Refused: (version \d+ waits for approval, not version \d+|no candidate waits for approval)`, text)
	}
}

// A run that waits for something that never comes says so on the page, which offers what
// ends it.
func TestABlockedRunIsEndedFromThePage(t *testing.T) {
	t.Setenv("TEMPORAL_ADDRESS", "")
	dir := t.TempDir()
	s := servePage(t, dir, "dev", "--page-port", "0", "--gateway-port", "0")
	file := filepath.Join(t.TempDir(), "spec.yaml")
	lonely := "name: acted\nagent: {func: calculator, queue: nobody}\ntasks: {train: \"arithmetic:train:4\"}\ngrader: {type: exact}\ntraining: {steps: 1, tasks_per_step: 1, samples_per_task: 2}\nmodel: {base: base}\n"
	require.NoError(t, os.WriteFile(file, []byte(lonely), 0o600))
	require.NoError(t, unpack(filepath.Join(filepath.Dir(file), "base")))
	var out, errs bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"train", file, "--detach", "--dir", dir}, &terminal.Terminal{Out: &out, Err: &errs}), errs.String())

	s.await(`no worker polls queue nobody: the run waits until one does <a href="/runs/acted/actions/stop-now">`)
	require.Regexp(t, "^Done: ended at once by ", strings.Join(strings.Fields(s.act("stop-now", "reason", "wrong queue")), " "))
	s.await(`cancelled`)
	last := s.recorded()[0]
	require.Equal(t, record.ActionStop, last.Name)
	require.True(t, last.Input.Now)
	require.Equal(t, "wrong queue", last.Reason)
	require.NotContains(t, s.get("/runs/acted").Body, "actions/stop-now")
}
