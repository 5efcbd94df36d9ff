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
