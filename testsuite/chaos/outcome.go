package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"

	"github.com/fulgurite/fulgurite/testsuite/chaos/checker"
	"github.com/fulgurite/fulgurite/testsuite/chaos/processes"
)

// report is the output of the program. Counts are sums over all runs.
type report struct {
	Kills                     int      `json:"kills"`
	Hangs                     int      `json:"hangs"`
	Completed                 bool     `json:"completed"`
	DigestEqual               bool     `json:"digest_equal"`
	PromptsSkipped            int      `json:"prompts_skipped"`
	PromptsDuplicated         int      `json:"prompts_duplicated"`
	RecordedCallsSampledAgain int      `json:"recorded_calls_sampled_again"`
	SampledUnrecorded         int      `json:"sampled_unrecorded"`
	CallsRecorded             int      `json:"calls_recorded"`
	CallsReplayed             int      `json:"calls_replayed"`
	PromptsFlat               int      `json:"prompts_flat"`
	Judgments                 int      `json:"judgments"`
	JudgedAgain               int      `json:"judged_again"`
	JudgmentsLost             int      `json:"judgments_lost"`
	Reflections               int      `json:"reflections"`
	ReflectedAgain            int      `json:"reflected_again"`
	ReflectionsLost           int      `json:"reflections_lost"`
	PagesRead                 int      `json:"pages_read"`
	VersionsPruned            int      `json:"versions_pruned"`
	FilesChecked              int      `json:"files_checked"`           // of versions that have to be there
	MedianRecovery            *float64 `json:"median_recovery_seconds"` // null without a kill
	MaxRecovery               *float64 `json:"max_recovery_seconds"`

	ByRole map[processes.Role]recovery `json:"by_role"`
	// HangDetection is null for roles with a single process.
	HangDetection map[processes.Role]*float64 `json:"hang_detection_seconds,omitempty"`
	Runs          []runResult                 `json:"runs"`
	// Wrong is what is wrong with the page and with what the pruner left.
	Wrong []string `json:"wrong,omitempty"`
	Error string   `json:"error,omitempty"`

	Seed    uint64  `json:"seed"`
	Store   string  `json:"store"`
	Journal string  `json:"journal"`
	Every   float64 `json:"every_seconds"`
	Seconds float64 `json:"seconds"`
	Machine string  `json:"machine"`
}

// recovery summarizes the faults of a role and the times until progress.
type recovery struct {
	Kills  int      `json:"kills"`
	Hangs  int      `json:"hangs"`
	Ended  int      `json:"ended_by_itself"`
	Median *float64 `json:"median_recovery_seconds"`
	Max    *float64 `json:"max_recovery_seconds"`
}

// runResult are the findings about a run.
type runResult struct {
	checker.Findings
	Seconds       float64  `json:"seconds"`
	Generations   int      `json:"generations"`
	DigestEqual   bool     `json:"digest_equal"`
	Differences   []string `json:"differences,omitempty"`   // from the baseline
	Disagreements []string `json:"disagreements,omitempty"` // of the product's report with the findings
}

// complete fills in the fields that are known at the end.
func (r *report) complete(s *suite, err error) {
	r.Seed, r.Store, r.Journal, r.Every = s.seed, s.store, s.journal, s.every.Seconds()
	r.Seconds, r.Machine = time.Since(s.began).Seconds(), machine()
	r.Completed, r.DigestEqual = err == nil, err == nil
	if err != nil {
		r.Error = err.Error()
	}
	for _, v := range r.Runs {
		r.Completed = r.Completed && v.Completed
		r.DigestEqual = r.DigestEqual && v.DigestEqual
		r.PromptsSkipped += v.PromptsSkipped
		r.PromptsDuplicated += v.PromptsDuplicated
		r.RecordedCallsSampledAgain += v.RecordedCallsSampledAgain
		r.SampledUnrecorded += v.SampledUnrecorded
		r.CallsRecorded += v.CallsRecorded
		r.CallsReplayed += v.CallsReplayed
		r.PromptsFlat += v.PromptsFlat
		r.Judgments += v.Judgments
		r.JudgedAgain += v.JudgedAgain
		r.JudgmentsLost += v.JudgmentsLost
		r.Reflections += v.Reflections
		r.ReflectedAgain += v.ReflectedAgain
		r.ReflectionsLost += v.ReflectionsLost
	}
	if s.faultInjector == nil {
		return // the fleet did not start
	}
	r.Kills, r.PagesRead = s.injected.total, int(s.pagesRead.Load())
	r.ByRole = map[processes.Role]recovery{}
	var all []time.Duration
	times := s.monitor.recoveries()
	for _, role := range s.fleet.Roles() {
		all = append(all, times[role]...)
		r.Hangs += s.injected.hangs[role]
		one := recovery{Kills: s.injected.kills[role], Hangs: s.injected.hangs[role], Ended: s.faultInjector.ended[role]}
		one.Median, one.Max = medianAndMax(times[role])
		r.ByRole[role] = one
	}
	r.MedianRecovery, r.MaxRecovery = medianAndMax(all)
}

// asExpected reports whether the suite has passed.
func (r *report) asExpected(failure bool) bool {
	ok := r.Completed && r.DigestEqual && r.PromptsSkipped == 0 && r.PromptsDuplicated == 0 && len(r.Wrong) == 0
	for _, v := range r.Runs {
		ok = ok && len(v.Wrong) == 0 && len(v.Disagreements) == 0
	}
	return ok && failure == (r.RecordedCallsSampledAgain > 0)
}

func (r *report) write(path string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// maxLines bounds the lines about one run; the JSON has all.
const maxLines = 10

// print prints the result. What is wrong comes first.
func (r *report) print(w io.Writer) {
	for _, v := range r.Runs {
		var lines []string
		for _, list := range [][]string{v.Wrong, v.Differences, v.Disagreements, v.Repeated} {
			lines = append(lines, list...)
		}
		for i, line := range lines {
			if i == maxLines {
				fmt.Fprintf(w, "WRONG  … and %d more of run %s\n", len(lines)-i, v.Run)
				break
			}
			fmt.Fprintf(w, "WRONG  %s: %s\n", v.Run, line)
		}
	}
	for _, line := range r.Wrong {
		fmt.Fprintf(w, "WRONG  %s\n", line)
	}
	if r.Error != "" {
		fmt.Fprintf(w, "WRONG  %s\n", r.Error)
	}
	fmt.Fprintf(w, "\n%d kills and %d hangs in %.0f s (store %s, journal %s, seed %d)\n", r.Kills, r.Hangs, r.Seconds, r.Store, r.Journal, r.Seed)
	fmt.Fprintf(w, "completed %v, outcomes equal %v, prompts skipped %d, duplicated %d\n", r.Completed, r.DigestEqual, r.PromptsSkipped, r.PromptsDuplicated)
	fmt.Fprintf(w, "calls recorded %d, replayed %d, recorded and sampled again %d, sampled and not recorded %d\n",
		r.CallsRecorded, r.CallsReplayed, r.RecordedCallsSampledAgain, r.SampledUnrecorded)
	fmt.Fprintf(w, "samples replaced because nothing could be learned from them %d; judgments %d, recorded and asked for again %d, given and not recorded %d\n",
		r.PromptsFlat, r.Judgments, r.JudgedAgain, r.JudgmentsLost)
	if r.Reflections > 0 {
		fmt.Fprintf(w, "replies of the reflector %d, recorded and asked for again %d, given and not recorded %d\n", r.Reflections, r.ReflectedAgain, r.ReflectionsLost)
	}
	if r.PagesRead > 0 {
		fmt.Fprintf(w, "pages read %d\n", r.PagesRead)
	}
	if r.FilesChecked > 0 {
		fmt.Fprintf(w, "versions pruned %d; files of the others checked %d\n", r.VersionsPruned, r.FilesChecked)
	}
	for _, v := range r.Runs {
		if t := v.Traffic; t != nil {
			fmt.Fprintf(w, "%s: %d requests; replies that came %d, of them lost %d, on record more than once %d; on record and not received %d, without consent %d, sent again %d\n",
				v.Run, t.Requests, t.Replies, t.Lost, t.Doubled, t.Unreceived, t.Unrecorded, t.SentAgain)
			fmt.Fprintf(w, "%s: feedback accepted %d, of it known before %d; refused %d; used %d, by %d segments\n", v.Run, t.Accepted, t.Known, t.Refused, t.Used, t.Segments)
			if n := t.Promoted + t.Withdrawn + t.Undecided; n > 0 {
				fmt.Fprintf(w, "%s: experiments %d, of them promoted %d, withdrawn %d; conversations in them %d; replies redacted %d; requests of the forgotten user %d\n",
					v.Run, n, t.Promoted, t.Withdrawn, t.InExperiments, t.Redacted, t.Forgotten)
			}
		}
	}
	if r.MedianRecovery != nil {
		fmt.Fprintf(w, "from a kill to the next progress: median %.1f s, longest %.1f s\n", *r.MedianRecovery, *r.MaxRecovery)
	}
}

// medianAndMax returns the median and the maximum in seconds, or nil without times.
func medianAndMax(times []time.Duration) (median, longest *float64) {
	if len(times) == 0 {
		return nil, nil
	}
	sorted := slices.Sorted(slices.Values(times))
	n := len(sorted)
	m, l := (sorted[(n-1)/2]+sorted[n/2]).Seconds()/2, sorted[n-1].Seconds()
	return &m, &l
}

// machine describes what this runs on.
func machine() string {
	processor := runtime.GOARCH
	if file, err := os.Open("/proc/cpuinfo"); err == nil {
		defer func() { _ = file.Close() }()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			if name, value, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(name) == "model name" {
				processor = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%d × %s, %s, %s", runtime.NumCPU(), processor, runtime.GOOS, runtime.Version())
}

// evidence collects everything about a run.
func (s *suite) evidence(ctx context.Context, name string) (checker.Evidence, error) {
	e := checker.Evidence{
		Trained: map[int][]checker.Trained{}, Answers: s.answers(),
		Hangs: s.faultInjector.hangsOf(processes.Gateway, processes.Sampler), WorkerHangs: s.faultInjector.hangsOf(processes.CPU1, processes.CPU2),
	}
	err := s.retry(ctx, "read store", func(ctx context.Context) (err error) {
		e.Records, err = s.db.Records(ctx, name)
		return err
	})
	if err != nil {
		return e, err
	}
	err = s.retry(ctx, "read history", func(ctx context.Context) (err error) {
		e.History, err = s.readHistory(ctx, name, e.Records.Execution)
		if err == nil && !e.History.Completed {
			err = errors.New("it has not come to its end") // Temporal may be moments behind the store
		}
		return err
	})
	if err != nil {
		return e, err
	}
	for step, digest := range e.Records.Batches {
		if e.Trained[step], err = checker.ReadBatch(s.fleet.Blobs, digest); err != nil {
			return e, err
		}
	}
	e.Generations, err = s.generations()
	return e, err
}

// generations reads the sampler's log.
func (s *suite) generations() ([]checker.Generation, error) {
	log, err := os.Open(s.fleet.Generations)
	if err != nil {
		return nil, fmt.Errorf("open the sampler's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	return checker.ReadGenerations(log)
}

// answers returns the judge's answers so far.
func (s *suite) answers() []checker.Answer {
	var out []checker.Answer
	for _, a := range s.judgeServer.Answers() {
		out = append(out, checker.Answer(a))
	}
	return out
}

// readHistory reads a run's history, execution after execution.
func (s *suite) readHistory(ctx context.Context, name, execution string) (checker.History, error) {
	var all [][]*history.HistoryEvent
	for execution != "" {
		var events []*history.HistoryEvent
		next := ""
		for it := s.temporal.GetWorkflowHistory(ctx, name, execution, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); it.HasNext(); {
			e, err := it.Next()
			if err != nil {
				return checker.History{}, err
			}
			next = e.GetWorkflowExecutionContinuedAsNewEventAttributes().GetNewExecutionRunId()
			events = append(events, e)
		}
		all, execution = append(all, events), next
	}
	return checker.ReadHistory(all...)
}

// productReport is the part of the output of `fulgurite report RUN --json` that can be
// compared with the checker's figures. In this report a prompt is a task with all its
// samples.
type productReport struct {
	Prompts struct {
		Issued      int `json:"issued"`
		Refills     int `json:"refills"`
		Quarantined int `json:"quarantined"`
		Flat        int `json:"flat_samples"`
		Trained     int `json:"trained"`
		Skipped     int `json:"skipped"`
		Duplicated  int `json:"duplicated"`
	} `json:"prompts"`
	Attempts struct {
		Total int `json:"total"`
		Calls struct {
			Recorded int `json:"recorded"`
			Sampled  int `json:"sampled"`
			Replayed int `json:"replayed"`
		} `json:"calls"`
	} `json:"attempts"`
}

// compareProduct lists where the product's own report differs from the findings. The
// command exits with 1 if it finds fault itself.
func (s *suite) compareProduct(ctx context.Context, e checker.Evidence, f checker.Findings) ([]string, error) {
	var a productReport
	sound := true
	err := s.retry(ctx, "ask the product for its report", func(ctx context.Context) error {
		command := exec.CommandContext(ctx, filepath.Join(s.bin, "fulgurite"), "report", f.Run, "--json", "--store", s.fleet.Store, "--blobs", s.fleet.Blobs)
		out, err := command.Output()
		var exit *exec.ExitError
		if errors.As(err, &exit) && json.Valid(out) {
			sound, err = false, nil
		}
		if err != nil {
			if exit != nil {
				return fmt.Errorf("%w: %s", err, exit.Stderr)
			}
			return err
		}
		return json.Unmarshal(out, &a)
	})
	if err != nil {
		return nil, err
	}
	return a.differences(e, f, sound), nil
}

// differences lists the figures that differ.
func (a productReport) differences(e checker.Evidence, f checker.Findings, sound bool) []string {
	var out []string
	for _, figure := range []struct {
		name             string
		product, checker int
	}{
		{"prompts issued", a.Prompts.Issued * e.Records.Samples, f.Prompts},
		{"prompts quarantined", a.Prompts.Quarantined, len(e.Records.Quarantined)},
		{"prompts replaced because they were flat", a.Prompts.Flat, f.PromptsFlat},
		{"prompts skipped", a.Prompts.Skipped, f.PromptsSkipped},
		{"prompts duplicated", a.Prompts.Duplicated, f.PromptsDuplicated},
		{"attempts", a.Attempts.Total, f.Attempts},
		{"calls recorded", a.Attempts.Calls.Recorded, f.CallsRecorded + f.CallsReplayed},
		{"calls sampled", a.Attempts.Calls.Sampled, f.CallsRecorded},
		{"calls replayed", a.Attempts.Calls.Replayed, f.CallsReplayed},
	} {
		if figure.product != figure.checker {
			out = append(out, fmt.Sprintf("%s of %s: the product reports %d, the evidence says %d", figure.name, f.Run, figure.product, figure.checker))
		}
	}
	if !sound && len(f.Wrong) == 0 {
		out = append(out, fmt.Sprintf("the product finds fault with %s, the evidence does not", f.Run))
	}
	return out
}
