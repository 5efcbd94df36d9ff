package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/testsuite/chaos/checker"
	"github.com/fulgurite/fulgurite/testsuite/chaos/processes"
	"github.com/fulgurite/fulgurite/testsuite/randomjudge"
)

// suite is one execution of this program.
type suite struct {
	options
	out   io.Writer
	began time.Time

	fleet    *processes.Fleet
	temporal client.Client
	db       *checker.Database
	keeper   *keeper
	watch    *watch
	plan     *plan
	struck   tally
	fickle   *randomjudge.Judge
	calm     map[string]checker.Records // undisturbed runs, by the name of their course
	seconds  map[string]float64         // that runs took
	report   report
}

// tally counts blows.
type tally struct {
	kills, hangs map[processes.Role]int
	total        int // kills
}

// errHarmed says that the report names what is wrong.
var errHarmed = errors.New("not every run came through unharmed")

// run is everything, from the start of the fleet to the verdict.
func (s *suite) run(ctx context.Context) (err error) {
	s.began = time.Now()
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	temporary := s.dir == ""
	if temporary {
		if s.dir, err = os.MkdirTemp("", "chaos-"); err != nil {
			return err
		}
	}
	s.say("everything lies in %s", s.dir)
	s.fickle = randomjudge.New(s.thought)
	server := httptest.NewServer(s.fickle)
	defer server.Close()
	s.options.judge = server.URL + "/v1"
	err = s.inFleet(ctx, s.everything)
	s.report.complete(s, err)
	if err == nil && !s.report.asExpected(s.expectFailure) {
		err = errHarmed
	}
	s.report.print(s.out)
	if s.json != "" {
		err = errors.Join(err, s.report.write(s.json))
	}
	if temporary && err == nil {
		err = os.RemoveAll(s.dir)
	}
	return err
}

// inFleet runs f while a fleet is up and somebody starts again what ends.
func (s *suite) inFleet(ctx context.Context, f func(context.Context) error) error {
	var err error
	s.fleet, err = processes.Start(ctx, processes.Options{Dir: s.dir, Bin: s.bin, SQLite: s.store == "sqlite", NoReplay: s.journal == "off"})
	if err != nil {
		return err
	}
	s.say("the fleet is up: Web UI at %s", s.fleet.UI)
	defer func() { _ = s.fleet.Close() }() // how it drains is tested elsewhere
	// That the server is away is what this is about.
	s.temporal, err = client.DialContext(ctx, client.Options{HostPort: s.fleet.Temporal, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	if err != nil {
		return fmt.Errorf("connect to Temporal: %w", err)
	}
	defer s.temporal.Close()
	if s.db, err = checker.OpenDatabase(s.fleet.Store); err != nil {
		return err
	}
	defer func() { _ = s.db.Close() }()

	s.keeper = &keeper{fleet: s.fleet, ended: map[processes.Role]int{}, hangs: map[processes.Role][]checker.Hang{}}
	s.watch = newWatch(s.db)
	s.struck = tally{kills: map[processes.Role]int{}, hangs: map[processes.Role]int{}}
	s.calm, s.seconds = map[string]checker.Records{}, map[string]float64{}
	group, ctx := errgroup.WithContext(ctx)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group.Go(func() error { return s.keeper.Run(ctx) })
	group.Go(func() error { return s.watch.Run(ctx) })
	group.Go(func() error {
		defer stop()
		return f(ctx)
	})
	return group.Wait()
}

// everything is what happens while the fleet is up.
func (s *suite) everything(ctx context.Context) error {
	victims, err := s.victims()
	if err != nil {
		return err
	}
	s.plan = newPlan(s.seed, s.every, victims)
	if err := s.twins(ctx); err != nil {
		return err
	}
	if s.detect {
		if err := s.detectHangs(ctx); err != nil {
			return err
		}
	}
	for n := 0; !s.enough(ctx); n++ {
		if err := s.disturbed(ctx, fmt.Sprintf("chaos-%d", n+1), s.courses[n%len(s.courses)]); err != nil {
			return err
		}
	}
	return nil
}

// twins are two runs that nobody disturbs, under different names: they must end
// in the same weights, or nothing else that is compared means anything.
func (s *suite) twins(ctx context.Context) error {
	first, err := s.undisturbed(ctx, plain)
	if err != nil {
		return err
	}
	if s.expectFailure {
		return nil // that has been shown elsewhere
	}
	if err := s.train(ctx, "calm-again", plain, ""); err != nil {
		return err
	}
	_, err = s.judge(ctx, "calm-again", first)
	return err
}

// undisturbed is the run of a course that others are compared with; it is made when
// it is first asked for.
func (s *suite) undisturbed(ctx context.Context, c course) (checker.Records, error) {
	if r, ok := s.calm[c.name]; ok {
		return r, nil
	}
	name := "calm-" + c.name
	if err := s.train(ctx, name, c, ""); err != nil {
		return checker.Records{}, err
	}
	r, err := s.judge(ctx, name, checker.Records{})
	s.calm[c.name] = r
	return r, err
}

// train starts a run and waits for its end.
func (s *suite) train(ctx context.Context, name string, c course, judgedAs string) error {
	began := time.Now()
	if err := s.begin(ctx, name, c, judgedAs); err != nil {
		return err
	}
	if err := s.await(ctx, name); err != nil {
		return err
	}
	s.took(name, began)
	s.say("run %s is complete after %.1f s", name, time.Since(began).Seconds())
	return nil
}

// disturbed is a run during which blows fall, until it is complete or there were
// enough of them. Where calls are judged, nobody can say beforehand what it ends in:
// the calm run comes after it.
func (s *suite) disturbed(ctx context.Context, name string, c course) error {
	var calm checker.Records
	if !c.judge {
		var err error
		if calm, err = s.undisturbed(ctx, c); err != nil {
			return err
		}
	}
	s.say("run %s begins: %s", name, c.name)
	began, before := time.Now(), s.struck.total
	if err := s.begin(ctx, name, c, ""); err != nil {
		return err
	}
	if err := s.strike(ctx, name, c); err != nil {
		return err
	}
	if err := s.await(ctx, name); err != nil {
		return err
	}
	s.took(name, began)
	s.say("run %s is complete after %.1f s and %d kills", name, time.Since(began).Seconds(), s.struck.total-before)
	after, err := s.judge(ctx, name, calm)
	if c.judge && err == nil {
		err = s.judgedAgain(ctx, name, c, after)
	}
	return err
}

// judgedAgain makes a calm run out of the judgments of a disturbed one: it must end in
// the same weights, and nobody is asked anything.
func (s *suite) judgedAgain(ctx context.Context, name string, c course, disturbed checker.Records) error {
	asked, calm := len(s.fickle.Answers()), "calm-after-"+name
	if err := s.train(ctx, calm, c, name); err != nil {
		return err
	}
	if _, err := s.judge(ctx, calm, disturbed); err != nil {
		return err
	}
	if n := len(s.fickle.Answers()) - asked; n > 0 {
		last := &s.report.Runs[len(s.report.Runs)-1]
		last.Wrong = append(last.Wrong, fmt.Sprintf("the judge was asked %d times for what %s has on record", n, name))
	}
	return nil
}

// judge lets the checker look at a completed run, compares it with a calm one if
// there is one, and with what the product says of it.
func (s *suite) judge(ctx context.Context, name string, calm checker.Records) (checker.Records, error) {
	e, err := s.evidence(ctx, name)
	if err != nil {
		return e.Records, fmt.Errorf("judge run %s: %w", name, err)
	}
	f := checker.Check(e)
	v := verdict{Findings: f, Seconds: s.seconds[name], DigestEqual: true, Generations: count(e.Generations, name)}
	if calm.Run != "" {
		v.Differences = checker.Differ(calm, e.Records)
		v.DigestEqual = len(v.Differences) == 0
	}
	if v.Disagreements, err = s.askProduct(ctx, e, f); err != nil {
		return e.Records, fmt.Errorf("judge run %s: %w", name, err)
	}
	s.report.Runs = append(s.report.Runs, v)
	return e.Records, nil
}

// took notes how long a run took.
func (s *suite) took(name string, began time.Time) { s.seconds[name] = time.Since(began).Seconds() }

// count is how many generations a run has.
func count(all []checker.Generation, run string) int {
	n := 0
	for _, g := range all {
		if g.Run == run {
			n++
		}
	}
	return n
}

// say prints a line for whoever watches.
func (s *suite) say(format string, args ...any) {
	fmt.Fprintf(s.out, "%7.1f s  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}
