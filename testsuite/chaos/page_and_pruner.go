package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/testsuite/chaos/checker"
)

// pruneAfter is how long after the end of a run it may be pruned: it has been checked before.
const pruneAfter = 30 * time.Second

// prunes returns the command that prunes, if the suite has a pruner.
func (s *suite) prunes() []string {
	if !s.pruner {
		return nil
	}
	return s.pruneCommand(pruneAfter)
}

func (s *suite) pruneCommand(olderThan time.Duration) []string {
	return []string{
		filepath.Join(s.bin, "fulgurite"), "prune", "--weights", "--records", "--keep-last", "1", "--older-than", olderThan.String(), "--by", "chaos",
	}
}

// checkPruned prunes once more, and checks that the versions that runs need are there.
func (s *suite) checkPruned(ctx context.Context) error {
	command := append(s.pruneCommand(0), "--store", s.fleet.Store, "--blobs", s.fleet.Blobs)
	err := s.retry(ctx, "prune", func(ctx context.Context) error {
		out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	if err != nil {
		return err
	}
	var files checker.Files
	err = s.retry(ctx, "check files", func(ctx context.Context) (err error) {
		files, err = s.db.Files(ctx, s.fleet.Blobs)
		return err
	})
	s.report.VersionsPruned, s.report.FilesChecked = files.Pruned, files.Checked
	s.report.Wrong = append(s.report.Wrong, files.Wrong...)
	if err == nil && files.Pruned == 0 && s.compares() {
		s.report.Wrong = append(s.report.Wrong, "no version was pruned")
	}
	return err
}

// readPages reads pages of the run that was started last, again and again, until ctx ends. That
// the page does not answer for moments is no fault: it is killed.
func (s *suite) readPages(ctx context.Context) error {
	tick := time.NewTicker(3 * pollEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		run, _ := s.newest.Load().(string)
		path := []string{"/", "/runs/" + run, "/runs/" + run + "/steps", "/runs/" + run + "/versions"}[n%4]
		if _, err := s.readPage(ctx, path); err == nil {
			s.pagesRead.Add(1)
		}
	}
}

// readPage returns a page if it came whole.
func (s *suite) readPage(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.fleet.Page+path, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(response.Body)
	_ = response.Body.Close() // it was read
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return string(text), err
}

// checkPage checks that the page shows each run as completed.
func (s *suite) checkPage(ctx context.Context) error {
	for _, r := range s.report.Runs {
		err := s.retry(ctx, "read the page of run "+r.Run, func(ctx context.Context) error {
			text, err := s.readPage(ctx, "/runs/"+r.Run)
			if err == nil && !strings.Contains(text, "completed") {
				err = errors.New("it does not say that the run is completed")
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	if s.pagesRead.Load() == 0 {
		s.report.Wrong = append(s.report.Wrong, "no page was read")
	}
	return nil
}
