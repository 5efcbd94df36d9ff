package maze_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/examples/maze"
	"github.com/fulgurite/fulgurite/internal/golden"
)

func TestEveryWayCanBeGoneBack(t *testing.T) {
	t.Parallel()
	back := map[string]string{"n": "s", "s": "n", "e": "w", "w": "e"}
	ways := 0
	for _, cell := range []byte(maze.Cells) {
		for move, opposite := range back {
			if next := maze.Next(cell, move); next != cell {
				ways++
				require.Equal(t, cell, maze.Next(next, opposite), "from %c %s", cell, move)
			}
		}
		require.Equal(t, cell, maze.Next(cell, "no move"))
	}
	require.Equal(t, 2*(12-4), ways, "a grid of 3×3 has 12 ways, and 4 walls")
}

func TestEveryTaskCanBeSolvedInTime(t *testing.T) {
	t.Parallel()
	longest := 0
	for _, task := range pairs() {
		d := maze.Distance(task[0], task[1])
		require.Positive(t, d, task)
		longest = max(longest, d)
	}
	require.LessOrEqual(t, longest, maze.MaxMoves)
	require.Equal(t, 6, longest)
}

func TestARandomWalkRarelyArrives(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	arrived, walks := 0, 0
	for range 100 {
		for _, task := range pairs() {
			at := task[0]
			for range maze.MaxMoves {
				if at != task[1] {
					at = maze.Next(at, string(maze.Moves[random.IntN(4)]))
				}
			}
			walks++
			if at == task[1] {
				arrived++
			}
		}
	}
	require.InDelta(t, 0.1, float64(arrived)/float64(walks), 0.01)
}

// pairs returns all tasks: the pairs of a cell and a goal that is at least two moves
// away.
func pairs() []string {
	var out []string
	for _, from := range []byte(maze.Cells) {
		for _, to := range []byte(maze.Goals) {
			if from != to && maze.Distance(from, to) >= 2 {
				out = append(out, string([]byte{from, to}))
			}
		}
	}
	return out
}

func TestFilesAreWhatTheMazeSays(t *testing.T) {
	t.Parallel()
	tasks := pairs()
	random := rand.New(rand.NewPCG(3, 4))
	random.Shuffle(len(tasks), func(i, j int) { tasks[i], tasks[j] = tasks[j], tasks[i] })
	const gate, test = 4, 4
	files := map[string][]byte{
		"gate.jsonl": lines(tasks[:gate]), "test.jsonl": lines(tasks[gate : gate+test]), "train.jsonl": lines(tasks[gate+test:]),
		"demonstrations.jsonl": demonstrations(random),
	}
	for name, want := range files {
		if golden.Updating() {
			require.NoError(t, os.WriteFile(name, want, 0o644))
		}
		got, err := os.ReadFile(name)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got), "go test ./examples/maze -update writes %s anew", name)
	}
}

func lines(tasks []string) []byte {
	var b bytes.Buffer
	for _, task := range tasks {
		fmt.Fprintf(&b, "{\"id\": %q, \"input\": %q, \"answer\": %q}\n", task, task, task[1:])
	}
	return b.Bytes()
}

// demonstrations returns dialogs that teach only the form of a reply: every state, with a
// move that was drawn at random.
func demonstrations(random *rand.Rand) []byte {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	var b bytes.Buffer
	for _, at := range maze.Cells {
		for _, goal := range maze.Goals {
			for _, move := range strings.Split(maze.Moves, "") {
				if at == goal || random.IntN(4) == 0 {
					continue
				}
				line, _ := json.Marshal(map[string][]message{"messages": {{"user", string([]rune{at, goal})}, {"assistant", move}}})
				b.Write(append(line, '\n'))
			}
		}
	}
	return b.Bytes()
}
