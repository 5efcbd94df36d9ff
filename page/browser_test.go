package page_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page"
)

// browserVariable names the browser that the tests drive; without it they are skipped.
const browserVariable = "FULGURITE_BROWSER"

// maxMoved is how far a page may move while it loads, as Chromium counts it: a browser that
// has little time draws a table before it has read the table's last row. A tenth is what
// Chromium calls good.
const maxMoved = 0.01

// maxTime is how long a test may use a browser; one that does not answer fails the test and
// no more.
const maxTime = 3 * time.Minute

// browser is a page in a real browser. It collects the errors of the page.
type browser struct {
	t          *testing.T
	ctx        context.Context
	mu         sync.Mutex
	complaints []string
}

func openBrowser(t *testing.T) *browser {
	t.Helper()
	program := os.Getenv(browserVariable)
	if program == "" {
		t.Skip(browserVariable + " does not name a browser: `make page` does")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(2*time.Minute))
	bounded, stop := context.WithTimeout(t.Context(), maxTime)
	t.Cleanup(stop)
	allocator, end := chromedp.NewExecAllocator(bounded, options...)
	t.Cleanup(end)
	ctx, leave := chromedp.NewContext(allocator)
	t.Cleanup(leave)
	b := &browser{t: t, ctx: ctx}
	require.NoError(t, chromedp.Listen(ctx, b.onEvent))
	_, err := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	require.NoError(t, err)
	_, err = chromedp.Call(ctx, log.Enable, cdp.Empty{})
	require.NoError(t, err)
	return b
}

// onEvent keeps what a page complained of.
func (b *browser) onEvent(event any) {
	complaint := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		complaint = e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			complaint += " " + e.ExceptionDetails.Exception.Description
		}
	case *runtime.EventConsoleAPICalled:
		complaint = fmt.Sprintf("console %s: %v", e.Type, e.Args)
	case *log.EventEntryAdded:
		complaint = e.Entry.Text + " " + e.Entry.URL
	case *network.EventLoadingFailed:
		if !e.Canceled { // events end where a page is left
			complaint = e.ErrorText
		}
	}
	if complaint != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.complaints = append(b.complaints, complaint)
	}
}

// quiet checks that no page has reported an error so far.
func (b *browser) quiet(what string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(b.t, b.complaints, what)
}

// expect checks that pages reported only errors that contain the given text.
func (b *browser) expect(complaint string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.complaints {
		require.Contains(b.t, one, complaint)
	}
}

func (b *browser) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Do(b.ctx, actions...))
}

// value runs an action and returns its result.
func value[T any](b *browser, action chromedp.Action[T]) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, action)
	require.NoError(b.t, err)
	return v
}

// look sets the size of the window and the colours.
func (b *browser) look(scheme string, width, height int64) {
	b.t.Helper()
	b.run(chromedp.EmulateViewport(width, height))
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	require.NoError(b.t, err)
}

// shifts adds up by how much the layout moved since the page began, as Chromium does, once
// two frames were drawn after everything is loaded.
const shifts = `new Promise((done) => {
  let sum = 0;
  const observer = new PerformanceObserver((list) => list.getEntries().forEach((e) => { sum += e.value; }));
  observer.observe({ type: "layout-shift", buffered: true });
  requestAnimationFrame(() => requestAnimationFrame(() => {
    observer.takeRecords().forEach((e) => { sum += e.value; });
    done(sum);
  }));
})`

// faint is a script that returns the texts whose contrast with their background is below
// WCAG's level AA, which is 4.5, or 3 for large texts.
const faint = `(() => {
  const number = (c) => (c.match(/[\d.]+/g) || []).map(Number);
  const over = (top, below) => { const a = top[3] === undefined ? 1 : top[3]; return [0, 1, 2].map((i) => top[i] * a + below[i] * (1 - a)); };
  const behind = (e) => {
    const layers = [];
    for (; e; e = e.parentElement) {
      const c = number(getComputedStyle(e).backgroundColor);
      layers.push(c);
      if (c[3] === undefined || c[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const light = (c) => c.map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
  const found = new Set();
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n = walk.nextNode(); n; n = walk.nextNode()) {
    const e = n.parentElement, style = getComputedStyle(e);
    if (!n.textContent.trim() || !e.checkVisibility() || e.closest(".aside, .skip, option")) continue;
    const ground = behind(e), svg = e.namespaceURI.endsWith("svg");
    const ink = over(number(svg ? style.fill : style.color), ground);
    const [a, b] = [light(ink), light(ground)].sort((x, y) => y - x);
    const size = parseFloat(style.fontSize), large = size >= 24 || size >= 18.66 && style.fontWeight >= 700;
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < (large ? 3 : 4.5)) found.add(e.tagName + "." + (e.getAttribute("class") || "") + " " + ratio.toFixed(2) + " " + n.textContent.trim().slice(0, 20));
  }
  return [...found].slice(0, 10).join("; ");
})()`

func TestBrowserShowsEveryPageWithoutComplaint(t *testing.T) {
	b := openBrowser(t)
	r := newRecorded(t, hostile)
	r.secondRun("other", `{"seed":9}`)
	r.savedVersion(3, true)
	r.evaluated()
	server := r.serveWith(beside{queues: []page.Queue{{Name: "training", Kind: "workflows", Pollers: []page.Poller{{Identity: "9@host"}}}}, gateway: "http://127.0.0.1:9/v1"})
	for _, look := range []struct {
		scheme        string
		width, height int64
	}{{"light", 1600, 900}, {"dark", 1280, 800}, {"dark", 360, 740}} {
		b.look(look.scheme, look.width, look.height)
		for _, path := range []string{
			"/", "/runs/demo", "/runs/demo/steps", "/runs/demo/train-1", "/runs/demo/train-1/0", "/runs/demo/train-1/0/0/2", "/runs/demo/versions", "/runs/demo/tasks",
			"/compare?run=demo&run=other", "/runs/demo/versions/3", "/runs/demo/versions/compare?a=4&b=3&split=gate", "/fleet", "/playground", "/runs/demo/train-1/0/0/2/credit?with=rloo",
		} {
			b.looksRight(server.URL, path, look.scheme, look.width)
		}
	}
}

// looked is what a page has in a browser.
type looked struct {
	Title, Ground, Faint string
	Wide, Elements       int64
}

// looksRight opens a page and makes sure that it does not move, fits its window, can be read
// and complains of nothing.
func (b *browser) looksRight(at, path, scheme string, width int64) {
	t := b.t
	t.Helper()
	what := fmt.Sprintf("%s, %s, %d px", path, scheme, width)
	b.run(chromedp.Navigate(at + path))
	moved := value(b, chromedp.Evaluate[float64](shifts, chromedp.EvalAwaitPromise))
	found := value(b, chromedp.Evaluate[looked](`({ title: document.title, wide: document.documentElement.scrollWidth, ground: getComputedStyle(document.body).backgroundColor,
elements: document.getElementsByTagName("*").length, faint: `+faint+` })`))
	require.True(t, strings.HasSuffix(found.Title, " · Fulgurite"), "%s: %s", what, found.Title)
	require.LessOrEqual(t, found.Wide, width, "%s is wider than its window", what)
	require.Less(t, moved, maxMoved, "%s moves while it loads", what)
	require.Equal(t, map[string]string{"light": "rgb(251, 250, 248)", "dark": "rgb(17, 19, 21)"}[scheme], found.Ground, what)
	require.Empty(t, found.Faint, "%s is hard to read", what)
	require.LessOrEqual(t, found.Elements, int64(maxElements), what)
	b.quiet(what)
	b.keep(path, scheme, width)
}

func TestBrowserShowsLongListsWithoutComplaint(t *testing.T) {
	b := openBrowser(t)
	_, server := newMany(t)
	for _, look := range []struct {
		scheme string
		width  int64
	}{{"light", 1600}, {"dark", 360}} {
		b.look(look.scheme, look.width, 900)
		for _, path := range []string{"/", "/runs/demo/tasks?test_sort=worse", "/runs/demo/train-1?attempts", "/runs/demo/test-1", "/runs/demo/steps", "/runs/other-00/steps?evaluation_show=test", "/runs/demo/actions", "/runs/demo/train-2?metric_q=1", "/compare?run=other-00&run=other-01", "/runs/demo/versions?show=evaluated"} {
			b.looksRight(server.URL, path, look.scheme, look.width)
			if path == "/runs/demo/steps" {
				require.Less(t, value(b, chromedp.Evaluate[float64](`Math.max(...[...document.querySelectorAll("[data-part=steps] tbody tr")].map((e) => e.offsetHeight))`)), 60.0, "a row is a line or two high")
			}
		}
	}
}

func TestBrowserShowsEveryKindOfStoreWithoutComplaint(t *testing.T) {
	b := openBrowser(t)
	// Each of these stores has pages with content that other stores don't have.
	for name, paths := range map[string][]string{
		"empty":    {"/", "/fleet", "/playground", "/compare"},
		"maze":     {"/runs/maze", "/runs/maze/train-1", "/runs/maze/train-1/0/0/2", "/runs/maze/train-1/0/0/2/credit", "/runs/maze/versions/1"},
		"agents":   {"/runs/team/train-1/0", "/runs/team/train-1/0/1/1"},
		"killed":   {"/fleet", "/runs/killed", "/runs/killed/train-3/4/0/1"},
		"measured": {"/runs/measured", "/runs/measured/tasks", "/runs/measured/versions/compare/task?a=0&b=4&split=test&task=1", "/runs/measured/cut-off", "/runs/measured/test-4", "/runs/measured/test-4/4", "/runs/measured/test-4/4/2/1", "/runs/alone", "/runs/alone/versions", "/compare?run=measured&run=alone"},
		"pair":     {"/", "/runs/pair", "/runs/pair/steps", "/runs/pair/gate-1", "/runs/pair/gate-1?policy=writer", "/runs/pair/gate-2?policy=checker&baseline=1", "/runs/pair/versions", "/runs/pair/versions/1", "/runs/pair/tasks"},
		"prompts":  {"/", "/runs/gepa", "/runs/goes", "/runs/gepa/prompts", "/runs/many/prompts", "/runs/many/prompts?all=1", "/runs/many/prompts/30", "/runs/gepa/prompts/1", "/runs/apo/prompts/2", "/runs/gepa/versions", "/runs/gepa/versions/1", "/runs/gepa/versions/compare?a=0&b=1&split=gate"},
		"used":     {"/runs/used", "/runs/used/conversations", "/runs/used/conversations?user=a11&feedback=1", "/runs/used/conversations?version=x", "/runs/used/served-0/0/0/1", "/runs/used/served-0/1/0/1", "/runs/used/experiments", "/runs/used/segments", "/runs/used/train-2"},
		"learned":  {"/runs/used/served-0/0/0/1?by=advantage", "/runs/pair/conversations", "/runs/pair/served-0/0/0/1", "/runs/pair/experiments?policy=writer", "/runs/pair/segments?policy=writer", "/runs/pair/train-1?policy=writer"},
		"failed":   {"/", "/runs/failed", "/runs/refused", "/runs/failed/versions"},
	} {
		at := stores()[name](t).serve(nil).URL
		for _, look := range []struct {
			scheme string
			width  int64
		}{{"light", 1600}, {"dark", 360}} {
			b.look(look.scheme, look.width, 900)
			for _, path := range paths {
				b.looksRight(at, path, look.scheme, look.width)
			}
		}
	}
}

// keep writes what the page looks like to the folder that a person names.
func (b *browser) keep(path, scheme string, width int64) {
	b.t.Helper()
	folder := os.Getenv("FULGURITE_SCREENSHOTS")
	if folder == "" {
		return
	}
	name := fmt.Sprintf("%s-%s-%d.png", strings.Trim(strings.NewReplacer("/", "-", "?", "-", "&", "-", "=", "-").Replace(path), "-"), scheme, width)
	require.NoError(b.t, os.WriteFile(filepath.Join(folder, name), value(b, chromedp.FullScreenshot(100)), 0o644))
}

func TestBrowserShowsValuesByPointerAndKeys(t *testing.T) {
	b := openBrowser(t)
	r := newRecorded(t, "plain")
	server := r.serve(nil)
	b.run(chromedp.Navigate(server.URL+"/runs/demo"), chromedp.Focus(chromedp.CSS(".figure")), chromedp.KeyEvent(kb.ArrowRight))
	require.Equal(t, "step 1", value(b, chromedp.Text(chromedp.CSS(".figure output"))))
	note := value(b, chromedp.Text(chromedp.CSS(".figure small")))
	require.Contains(t, note, "0.500")
	require.Contains(t, note, "version 1 promoted")

	b.run(chromedp.Navigate(server.URL+"/runs/demo/train-1/0/0/2"), chromedp.Focus(chromedp.CSS(".tokens")), chromedp.KeyEvent(kb.ArrowRight+kb.ArrowRight))
	readout := value(b, chromedp.Text(chromedp.CSS("#readout")))
	require.Contains(t, readout, "log-probability −0.5000 · probability 60.7 % · advantage")
	require.Contains(t, readout, "trained · version 0")
	require.Contains(t, readout, "entropy 1.5 · trainer − sampler 0.125")
	for _, overlay := range []string{"advantage", "entropy", "difference"} {
		b.run(chromedp.Click(chromedp.CSS("#by-" + overlay)))
		require.NotEqual(t, "rgba(0, 0, 0, 0)", value(b, chromedp.Evaluate[string](`getComputedStyle(document.querySelectorAll(".t")[1]).backgroundColor`)), overlay)
	}
	b.quiet("values")
}

func TestBrowserFollowsARun(t *testing.T) {
	b := openBrowser(t)
	r := newRecorded(t, "plain")
	server := r.serve(nil)
	b.run(chromedp.Navigate(server.URL+"/runs/demo"), chromedp.WaitVisible(`//p[@id="follow"][contains(., "following")]`))
	batch, err := r.store.Batch(t.Context(), "demo", model.DefaultPolicy, 2)
	require.NoError(t, err)
	r.finish(3, batch.Digest)
	b.run(chromedp.WaitVisible(`//td/a[@href="/runs/demo/train-3"]`))
	b.quiet("following")
}

func TestBrowserShowsARangeThatThePointerMarks(t *testing.T) {
	b := openBrowser(t)
	r := newRecorded(t, "plain")
	batch, err := r.store.Batch(t.Context(), "demo", model.DefaultPolicy, 2)
	require.NoError(t, err)
	for step := 3; step <= 40; step++ {
		r.finish(step, batch.Digest)
	}
	server := r.serve(nil)
	b.run(chromedp.Navigate(server.URL+"/runs/demo"), chromedp.WaitVisible(`//p[@id="follow"][contains(., "following")]`))
	at := value(b, chromedp.Evaluate[[]float64](`(() => { document.querySelector(".figure").scrollIntoView({ block: "center" }); const r = document.querySelector(".figure svg").getBoundingClientRect(); return [r.left + r.width * 0.4, r.left + r.width * 0.6, r.top + r.height / 2]; })()`))
	b.run(chromedp.DragAndDropXY(at[0], at[2], at[1], at[2], 4), chromedp.WaitVisible(`//a[contains(., "All steps")]`))
	from, to := value(b, chromedp.Evaluate[int64](`Number(new URLSearchParams(location.search).get("from"))`)), value(b, chromedp.Evaluate[int64](`Number(new URLSearchParams(location.search).get("to"))`))
	require.Greater(t, from, int64(5))
	require.Less(t, to, int64(35))
	require.Less(t, from, to)
	b.quiet("a range")
}

func TestBrowserTalksToVersions(t *testing.T) {
	b := openBrowser(t)
	r := newRecorded(t, "plain")
	r.savedVersion(3, false)
	server := r.serveWith(beside{gateway: r.running()})
	b.run(chromedp.Navigate(server.URL + "/playground"))
	value(b, chromedp.Evaluate[string](`document.querySelector("[data-side]:last-child [data-version]").value = "demo@3", document.getElementById("tools").value = "", document.getElementById("most").value = "8"`))
	b.run(chromedp.Focus(chromedp.CSS("#text")), chromedp.KeyEvent("1+1"), chromedp.KeyEvent(kb.Enter),
		chromedp.WaitReady(chromedp.CSS("[data-side]:first-child .assistant[data-done]")), chromedp.WaitReady(chromedp.CSS("[data-side]:last-child .assistant[data-done]")))
	require.Equal(t, int64(2), value(b, chromedp.Evaluate[int64](`document.querySelectorAll(".message.user").length`)))
	require.Zero(t, value(b, chromedp.Evaluate[int64](`document.querySelectorAll(".warn").length`)))
	b.keep("/playground-talk", "light", 1280)
	b.quiet("the playground")
}
