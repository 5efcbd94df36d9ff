package progress

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Display shows one training.
type Display struct {
	mu    sync.Mutex
	out   io.Writer
	bars  *bars // nil without a terminal
	state state
}

// state is the latest state that the display received.
type state struct {
	work        string // the current work
	done, total int    // of the work; total is 0 if it can't be counted
	step, steps int
	rollouts    int       // how many a step has
	rewards     []float64 // in the order of steps
	rewardStep  int       // of the last reward; 0 before the first
	speed       string    // speed of the work, as text
	said        time.Time // when the last line was written, without a terminal
	firstStep   int
	began       time.Time // of firstStep
}

// New returns a display that writes to w. On a terminal it has to be closed.
func New(w io.Writer, isTTY bool) *Display {
	d := &Display{out: w}
	if isTTY {
		d.bars = newBars(w)
	}
	return d
}

// Step reports that step n of total, counted from 1, is running; 0 means the time before
// the first step.
func (d *Display) Step(n, total int) {
	d.change(func(s *state) {
		if s.began.IsZero() && n > 0 {
			s.firstStep, s.began = n, time.Now()
		}
		s.step, s.steps = n, total
	})
}

// WarmStart reports how many updates of the warm start are made.
func (d *Display) WarmStart(done, total int) {
	d.count("warm start", done, total)
	d.change(d.remind)
}

// Rollouts reports how many of the step's rollouts are finished.
func (d *Display) Rollouts(done, total int) {
	d.change(func(s *state) { s.rollouts = total })
	d.count("rollouts", done, total)
}

// Evaluation reports how many rollouts of the evaluation are finished.
func (d *Display) Evaluation(done, total int) {
	d.count("evaluation", done, total)
	d.change(d.remind)
}

// Phase names the current work, if it can't be counted.
func (d *Display) Phase(name string) { d.count(name, 0, 0) }

func (d *Display) count(work string, done, total int) {
	d.change(func(s *state) {
		if s.work != work {
			s.speed = ""
		}
		s.work, s.done, s.total = work, done, total
	})
}

// quiet is how long a display without a terminal says nothing.
const quiet = 30 * time.Second

// Pace sets a text that is shown after the current work: how fast it is and when it will
// be finished.
func (d *Display) Pace(text string) {
	d.change(func(s *state) {
		s.speed = text
		if text != "" {
			d.remind(s)
		}
	})
}

// remind writes a line from time to time, without a terminal, about work that takes long.
func (d *Display) remind(s *state) {
	switch {
	case d.bars != nil:
	case s.said.IsZero():
		s.said = time.Now()
	case time.Since(s.said) >= quiet:
		s.said = time.Now()
		d.line(s.underWay())
	}
}

// Reward reports the mean reward of a step's rollouts. For the display this finishes the
// step. If there are several rewards for one step, only the first is shown.
func (d *Display) Reward(step int, mean float64) {
	d.change(func(s *state) {
		if step <= s.rewardStep {
			return
		}
		s.rewardStep, s.rewards = step, append(s.rewards, mean)
		if d.bars == nil {
			d.line(s.finished(step, mean))
			s.said = time.Now()
		}
	})
}

// Println writes a separate line, formatted as by fmt.Sprintln.
func (d *Display) Println(arguments ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.line(fmt.Sprintln(arguments...))
}

// Close leaves the bars as they are and releases the terminal; later calls write plain
// lines. It may be called twice.
func (d *Display) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bars != nil {
		d.bars.close()
		d.bars = nil
	}
}

func (d *Display) change(what func(*state)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	what(&d.state)
	if d.bars != nil {
		d.bars.set(d.state)
	}
}

// line writes text, which ends in a line feed, above the bars.
func (d *Display) line(text string) {
	if d.bars != nil {
		d.bars.write(text)
		return
	}
	_, _ = io.WriteString(d.out, text) // see the package's comment
}

// finished returns the line for a finished step, which is written without a terminal.
func (s *state) finished(step int, mean float64) string {
	text := fmt.Sprintf("step %d", step)
	if s.steps > 0 {
		text += fmt.Sprintf("/%d", s.steps)
	}
	text += fmt.Sprintf("  reward %.3f", mean)
	if s.rollouts > 0 {
		text += fmt.Sprintf("  rollouts %d", s.rollouts)
	}
	return text + "\n"
}

// underWay returns the line for work that takes long.
func (s *state) underWay() string {
	text := s.work
	if s.step > 0 {
		text = fmt.Sprintf("step %s  %s", fraction(s.step, s.steps), s.work)
	}
	if s.total > 0 {
		text += " " + fraction(s.done, s.total)
	}
	if s.speed != "" {
		text += "  " + s.speed
	}
	return text + "\n"
}

// remaining returns how long the remaining steps take if they take as long as those that
// this display has seen. It returns 0 if it has seen none or none remain.
func (s *state) remaining(now time.Time) time.Duration {
	seen := s.step - s.firstStep
	if s.began.IsZero() || seen < 1 || s.rewardStep >= s.steps {
		return 0
	}
	return now.Sub(s.began) / time.Duration(seen) * time.Duration(s.steps-s.step+1)
}
