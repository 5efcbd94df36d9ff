package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// events are server-sent events as they come.
type events struct{ lines *bufio.Scanner }

func newEvents(r io.Reader) events { return events{bufio.NewScanner(r)} }

// until reads up to an event of that name.
func (e events) until(name string) error {
	for e.lines.Scan() {
		if strings.TrimSpace(e.lines.Text()) == "event: "+name {
			return nil
		}
	}
	return errors.Join(e.lines.Err(), errors.New("the events ended before "+name))
}

// scrolled scrolls through a page, frame by frame, and returns how many elements it has, how
// many milliseconds the longest task of its script took meanwhile, by how much its layout
// moved, and how many milliseconds it took to load.
const scrolled = `new Promise((done) => {
  let longest = 0, moved = 0;
  new PerformanceObserver((l) => l.getEntries().forEach((e) => { longest = Math.max(longest, e.duration); })).observe({ type: "longtask", buffered: true });
  new PerformanceObserver((l) => l.getEntries().forEach((e) => { moved += e.value; })).observe({ type: "layout-shift", buffered: true });
  const loaded = performance.getEntriesByType("navigation")[0].loadEventEnd;
  const end = document.documentElement.scrollHeight;
  let y = 0;
  function frame() {
    y += 400;
    scrollTo(0, y);
    if (y < end) return requestAnimationFrame(frame);
    setTimeout(() => done([document.getElementsByTagName("*").length, longest, moved, loaded]), 100);
  }
  requestAnimationFrame(frame);
})`

// browse prints what only a browser can tell.
func (m measurement) browse(ctx context.Context, program string, out io.Writer) error {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(2*time.Minute))
	allocator, end := chromedp.NewExecAllocator(ctx, options...)
	defer end()
	ctx, leave := chromedp.NewContext(allocator)
	defer leave()
	var complaints atomic.Int64 // events arrive on another goroutine
	if err := chromedp.Listen(ctx, func(event any) {
		switch event.(type) {
		case *runtime.EventExceptionThrown, *runtime.EventConsoleAPICalled, *log.EventEntryAdded:
			complaints.Add(1)
		}
	}); err != nil {
		return err
	}
	if _, err := chromedp.Call(ctx, log.Enable, cdp.Empty{}); err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "page in a browser\tloaded\telements\tlongest task\tlayout shift\t")
	for _, p := range m.paths() {
		if err := chromedp.Do(ctx, chromedp.Navigate(m.at+p.path(3))); err != nil {
			return err
		}
		found, err := chromedp.Run(ctx, chromedp.Evaluate[[]float64](scrolled, chromedp.EvalAwaitPromise))
		if err != nil {
			return err
		}
		verdict := ""
		if found[0] > maxElements || found[1] > float64(maxTask.Milliseconds()) || found[2] > 0 {
			verdict = "too much"
			*m.beyond = append(*m.beyond, fmt.Sprintf("%s in a browser: %.0f elements, a task of %.0f ms, the layout moved by %.3f", p.name, found[0], found[1], found[2]))
		}
		fmt.Fprintf(w, "%s\t%.0f ms\t%.0f\t%.0f ms\t%.3f\t%s\n", p.name, found[3], found[0], found[1], found[2], verdict)
	}
	fmt.Fprintf(w, "complaints on the console: %d\n", complaints.Load())
	return w.Flush()
}
