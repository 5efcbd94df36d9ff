// Command page measures the page on a store of the size that long runs leave: a run of a
// thousand steps with a million recorded calls, and an attempt of 200 turns with 60,000
// sampled tokens.
//
//	go run ./bench/page [-steps 1000] [-dir DIR] [-store postgres://…] [-browser chromium]
//
// It makes one step through the store and the assignment of credit, as any run does, and
// multiplies its rows by SQL. Then it requests every page many times over HTTP on
// loopback, each time for another step, group or attempt. It prints the time to the first
// byte and the number of bytes. With a browser it opens the long attempt and every page.
// It counts elements, tasks of the script above 50 ms while it scrolls, and layout
// shifts, and it checks contrasts. If a page exceeds a limit, it names the page and exits
// with 1, unless -print is given. A directory that was filled before is used again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/page"
	"github.com/fulgurite/fulgurite/page/actions"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "page:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	steps := flag.Int("steps", 1000, "steps of the long run; each has 1,024 calls")
	requests := flag.Int("requests", 100, "requests for each page")
	dir := flag.String("dir", "", "directory of the store, kept and used again (default: a new one, removed)")
	url := flag.String("store", "", "URL of an empty PostgreSQL database (default: SQLite in the directory)")
	browser := flag.String("browser", "", "program of a browser, for what only one can tell")
	watch := flag.String("watch", "", "name of a run that ten pages follow on the server of -at, instead of all else")
	at := flag.String("at", "http://127.0.0.1:8235", "URL of the server of -watch")
	only := flag.Bool("print", false, "end with 0 even where a page costs more than it may")
	flag.Parse()
	if *watch != "" {
		return measurement{at: *at}.watch(ctx, *watch, os.Stdout)
	}
	if *steps < 2 || *requests < 1 {
		return errors.New("want at least -steps 2 and -requests 1")
	}
	if *dir == "" {
		if *dir, err = os.MkdirTemp("", "page-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(*dir)) }()
	}
	if *url == "" {
		*url = filepath.Join(*dir, "store.db")
	}
	s, err := store.Open(ctx, *url, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Migrate(ctx); err != nil {
		return err
	}
	blobs, err := blob.Open(filepath.Join(*dir, "blobs"))
	if err != nil {
		return err
	}
	f := filler{store: s, blobs: blobs, url: *url, steps: *steps}
	if err := f.fill(ctx); err != nil {
		return fmt.Errorf("fill the store: %w", err)
	}
	p, err := page.New(page.Options{Records: s, Blobs: blobs, Codecs: dialog.Named, Starter: nobody{}})
	if err != nil {
		return err
	}
	defer p.Close()
	server := httptest.NewServer(p)
	defer server.Close()
	m := measurement{at: server.URL, steps: *steps, requests: *requests, beyond: new([]string)}
	if err := m.pages(ctx, os.Stdout); err != nil {
		return err
	}
	if err := m.following(ctx, s, os.Stdout); err != nil {
		return err
	}
	if err := m.open(ctx, s, os.Stdout); err != nil {
		return err
	}
	if *browser != "" {
		if err := m.browse(ctx, *browser, os.Stdout); err != nil {
			return err
		}
	}
	if len(*m.beyond) > 0 && !*only {
		return fmt.Errorf("more than a page may cost (%s, %d KiB, %d elements, %s of a task):\n%s", maxFirstByte, maxBytes>>10, maxElements, maxTask, strings.Join(*m.beyond, "\n"))
	}
	return nil
}

// nobody is a starter that plans and starts nothing. With it the form for a new run can
// be measured.
type nobody struct{}

func (nobody) Plan(context.Context, []byte, string) (actions.Plan, error) {
	return actions.Plan{}, errors.New("nothing is planned here")
}

func (nobody) Start(_ context.Context, a record.Action, _ []byte) (record.Action, error) {
	return a, errors.New("nothing is started here")
}

func (nobody) Folder() string { return "/" }
