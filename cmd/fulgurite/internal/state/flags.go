// Package state manages the directory that holds everything durable: the flags that
// choose it, the addresses of the stack that runs on it, the connection to its Temporal
// server, its records, and its free disk space.
package state

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/internal/stack"
)

// Flags are the flags that every command has.
type Flags struct {
	Dir     string `help:"Directory of all state." default:".fulgurite" env:"FULGURITE_DIR" type:"path"`
	Verbose bool   `help:"Log what the parts do to standard error." short:"v"`
}

// Layout returns the layout of the directory.
func (s *Flags) Layout() stack.Layout { return stack.Layout(s.Dir) }

// DirFlag returns the flag by which another command finds the directory.
func (s *Flags) DirFlag() string {
	if usual, err := filepath.Abs(".fulgurite"); err == nil && s.Dir == usual {
		return ""
	}
	return " --dir " + shell.Quote(s.Dir)
}

// Logger returns a logger that writes errors, or with --verbose also information. Without
// --verbose it writes nothing once ctx is done: errors of interrupted work are expected
// then.
func (s *Flags) Logger(ctx context.Context, w io.Writer) *zap.Logger {
	enabled := zap.LevelEnablerFunc(func(l zapcore.Level) bool {
		return s.Verbose && l >= zapcore.InfoLevel || l >= zapcore.ErrorLevel && ctx.Err() == nil
	})
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig()), zapcore.AddSync(w), enabled))
}

// ServerLogger returns the logger of the embedded Temporal server. It is nil, which means
// silent, unless --verbose is given.
func (s *Flags) ServerLogger(ctx context.Context, w io.Writer) *zap.Logger {
	if !s.Verbose {
		return nil
	}
	return s.Logger(ctx, w).Named("temporal")
}

// WriteJSON writes v to a file that is whole or absent.
func WriteJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return ReplaceFile(path, append(data, '\n'))
}

// ReplaceFile writes a file, and makes its directory if there is none. A reader never
// sees a part of the file.
func ReplaceFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	part := path + ".part"
	if err := os.WriteFile(part, data, 0o644); err != nil {
		return err
	}
	return os.Rename(part, path)
}
