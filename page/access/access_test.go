package access_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/page/access"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func create(t *testing.T, f access.File, name string, right access.Right, expires time.Time) string {
	t.Helper()
	secret, err := f.Create(name, []access.Right{right}, noon, expires)
	require.NoError(t, err)
	return secret
}

func newFile(t *testing.T) access.File {
	t.Helper()
	return access.File(filepath.Join(t.TempDir(), "deep", "tokens.json"))
}

func TestSecretsAreNotKept(t *testing.T) {
	t.Parallel()
	f := newFile(t)
	secret := create(t, f, "ada", access.Operate, time.Time{})
	other := create(t, f, "bob", access.Read, noon.Add(time.Hour))
	require.NotEqual(t, secret, other)
	require.Regexp(t, `^fulgurite_[A-Za-z0-9_-]{43}$`, secret)
	text, err := os.ReadFile(string(f))
	require.NoError(t, err)
	require.NotContains(t, string(text), strings.TrimPrefix(secret, "fulgurite_"))
	state, err := os.Stat(string(f))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), state.Mode().Perm())

	require.NoError(t, f.Revoke("ada"))
	all, err := f.Tokens()
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, "bob", all[0].Name)
}

func TestWhatNoTokenCanBeIsRefusedByItsField(t *testing.T) {
	t.Parallel()
	f := newFile(t)
	create(t, f, "ada", access.Read, time.Time{})
	for _, c := range []struct {
		name    string
		rights  []access.Right
		expires time.Time
		want    string
	}{
		{"ada", []access.Right{access.Read}, time.Time{}, "name: there is a token ada"},
		{"", []access.Right{access.Read}, time.Time{}, `name ""`},
		{"a\nb", []access.Right{access.Read}, time.Time{}, "name"},
		{strings.Repeat("a", 65), []access.Right{access.Read}, time.Time{}, "name"},
		{"bob", nil, time.Time{}, "rights: missing"},
		{"bob", []access.Right{"root"}, time.Time{}, `rights: "root" is unknown`},
		{"bob", []access.Right{access.Read}, noon, "expires"},
	} {
		_, err := f.Create(c.name, c.rights, noon, c.expires)
		require.ErrorIs(t, err, access.ErrToken)
		require.ErrorContains(t, err, c.want)
	}
	require.ErrorContains(t, f.Revoke("eve"), `no token "eve"`)
}

func TestAFileThatCannotBeTrustedOpensNothing(t *testing.T) {
	t.Parallel()
	f := newFile(t)
	secret := create(t, f, "ada", access.Operate, time.Time{})
	whole, err := os.ReadFile(string(f))
	require.NoError(t, err)
	for name, text := range map[string]string{
		"cut off":        string(whole[:len(whole)/2]),
		"misspelt":       strings.Replace(string(whole), `"created"`, `"expire": "2020-01-01T00:00:00Z", "created"`, 1),
		"no digest":      strings.Replace(string(whole), `"sha256": "`, `"sha256": "zz`, 1),
		"another right":  strings.Replace(string(whole), "operate", "everything", 1),
		"something more": string(whole) + "{}",
		"empty":          "",
	} {
		require.NoError(t, os.WriteFile(string(f), []byte(text), 0o600))
		g, err := access.New(access.Options{Tokens: f, Anywhere: true})
		require.NoError(t, err)
		p, err := g.Who(bearer(t, secret))
		require.ErrorContains(t, err, "tokens", name)
		require.False(t, p.May(access.Read), name)
	}
}

func TestTokensMadeAtOnceAreAllKept(t *testing.T) {
	t.Parallel()
	f := newFile(t)
	var g errgroup.Group
	for i := range 16 {
		g.Go(func() error {
			_, err := f.Create(string(rune('a'+i)), []access.Right{access.Read}, noon, time.Time{})
			return err
		})
	}
	require.NoError(t, g.Wait())
	all, err := f.Tokens()
	require.NoError(t, err)
	require.Len(t, all, 16)
}

func request(t *testing.T, method, host, from string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "/", nil)
	r.Host, r.RemoteAddr = host, from
	return r
}

func bearer(t *testing.T, secret string) *http.Request {
	t.Helper()
	r := request(t, http.MethodGet, "page.example", "192.0.2.1:5000")
	r.Header.Set("Authorization", "Bearer "+secret)
	return r
}

// clock is one that a test moves.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func newGuard(t *testing.T, f access.File, c *clock) *access.Guard {
	t.Helper()
	g, err := access.New(access.Options{Tokens: f, Anywhere: true, Now: c.now})
	require.NoError(t, err)
	return g
}

// logIn returns a request with the cookie of a session.
func logIn(t *testing.T, g *access.Guard, secret string) *http.Request {
	t.Helper()
	w := httptest.NewRecorder()
	_, err := g.LogIn(w, request(t, http.MethodPost, "page.example", "192.0.2.1:5000"), secret)
	require.NoError(t, err)
	cookies := w.Result().Cookies()
	require.Len(t, cookies, 1)
	require.True(t, cookies[0].HttpOnly)
	require.Equal(t, http.SameSiteStrictMode, cookies[0].SameSite)
	require.NotContains(t, cookies[0].Value, secret)
	r := request(t, http.MethodGet, "page.example", "192.0.2.1:5000")
	r.AddCookie(cookies[0])
	return r
}

func TestATokenOpensWhatItsRightsSayUntilItsEnd(t *testing.T) {
	t.Parallel()
	f, c := newFile(t), &clock{noon}
	operator, reader := create(t, f, "ada", access.Operate, time.Time{}), create(t, f, "bob", access.Read, noon.Add(time.Hour))
	g := newGuard(t, f, c)
	_, err := g.Who(request(t, http.MethodGet, "page.example", "192.0.2.1:5000"))
	require.ErrorIs(t, err, access.ErrUnknown)
	for secret, may := range map[string]bool{operator: true, reader: false} {
		for _, r := range []*http.Request{bearer(t, secret), logIn(t, g, secret)} {
			p, err := g.Who(r)
			require.NoError(t, err)
			require.True(t, p.May(access.Read))
			require.Equal(t, may, p.May(access.Operate), p.Name)
		}
	}
	session := logIn(t, g, reader)
	c.at = noon.Add(time.Hour)
	_, err = g.Who(bearer(t, reader))
	require.ErrorIs(t, err, access.ErrWrongToken)
	_, err = g.Who(session)
	require.ErrorIs(t, err, access.ErrUnknown, "the session ends with its token")

	session = logIn(t, g, operator)
	require.NoError(t, f.Revoke("ada"))
	_, err = g.Who(session)
	require.ErrorIs(t, err, access.ErrUnknown, "a token that is revoked takes its sessions along")
}

func TestSessionsEnd(t *testing.T) {
	t.Parallel()
	f, c := newFile(t), &clock{noon}
	secret := create(t, f, "ada", access.Operate, time.Time{})
	g := newGuard(t, f, c)
	first, second := logIn(t, g, secret), logIn(t, g, secret)
	g.LogOut(httptest.NewRecorder(), first)
	_, err := g.Who(first)
	require.ErrorIs(t, err, access.ErrUnknown)
	_, err = g.Who(second)
	require.NoError(t, err, "another browser's session is another")
	c.at = noon.Add(12 * time.Hour)
	_, err = g.Who(second)
	require.ErrorIs(t, err, access.ErrUnknown)
	_, err = newGuard(t, f, &clock{noon}).Who(second)
	require.ErrorIs(t, err, access.ErrUnknown, "sessions end with the process")
}

func TestAFormIsForOneSession(t *testing.T) {
	t.Parallel()
	f, c := newFile(t), &clock{noon}
	secret := create(t, f, "ada", access.Operate, time.Time{})
	g := newGuard(t, f, c)
	who := func(r *http.Request) access.Person {
		p, err := g.Who(r)
		require.NoError(t, err)
		return p
	}
	one, two := who(logIn(t, g, secret)), who(logIn(t, g, secret))
	require.NoError(t, g.CheckForm(one, g.FormToken(one)))
	for _, wrong := range []string{"", "x", g.FormToken(two), newGuard(t, f, c).FormToken(one)} {
		require.ErrorIs(t, g.CheckForm(one, wrong), access.ErrForm)
	}
	require.NoError(t, g.CheckForm(who(bearer(t, secret)), ""), "no other page can make a browser send a bearer's secret")
}

func TestTriesAreLimited(t *testing.T) {
	t.Parallel()
	f, c := newFile(t), &clock{noon}
	secret := create(t, f, "ada", access.Operate, time.Time{})
	g := newGuard(t, f, c)
	for range 10 {
		_, err := g.Who(bearer(t, "guess"))
		require.ErrorIs(t, err, access.ErrWrongToken)
	}
	_, err := g.Who(bearer(t, secret))
	var many access.TooManyError
	require.ErrorAs(t, err, &many, "not even the right one, or the wait could be measured")
	require.Equal(t, time.Minute, many.Wait)
	second := bearer(t, secret)
	second.RemoteAddr = "192.0.2.2:1"
	_, err = g.Who(second)
	require.NoError(t, err)
	c.at = noon.Add(time.Minute)
	_, err = g.Who(bearer(t, secret))
	require.NoError(t, err)

	proxied, err := access.New(access.Options{Tokens: f, Anywhere: true, Proxy: true, Now: c.now})
	require.NoError(t, err)
	for range 11 {
		r := bearer(t, "guess")
		r.Header.Set("X-Forwarded-For", "198.51.100.7, 203.0.113.9")
		_, err = proxied.Who(r)
	}
	require.ErrorAs(t, err, &many)
	_, err = proxied.Who(bearer(t, secret))
	require.NoError(t, err, "who comes by the proxy is told apart")
}

func TestWithoutTokensOnlyLoopbackIsAnswered(t *testing.T) {
	t.Parallel()
	_, err := access.New(access.Options{Anywhere: true})
	require.ErrorContains(t, err, "tokens")
	g, err := access.New(access.Options{Local: "ada@host"})
	require.NoError(t, err)
	require.NoError(t, g.CheckRequest(request(t, http.MethodGet, "localhost:8235", "127.0.0.1:5000")))
	require.ErrorContains(t, g.CheckRequest(request(t, http.MethodGet, "evil.example", "127.0.0.1:5000")), "localhost")
	require.ErrorContains(t, g.CheckRequest(request(t, http.MethodGet, "localhost", "192.0.2.1:5000")), "machine")
	p, err := g.Who(request(t, http.MethodGet, "localhost", "127.0.0.1:5000"))
	require.NoError(t, err)
	require.True(t, p.Local && p.May(access.Operate))
	require.Equal(t, "ada@host", p.Name)
}

func TestWhatAnotherSiteAsksForIsRefused(t *testing.T) {
	t.Parallel()
	g, err := access.New(access.Options{})
	require.NoError(t, err)
	for _, c := range []struct {
		site, origin string
		ok           bool
	}{
		{"same-origin", "http://localhost:8235", true},
		{"same-origin", "", true},
		{"", "http://localhost:8235", true},
		{"", "", true}, // no browser; a form token is needed all the same
		{"cross-site", "http://localhost:8235", false},
		{"same-site", "http://localhost:9999", false},
		{"", "http://localhost:9999", false},
		{"", "http://evil.example", false},
		{"", "null", false},
	} {
		r := request(t, http.MethodPost, "localhost:8235", "127.0.0.1:5000")
		if c.site != "" {
			r.Header.Set("Sec-Fetch-Site", c.site)
		}
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		require.Equal(t, c.ok, g.CheckRequest(r) == nil, "%+v", c)
	}
}

func TestOverTLSTheCookieIsForTLSAlone(t *testing.T) {
	t.Parallel()
	f := newFile(t)
	secret := create(t, f, "ada", access.Operate, time.Time{})
	g, err := access.New(access.Options{Tokens: f, Anywhere: true, Secure: true, Cookie: "fulgurite_8235"})
	require.NoError(t, err)
	w := httptest.NewRecorder()
	_, err = g.LogIn(w, request(t, http.MethodPost, "page.example", "192.0.2.1:5000"), secret)
	require.NoError(t, err)
	c := w.Result().Cookies()[0]
	require.True(t, c.Secure)
	require.Equal(t, "__Host-fulgurite_8235", c.Name)
	require.Equal(t, "/", c.Path)
}
