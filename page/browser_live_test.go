package page_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/access"
)

// goOn finishes the next step of a run.
func (r *recorded) goOn(step int) {
	r.t.Helper()
	batch, err := r.store.Batch(r.t.Context(), r.name, model.DefaultPolicy, 2)
	require.NoError(r.t, err)
	r.finish(step, batch.Digest)
}

// rowOf waits for the row of a step.
func rowOf(step int) chromedp.Action[chromedp.Void] {
	return chromedp.WaitVisible(fmt.Sprintf(`//td/a[@href="/runs/demo/train-%d"]`, step))
}

// following waits until the page says that it follows its run.
func following() chromedp.Action[chromedp.Void] {
	return chromedp.WaitVisible(`//p[@id="follow"][starts-with(., "following")]`)
}

// mark selects the text of an element, as a person does who reads it with the mouse.
func (b *browser) mark(css string) string {
	b.t.Helper()
	return value(b, chromedp.Evaluate[string](fmt.Sprintf(`(() => { const r = document.createRange(); r.selectNodeContents(document.querySelector(%q).firstChild); getSelection().removeAllRanges(); getSelection().addRange(r); return getSelection().toString(); })()`, css)))
}

// marked returns the selected text.
func (b *browser) marked() string {
	b.t.Helper()
	return value(b, chromedp.Evaluate[string](`getSelection().toString()`))
}

func TestBrowserRenewsAroundWhatAReaderUses(t *testing.T) {
	b := openBrowser(t)
	r := newRecorded(t, "plain")
	server := r.serve(nil)
	b.run(chromedp.Navigate(server.URL+"/runs/demo"), following())

	// A curve that has the focus gets the new step, and the value that is shown stays.
	b.run(chromedp.Focus(chromedp.CSS(".figure")), chromedp.KeyEvent(kb.ArrowRight))
	r.goOn(3)
	b.run(rowOf(3), chromedp.WaitReady(chromedp.CSS(`.figure[data-figure*="[3,"]`)))
	require.Equal(t, "step 1", value(b, chromedp.Text(chromedp.CSS(".figure output"))))
	require.True(t, value(b, chromedp.Evaluate[bool](`document.activeElement.matches(".figure")`)), "the focus stays")
	b.run(chromedp.KeyEvent(kb.ArrowRight + kb.ArrowRight))
	require.Equal(t, "step 3", value(b, chromedp.Text(chromedp.CSS(".figure output"))))

	// So does a link in a list, and a selection, although rows come in above them.
	b.run(chromedp.Focus(chromedp.CSS(`[data-part=steps] a[href$="train-2"]`)))
	said := b.mark(`[data-part=steps] time`)
	require.NotEmpty(t, said)
	r.goOn(4)
	b.run(rowOf(4))
	require.Equal(t, said, b.marked())
	require.True(t, value(b, chromedp.Evaluate[bool](`document.activeElement.matches('[href$="train-2"]')`)))

	// A part whose selected text changes is held, says so, and is renewed when it is let go.
	require.Equal(t, "4", b.mark(`[data-part=head] dd`))
	r.goOn(5)
	b.run(rowOf(5), chromedp.WaitVisible(chromedp.CSS("[data-part=head][data-held]")), chromedp.WaitVisible(`//p[@id="follow"][contains(., "a part is held")]`))
	require.Equal(t, "4", b.marked())
	value(b, chromedp.Evaluate[bool](`getSelection().removeAllRanges(), true`))
	b.run(chromedp.WaitVisible(`//*[@data-part="head"][not(@data-held)]//dd[starts-with(., "5")]`))

	// What was typed or opened stays, too.
	b.run(chromedp.SendKeys(chromedp.CSS(`input[name=from]`), kb.End+"7"), chromedp.Click(chromedp.CSS(".spec summary")))
	typed := value(b, chromedp.Evaluate[string](`document.querySelector("input[name=from]").value`))
	r.goOn(6)
	b.run(rowOf(6))
	require.Equal(t, typed, value(b, chromedp.Evaluate[string](`document.querySelector("input[name=from]").value`)))
	require.True(t, value(b, chromedp.Evaluate[bool](`document.querySelector(".spec details").open`)))
	b.quiet("a renewal")
}

func TestBrowserShowsTheFirstCurvesOfARunWhileItIsOpen(t *testing.T) {
	b := openBrowser(t)
	r := newEmpty(t, "plain")
	r.createRun()
	server := r.serve(nil)
	b.run(chromedp.Navigate(server.URL+"/runs/demo"), following())
	require.Zero(t, value(b, chromedp.Evaluate[int64](`document.querySelectorAll("[data-figure]").length`)))
	r.step(1)
	b.run(rowOf(1), chromedp.Focus(chromedp.CSS(".figure")), chromedp.KeyEvent(kb.ArrowRight))
	require.Equal(t, "step 1", value(b, chromedp.Text(chromedp.CSS(".figure output"))))
	b.quiet("the first step")
}

// proxied serves a page through a proxy that can be told to fail.
type proxied struct {
	*httptest.Server
	status atomic.Int64 // of each answer; 0 is that of the page, and -1 cuts the connection
}

func newProxied(t *testing.T, to string) *proxied {
	t.Helper()
	target, err := url.Parse(to)
	require.NoError(t, err)
	p := &proxied{}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch status := p.status.Load(); status {
		case 0:
			proxy.ServeHTTP(w, r)
		case -1:
			panic(http.ErrAbortHandler)
		default:
			http.Error(w, "a page of the proxy", int(status))
		}
	}))
	t.Cleanup(p.Close)
	return p
}

// fail changes what the proxy answers and cuts what it streams.
func (p *proxied) fail(status int64) {
	p.status.Store(status)
	p.CloseClientConnections()
}

func TestBrowserSaysWhyAPageIsNotUpToDateAndFollowsAgain(t *testing.T) {
	b := openBrowser(t)
	r := newRecorded(t, "plain")
	proxy := newProxied(t, r.serve(nil).URL)
	says := func(text string) chromedp.Action[chromedp.Void] {
		return chromedp.WaitVisible(fmt.Sprintf(`//p[@id="follow"][contains(., %q)]`, text))
	}
	b.run(chromedp.Navigate(proxy.URL+"/runs/demo"), following())
	proxy.fail(http.StatusBadGateway)
	b.run(says("not up to date: the server's answer is 502"))
	r.goOn(3)
	proxy.fail(0)
	b.run(rowOf(3), following())

	for _, list := range []string{"/", "/fleet"} {
		b.run(chromedp.Navigate(proxy.URL + list))
		proxy.fail(-1)
		b.run(says("not up to date: the server is away"))
		proxy.fail(0)
		b.run(chromedp.WaitNotPresent(`//p[@id="follow"][contains(., "away")]`))
	}
}

func TestBrowserSaysThatATokenWasRevoked(t *testing.T) {
	b := openBrowser(t)
	g := newGuarded(t, "plain")
	secret := g.token("ada", access.Read, time.Time{})
	b.run(chromedp.Navigate(g.url+"/runs/demo"), chromedp.SendKeys(chromedp.CSS("[name=secret]"), secret+kb.Enter), following())
	require.NoError(t, g.tokens.Revoke("ada"))
	g.goOn(3)
	b.run(chromedp.WaitVisible(`//p[@id="follow"][contains(., "its token was revoked")]/a[starts-with(@href, "/login?to=")]`))
	next := g.token("ada", access.Read, time.Time{})
	b.run(chromedp.Click(chromedp.CSS("#follow a")), chromedp.SendKeys(chromedp.CSS("[name=secret]"), next+kb.Enter), rowOf(3), following())
}
