//go:build linux

package progress_test

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/progress"
	"github.com/fulgurite/fulgurite/internal/ptytest"
)

// watch returns a function that returns everything that the terminal received until it
// was closed.
func watch(screen io.Reader) func() (string, error) {
	type result struct {
		text string
		err  error
	}
	seen := make(chan result, 1)
	go func() {
		text, err := io.ReadAll(screen)
		if errors.Is(err, syscall.EIO) { // a terminal returns this once all writers have closed it
			err = nil
		}
		seen <- result{string(text), err}
	}()
	return func() (string, error) {
		r := <-seen
		return r.text, r.err
	}
}

func TestOnATerminalBarsShowTheLastState(t *testing.T) {
	t.Parallel()
	screen, tty := ptytest.Open(t, 100, 30)
	seen := watch(screen)
	d := progress.New(tty, true)
	showTwoSteps(d)
	d.Close()
	d.Println("after the bars")
	require.NoError(t, tty.Close())
	text, err := seen()
	require.NoError(t, err)

	lines := strings.Split(emulate(t, text), "\n")
	require.Equal(t, []string{"a run of 2 steps", "done"}, lines[:2], "lines stay above the bars")
	require.Len(t, lines, 5, "when all is done no work is shown")
	for i, want := range []string{
		`^  step +2/2 +█{40}$`,
		`^  reward +0\.500  ▁█$`,
		`^after the bars$`,
	} {
		require.Regexp(t, want, lines[i+2])
	}
}

func TestWorkUnderWayHasOneBar(t *testing.T) {
	t.Parallel()
	for want, show := range map[string]func(*progress.Display){
		`^  rollouts +4/8  █{20}░{20}$`:    func(d *progress.Display) { d.Rollouts(4, 8) },
		`^  evaluation +8/16  █{20}░{20}$`: func(d *progress.Display) { d.Evaluation(8, 16) },
		`^  warm start +10/2000  ░{40}$`:   func(d *progress.Display) { d.WarmStart(10, 2000) },
		`^  update +░{40}$`:                func(d *progress.Display) { d.Phase("update") },
	} {
		screen, tty := ptytest.Open(t, 100, 30)
		seen := watch(screen)
		d := progress.New(tty, true)
		d.Step(1, 2)
		d.Evaluation(3, 4)
		show(d)
		d.Close()
		require.NoError(t, tty.Close())
		text, err := seen()
		require.NoError(t, err)
		lines := strings.Split(emulate(t, text), "\n")
		require.Len(t, lines, 3)
		require.Regexp(t, `^  step +1/2  ░{40}$`, lines[0])
		require.Regexp(t, want, lines[1])
		require.Regexp(t, `^  reward$`, lines[2])
	}
}

func TestBarsFitANarrowTerminal(t *testing.T) {
	t.Parallel()
	screen, tty := ptytest.Open(t, 40, 10)
	seen := watch(screen)
	d := progress.New(tty, true)
	showTwoSteps(d)
	d.Close()
	require.NoError(t, tty.Close())
	text, err := seen()
	require.NoError(t, err)
	for _, line := range strings.Split(emulate(t, text), "\n") {
		require.LessOrEqual(t, len([]rune(line)), 40, line)
	}
}

// emulate implements as much of a terminal as the bars need: lines, "up n lines" and
// "clear to the end of the screen".
func emulate(t *testing.T, text string) string {
	t.Helper()
	lines := []string{""}
	row := 0
	for len(text) > 0 {
		switch {
		case strings.HasPrefix(text, "\r\n"):
			row++
			if row == len(lines) {
				lines = append(lines, "")
			}
			text = text[2:]
		case text[0] == '\r':
			text = text[1:]
		case text[0] == '\x1b':
			var up int
			rest, ok := strings.CutPrefix(text, "\x1b[")
			require.True(t, ok, "%q", text[:min(len(text), 10)])
			for rest[0] >= '0' && rest[0] <= '9' {
				up, rest = up*10+int(rest[0]-'0'), rest[1:]
			}
			switch rest[0] {
			case 'A':
				row -= up
			case 'J':
				lines = append(lines[:row], "")
			default:
				t.Fatalf("unknown sequence %q", text[:min(len(text), 10)])
			}
			text = rest[1:]
		default:
			end := strings.IndexAny(text, "\r\x1b")
			if end < 0 {
				end = len(text)
			}
			lines[row] += text[:end]
			text = text[end:]
		}
	}
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}
