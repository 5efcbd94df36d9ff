package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/term"

	"github.com/fulgurite/fulgurite/internal/chart"
	"github.com/fulgurite/fulgurite/internal/stack"
)

// cli is the command line.
type cli struct {
	Shared shared `embed:""`

	Demo      demoCommand      `cmd:"" help:"Train a tool-using calculator agent, from nothing to a promoted version."`
	Dev       devCommand       `cmd:"" help:"Keep Temporal, store, gateway and workers up in this process."`
	Temporal  temporalCommand  `cmd:"" help:"Keep the embedded Temporal server up alone, for the processes of a fleet."`
	Train     trainCommand     `cmd:"" help:"Start the run of a spec and follow it."`
	Plan      planCommand      `cmd:"" help:"Print what a spec will run, without starting anything."`
	Try       tryCommand       `cmd:"" help:"Run a few tasks of a spec and show every call, token and reward."`
	Status    statusCommand    `cmd:"" help:"Show where a run stands."`
	Runs      runsCommand      `cmd:"" help:"List the runs."`
	Report    reportCommand    `cmd:"" help:"Account for every prompt, attempt and promotion of a run."`
	Calls     callsCommand     `cmd:"" help:"Show the model calls of an attempt: who made them, and what became of them."`
	Credit    creditCommand    `cmd:"" help:"Compare ways to assign credit on the rollouts of a step."`
	Versions  versionsCommand  `cmd:"" help:"List a run's versions, and how the promoted one changed."`
	Rollback  rollbackCommand  `cmd:"" help:"Promote an earlier version again."`
	Pin       pinCommand       `cmd:"" help:"Promote a version and hold it against the run's own promotions."`
	Unpin     unpinCommand     `cmd:"" help:"Let the run promote versions again."`
	Approve   approveCommand   `cmd:"" help:"Let the version that waits for approval be promoted."`
	Reject    rejectCommand    `cmd:"" help:"Refuse the version that waits for approval."`
	Pause     pauseCommand     `cmd:"" help:"Let a run finish the steps that have begun, and begin no other."`
	Resume    resumeCommand    `cmd:"" help:"Let a paused run go on."`
	Stop      stopCommand      `cmd:"" help:"End a run after the steps that have begun."`
	Retry     retryCommand     `cmd:"" help:"Let a run go on that failed or was ended, once the cause is mended."`
	Set       setCommand       `cmd:"" help:"Give keys of a run's spec other numbers, from the next step on."`
	Chat      chatCommand      `cmd:"" help:"Ask a version something, through the run's own agent."`
	Export    exportCommand    `cmd:"" help:"Write a version as a Hugging Face directory."`
	Data      dataCommand      `cmd:"" help:"Write what a run was trained on as JSONL or Parquet, for other trainers."`
	WarmStart warmStartCommand `cmd:"" help:"Make the warm start of a spec alone, as a Hugging Face directory."`
	Schema    schemaCommand    `cmd:"" help:"Print the JSON Schema of specs."`
}

// shared are the flags of every command.
type shared struct {
	Dir     string `help:"Directory of all state." default:".fulgurite" env:"FULGURITE_DIR" type:"path"`
	Verbose bool   `help:"Log what the parts do to standard error." short:"v"`
}

func (s *shared) layout() stack.Layout { return stack.Layout(s.Dir) }

// flag is what another command needs to find the directory.
func (s *shared) flag() string {
	if usual, err := filepath.Abs(".fulgurite"); err == nil && s.Dir == usual {
		return ""
	}
	return " --dir " + s.Dir
}

// logger writes errors for people, or everything with --verbose. Once ctx is
// done, what is cut off complains, which is no news to who ended it.
func (s *shared) logger(ctx context.Context, w io.Writer) *zap.Logger {
	enabled := zap.LevelEnablerFunc(func(l zapcore.Level) bool {
		return s.Verbose && l >= zapcore.InfoLevel || l >= zapcore.ErrorLevel && ctx.Err() == nil
	})
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig()), zapcore.AddSync(w), enabled))
}

// serverLogger is for the embedded Temporal server: silent unless --verbose.
func (s *shared) serverLogger(ctx context.Context, w io.Writer) *zap.Logger {
	if !s.Verbose {
		return nil
	}
	return s.logger(ctx, w).Named("temporal")
}

// terminal is where a command writes.
type terminal struct {
	out, err io.Writer
	tty      bool
	style    chart.Style
}

func newTerminal(out, err *os.File) *terminal {
	return &terminal{out: out, err: err, style: chart.StyleOf(out, os.Getenv), tty: term.IsTerminal(int(out.Fd()))}
}

func (t *terminal) printf(format string, args ...any) { fmt.Fprintf(t.out, format, args...) }

// json prints v indented.
func (t *terminal) json(v any) error {
	e := json.NewEncoder(t.out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// writeJSON writes v to a file that is whole or absent.
func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return replaceFile(path, append(data, '\n'))
}

func replaceFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	part := path + ".part"
	if err := os.WriteFile(part, data, 0o644); err != nil {
		return err
	}
	return os.Rename(part, path)
}
