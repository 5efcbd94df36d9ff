package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
)

// The limits on the cost of a page.
const (
	maxFirstByte = 50 * time.Millisecond
	maxBytes     = 300 << 10
	maxElements  = 4000
	maxTask      = 50 * time.Millisecond
)

// measurement asks for pages.
type measurement struct {
	at              string
	steps, requests int
	beyond          *[]string // pages that exceed a limit
}

// paths returns the pages. The path of each depends on i.
func (m measurement) paths() []struct {
	name string
	path func(i int) string
} {
	step := func(i int) int { return 1 + i*7919%m.steps }
	task := func(i int) int { return (step(i)-1)*tasksPerStep + i%tasksPerStep }
	return []struct {
		name string
		path func(i int) string
	}{
		{"runs", func(int) string { return "/" }},
		{"run", func(int) string { return "/runs/" + name }},
		{"steps", func(i int) string { return fmt.Sprintf("/runs/%s/steps?from=%d", name, step(i)) }},
		{"step", func(i int) string { return fmt.Sprintf("/runs/%s/train-%d", name, step(i)) }},
		{"evaluation", func(i int) string { return fmt.Sprintf("/runs/%s/gate-%d", name, step(i)/gateEvery*gateEvery) }},
		{"group", func(i int) string { return fmt.Sprintf("/runs/%s/train-%d/%d", name, step(i), task(i)) }},
		{"attempt", func(i int) string {
			return fmt.Sprintf("/runs/%s/train-%d/%d/%d/1", name, step(i), task(i), i%samplesPerTask)
		}},
		{"attempt of 200 turns", func(i int) string { return fmt.Sprintf("/runs/%s/try-1/0/0/1?call=%d", name, i%turns) }},
		{"versions", func(i int) string { return fmt.Sprintf("/runs/%s/versions?from=%d", name, step(i)) }},
		{"tasks", func(int) string { return "/runs/" + name + "/tasks" }},
		{"version", func(i int) string { return fmt.Sprintf("/runs/%s/versions/%d", name, step(i)) }},
		{"two versions", func(i int) string {
			return fmt.Sprintf("/runs/%s/versions/compare?a=%d&b=%d&split=gate", name, (step(i)-1)/gateEvery*gateEvery, m.steps/gateEvery*gateEvery)
		}},
		{"two runs", func(i int) string { return fmt.Sprintf("/compare?run=%s&run=%s&to=%d", name, otherName, step(i)) }},
		{"actions", func(int) string { return "/runs/" + name + "/actions" }},
		{"fleet", func(int) string { return "/fleet" }},
		{"playground", func(i int) string { return fmt.Sprintf("/playground?run=%s&version=%d", name, step(i)) }},
		{"start", func(int) string { return "/start" }},
		{"credit", func(i int) string {
			return fmt.Sprintf("/runs/%s/%s/%d/1/credit?with=rloo", name, creditGroup, i%samplesPerTask)
		}},
	}
}

// creditGroup is the group whose credit is computed under other settings. Its step is read first.
const creditGroup = "train-1/0"

// pages prints what each page costs.
func (m measurement) pages(ctx context.Context, out io.Writer) error {
	if err := m.untilCounted(ctx, out); err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "page\tfirst\tp50\tp95\tmost\tprocessor\tKiB\t")
	for _, p := range m.paths() {
		var times []time.Duration
		size, before := 0, processor()
		for i := range m.requests + 1 {
			took, n, err := m.get(ctx, p.path(i))
			if err != nil {
				return err
			}
			times, size = append(times, took), max(size, n)
		}
		each := (processor() - before) / time.Duration(len(times))
		cold := times[0]
		times = times[1:]
		slices.Sort(times)
		p95 := times[min(len(times)*95/100, len(times)-1)]
		verdict := ""
		if p95 > maxFirstByte || size > maxBytes {
			verdict = "too much"
			*m.beyond = append(*m.beyond, fmt.Sprintf("%s: %s at the 95th percentile, %.0f KiB", p.name, ms(p95), float64(size)/1024))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%.0f\t%s\n", p.name, ms(cold), ms(times[len(times)/2]), ms(p95), ms(times[len(times)-1]), ms(each), float64(size)/1024, verdict)
	}
	return w.Flush()
}

// processor returns the processor time of this process so far, including that of its
// requests. It shows the cost of a page even on a busy machine.
func processor() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// untilCounted loads pages again, as a browser does, until everything that is counted in
// the background is known. It prints how long that took and what the pages cost
// meanwhile.
func (m measurement) untilCounted(ctx context.Context, out io.Writer) error {
	for _, page := range []string{"", "/tasks", "/" + creditGroup + "/0/1/credit"} {
		began := time.Now()
		var times []time.Duration
		for known := false; !known; {
			took, body, err := m.read(ctx, "/runs/"+name+page)
			if err != nil {
				return err
			}
			times = append(times, took)
			if known = !bytes.Contains(body, []byte("data-again")); !known {
				time.Sleep(100 * time.Millisecond)
			}
		}
		slices.Sort(times)
		fmt.Fprintf(out, "/runs/%s%s: counted after %.1f s; until then first bytes came after %s at most\n", name, page, time.Since(began).Seconds(), ms(times[len(times)-1]))
	}
	return nil
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }

// get returns when the first byte of a page came, and how many there were.
func (m measurement) get(ctx context.Context, path string) (time.Duration, int, error) {
	took, body, err := m.read(ctx, path)
	return took, len(body), err
}

// read returns the time to the first byte of a page, and its bytes.
func (m measurement) read(ctx context.Context, path string) (time.Duration, []byte, error) {
	began := time.Now()
	var first time.Duration
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: func() { first = time.Since(began) }})
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.at+path, nil)
	if err != nil {
		return 0, nil, err
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	body, err := io.ReadAll(reply.Body)
	_ = reply.Body.Close() // it was read
	if err == nil && reply.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.500s", path, reply.Status, body)
	}
	return first, body, err
}

// open prints what open pages cost that follow a run which finishes a step every second.
func (m measurement) open(ctx context.Context, s *store.Store, out io.Writer) error {
	const pages, steps = 10, 5
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var readers errgroup.Group
	began := make(chan struct{}, pages)
	for range pages {
		var once sync.Once
		readers.Go(func() error {
			return m.follow(ctx, name, func() { once.Do(func() { began <- struct{}{} }) })
		})
	}
	for range pages {
		select {
		case <-began:
		case <-time.After(time.Minute):
			return errors.Join(errors.New("pages can't follow the run"), readers.Wait())
		}
	}
	before, from := processor(), time.Now()
	for range steps {
		if err := finish(ctx, s); err != nil {
			return err
		}
		time.Sleep(time.Second)
	}
	used, took := processor()-before, time.Since(from)
	cancel()
	if err := readers.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	fmt.Fprintf(out, "%d open pages of a run that finishes a step a second: %.1f %% of a processor, readers included\n", pages, 100*used.Seconds()/took.Seconds())
	return nil
}

// follow acts as a page that follows a run and loads again whenever something is new. It
// calls loaded when it has begun to follow, and each time after it has loaded.
func (m measurement) follow(ctx context.Context, name string, loaded func()) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.at+"/runs/"+name+"/live", nil)
	if err != nil {
		return err
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = reply.Body.Close() }()
	events := newEvents(reply.Body)
	if err := events.until("begin"); err != nil {
		return err
	}
	loaded()
	for {
		if err := events.until("change"); err != nil {
			return ctx.Err()
		}
		if _, _, err := m.get(ctx, "/runs/"+name); err != nil {
			return ctx.Err()
		}
		loaded()
	}
}

// watch follows a run of a server with ten pages, from when the run exists until it is
// gone.
func (m measurement) watch(ctx context.Context, name string, out io.Writer) error {
	for {
		if _, _, err := m.get(ctx, "/runs/"+name); err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
	var loads atomic.Int64
	var readers errgroup.Group
	for range 10 {
		readers.Go(func() error { return m.follow(ctx, name, func() { loads.Add(1) }) })
	}
	if err := readers.Wait(); err != nil {
		return err
	}
	fmt.Fprintf(out, "ten pages were loaded %d times, for %.1f s of a processor on the readers' side\n", loads.Load(), processor().Seconds())
	return nil
}

// finish puts another step on record.
func finish(ctx context.Context, s *store.Store) error {
	last, err := s.LastStep(ctx, name, model.DefaultPolicy)
	if err != nil {
		return err
	}
	return s.PutStep(ctx, record.Step{Run: name, Policy: model.DefaultPolicy, Step: last.Step + 1, Batch: last.Batch, Metrics: last.Metrics})
}

// following prints how long after the end of a step a page that follows the run gets the
// event, and how long until the page that it then loads has arrived.
func (m measurement) following(ctx context.Context, s *store.Store, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.at+"/runs/"+name+"/live", nil)
	if err != nil {
		return err
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = reply.Body.Close() }()
	events := newEvents(reply.Body)
	if err := events.until("begin"); err != nil {
		return err
	}
	if err := finish(ctx, s); err != nil {
		return err
	}
	began := time.Now()
	if err := events.until("change"); err != nil {
		return err
	}
	noticed := time.Since(began)
	if _, _, err := m.get(ctx, "/runs/"+name); err != nil {
		return err
	}
	fmt.Fprintf(out, "a finished step was heard of after %s, and shown after %s\n", ms(noticed), ms(time.Since(began)))
	return nil
}
