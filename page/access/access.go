// Package access decides who may do what over HTTP. It keeps the tokens that a person
// makes, and adds what a page in a browser needs besides them. It has one design for
// everything that is guarded. Today only the page uses it. A gateway or a worker that is
// to be guarded gives its clients tokens from the same file, presented as "Authorization:
// Bearer SECRET", and gets its own [Right].
//
// A token has a name, rights, perhaps an end, and the SHA-256 of a secret of 256 random
// bits that is shown once ([File.Create]). Since the secret is random and long, a fast
// hash is enough: it can't be guessed. The file is read again for each request. So a
// token that was revoked or has expired opens nothing any more, nor do the sessions that
// were begun with it.
//
// A browser presents its token once ([Guard.LogIn]) and gets a session: an HttpOnly,
// SameSite=Strict cookie whose value only this process knows. A request that changes
// anything also needs a form token ([Guard.CheckForm]), which is bound to the session,
// and the browser has to say that the page itself made the request (Sec-Fetch-Site,
// Origin). Sessions end with the process. Without a file of tokens there are no sessions.
// [Guard] then answers loopback only, checked by address and by host name, and form
// tokens belong to the process.
//
// The package does not encrypt the transport: over a network, the server that listens has
// to provide TLS.
package access

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"
)

var (
	// ErrUnknown says that a request has no session and no token: log in first.
	ErrUnknown = errors.New("log in with a token first")
	// ErrWrongToken says that no token has the presented secret, or that it has expired.
	ErrWrongToken = errors.New("this is not a token of this page, or it was revoked or has expired")
	// ErrForm says that a form was made for another session, or by another process.
	ErrForm = errors.New("this form is from before the page was restarted, or from another person's login, so nothing was done")
)

// TooManyError says that an address presented wrong tokens too often, and how long it has
// to wait.
type TooManyError struct{ Wait time.Duration }

func (e TooManyError) Error() string {
	return fmt.Sprintf("too many wrong tokens: wait %s", e.Wait.Round(time.Second))
}

// Person is the sender of a request, with the rights of the presented token.
type Person struct {
	Name   string
	Rights []Right
	// Local says that no token is needed, since the page answers only this machine.
	Local bool
	// bearer says that the request itself presents the token, in a header. No other
	// site's page can make a browser do that.
	bearer  bool
	session string
}

// May reports whether the person has a right.
func (p Person) May(need Right) bool { return Allows(p.Rights, need) }

// Options say whom a guard admits.
type Options struct {
	// Tokens is the file of tokens. If it is empty, nobody logs in, and only loopback may
	// be answered.
	Tokens File
	// Anywhere answers other machines too, and requests to other host names than
	// loopback's. It requires Tokens.
	Anywhere bool
	// Secure says that browsers reach the page only over TLS.
	Secure bool
	// Proxy says that a proxy in front of the page writes into X-Forwarded-For where a
	// request comes from.
	Proxy bool
	// Local is the name of the person if no token is needed.
	Local string
	// Cookie is the name of the session's cookie, which distinguishes it from those of
	// other ports of the same host; empty is "fulgurite".
	Cookie string
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Guard decides who makes a request, and whether it may be answered at all. Make one with
// New; it is safe for concurrent use.
type Guard struct {
	Options
	key      []byte
	sessions sessions
	tries    tries
	origin   *http.CrossOriginProtection
}

// New returns a guard.
func New(o Options) (*Guard, error) {
	if o.Anywhere && o.Tokens == "" {
		return nil, errors.New("a page that other machines can reach needs a file of tokens")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Cookie == "" {
		o.Cookie = "fulgurite"
	}
	if o.Secure {
		o.Cookie = "__Host-" + o.Cookie
	}
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // it never fails
	return &Guard{Options: o, key: key, origin: http.NewCrossOriginProtection()}, nil
}

// CheckRequest refuses requests from other machines and to other host names, unless
// Anywhere is set. It also refuses changes that another site's page asks for. The text of
// the error is for the sender.
func (g *Guard) CheckRequest(r *http.Request) error {
	switch {
	case !g.Anywhere && !fromLoopback(r.RemoteAddr):
		return errors.New("this page answers only the machine that it runs on")
	case !g.Anywhere && !loopbackHost(r.Host):
		return errors.New("this page answers only at localhost, 127.0.0.1 and [::1]: open it at one of these")
	}
	if err := g.origin.Check(r); err != nil {
		return fmt.Errorf("another site's page sent this request, so it was not done (%w)", err)
	}
	return nil
}

// Who returns the person who makes a request. The error is ErrUnknown, ErrWrongToken or
// TooManyError if the person is not known, and any other error if the tokens can't be
// read.
func (g *Guard) Who(r *http.Request) (Person, error) {
	if g.Tokens == "" {
		return Person{Name: g.Local, Rights: []Right{Operate}, Local: true}, nil
	}
	if secret, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		t, err := g.present(r, secret)
		return Person{Name: t.Name, Rights: t.Rights, bearer: true}, err
	}
	c, err := r.Cookie(g.Cookie)
	if err != nil {
		return Person{}, ErrUnknown
	}
	digest, ok := g.sessions.find(c.Value, g.Now())
	if !ok {
		return Person{}, ErrUnknown
	}
	t, err := g.token(digest)
	if errors.Is(err, ErrWrongToken) {
		g.sessions.end(c.Value)
		return Person{}, ErrUnknown
	}
	return Person{Name: t.Name, Rights: t.Rights, session: c.Value}, err
}

// present returns the token of the secret that a request presents. A wrong secret counts
// as a try.
func (g *Guard) present(r *http.Request, secret string) (Token, error) {
	now, from := g.Now(), g.from(r)
	if wait := g.tries.wait(from, now); wait > 0 {
		return Token{}, TooManyError{wait}
	}
	t, err := g.token(digestOf(strings.TrimSpace(secret)))
	if errors.Is(err, ErrWrongToken) {
		g.tries.fail(from, now)
	}
	return t, err
}

func (g *Guard) token(digest string) (Token, error) {
	all, err := g.Tokens.Tokens()
	if err != nil {
		return Token{}, err
	}
	t, ok := find(all, digest)
	if !ok || t.Expired(g.Now()) {
		return Token{}, ErrWrongToken
	}
	return t, nil
}

func (g *Guard) from(r *http.Request) string {
	if g.Proxy {
		if all := r.Header.Values("X-Forwarded-For"); len(all) > 0 {
			last := all[len(all)-1] // anyone can write what comes before it
			return addressOf(strings.TrimSpace(last[strings.LastIndex(last, ",")+1:]))
		}
	}
	return addressOf(r.RemoteAddr)
}

// LogIn begins a session for the person who presents a secret, and gives the browser its
// cookie.
func (g *Guard) LogIn(w http.ResponseWriter, r *http.Request, secret string) (Person, error) {
	t, err := g.present(r, secret)
	if err != nil {
		return Person{}, err
	}
	if c, err := r.Cookie(g.Cookie); err == nil {
		g.sessions.end(c.Value)
	}
	id := g.sessions.begin(t.SHA256, g.Now())
	g.setCookie(w, id, int(sessionLife.Seconds()))
	return Person{Name: t.Name, Rights: t.Rights, session: id}, nil
}

// LogOut ends the session of a request, if it has one.
func (g *Guard) LogOut(w http.ResponseWriter, r *http.Request) {
	if c, err := r.Cookie(g.Cookie); err == nil {
		g.sessions.end(c.Value)
	}
	g.setCookie(w, "", -1)
}

func (g *Guard) setCookie(w http.ResponseWriter, value string, age int) {
	http.SetCookie(w, &http.Cookie{Name: g.Cookie, Value: value, Path: "/", MaxAge: age, HttpOnly: true, Secure: g.Secure, SameSite: http.SameSiteStrictMode})
}

// FormToken returns the token that a form of this person has to send.
func (g *Guard) FormToken(p Person) string {
	h := hmac.New(sha256.New, g.key)
	h.Write([]byte("form " + p.session))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// CheckForm returns ErrForm unless the form sends the token that was made for this
// person. A request that presents the secret itself needs no form token.
func (g *Guard) CheckForm(p Person, token string) error {
	if p.bearer || hmac.Equal([]byte(token), []byte(g.FormToken(p))) {
		return nil
	}
	return ErrForm
}

type personKey struct{}

// With returns ctx with the person who makes the request.
func With(ctx context.Context, p Person) context.Context {
	return context.WithValue(ctx, personKey{}, p)
}

// Of returns the person who makes the request of a context. If there is none, it returns
// a person without rights.
func Of(ctx context.Context) Person {
	p, _ := ctx.Value(personKey{}).(Person)
	return p
}

func fromLoopback(address string) bool {
	a, err := netip.ParseAddrPort(address)
	return err == nil && a.Addr().Unmap().IsLoopback()
}

// loopbackHost reports whether a Host header is a name of loopback. Any other name may be
// another site's, although its address leads here.
func loopbackHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return IsLoopback(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
}

// IsLoopback reports whether a host, without a port, is localhost or a loopback address.
func IsLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

const (
	// sessionLife is how long a session lasts at most.
	sessionLife = 12 * time.Hour
	// maxSessions is how many sessions are kept; beyond it, the oldest is dropped.
	maxSessions = 1000
)

// session is the session of a browser that logged in.
type session struct {
	digest string // of the token's secret
	begun  time.Time
}

// sessions holds the sessions of one process, by the hash of the cookie's value.
type sessions struct {
	mu   sync.Mutex
	open map[[sha256.Size]byte]session
}

// begin opens a session for a token, and returns the cookie's value.
func (s *sessions) begin(digest string, now time.Time) string {
	id := rand.Text() + rand.Text() // 260 bits
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[[sha256.Size]byte]session{}
	}
	var oldest [sha256.Size]byte
	var since time.Time
	for key, one := range s.open {
		if now.Sub(one.begun) >= sessionLife {
			delete(s.open, key)
		} else if since.IsZero() || one.begun.Before(since) {
			oldest, since = key, one.begun
		}
	}
	if len(s.open) >= maxSessions {
		delete(s.open, oldest)
	}
	s.open[sha256.Sum256([]byte(id))] = session{digest, now}
	return id
}

// find returns the digest of the token that a session was begun with, if the session
// exists and has not ended.
func (s *sessions) find(id string, now time.Time) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.open[sha256.Sum256([]byte(id))]
	return one.digest, ok && now.Sub(one.begun) < sessionLife
}

func (s *sessions) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, sha256.Sum256([]byte(id)))
}

const (
	// maxTries is how often an address may present a wrong token within triesWindow.
	maxTries    = 10
	triesWindow = time.Minute
	// maxTriers bounds how many addresses are remembered.
	maxTriers = 10_000
)

// tries counts the wrong tokens that were presented, by address.
type tries struct {
	mu   sync.Mutex
	from map[string]failedTries
}

type failedTries struct {
	count int
	since time.Time
}

// wait returns how long an address has to wait before it may present a token again.
func (t *tries) wait(address string, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.from[address]
	if v.count < maxTries {
		return 0
	}
	return max(0, v.since.Add(triesWindow).Sub(now))
}

// fail counts one more wrong token.
func (t *tries) fail(address string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.from == nil || len(t.from) >= maxTriers {
		kept := map[string]failedTries{}
		for key, v := range t.from {
			if now.Sub(v.since) < triesWindow && len(kept) < maxTriers/2 {
				kept[key] = v
			}
		}
		t.from = kept
	}
	v := t.from[address]
	if now.Sub(v.since) >= triesWindow {
		v = failedTries{since: now}
	}
	v.count++
	t.from[address] = v
}

// addressOf returns the address that a request comes from, without its port. For IPv6 it
// returns the /64 network, since a client that has one address has the whole network.
func addressOf(remote string) string {
	a, err := netip.ParseAddrPort(remote)
	if err != nil {
		alone, err := netip.ParseAddr(remote)
		if err != nil {
			return remote
		}
		a = netip.AddrPortFrom(alone, 0)
	}
	ip := a.Addr().Unmap()
	if ip.Is6() {
		if network, err := ip.WithZone("").Prefix(64); err == nil {
			return network.String()
		}
	}
	return ip.String()
}
