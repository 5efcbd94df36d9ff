package page_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/page"
	"github.com/fulgurite/fulgurite/page/actions"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/operator"
	"github.com/fulgurite/fulgurite/spec"
)

// planless is a starter that plans nothing.
type planless struct{}

func (planless) Plan(context.Context, []byte, string) (actions.Plan, error) {
	return actions.Plan{}, errors.New("training.steps: 0 is not possible")
}

func (planless) Start(context.Context, record.Action, []byte) (record.Action, error) {
	return record.Action{}, errors.New("there is no plan")
}

func (planless) Folder() string { return "/runs" }

// serveActing serves a page of the store on which all actions are possible.
func (r *recorded) serveActing() string {
	r.t.Helper()
	o := operator.Operator{Store: r.store, Dial: func(context.Context) (client.Client, string, func(), error) { return nil, "", nil, errAway }}
	p, err := page.New(page.Options{
		Records: r.store, Blobs: r.blobs, Codecs: dialog.Named, Patience: time.Hour, Live: asked{state: page.State{Paused: true, Pending: 2}}, Operator: withoutTemporal{o}, Starter: planless{},
	})
	require.NoError(r.t, err)
	server := httptest.NewServer(p)
	r.t.Cleanup(func() {
		p.Close()
		server.Close()
	})
	return server.URL
}

// classes returns the CSS classes of the shades of each overlay. The fixture has an
// element of each.
func classes() map[string][]string {
	numbered := func(prefix string, from, to int) (out []string) {
		for i := from; i <= to; i++ {
			out = append(out, fmt.Sprint(prefix, i))
		}
		return out
	}
	return map[string][]string{
		"logprob": numbered("p", 0, 6), "entropy": numbered("e", 0, 6), "difference": numbered("d", 0, 6),
		"advantage": append(numbered("up", 1, 3), numbered("down", 1, 3)...), "mask": {"on"}, "version": numbered("v", 0, 3),
	}
}

func TestBrowserReadsEveryShadeOfATokenInItsColours(t *testing.T) {
	b := openBrowser(t)
	r := newRecorded(t, "plain")
	r.criticRun()
	at := r.serveActing()
	for _, scheme := range []string{"light", "dark"} {
		b.look(scheme, 1600, 900)
		b.run(chromedp.Navigate(at + criticAttempt))
		for overlay, shades := range classes() {
			for _, shade := range shades {
				require.NotZero(t, value(b, chromedp.Evaluate[int64](`document.querySelectorAll(".t.`+shade+`").length`)), "the fixture has no token of %s", shade)
			}
			b.run(chromedp.Click(chromedp.CSS("#by-" + overlay)))
			require.Empty(t, value(b, chromedp.Evaluate[string](faint)), "%s, %s", overlay, scheme)
			b.keep(criticAttempt+"/"+overlay, scheme, 1600)
		}
		b.quiet(scheme)
	}
}

func TestBrowserReadsFormsAndErrors(t *testing.T) {
	b := openBrowser(t)
	r := newRecorded(t, "plain")
	r.searched(small("found", spec.AlgorithmGEPA))
	at, closed := r.serveActing(), newGuarded(t, "plain").url
	for _, look := range []struct {
		scheme string
		width  int64
	}{{"light", 1600}, {"dark", 360}} {
		b.look(look.scheme, look.width, 900)
		addresses := []string{closed + "/login", at + "/start", at + "/started/soon", at + "/runs/demo/actions", at + "/nowhere", at + "/runs/other", at + "/runs/demo/train-9", at + "/runs/demo/train-1/0/0/9"}
		for _, name := range []record.ActionName{record.ActionPause, record.ActionSet, record.ActionApprove, record.ActionReject, record.ActionPromote, record.ActionRollback, record.ActionPin, record.ActionStop} {
			addresses = append(addresses, at+"/runs/demo/actions/"+string(name)+"?version=2")
		}
		for _, path := range []string{"", "/versions", "/versions/0", "/versions/1", "/actions/promote?version=0", "/actions/rollback", "/actions/pin?version=1"} {
			addresses = append(addresses, at+"/runs/found"+path)
		}
		for _, address := range addresses {
			b.run(chromedp.Navigate(address))
			what := fmt.Sprintf("%s, %s, %d px", address, look.scheme, look.width)
			require.Empty(t, value(b, chromedp.Evaluate[string](faint)), what)
			require.Empty(t, value(b, chromedp.Evaluate[string](paleBorders)), what)
			require.LessOrEqual(t, value(b, chromedp.Evaluate[int64](`document.documentElement.scrollWidth`)), look.width, what)
			to, err := url.Parse(address)
			require.NoError(t, err)
			b.keep(to.Path, look.scheme, look.width)
		}
	}
	b.expect("status of 404")
}

// paleBorders is a script that returns the controls whose border has a contrast below 3
// with what surrounds them. WCAG 1.4.11 requires 3 for what identifies a control.
const paleBorders = `(() => {
  const number = (c) => (c.match(/[\d.]+/g) || []).map(Number);
  const light = (c) => c.slice(0, 3).map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = light(number(getComputedStyle(document.body).backgroundColor));
  const pale = [];
  document.querySelectorAll("main input:not([type=hidden], [type=file], [type=radio], [type=checkbox]), main textarea:not([hidden]), main select, main button").forEach((e) => {
    const [a, b] = [light(number(getComputedStyle(e).borderTopColor)), ground].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 3) pale.push(e.tagName + " " + (e.name || e.textContent) + " " + ((a + 0.05) / (b + 0.05)).toFixed(2));
  });
  return pale.join("; ");
})()`
