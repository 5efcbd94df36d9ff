// Command durability measures what it costs that a run survives faults. It runs the same
// training with a whole fleet in two ways: with store, blobs and Temporal on a disk,
// where every commit waits for a sync, and in memory, where a sync costs nothing. The two
// kinds of run alternate, so that both see the same machine. It prints the ratio of their
// times, as a geometric mean over pairs with a 95 % interval.
//
//	make build && go run ./bench/durability -pairs 6
//
// It does not measure the cost of writing itself, because a fleet without records could
// not run. Package gateway measures how much of a call is recording. The agent does not
// think and the model is tiny, so the share in a real training is smaller.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"

	"github.com/fulgurite/fulgurite/bench/interval"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "durability:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	pairs := flag.Int("pairs", 6, "how many pairs of fleets; each makes two runs")
	bin := flag.String("bin", "bin", "directory of the commands")
	disk := flag.String("disk", os.TempDir(), "directory on a disk")
	memory := flag.String("memory", "/dev/shm", "directory in memory")
	flag.Parse()
	work, err := os.MkdirTemp("", "durability-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	b := bench{bin: *bin, chaos: filepath.Join(work, "chaos")}
	build := exec.CommandContext(ctx, "go", "build", "-o", b.chaos, "./testsuite/chaos")
	build.Env, build.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build chaos: %w", err)
	}
	var ratios []float64
	for i := range *pairs {
		// Pairs alternate which of the two comes first.
		where := []string{*disk, *memory}
		took := map[string]float64{}
		for j := range where {
			at := where[(i+j)%2]
			if took[at], err = b.seconds(ctx, at); err != nil {
				return err
			}
		}
		ratios = append(ratios, took[*disk]/took[*memory])
		fmt.Printf("pair %d: %.2f s on disk, %.2f s in memory\n", i+1, took[*disk], took[*memory])
	}
	mean, low, high := interval.Geometric(ratios)
	fmt.Printf("ratio %s, 95 %% interval %s to %s, %d pairs\n", digits(mean), digits(low), digits(high), len(ratios))
	return nil
}

func digits(x float64) string { return strconv.FormatFloat(x, 'f', 3, 64) }

// bench runs fleets without faults.
type bench struct{ bin, chaos string }

// seconds runs a fleet in a directory below below, and returns the mean time of its two
// runs.
func (b bench) seconds(ctx context.Context, below string) (float64, error) {
	dir, err := os.MkdirTemp(below, "durability-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "report.json")
	command := exec.CommandContext(ctx, b.chaos, "-kills", "0", "-detect=false", "-store", "sqlite", "-thought", "0s",
		"-bin", b.bin, "-dir", filepath.Join(dir, "fleet"), "-json", file)
	if out, err := command.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("run a fleet: %w: %s", err, out)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	var report struct {
		Runs []struct {
			Seconds float64 `json:"seconds"`
		} `json:"runs"`
	}
	if err := json.Unmarshal(data, &report); err != nil {
		return 0, fmt.Errorf("read report: %w", err)
	}
	sum := 0.0
	for _, r := range report.Runs {
		sum += r.Seconds
	}
	return sum / float64(len(report.Runs)), nil
}
