package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

//go:embed trainer.py
var script []byte

// trl makes TRL do the steps in its own process, with its own choice of threads.
func trl(ctx context.Context, w work, python, dir string) error {
	file := filepath.Join(dir, "trainer.py")
	if err := os.WriteFile(file, script, 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, python, file, w.base, w.problems, dir,
		strconv.Itoa(w.steps), strconv.Itoa(w.tasks), strconv.Itoa(w.samples), strconv.Itoa(w.tokens), strconv.Itoa(w.rank))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	n := 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var one struct {
			Seconds, Reward float64
			Resident, Peak  int64
		}
		if json.Unmarshal(lines.Bytes(), &one) != nil || one.Seconds == 0 {
			continue // a line that a library printed
		}
		n++
		step{seconds: one.Seconds, reward: one.Reward, resident: one.Resident, peak: one.Peak}.print(w.side("trl"), n)
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("trl: %w", err)
	}
	return nil
}
