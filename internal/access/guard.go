package access

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

var (
	// ErrUnknown says that somebody has to present a token first.
	ErrUnknown = errors.New("log in with a token first")
	// ErrWrongToken says that what was presented is no token, was revoked, or has expired.
	ErrWrongToken = errors.New("this is no token of this page, or it was revoked or has expired")
	// ErrForm says that a form was made for another session, or by another process.
	ErrForm = errors.New("this form was made before the page was started again, or for somebody else: nothing was done")
)

// TooManyError says that an address presented what is no token too often.
type TooManyError struct{ Wait time.Duration }

func (e TooManyError) Error() string {
	return fmt.Sprintf("too many tokens that are none: wait %s", e.Wait.Round(time.Second))
}

// Person is who makes a request.
type Person struct {
	Name   string
	Rights []Right
	// Local is said of who needs no token, since the page answers this machine alone.
	Local bool
	// bearer presented the token with the request itself, which no other page can do.
	bearer  bool
	session string
}

// May reports whether the person has a right.
func (p Person) May(need Right) bool { return Allows(p.Rights, need) }

// Options say whom a guard admits.
type Options struct {
	// Tokens is empty where nobody logs in. Then only loopback may be answered.
	Tokens File
	// Anywhere answers other machines too, and to other names than loopback's. It takes
	// tokens.
	Anywhere bool
	// Secure is whether browsers reach the page over TLS alone.
	Secure bool
	// Proxy is whether a proxy in front says, in X-Forwarded-For, where a request is from.
	Proxy bool
	// Local is the name of who needs no token.
	Local string
	// Cookie tells the session's cookie from those of other ports of the same host.
	Cookie string
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Guard says who makes a request, and whether it may be answered at all. Make one with New;
// it is safe for concurrent use.
type Guard struct {
	Options
	key      []byte
	sessions sessions
	tries    tries
	origin   *http.CrossOriginProtection
}

// New makes a guard.
func New(o Options) (*Guard, error) {
	if o.Anywhere && o.Tokens == "" {
		return nil, errors.New("who answers other machines needs a file of tokens")
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

// CheckRequest refuses what nobody's own page sends: requests from other machines, or to
// other names, unless they are to be answered, and changes that another site's page asks
// for. The text is for whoever sent it.
func (g *Guard) CheckRequest(r *http.Request) error {
	switch {
	case !g.Anywhere && !fromLoopback(r.RemoteAddr):
		return errors.New("this page answers only the machine that it runs on")
	case !g.Anywhere && !loopbackHost(r.Host):
		return errors.New("this page answers only to localhost, 127.0.0.1 and [::1]: open it by one of these")
	}
	if err := g.origin.Check(r); err != nil {
		return fmt.Errorf("this was asked for by another site's page, so it was not done (%w)", err)
	}
	return nil
}

// Who returns who makes a request: ErrUnknown, ErrWrongToken or TooManyError where nobody is
// known, and any other error where the tokens can't be read.
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

// present is the token of a secret that a request brings. What is none counts as a try.
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
			last := all[len(all)-1] // what stands before it anybody can write
			return addressOf(strings.TrimSpace(last[strings.LastIndex(last, ",")+1:]))
		}
	}
	return addressOf(r.RemoteAddr)
}

// LogIn begins a session for who presents a secret, and gives the browser its cookie.
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

// CheckForm is ErrForm unless a form sends the token that was made for this person. Who
// presents the secret with each request needs none.
func (g *Guard) CheckForm(p Person, token string) error {
	if p.bearer || hmac.Equal([]byte(token), []byte(g.FormToken(p))) {
		return nil
	}
	return ErrForm
}

type personKey struct{}

// With is ctx with who makes the request.
func With(ctx context.Context, p Person) context.Context {
	return context.WithValue(ctx, personKey{}, p)
}

// Of is who makes the request of a context; nobody may do nothing.
func Of(ctx context.Context) Person {
	p, _ := ctx.Value(personKey{}).(Person)
	return p
}
