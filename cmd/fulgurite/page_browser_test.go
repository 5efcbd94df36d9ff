package main

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
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
)

// tab is a tab of a real browser, in which a person acts.
type tab struct {
	t   *testing.T
	ctx context.Context
	// complaints collects the errors of all tabs.
	complaints *complaints
	url        string
}

type complaints struct {
	mu   sync.Mutex
	list []string
}

func (c *complaints) onEvent(event any) {
	text := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text = e.ExceptionDetails.Text
	case *runtime.EventConsoleAPICalled:
		text = fmt.Sprintf("console %s: %v", e.Type, e.Args)
	case *log.EventEntryAdded:
		text = e.Entry.Text + " " + e.Entry.URL
	}
	if text != "" {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.list = append(c.list, text)
	}
}

// openTab opens the browser that FULGURITE_BROWSER names, or skips the test.
func openTab(t *testing.T, url string) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(os.Getenv("FULGURITE_BROWSER")), chromedp.NoSandbox,
		chromedp.Flag("disable-features", "BackForwardCache,Translate"), // a page that is kept comes back without an event
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(2*time.Minute))
	allocator, end := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(end)
	ctx, leave := chromedp.NewContext(allocator)
	t.Cleanup(leave)
	b := &tab{t, ctx, &complaints{}, url}
	b.listen()
	return b
}

func (b *tab) listen() {
	b.t.Helper()
	require.NoError(b.t, chromedp.Listen(b.ctx, b.complaints.onEvent))
	_, err := chromedp.Call(b.ctx, log.Enable, cdp.Empty{})
	require.NoError(b.t, err)
}

// another opens another tab in the same browser.
func (b *tab) another() *tab {
	b.t.Helper()
	ctx, leave := chromedp.NewContext(b.ctx)
	b.t.Cleanup(leave)
	other := &tab{b.t, ctx, b.complaints, b.url}
	other.listen()
	return other
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 3*time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		text, _ := chromedp.Run(b.ctx, chromedp.Text(chromedp.CSS("body")))
		require.NoError(b.t, err, text)
	}
}

func (b *tab) text(css string) string {
	b.t.Helper()
	text, err := chromedp.Run(b.ctx, chromedp.Text(chromedp.CSS(css)))
	require.NoError(b.t, err)
	return text
}

// script turns scripts on or off, as a careful person does.
func (b *tab) script(on bool) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
	require.NoError(b.t, err)
}

// look sets the colours and the width, and makes sure that the page fits.
func (b *tab) look(name, scheme string, width int64) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, 800))
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	require.NoError(b.t, err)
	wide, err := chromedp.Run(b.ctx, chromedp.Evaluate[int64](`document.documentElement.scrollWidth`))
	require.NoError(b.t, err)
	require.LessOrEqual(b.t, wide, width, "%s is wider than its window", name)
	if folder := os.Getenv("FULGURITE_SCREENSHOTS"); folder != "" {
		picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
		require.NoError(b.t, err)
		require.NoError(b.t, os.WriteFile(filepath.Join(folder, fmt.Sprintf("act-%s-%s-%d.png", name, scheme, width)), picture, 0o644))
	}
}

// looks calls look for each colour scheme and width.
func (b *tab) looks(name string) {
	b.t.Helper()
	b.look(name, "dark", 360)
	b.look(name, "dark", 1280)
	b.look(name, "light", 360)
	b.look(name, "light", 1280)
}

// open goes from the page of the run to the form of an action, by its link.
func (b *tab) open(action string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.url+"/runs/acted"), chromedp.Click(`//nav[@aria-label="Actions"]/a[contains(@href, "/actions/`+action+`")]`), chromedp.WaitVisible(chromedp.CSS(".ask button")))
}

// send fills in fields of a form and presses its button. It returns the answer.
func (b *tab) send(fields ...string) string {
	b.t.Helper()
	for i := 0; i < len(fields); i += 2 {
		b.do(chromedp.SendKeys(chromedp.CSS(`.ask [name="`+fields[i]+`"]`), fields[i+1]))
	}
	b.do(chromedp.Click(chromedp.CSS(".ask button")), chromedp.WaitVisible(chromedp.CSS(".answer")))
	return b.text(".answer")
}

func TestBrowserActsOnARun(t *testing.T) {
	t.Setenv("TEMPORAL_ADDRESS", "")
	if os.Getenv("FULGURITE_BROWSER") == "" {
		t.Skip("FULGURITE_BROWSER does not name a browser: `make page` does")
	}
	s := servePage(t, t.TempDir(), "dev", "--page-port", "0", "--gateway-port", "0")
	b := openTab(t, s.url)
	b.do(chromedp.Navigate(s.url), chromedp.Click(chromedp.CSS(".start")), chromedp.WaitVisible(chromedp.CSS("textarea")))
	b.looks("start")
	typed := func() string {
		text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("document.querySelector('textarea[name=spec]').value"))
		require.NoError(t, err)
		return text
	}
	_, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](fmt.Sprintf("const text = document.querySelector('textarea'); text.value = %q; text.dispatchEvent(new Event('input'))", waiting)))
	require.NoError(t, err)
	b.do(chromedp.Navigate(s.url), chromedp.Navigate(s.url+"/start"), chromedp.WaitVisible(chromedp.CSS("textarea")))
	require.Equal(t, waiting, typed(), "a look at another page loses nothing")
	b.do(chromedp.Reload(), chromedp.WaitVisible(chromedp.CSS("textarea")))
	require.Equal(t, waiting, typed(), "nor does a reload")
	b.do(chromedp.Click(chromedp.CSS(".ask button")), chromedp.WaitVisible(chromedp.CSS(".plan")), chromedp.Reload(), chromedp.WaitVisible(chromedp.CSS(".plan")))
	b.looks("plan")
	b.do(chromedp.NavigateBack(), chromedp.WaitVisible(chromedp.CSS("textarea")))
	require.Equal(t, waiting, typed(), "nor does the way back from the plan")
	b.do(chromedp.NavigateForward(), chromedp.WaitVisible(chromedp.CSS(".plan")))
	b.do(chromedp.Click(chromedp.CSS(".ask button")), chromedp.WaitVisible(`//a[contains(@href, "/runs/acted")]`))
	s.await(`/runs/acted/actions/pause`)
	b.do(chromedp.NavigateBack(), chromedp.WaitVisible(chromedp.CSS(".plan")))

	// A reload does not repeat the action. The back button leads to a form for a new
	// action.
	b.open("pause")
	b.looks("pause")
	require.Contains(t, b.send("reason", "a look at the curve"), "Done: paused by")
	b.looks("answer")
	b.do(chromedp.Reload(), chromedp.WaitVisible(chromedp.CSS(".answer")), chromedp.NavigateBack(), chromedp.WaitVisible(chromedp.CSS(".ask button")))
	require.Contains(t, b.send(), "Refused: the run is paused already")
	names := func() (out []record.ActionName) {
		for _, a := range s.recorded() {
			out = append(out, a.Name)
		}
		return out
	}
	require.Equal(t, []record.ActionName{record.ActionPause, record.ActionPause, record.ActionStart}, names())

	// Two tabs send the same action. The second one is told that it came too late.
	other := b.another()
	b.open("resume")
	other.open("resume")
	require.Contains(t, b.send(), "Done: resumed by")
	require.Contains(t, other.send(), "Refused: the run is not paused")

	// Without a script it is the same.
	b.script(false)
	b.open("set")
	b.look("set", "light", 1280)
	require.Contains(t, b.send("values", "training.optimizer.weight_decay=0.02", "reason", "a try"), "Done: set by")
	version := s.answerCandidate("approve", func(string) string {
		b.open("approve")
		return b.send()
	})
	b.script(true)

	b.open("promote")
	require.Contains(t, b.send("version", "0"), "Done: promote: version "+version+" → 0")
	b.open("rollback")
	b.looks("rollback")
	require.Contains(t, b.send("reason", "it was not"), "Done: rollback: version 0 → "+version)
	b.open("pin")
	require.Contains(t, b.send("version", "0"), "Done: pin: version "+version+" → 0")
	b.open("unpin")
	require.Contains(t, b.send(), "Done: unpin: version 0")
	s.await(`/actions/reject\?version=`)
	b.do(chromedp.Navigate(s.url + "/runs/acted"))
	b.looks("run")
	s.answerCandidate("reject", func(string) string {
		b.open("reject")
		return b.send("reason", "not today")
	})
	b.open("stop")
	b.look("stop", "light", 1280)
	require.Contains(t, b.send(), "Done: stops after step")
	b.looks("actions")
	b.complaints.mu.Lock()
	defer b.complaints.mu.Unlock()
	require.Empty(t, strings.Join(b.complaints.list, "\n"))
}
