package page_test

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
)

// media sets what the browser says of its medium and of its system's settings.
func (b *browser) media(medium string, features ...string) {
	b.t.Helper()
	params := emulation.SetEmulatedMediaParams{Media: medium}
	for i := 0; i < len(features); i += 2 {
		params.Features = append(params.Features, &emulation.MediaFeature{Name: features[i], Value: features[i+1]})
	}
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, params)
	require.NoError(b.t, err)
}

// style returns a property of an element as it is drawn.
func (b *browser) style(css, property string) string {
	b.t.Helper()
	css, pseudo, _ := strings.Cut(css, "::")
	return value(b, chromedp.Evaluate[string](fmt.Sprintf(`getComputedStyle(document.querySelector(%q), %q)[%q]`, css, strings.TrimSuffix("::"+pseudo, "::"), property)))
}

func TestBrowserReadsTextFromTheSideWhereItBegins(t *testing.T) {
	b := openBrowser(t)
	const arabic = "ما هو مجموع 2 و 3؟ (sum)\nThe sum of 2 and 3?"
	server := newRecorded(t, arabic).serve(nil)
	// right counts lines of our readers' texts that begin at the right, and left those that begin at the left.
	const sides = `(() => {
  const lines = { right: 0, left: 0 };
  document.querySelectorAll("main pre").forEach((pre) => {
    const walk = document.createTreeWalker(pre, NodeFilter.SHOW_TEXT), n = walk.nextNode();
    if (!n || !pre.checkVisibility() || !n.data.includes("(sum)")) return;
    const box = pre.getBoundingClientRect(), middle = box.left + box.width / 2, r = document.createRange();
    const at = (i) => { r.setStart(n, i); r.setEnd(n, i + 1); return r.getBoundingClientRect().left; };
    if (box.width < 300) return;
    lines[at(n.data.indexOf("ما")) > middle ? "right" : "left"]++;
    lines[at(n.data.indexOf("The")) > middle ? "right" : "left"]++;
  });
  return lines;
})()`
	b.look("light", 1600, 900)
	for _, path := range []string{"/runs/demo/train-1/0", "/runs/demo/train-1/0/0/2"} {
		b.run(chromedp.Navigate(server.URL + path))
		got := value(b, chromedp.Evaluate[map[string]int](sides))
		require.Positive(t, got["right"], path)
		require.Equal(t, got["right"], got["left"], "%s: each paragraph begins at its own side", path)
	}
	b.run(chromedp.Navigate(server.URL + "/runs/demo/train-1"))
	require.Equal(t, "auto", value(b, chromedp.Evaluate[string](`document.querySelector("[data-part=groups] td a").dir`)))
}

func TestBrowserPrintsOnALightGround(t *testing.T) {
	b := openBrowser(t)
	server := newRecorded(t, "plain").serve(nil)
	b.run(chromedp.Navigate(server.URL + "/runs/demo/train-1/0/0/2"))
	b.media("print", "prefers-color-scheme", "dark")
	require.Equal(t, "rgb(251, 250, 248)", b.style("body", "backgroundColor"))
	require.Equal(t, "rgb(31, 35, 40)", b.style("h1", "color"))
	require.Empty(t, value(b, chromedp.Evaluate[string](faint)))
	require.Equal(t, "exact", b.style(".t", "printColorAdjust"), "the colours of the tokens are printed")
	require.Equal(t, "none", b.style(".overlay", "display"))
	require.NotEqual(t, "none", b.style("svg .bar", "display"), "what is drawn is printed")
}

func TestBrowserKeepsWhatColoursSayWhereTheSystemChoosesThem(t *testing.T) {
	b := openBrowser(t)
	server := newRecorded(t, "plain").serve(nil)
	for _, scheme := range []string{"light", "dark"} {
		b.media("", "forced-colors", "active", "prefers-color-scheme", scheme)
		b.run(chromedp.Navigate(server.URL + "/runs/demo/train-1/0/0/2"))
		require.NotEqual(t, b.style(".tokens", "backgroundColor"), b.style(".t:is(.p1, .p2, .p3, .p4, .p5, .p6)", "backgroundColor"), scheme)
		b.run(chromedp.Navigate(server.URL + "/"))
		require.NotEqual(t, b.style("body", "backgroundColor"), b.style(".status::before", "backgroundColor"), scheme)
	}
	b.quiet("forced colours")
}

func TestBrowserKeepsTheColouringOfTokensInTheAddress(t *testing.T) {
	b := openBrowser(t)
	server := newRecorded(t, "plain").serve(nil)
	chosen := func() string {
		return value(b, chromedp.Evaluate[string](`document.querySelector("[name=overlay]:checked").id + " " + new URLSearchParams(location.search).get("by")`))
	}
	b.run(chromedp.Navigate(server.URL + "/runs/demo/train-1/0/0/2"))
	require.Equal(t, "by-logprob null", chosen())
	b.run(chromedp.Click(chromedp.CSS("#by-advantage")), chromedp.Reload())
	require.Equal(t, "by-advantage advantage", chosen())
	b.run(chromedp.Click(`//a[contains(., "Next: sample 1")]`), chromedp.WaitVisible(`//h1[contains(., "Sample 1")]`))
	require.Equal(t, "by-advantage advantage", chosen(), "other attempts are coloured alike")
	body, _ := get(t, server.URL+"/runs/demo/train-1/0/0/2?by=mask")
	require.Contains(t, body, `id="by-mask" checked>`, "without a script, too")
	b.quiet("colouring")
}

func TestBrowserKeepsWhatWasTypedIntoAForm(t *testing.T) {
	b := openBrowser(t)
	r := newRecorded(t, "plain")
	at := r.serveActing()
	typed := func() string {
		return value(b, chromedp.Evaluate[string](`[...document.querySelectorAll(".ask textarea, .ask [name=reason]")].map((f) => f.value).join("|")`))
	}
	b.run(chromedp.Navigate(at+"/runs/demo/actions/set"), chromedp.SendKeys(chromedp.CSS(".ask textarea"), "loss.clip_low=0.1"), chromedp.SendKeys(chromedp.CSS(".ask [name=reason]"), "a try"))
	b.run(chromedp.Reload())
	require.Equal(t, "loss.clip_low=0.1|a try", typed())
	b.run(chromedp.Navigate(at+"/runs/demo"), chromedp.Navigate(at+"/runs/demo/actions/set"))
	require.Equal(t, "loss.clip_low=0.1|a try", typed())
	b.run(chromedp.Navigate(at + "/runs/demo/actions/pin"))
	require.Empty(t, typed(), "each form has its own")
	b.run(chromedp.Navigate(at+"/runs/demo/actions/set"), chromedp.SendKeys(chromedp.CSS(".ask [name=reason]"), kb.Enter), chromedp.WaitVisible(chromedp.CSS("[role=alert], .card")))
	b.run(chromedp.Navigate(at + "/runs/demo/actions/set"))
	require.Equal(t, "|", typed(), "what was sent is not typed again")
}

func TestThePlaygroundBeginsWithTwoVersions(t *testing.T) {
	t.Parallel()
	r := newRecorded(t, "plain")
	r.savedVersion(3, true)
	server := r.serve(nil)
	side := regexp.MustCompile(`<input value="demo@(\w+)" data-version`)
	for _, promoted := range []int{1, 3, 0} {
		now, err := r.store.Promoted(t.Context(), "demo", model.DefaultPolicy)
		require.NoError(t, err)
		if now.Version != promoted {
			require.NoError(t, r.store.Promote(t.Context(), record.Promotion{Run: "demo", Policy: model.DefaultPolicy, DecisionID: fmt.Sprint("hand-", promoted), Version: promoted, Previous: now.Version, Source: record.SourceRollback}))
		}
		for _, version := range []string{"", "0", "1", "2", "3", "promoted", "newest"} {
			body, _ := get(t, server.URL+"/playground?run=demo&version="+version)
			found := side.FindAllStringSubmatch(body, -1)
			require.Len(t, found, 2)
			numbers := map[string]string{"promoted": strconv.Itoa(promoted), "newest": "3"}
			a, b := cmp.Or(numbers[found[0][1]], found[0][1]), cmp.Or(numbers[found[1][1]], found[1][1])
			require.NotEqual(t, a, b, "version %q, promoted %d", version, promoted)
		}
	}
}

func TestAVersionThatWasRefusedAndPromotedByHandSaysOneThing(t *testing.T) {
	t.Parallel()
	r := newRecorded(t, "plain")
	server := r.serve(nil)
	tags := func(path string) []string {
		body, _ := get(t, server.URL+path)
		return regexp.MustCompile(`<span class="tag[^>]*>([^<]*)</span>`).FindAllString(body, -1)
	}
	require.Len(t, tags("/runs/demo/versions/2"), 1)
	require.Contains(t, tags("/runs/demo/versions/2")[0], ">not promoted<")
	require.NoError(t, r.store.Promote(t.Context(), record.Promotion{Run: "demo", Policy: model.DefaultPolicy, DecisionID: "by-hand", Version: 2, Previous: 1, Source: record.SourcePromote, By: "ada"}))
	require.Len(t, tags("/runs/demo/versions/2"), 1)
	require.Contains(t, tags("/runs/demo/versions/2")[0], ">promoted by hand, though refused<")
	require.Contains(t, strings.Join(tags("/runs/demo/versions"), " "), ">promoted by hand, though refused<")
	require.NotContains(t, strings.Join(tags("/runs/demo/versions"), " "), ">not promoted<")
}
