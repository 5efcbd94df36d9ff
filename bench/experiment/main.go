// Command experiment measures the sequential test of experiments with simulated histories:
// users who are correlated with themselves, differ in how active they are, and judge late and
// in another order than that of their conversations. For several kinds of users it counts how
// often a difference is found although there is none, and how often a difference of 0.10 is
// found, within 2,000 conversations. The same histories go through three other tests for
// comparison.
//
//	go run ./bench/experiment -histories 10000
package main

import (
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/run/experiment"
)

// options are the command-line options.
type options struct {
	histories, conversations, every, workers int
	level, effect                            float64
}

func main() {
	var o options
	flag.IntVar(&o.histories, "histories", 10000, "histories of each kind of users, with and without a difference")
	flag.IntVar(&o.conversations, "conversations", 2000, "judged conversations of a history, and the limit of the experiment")
	flag.IntVar(&o.every, "every", 10, "outcomes between two looks")
	flag.IntVar(&o.workers, "workers", runtime.NumCPU(), "histories at once")
	flag.Float64Var(&o.level, "level", 0.05, "level of the test, two-sided")
	flag.Float64Var(&o.effect, "effect", 0.1, "the difference to find")
	only := flag.String("only", "", "the name of the only kind of users")
	flag.Parse()
	if err := run(o, *only); err != nil {
		fmt.Fprintln(os.Stderr, "experiment:", err)
		os.Exit(1)
	}
}

func run(o options, only string) error {
	began := time.Now()
	fmt.Printf("%d histories of %d conversations, a look every %d, level %g, allowed %.4f\n\n", o.histories, o.conversations, o.every, o.level, o.allowed())
	fmt.Println("| users | false alarms within 250, 500, 1,000 | all | mixture | mixture without users | single look | found | the wrong way | median conversations | found by mixture |")
	fmt.Println("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	for _, s := range scenarios() {
		if only != "" && only != s.name {
			continue
		}
		none, err := o.measure(s, 0)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		some, err := o.measure(s, o.effect)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		share := func(p float64) string { return fmt.Sprintf("%.4f ± %.4f", p, 1.96*stdError(p, o.histories)) }
		fmt.Printf("| %s | %.4f, %.4f, %.4f | %s | %s | %s | %s | %s | %d | %d | %s |\n", s.name, none.within(250), none.within(500), none.within(1000),
			share(none.within(o.conversations)), share(none.mixture), share(none.ignored), share(none.once),
			share(some.within(o.conversations)), some.wrong, some.median(), share(some.mixture))
	}
	fmt.Printf("\n%.0f s\n", time.Since(began).Seconds())
	return nil
}

// allowed is the level and three standard errors of a count of histories.
func (o options) allowed() float64 { return o.level + 3*stdError(o.level, o.histories) }

func stdError(share float64, n int) float64 { return math.Sqrt(share * (1 - share) / float64(n)) }

// counts are the counts of the histories of one kind of users.
type counts struct {
	histories int
	// found has, for each history with a difference that was found, the number of
	// conversations then.
	found []int
	wrong int // histories in which the worse version was found better
	// The shares of histories in which other tests find a difference.
	mixture, ignored, once float64
}

// within returns the share of histories in which a difference was found within so many
// conversations.
func (c counts) within(conversations int) float64 {
	n := 0
	for _, f := range c.found {
		if f <= conversations {
			n++
		}
	}
	return float64(n) / float64(c.histories)
}

// median returns the median of the conversations until a difference was found, of all
// histories, or 0 if it was found in less than half of them.
func (c counts) median() int {
	if 2*len(c.found) <= c.histories {
		return 0
	}
	slices.Sort(c.found)
	return c.found[c.histories/2]
}

// ending is how one history ends by each test: after how many conversations, or 0.
type ending struct {
	found, mixture, ignored, once int
	wrong                         bool
}

func (o options) measure(s scenario, effect float64) (counts, error) {
	endings := make([]ending, o.histories)
	var g errgroup.Group
	g.SetLimit(o.workers)
	for i := range endings {
		g.Go(func() (err error) {
			endings[i], err = o.follow(s, uint64(i), effect)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return counts{}, err
	}
	c := counts{histories: o.histories}
	share := 1 / float64(o.histories)
	for _, e := range endings {
		if e.found > 0 {
			c.found = append(c.found, e.found)
		}
		if e.wrong {
			c.wrong++
		}
		if e.mixture > 0 {
			c.mixture += share
		}
		if e.ignored > 0 {
			c.ignored += share
		}
		if e.once > 0 {
			c.once += share
		}
	}
	return c, nil
}

// follow looks at a history again and again.
func (o options) follow(s scenario, number uint64, effect float64) (e ending, err error) {
	settings := experiment.Settings{Share: s.share, Level: o.level, MinConversations: 1, MaxConversations: o.conversations}
	c, err := experiment.NewComparison(settings)
	if err != nil {
		return e, err
	}
	first := func(at *int, n int, found bool) {
		if found && *at == 0 {
			*at = n
		}
	}
	var squares [2]float64 // of the values of either version
	for i, outcome := range s.history(number, o.conversations, effect) {
		if err := c.Add(outcome); err != nil {
			return e, err
		}
		arm := 0
		if outcome.Candidate {
			arm = 1
		}
		squares[arm] += outcome.Value * outcome.Value
		n := i + 1
		if n%o.every != 0 {
			continue
		}
		r := c.Result()
		if e.found == 0 && r.Decision == experiment.Worse {
			e.wrong = true
		}
		first(&e.found, n, r.Decision != experiment.Undecided)
		if min(r.Control.EffectiveUnits, r.Candidate.EffectiveUnits) < experiment.MinUnits {
			continue
		}
		first(&e.mixture, n, mixture(settings, r, r.StdError))
		first(&e.ignored, n, mixture(settings, r, math.Sqrt(variance(r.Control, squares[0])+variance(r.Candidate, squares[1]))))
		first(&e.once, n, math.Abs(r.Difference) > 1.96*r.StdError)
		if e.found > 0 && e.mixture > 0 && e.ignored > 0 && e.once > 0 {
			break // all tests have ended
		}
	}
	return e, nil
}

// variance returns the variance of the mean of a version's values as if they were
// independent.
func variance(a experiment.Arm, squares float64) float64 {
	n := float64(a.Conversations)
	return (squares/n - a.Mean*a.Mean) / (n - 1)
}

// mixture reports whether the test with the boundary of a normal mixture, tuned to the limit
// of conversations, finds a difference with a given standard error (Robbins 1970; arXiv
// 2103.06476).
func mixture(s experiment.Settings, r experiment.Result, stdError float64) bool {
	one, zero := float64(r.Candidate.Conversations), float64(r.Control.Conversations)
	n := one * zero / (one + zero)
	q := n * n * stdError * stdError
	tuned := 0.4 * float64(s.MaxConversations) * s.Share * (1 - s.Share) / 10
	return n*math.Abs(r.Difference) >= math.Sqrt((q+tuned)*(2*math.Log(1/s.Level)+math.Log1p(q/tuned)))
}
