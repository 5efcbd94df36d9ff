package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/testsuite/chaos/checker"
	"github.com/fulgurite/fulgurite/testsuite/chaos/processes"
	"github.com/fulgurite/fulgurite/testsuite/randomjudge"
)

// suite is one execution of this program.
type suite struct {
	options
	out   io.Writer
	began time.Time

	fleet         *processes.Fleet
	temporal      client.Client
	db            *checker.Database
	faultInjector *faultInjector
	monitor       *monitor
	faultPlan     *faultPlan
	injected      faultCounts
	judgeServer   *randomjudge.Judge
	searchServers *searchServers
	baselines     map[string]checker.Records          // by the name of the scenario
	searches      map[string][]checker.SearchEvidence // baselines of searches, a run each
	seconds       map[string]float64                  // that runs took
	pagesRead     atomic.Int64
	newest        atomic.Value // the name of the run that was started last
	report        report
}

// faultCounts counts faults.
type faultCounts struct {
	kills, hangs map[processes.Role]int
	total        int // kills
}

// errHarmed means that the report describes what is wrong.
var errHarmed = errors.New("not every run came through unharmed")

// run starts the fleet, does all runs and writes the report.
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
	s.logf("everything lies in %s", s.dir)
	s.judgeServer = randomjudge.New(s.think)
	server := httptest.NewServer(s.judgeServer)
	defer server.Close()
	s.options.judge = server.URL + "/v1"
	if s.searchServers, err = newSearchServers(reflectionTime); err != nil {
		return err
	}
	forSearches := httptest.NewServer(s.searchServers)
	defer forSearches.Close()
	s.options.search = forSearches.URL
	err = s.withFleet(ctx, s.runAll)
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

// withFleet runs f while a fleet is up and the fault injector restarts what ends.
func (s *suite) withFleet(ctx context.Context, f func(context.Context) error) error {
	var err error
	s.fleet, err = processes.Start(ctx, processes.Options{Dir: s.dir, Bin: s.bin, SQLite: s.store == "sqlite", NoReplay: s.journal == "off", Serve: s.serve(), Page: s.page, Pruner: s.prunes()})
	if err != nil {
		return err
	}
	s.logf("the fleet is up: Web UI at %s", s.fleet.UI)
	defer func() { _ = s.fleet.Close() }() // another test covers how the fleet drains
	// The server is often killed, so the client's errors are of no interest.
	s.temporal, err = client.DialContext(ctx, client.Options{HostPort: s.fleet.Temporal, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
	if err != nil {
		return fmt.Errorf("connect to Temporal: %w", err)
	}
	defer s.temporal.Close()
	if s.db, err = checker.OpenDatabase(s.fleet.Store); err != nil {
		return err
	}
	defer func() { _ = s.db.Close() }()

	s.faultInjector = &faultInjector{fleet: s.fleet, ended: map[processes.Role]int{}, hangs: map[processes.Role][]checker.Hang{}}
	s.monitor = newMonitor(s.db)
	s.injected = faultCounts{kills: map[processes.Role]int{}, hangs: map[processes.Role]int{}}
	s.baselines, s.searches, s.seconds = map[string]checker.Records{}, map[string][]checker.SearchEvidence{}, map[string]float64{}
	group, ctx := errgroup.WithContext(ctx)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group.Go(func() error { return s.faultInjector.Run(ctx) })
	group.Go(func() error { return s.monitor.Run(ctx) })
	if s.page {
		group.Go(func() error { return s.readPages(ctx) })
	}
	group.Go(func() error {
		defer stop()
		return f(ctx)
	})
	return group.Wait()
}

// runAll makes all runs.
func (s *suite) runAll(ctx context.Context) error {
	victims, err := s.victims()
	if err != nil {
		return err
	}
	s.faultPlan = newFaultPlan(s.seed, s.every, victims)
	if s.compares() {
		if err := s.checkReproducible(ctx); err != nil {
			return err
		}
		if s.detect {
			if err := s.detectHangs(ctx); err != nil {
				return err
			}
		}
	}
	for n := 0; !s.enough(ctx); n++ {
		if err := s.runWithFaults(ctx, fmt.Sprintf("chaos-%d", n+1), s.scenarios[n%len(s.scenarios)]); err != nil {
			return err
		}
	}
	if s.page {
		if err := s.checkPage(ctx); err != nil {
			return err
		}
	}
	if s.pruner {
		return s.checkPruned(ctx)
	}
	return nil
}

// checkReproducible compares two runs without faults under different names. They must
// end in the same weights, or no other comparison means anything.
func (s *suite) checkReproducible(ctx context.Context) error {
	first, err := s.baseline(ctx, plain)
	if err != nil {
		return err
	}
	if s.expectFailure {
		return nil // an execution without -expect-failure shows that
	}
	if err := s.train(ctx, "baseline-again", plain, ""); err != nil {
		return err
	}
	_, err = s.check(ctx, "baseline-again", first)
	return err
}

// baseline returns the run of a scenario without faults, with which other runs are
// compared. The run is made when it is first needed.
func (s *suite) baseline(ctx context.Context, c scenario) (checker.Records, error) {
	if r, ok := s.baselines[c.name]; ok {
		return r, nil
	}
	name := "baseline-" + c.name
	if err := s.train(ctx, name, c, ""); err != nil {
		return checker.Records{}, err
	}
	r, err := s.check(ctx, name, checker.Records{})
	s.baselines[c.name] = r
	return r, err
}

// train starts a run, a search or phases, and waits for the end.
func (s *suite) train(ctx context.Context, name string, c scenario, judgedAs string) error {
	began := time.Now()
	if err := s.startRun(ctx, name, c, judgedAs); err != nil {
		return err
	}
	for _, run := range c.runs(name) {
		if err := s.awaitRun(ctx, run); err != nil {
			return err
		}
		s.recordDuration(run, began)
	}
	s.logf("run %s is complete after %.1f s", name, time.Since(began).Seconds())
	return nil
}

// runWithFaults makes a run, injects faults and checks it. With a judge the outcome can't
// be known in advance, so the baseline is made afterwards.
func (s *suite) runWithFaults(ctx context.Context, name string, c scenario) error {
	switch {
	case c.search != "":
		return s.searchWithFaults(ctx, name, c)
	case c.traffic:
		return s.trafficWithFaults(ctx, name, c)
	}
	var baseline checker.Records
	if !c.judge {
		var err error
		if baseline, err = s.baseline(ctx, c); err != nil {
			return err
		}
	}
	s.logf("run %s begins: %s", name, c.name)
	began, before := time.Now(), s.injected.total
	if err := s.startRun(ctx, name, c, ""); err != nil {
		return err
	}
	if err := s.injectFaults(ctx, name, c); err != nil {
		return err
	}
	if err := s.awaitRun(ctx, name); err != nil {
		return err
	}
	s.recordDuration(name, began)
	s.logf("run %s is complete after %.1f s and %d kills", name, time.Since(began).Seconds(), s.injected.total-before)
	after, err := s.check(ctx, name, baseline)
	if c.judge && err == nil {
		err = s.repeatJudged(ctx, name, c, after)
	}
	return err
}

// repeatJudged makes a run without faults out of the judgments of one with faults. It
// must end in the same weights and ask the judge nothing.
func (s *suite) repeatJudged(ctx context.Context, name string, c scenario, faulty checker.Records) error {
	asked, again := len(s.judgeServer.Answers()), "baseline-after-"+name
	if err := s.train(ctx, again, c, name); err != nil {
		return err
	}
	if _, err := s.check(ctx, again, faulty); err != nil {
		return err
	}
	if n := len(s.judgeServer.Answers()) - asked; n > 0 {
		last := &s.report.Runs[len(s.report.Runs)-1]
		last.Wrong = append(last.Wrong, fmt.Sprintf("the judge was asked %d times for what %s has on record", n, name))
	}
	return nil
}

// check runs the checker on a completed run. It also compares the run with a baseline, if
// there is one, and with the product's own report.
func (s *suite) check(ctx context.Context, name string, baseline checker.Records) (checker.Records, error) {
	e, err := s.evidence(ctx, name)
	if err != nil {
		return e.Records, fmt.Errorf("check run %s: %w", name, err)
	}
	f := checker.Check(e)
	v := runResult{Findings: f, Seconds: s.seconds[name], DigestEqual: true, Generations: count(e.Generations, name)}
	if baseline.Run != "" {
		v.Differences = checker.Differ(baseline, e.Records)
		v.DigestEqual = len(v.Differences) == 0
	}
	if v.Disagreements, err = s.compareProduct(ctx, e, f); err != nil {
		return e.Records, fmt.Errorf("check run %s: %w", name, err)
	}
	s.report.Runs = append(s.report.Runs, v)
	return e.Records, nil
}

// recordDuration records how long a run took.
func (s *suite) recordDuration(name string, began time.Time) {
	s.seconds[name] = time.Since(began).Seconds()
}

// count returns how many generations belong to a run.
func count(all []checker.Generation, run string) int {
	n := 0
	for _, g := range all {
		if g.Run == run {
			n++
		}
	}
	return n
}

// logf prints a line of progress.
func (s *suite) logf(format string, args ...any) {
	fmt.Fprintf(s.out, "%7.1f s  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// scenario has the special settings of a run. The runs with faults go through them in
// turn.
type scenario struct {
	name string
	// lag is training.lag.
	lag int
	// parallel makes agents hold two dialogs at once. Results that depend on the order of
	// an attempt's calls may then differ.
	parallel bool
	// dynamicSampling is training.dynamic_sampling, in groups.
	dynamicSampling int
	// critic estimates returns, for credit by turn-level GAE.
	critic bool
	// judge scores the calls.
	judge bool
	// lora trains an adapter over a frozen base.
	lora bool
	// policies trains two policies, one for each dialog of the agent.
	policies bool
	// curriculum is training.curriculum.type.
	curriculum string
	// search is optimizer.algorithm: the run searches for prompts and trains nothing.
	search string
	// phases are two searches, of which the second begins with what the first promoted.
	phases bool
	// traffic is traffic.train: the run learns from what clients say to its versions.
	traffic bool
	// experiment is traffic.train.experiment, with a redactor; a user is forgotten meanwhile.
	experiment bool
}

// runs returns the names of the runs that are made when a scenario is started under a name.
func (c scenario) runs(name string) []string {
	if !c.phases {
		return []string{name}
	}
	search := spec.Phase{Type: spec.PhasePrompts}
	return []string{spec.PhaseName(name, 1, search), spec.PhaseName(name, 2, search)}
}

// plain is the scenario with nothing special.
var plain = scenario{name: "plain"}

// scenariosNamed returns the scenarios with the given names, separated by commas. Without
// names it returns those that train with nothing that must be asked for.
func scenariosNamed(names string) ([]scenario, error) {
	all := []scenario{plain, {name: "judge", judge: true}, {name: "lag", lag: 1, dynamicSampling: 2, parallel: true}, {name: "critic", lag: 1, critic: true}}
	if names == "" {
		return all, nil
	}
	all = append(all, scenario{name: "policies", policies: true, lag: 1}, scenario{name: "lora", lora: true, critic: true},
		scenario{name: "band", curriculum: spec.CurriculumBand, lag: 1, dynamicSampling: 2}, scenario{name: "stages", curriculum: spec.CurriculumStages, lag: 1},
		scenario{name: "gepa", search: spec.AlgorithmGEPA}, scenario{name: "apo", search: spec.AlgorithmAPO},
		scenario{name: "phases", search: spec.AlgorithmAPO, phases: true},
		scenario{name: "traffic", traffic: true}, scenario{name: "experiment", traffic: true, experiment: true})
	names = strings.ReplaceAll(names, "prompts", "gepa,apo")
	var chosen []scenario
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(c scenario) bool { return c.name == name })
		if i < 0 {
			return nil, fmt.Errorf("-scenarios %q: there are plain, judge, lag, critic, policies, lora, band, stages, traffic, experiment, phases, gepa and apo, and prompts for the last two", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}
