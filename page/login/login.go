// Package login is in front of all other pages. It asks visitors without a session for a
// token, and it begins and ends sessions. Package access decides who may do what, and the
// pages ask it.
package login

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/page/access"
)

// maxOfLogin is the maximum size of a request from someone who is not logged in, in
// bytes.
const maxOfLogin = 4 << 10

// Body is the body of the page on which a token is presented.
type Body struct {
	To      string // where it leads
	Problem string
}

// Pages logs visitors in and out.
type Pages struct {
	Guard *access.Guard
	Log   *zap.Logger
	// Show answers with the page on which a token is presented, Fail with an error.
	Show func(w http.ResponseWriter, r *http.Request, code int, b Body)
	Fail func(w http.ResponseWriter, r *http.Request, code int, err error)
}

// Before wraps next. Only requests of a known person reach next, with the person in their
// context.
func (p *Pages) Before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.admit(w, r, next) })
}

// admit passes requests of known persons to next, and asks others to log in.
func (p *Pages) admit(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if strings.HasPrefix(r.URL.Path, "/assets/") { // the assets are part of the public program
		next.ServeHTTP(w, r)
		return
	}
	if r.URL.Path == "/login" && p.Guard.Tokens != "" {
		p.login(w, r)
		return
	}
	person, err := p.Guard.Who(r)
	if err == nil {
		next.ServeHTTP(w, r.WithContext(access.With(r.Context(), person)))
		return
	}
	var many access.TooManyError
	page := r.Header.Get("Authorization") == "" && strings.Contains(r.Header.Get("Accept"), "text/html")
	switch {
	case errors.As(err, &many):
		tooMany(w, many)
	case errors.Is(err, access.ErrUnknown) && page && r.Method != http.MethodPost:
		http.Redirect(w, r, "/login?to="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
	case errors.Is(err, access.ErrUnknown) && page:
		p.Show(w, r, http.StatusUnauthorized, Body{"/", "Nothing was done: log in first, then send it again."})
	case errors.Is(err, access.ErrUnknown), errors.Is(err, access.ErrWrongToken):
		w.Header().Set("WWW-Authenticate", `Bearer realm="fulgurite"`)
		http.Error(w, err.Error(), http.StatusUnauthorized)
	default:
		p.Log.Error("who asks", zap.Error(err))
		http.Error(w, "the tokens can't be read: the log of this page says why", http.StatusServiceUnavailable)
	}
}

func tooMany(w http.ResponseWriter, err access.TooManyError) {
	w.Header().Set("Retry-After", strconv.Itoa(int(err.Wait.Seconds())+1))
	http.Error(w, err.Error(), http.StatusTooManyRequests)
}

// login shows the login page or takes a token. Browsers don't send cookies of this site
// for a link on another site. For such a visit, the page loads again from this site, with
// the cookies.
func (p *Pages) login(w http.ResponseWriter, r *http.Request) {
	to := ownPath(r.FormValue("to"))
	if r.Method != http.MethodPost {
		if _, err := p.Guard.Who(r); err == nil {
			http.Redirect(w, r, to, http.StatusSeeOther)
			return
		}
		if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
			w.Header().Set("Refresh", "0; url="+to)
		}
		p.Show(w, r, http.StatusOK, Body{To: to})
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxOfLogin)
	_, err := p.Guard.LogIn(w, r, r.PostFormValue("secret"))
	var many access.TooManyError
	switch {
	case err == nil:
		http.Redirect(w, r, ownPath(r.PostFormValue("to")), http.StatusSeeOther)
	case errors.As(err, &many):
		tooMany(w, many)
	case errors.Is(err, access.ErrWrongToken):
		p.Show(w, r, http.StatusUnauthorized, Body{ownPath(r.PostFormValue("to")), "This is not a token of this page, or it was revoked or has expired."})
	default:
		p.Log.Error("log in", zap.Error(err))
		http.Error(w, "the tokens can't be read: the log of this page says why", http.StatusServiceUnavailable)
	}
}

// LogOut ends the session.
func (p *Pages) LogOut(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxOfLogin)
	if err := p.Guard.CheckForm(access.Of(r.Context()), r.PostFormValue("token")); err != nil {
		p.Fail(w, r, http.StatusForbidden, err)
		return
	}
	p.Guard.LogOut(w, r)
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// ownPath returns the path to go to after a login. It is always a page of this site,
// regardless of what the request asked for.
func ownPath(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(u.Path, "/") || strings.HasPrefix(u.Path, "//") || strings.Contains(u.Path, `\`) || u.Path == "/login" {
		return "/"
	}
	return u.RequestURI()
}
