package progress

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// sparks are the heights of a reward among those before it.
const sparks = "▁▂▃▄▅▆▇█"

// bars draws a display on a terminal, several times a second.
type bars struct {
	// shown is read while drawing, by goroutines that must not wait for the
	// display: it waits for them.
	shown                              atomic.Pointer[state]
	progress                           *mpb.Progress
	steps, rollouts, evaluation, trend *mpb.Bar
}

func newBars(w io.Writer) *bars {
	// Automatic refresh also for a terminal that is not a file, as in a recording.
	b := &bars{progress: mpb.New(mpb.WithOutput(w), mpb.WithAutoRefresh(), mpb.WithWidth(40))}
	b.shown.Store(&state{})
	show := func(text func(state) string) decor.Decorator {
		return decor.Any(func(decor.Statistics) string { return text(*b.shown.Load()) })
	}
	style := mpb.BarStyle().Lbound("").Rbound("").Filler("█").Tip("█").Padding("░")
	bar := func(name string, count, after func(state) string) *mpb.Bar {
		// Without a total a bar never completes by itself: the next step starts it anew.
		return b.progress.New(0, style,
			mpb.PrependDecorators(show(func(s state) string { return fmt.Sprintf("  %-11s%9s ", name, count(s)) })),
			mpb.AppendDecorators(show(after)))
	}
	nothing := func(state) string { return "" }
	b.steps = bar("step", func(s state) string { return fraction(s.step, s.steps) }, state.pace)
	b.rollouts = bar("rollouts", func(s state) string { return fraction(s.rollouts, s.wanted) }, nothing)
	b.evaluation = bar("evaluation", func(s state) string { return fraction(s.evaluated, s.toCheck) }, nothing)
	b.trend = b.progress.New(0, mpb.NopStyle(), mpb.PrependDecorators(show(state.trend)))
	return b
}

// set moves the bars.
func (b *bars) set(s state) {
	b.shown.Store(&s)
	// A step counts when it is over.
	move(b.steps, max(s.step-1, s.rewardStep, 0), s.steps)
	move(b.rollouts, s.rollouts, s.wanted)
	move(b.evaluation, s.evaluated, s.toCheck)
}

func move(bar *mpb.Bar, done, total int) {
	bar.SetTotal(int64(total), false)
	bar.SetCurrent(int64(min(done, total)))
}

// write puts text above the bars.
func (b *bars) write(text string) {
	_, _ = io.WriteString(b.progress, text) // see the package's comment
}

// close draws once more and ends the drawing.
func (b *bars) close() {
	for _, bar := range []*mpb.Bar{b.steps, b.rollouts, b.evaluation, b.trend} {
		bar.Abort(false)
	}
	b.progress.Wait()
}

func fraction(done, total int) string {
	if total == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", done, total)
}

// pace is what the run does and how long it will take.
func (s state) pace() string {
	text := ""
	if s.phase != "" {
		text = " " + s.phase
	}
	if left := s.remaining(time.Now()); left >= time.Second {
		text += fmt.Sprintf(" · %s left", left.Round(time.Second))
	}
	return text
}

// trend is the last reward and the course of the last ones.
func (s state) trend() string {
	if len(s.rewards) == 0 {
		return fmt.Sprintf("  %-11s", "reward")
	}
	return fmt.Sprintf("  %-11s%9.3f %s", "reward", s.rewards[len(s.rewards)-1], sparkline(s.rewards, 32))
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
