// Package progress shows a person the progress of a training: on a terminal with moving
// bars, elsewhere with one line per finished step.
//
// It is not a source of truth and holds no logic of a run. Its callers report what they
// see, as often as they like; reporting the same thing twice changes nothing. Errors of
// writing are ignored, since a training must not end because a terminal was closed.
//
// Guarantees: methods may be called from any goroutine, even after Close. Without a
// terminal, no control character is written. On a terminal, what Println writes stays
// above the bars.
package progress

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
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

// Search reports how many rollouts of its budget a search for prompts has spent.
func (d *Display) Search(spent, budget int) {
	d.count("search", spent, budget)
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

// sparks are the characters for the height of a reward relative to earlier ones.
const sparks = "▁▂▃▄▅▆▇█"

// barWidth is the length of a bar in characters.
const barWidth = 40

// bars draws a display on a terminal, several times a second.
type bars struct {
	// shown is read while drawing, by goroutines that must not wait for the display,
	// since the display waits for them.
	shown              atomic.Pointer[state]
	progress           *mpb.Progress
	steps, work, trend *mpb.Bar
}

func newBars(w io.Writer) *bars {
	// Automatic refresh also for a terminal that is not a file, as in a recording.
	b := &bars{progress: mpb.New(mpb.WithOutput(w), mpb.WithAutoRefresh(), mpb.WithWidth(barWidth))}
	b.shown.Store(&state{})
	show := func(text func(state) string) decor.Decorator {
		return decor.Any(func(decor.Statistics) string { return text(*b.shown.Load()) })
	}
	style := mpb.BarStyle().Lbound("").Rbound("").Filler("█").Tip("█").Padding("░")
	bar := func(name func(state) string, done func(state) string, after func(state) string) *mpb.Bar {
		// Without a total, a bar never completes by itself; the next work restarts it.
		return b.progress.New(0, style,
			mpb.PrependDecorators(show(func(s state) string { return fmt.Sprintf("  %-11s%9s ", name(s), done(s)) })),
			mpb.AppendDecorators(show(after)))
	}
	b.steps = bar(
		func(state) string { return "step" },
		func(s state) string { return fraction(s.step, s.steps) }, state.pace)
	b.work = bar(
		func(s state) string { return s.work },
		func(s state) string { return fraction(s.done, s.total) },
		func(s state) string {
			if s.speed == "" {
				return ""
			}
			return " " + s.speed
		})
	b.trend = b.progress.New(0, mpb.NopStyle(), mpb.PrependDecorators(show(state.trend)))
	return b
}

// set moves the bars.
func (b *bars) set(s state) {
	b.shown.Store(&s)
	// A step counts when it is finished.
	move(b.steps, max(s.step-1, s.rewardStep, 0), s.steps)
	move(b.work, s.done, s.total)
}

func move(bar *mpb.Bar, done, total int) {
	bar.SetTotal(int64(total), false)
	bar.SetCurrent(int64(min(done, total)))
}

// write puts text above the bars.
func (b *bars) write(text string) {
	_, _ = io.WriteString(b.progress, text) // see the package's comment
}

// close draws once more and stops drawing. When all steps are finished, the bar of the
// current work is removed.
func (b *bars) close() {
	s := b.shown.Load()
	b.steps.Abort(false)
	b.work.Abort(s.steps > 0 && s.rewardStep >= s.steps)
	b.trend.Abort(false)
	b.progress.Wait()
}

func fraction(done, total int) string {
	if total == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", done, total)
}

// pace returns how long the rest of the run will take.
func (s state) pace() string {
	left := s.remaining(time.Now())
	if left < time.Second {
		return ""
	}
	return fmt.Sprintf(" %s left", left.Round(time.Second))
}

// trend returns the last reward and a sparkline of the rewards so far.
func (s state) trend() string {
	if len(s.rewards) == 0 {
		return fmt.Sprintf("  %-11s", "reward")
	}
	return fmt.Sprintf("  %-11s%9.3f  %s", "reward", s.rewards[len(s.rewards)-1], sparkline(s.rewards, barWidth))
}

// sparkline draws the last width values, the lowest and the highest of all at
// the ends of the scale.
func sparkline(values []float64, width int) string {
	low, high := values[0], values[0]
	for _, v := range values {
		low, high = min(low, v), max(high, v)
	}
	levels := []rune(sparks)
	var b strings.Builder
	for _, v := range values[max(len(values)-width, 0):] {
		level := 0
		if high > low {
			level = int((v - low) / (high - low) * float64(len(levels)-1))
		}
		b.WriteRune(levels[min(max(level, 0), len(levels)-1)])
	}
	return b.String()
}

// Transfer shows how many bytes of something long are done. Without a terminal it shows
// nothing.
type Transfer struct {
	progress *mpb.Progress
	bar      *mpb.Bar
	total    int64
}

// NewTransfer starts to show a transfer with the given name.
func NewTransfer(w io.Writer, isTTY bool, name string) *Transfer {
	t := &Transfer{}
	if isTTY {
		t.progress = mpb.New(mpb.WithOutput(w), mpb.WithAutoRefresh(), mpb.WithWidth(barWidth))
		t.bar = t.progress.New(0, mpb.BarStyle().Lbound("").Rbound("").Filler("█").Tip("█").Padding("░"),
			mpb.PrependDecorators(decor.Name("  "+name+" "), decor.CountersKibiByte("% .1f of % .1f ")),
			mpb.AppendDecorators(decor.AverageSpeed(decor.SizeB1024(0), " % .1f"), decor.AverageETA(decor.ET_STYLE_GO, decor.WC{W: 8})))
	}
	return t
}

// Set sets how many bytes are done.
func (t *Transfer) Set(done, total int64) {
	if t.bar == nil {
		return
	}
	if total != t.total {
		t.total = total
		t.bar.SetTotal(total, false)
	}
	t.bar.SetCurrent(done)
}

// Close draws once more and ends the drawing.
func (t *Transfer) Close() {
	if t.bar != nil {
		t.bar.Abort(false)
		t.progress.Wait()
	}
}
