package page_test

import (
	"bufio"
	"context"
	"errors"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page"
	"github.com/fulgurite/fulgurite/page/access"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/operator"
)

var errAway = errors.New("no Temporal there")

// withoutTemporal is an operator that has a store but no Temporal.
type withoutTemporal struct{ operator.Operator }

func (withoutTemporal) Reach(context.Context) error { return errAway }

// guarded is a page for which one has to log in.
type guarded struct {
	*recorded
	url    string
	tokens access.File
	now    time.Time
}

func newGuarded(t *testing.T, text string) *guarded {
	t.Helper()
	g := &guarded{recorded: newRecorded(t, text), tokens: access.File(filepath.Join(t.TempDir(), "tokens.json")), now: time.Now()}
	guard, err := access.New(access.Options{Tokens: g.tokens, Anywhere: true, Now: func() time.Time { return g.now }})
	require.NoError(t, err)
	o := operator.Operator{Store: g.store, Dial: func(context.Context) (client.Client, string, func(), error) { return nil, "", nil, errAway }}
	p, err := page.New(page.Options{Records: g.store, Blobs: g.blobs, Codecs: dialog.Named, Patience: time.Hour, Guard: guard, Operator: withoutTemporal{o}})
	require.NoError(t, err)
	server := httptest.NewServer(p)
	t.Cleanup(func() {
		p.Close()
		server.Close()
	})
	g.url = server.URL
	return g
}

func (g *guarded) token(name string, right access.Right, expires time.Time) string {
	g.t.Helper()
	secret, err := g.tokens.Create(name, []access.Right{right}, g.now, expires)
	require.NoError(g.t, err)
	return secret
}

// visitor is a visitor's browser.
type visitor struct {
	t    testing.TB
	url  string
	http http.Client
}

func (g *guarded) visitor() *visitor {
	g.t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(g.t, err)
	return &visitor{g.t, g.url, http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// send makes a request, with a form unless form is nil. to is the target of a redirect.
func (v *visitor) send(method, path string, form url.Values, headers ...string) (code int, body, to string) {
	v.t.Helper()
	request, err := http.NewRequestWithContext(v.t.Context(), method, v.url+path, strings.NewReader(form.Encode()))
	require.NoError(v.t, err)
	request.Header.Set("Accept", "text/html")
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	reply, err := v.http.Do(request)
	require.NoError(v.t, err)
	defer func() { require.NoError(v.t, reply.Body.Close()) }()
	text, err := io.ReadAll(reply.Body)
	require.NoError(v.t, err)
	return reply.StatusCode, string(text), reply.Header.Get("Location")
}

// logIn presents a token and follows where that leads.
func (v *visitor) logIn(secret string) string {
	v.t.Helper()
	code, _, to := v.send(http.MethodPost, "/login", url.Values{"secret": {secret}, "to": {"/runs/demo"}})
	require.Equal(v.t, http.StatusSeeOther, code)
	require.Equal(v.t, "/runs/demo", to)
	code, body, _ := v.send(http.MethodGet, to, nil)
	require.Equal(v.t, http.StatusOK, code)
	return body
}

// hidden returns the hidden fields of an action's form.
func hidden(body string) url.Values {
	out := url.Values{}
	for _, m := range regexp.MustCompile(`name="(token|id|seen)" value="([^"]*)"`).FindAllStringSubmatch(body, -1) {
		out.Set(m[1], html.UnescapeString(m[2]))
	}
	return out
}

func TestNobodySeesAnythingWithoutAToken(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, "plain")
	g.token("ada", access.Read, time.Time{})
	v := g.visitor()
	for _, path := range []string{"/", "/runs/demo", "/runs/demo/live", "/runs/demo/actions", "/runs/demo/actions/pin", "/start", "/nowhere"} {
		code, body, to := v.send(http.MethodGet, path, nil)
		require.Equal(t, http.StatusSeeOther, code, path)
		require.Equal(t, "/login?to="+url.QueryEscape(path), to)
		require.NotContains(t, body, "demo-1")
		code, _, _ = v.send(http.MethodGet, path, nil, "Accept", "application/json")
		require.Equal(t, http.StatusUnauthorized, code, path)
	}
	code, body, _ := v.send(http.MethodPost, "/runs/demo/actions/pin", url.Values{"version": {"0"}})
	require.Equal(t, http.StatusUnauthorized, code)
	require.Contains(t, body, "Nothing was done")
	code, body, _ = v.send(http.MethodPost, "/login", url.Values{"secret": {"fulgurite_guess"}})
	require.Equal(t, http.StatusUnauthorized, code)
	require.Contains(t, body, "This is not a token")
	for range 10 {
		code, _, _ = v.send(http.MethodPost, "/login", url.Values{"secret": {"fulgurite_guess"}})
	}
	require.Equal(t, http.StatusTooManyRequests, code)
}

func TestALoginLeadsNowhereElse(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, "plain")
	secret := g.token("ada", access.Read, time.Time{})
	for _, to := range []string{"//evil.example", "http://evil.example/", `/\evil.example`, "javascript:alert(1)", "", "/login", "\x00"} {
		code, _, leads := g.visitor().send(http.MethodPost, "/login", url.Values{"secret": {secret}, "to": {to}})
		require.Equal(t, http.StatusSeeOther, code, to)
		require.Equal(t, "/", leads, to)
	}
	code, _, _ := g.visitor().send(http.MethodPost, "/login", url.Values{"secret": {secret}}, "Origin", "http://evil.example")
	require.Equal(t, http.StatusForbidden, code)
}

func TestWhoMayReadSeesNoButtons(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, hostile)
	reader, operator := g.visitor(), g.visitor()
	body := reader.logIn(g.token("bob", access.Read, g.now.Add(time.Hour)))
	require.Contains(t, body, "may only read")
	require.NotContains(t, body, "/actions/pin")
	body = operator.logIn(g.token("ada", access.Operate, time.Time{}))
	require.Contains(t, body, "/actions/pin")
	require.Contains(t, body, "no Temporal there")
	require.NotContains(t, body, "/actions/pause", "nobody can be asked")

	_, body, _ = operator.send(http.MethodGet, "/runs/demo/actions/pin", nil)
	form := hidden(body)
	form.Set("version", "0")
	code, body, _ := reader.send(http.MethodGet, "/runs/demo/actions/pin", nil)
	require.Equal(t, http.StatusForbidden, code)
	require.Contains(t, body, "may only read")
	for _, method := range []string{http.MethodPost, http.MethodGet} {
		code, _, _ = reader.send(method, "/runs/demo/actions/pin?"+form.Encode(), form)
		require.Equal(t, http.StatusForbidden, code)
	}
	code, _, _ = reader.send(http.MethodPost, "/start", form)
	require.Equal(t, http.StatusForbidden, code)
	code, _, _ = reader.send(http.MethodGet, "/runs/demo/actions", nil)
	require.Equal(t, http.StatusOK, code, "what was done may be read")
	p, err := g.store.Promoted(t.Context(), "demo", model.DefaultPolicy)
	require.NoError(t, err)
	require.Equal(t, 1, p.Version)

	g.now = g.now.Add(time.Hour)
	code, _, to := reader.send(http.MethodGet, "/runs/demo", nil)
	require.Equal(t, http.StatusSeeOther, code)
	require.Equal(t, "/login?to=%2Fruns%2Fdemo", to, "the token has expired")
}

func TestWhoMayNotReadAnyMoreGetsNoNews(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, "plain")
	follow := func(secret string) *bufio.Reader {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.url+"/runs/demo/live", nil)
		require.NoError(t, err)
		request.Header.Set("Authorization", "Bearer "+secret)
		reply, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, reply.Body.Close()) })
		require.Equal(t, http.StatusOK, reply.StatusCode)
		lines := bufio.NewReader(reply.Body)
		for {
			line, err := lines.ReadString('\n')
			require.NoError(t, err)
			if strings.HasPrefix(line, "event: begin") {
				return lines
			}
		}
	}
	stays, goes := follow(g.token("ada", access.Read, time.Time{})), follow(g.token("bob", access.Read, time.Time{}))
	require.NoError(t, g.tokens.Revoke("bob"))
	g.finish(3, "")
	rest, err := io.ReadAll(goes)
	require.NoError(t, err)
	require.NotContains(t, string(rest), "event: change")
	for {
		line, err := stays.ReadString('\n')
		require.NoError(t, err)
		if strings.HasPrefix(line, "event: change") {
			break
		}
	}
}

func TestWhatAPersonDoesIsOnRecordUnderTheTokensName(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, "plain")
	one, two := g.visitor(), g.visitor()
	secret := g.token("ada", access.Operate, time.Time{})
	one.logIn(secret)
	two.logIn(g.token("bob", access.Operate, time.Time{}))
	const pin = "/runs/demo/actions/pin"
	_, body, _ := one.send(http.MethodGet, pin, nil)
	form := hidden(body)
	form.Set("version", "0")
	form.Set("reason", hostile)

	code, body, _ := two.send(http.MethodPost, pin, form)
	require.Equal(t, http.StatusForbidden, code, "a form is for the session that it was made for")
	require.Contains(t, body, "nothing was done")
	code, _, _ = one.send(http.MethodPost, pin, form, "Sec-Fetch-Site", "cross-site")
	require.Equal(t, http.StatusForbidden, code)
	for range 2 {
		code, _, to := one.send(http.MethodPost, pin, form)
		require.Equal(t, http.StatusSeeOther, code)
		_, body, _ = one.send(http.MethodGet, to, nil)
		require.Contains(t, body, "version 1 → 0 by ada")
		require.NotContains(t, body, "<script>document")
		require.NotContains(t, body, "\x1b")
	}
	all, err := g.store.Actions(t.Context(), "demo", 10)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, []any{"ada", record.ActionPin, record.ActionDone}, []any{all[0].By, all[0].Name, all[0].Outcome})

	// A program presents its token with each request, and needs no form.
	code, _, to := g.visitor().send(http.MethodPost, "/runs/demo/actions/unpin", url.Values{"id": {"from-a-program"}}, "Authorization", "Bearer "+secret)
	require.Equal(t, http.StatusSeeOther, code)
	require.Equal(t, "/runs/demo/actions?answer=from-a-program", to)
	code, body, _ = g.visitor().send(http.MethodPost, "/runs/demo/actions/pause", url.Values{"id": {"from-a-program2"}}, "Authorization", "Bearer "+secret)
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, body, "no Temporal there")

	code, _, _ = one.send(http.MethodPost, "/logout", url.Values{})
	require.Equal(t, http.StatusForbidden, code, "nobody is logged out by another page")
	code, _, _ = one.send(http.MethodPost, "/logout", url.Values{"token": form["token"]})
	require.Equal(t, http.StatusSeeOther, code)
	code, _, _ = one.send(http.MethodGet, "/runs/demo", nil)
	require.Equal(t, http.StatusSeeOther, code)
	require.NoError(t, g.tokens.Revoke("bob"))
	code, _, _ = two.send(http.MethodGet, "/runs/demo", nil)
	require.Equal(t, http.StatusSeeOther, code)
}

func TestFormsThatNobodyFillsInAreRefused(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, "plain")
	v := g.visitor()
	v.logIn(g.token("ada", access.Operate, time.Time{}))
	const pin = "/runs/demo/actions/pin"
	_, body, _ := v.send(http.MethodGet, pin, nil)
	token := hidden(body).Get("token")
	for want, fields := range map[string]url.Values{
		"id: want 8 to 64":         {"version": {"0"}},
		"version: missing":         {"id": {"12345678"}},
		"is not a number":          {"id": {"12345678"}, "version": {"1e3"}},
		"versions count from 0":    {"id": {"12345678"}, "version": {"-1"}},
		"reason: 3000 bytes":       {"id": {"12345678"}, "version": {"0"}, "reason": {strings.Repeat("x", 3000)}},
		"the form can&#39;t be re": {"reason": {strings.Repeat("x", 70<<10)}},
	} {
		fields.Set("token", token)
		code, body, _ := v.send(http.MethodPost, pin, fields)
		require.GreaterOrEqual(t, code, 400, want)
		require.Less(t, code, 500, want)
		require.Contains(t, body, want)
	}
	for _, path := range []string{"/runs/demo/actions/nothing", "/runs/none/actions/pin", "/runs/demo/actions/start"} {
		code, _, _ := v.send(http.MethodGet, path, nil)
		require.Equal(t, http.StatusNotFound, code, path)
		code, _, _ = v.send(http.MethodPost, path, url.Values{"token": {token}, "id": {"12345678"}})
		require.GreaterOrEqual(t, code, 400, path)
	}
	for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodPatch} {
		code, _, _ := v.send(method, pin, nil)
		require.Equal(t, http.StatusMethodNotAllowed, code)
	}
	all, err := g.store.Actions(t.Context(), "demo", 10)
	require.NoError(t, err)
	require.Empty(t, all)
}
