package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/testsuite/chaos/processes"
)

// printSum adds up the reports in some files, and prints the sums as two tables in Markdown.
func printSum(files []string, w io.Writer) error {
	if len(files) == 0 {
		return errors.New("name the files that -json has written")
	}
	var all []report
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("read a report: %w", err)
		}
		var r report
		if err := json.Unmarshal(data, &r); err != nil {
			return fmt.Errorf("read the report %s: %w", name, err)
		}
		all = append(all, r)
	}
	sum := sumOf(all)
	fmt.Fprintf(w, "| | |\n| --- | ---: |\n")
	for _, row := range []struct {
		name   string
		figure any
	}{
		{"executions of the suite", len(all)},
		{"kills (SIGKILL)", sum.Kills},
		{"hangs (SIGSTOP)", sum.Hangs},
		{"hours", fmt.Sprintf("%.1f", sum.Seconds/3600)},
		{"runs", len(sum.Runs)},
		{"runs that completed", sum.count(func(r runResult) bool { return r.Completed })},
		{"runs with other weights, answers or winner than without faults", sum.count(func(r runResult) bool { return !r.DigestEqual })},
		{"prompts skipped", sum.PromptsSkipped},
		{"prompts duplicated", sum.PromptsDuplicated},
		{"calls recorded by sampling", sum.CallsRecorded},
		{"calls answered from the record of an earlier attempt", sum.CallsReplayed},
		{"recorded calls sampled again", sum.RecordedCallsSampledAgain},
		{"calls sampled and lost before their commit", sum.SampledUnrecorded - sum.unrecorded()},
		{"calls sampled and not on record in conversations, where one client of three does not consent", sum.unrecorded()},
		{"judgments on record; asked for again", fmt.Sprintf("%d; %d", sum.Judgments, sum.JudgedAgain)},
		{"replies of a reflector on record; asked for again", fmt.Sprintf("%d; %d", sum.Reflections, sum.ReflectedAgain)},
		{"pages read", sum.PagesRead},
		{"versions pruned", sum.VersionsPruned},
		{"files of versions that nothing may remove: whole", sum.FilesChecked},
		{"anything else that the checker found wrong", len(sum.wrong())},
	} {
		fmt.Fprintf(w, "| %s | %v |\n", row.name, row.figure)
	}
	fmt.Fprintf(w, "\n| process | kills | hangs | seconds to the next progress: median of the medians of the executions | longest |\n| --- | ---: | ---: | ---: | ---: |\n")
	for _, role := range roleOrder {
		one, ok := sum.ByRole[role]
		if !ok {
			continue
		}
		fmt.Fprintf(w, "| %s | %d | %d | %s | %s |\n", role, one.Kills, one.Hangs, seconds(one.Median), seconds(one.Max))
	}
	for _, line := range sum.wrong() {
		fmt.Fprintln(w, "WRONG ", line)
	}
	return nil
}

// roleOrder is the order of roles in a table.
var roleOrder = []processes.Role{
	processes.Gateway, processes.Gateway2, processes.Sampler, processes.CPU1, processes.CPU2, processes.GPU, processes.Temporal, processes.Postgres,
	processes.Page, processes.Pruner,
}

// sumOf adds up reports. The median of a role is that of the medians of the reports.
func sumOf(all []report) report {
	sum := report{ByRole: map[processes.Role]recovery{}}
	medians := map[processes.Role][]float64{}
	for _, r := range all {
		sum.Kills, sum.Hangs, sum.Seconds = sum.Kills+r.Kills, sum.Hangs+r.Hangs, sum.Seconds+r.Seconds
		sum.PromptsSkipped, sum.PromptsDuplicated = sum.PromptsSkipped+r.PromptsSkipped, sum.PromptsDuplicated+r.PromptsDuplicated
		sum.RecordedCallsSampledAgain += r.RecordedCallsSampledAgain
		sum.SampledUnrecorded, sum.CallsRecorded, sum.CallsReplayed = sum.SampledUnrecorded+r.SampledUnrecorded, sum.CallsRecorded+r.CallsRecorded, sum.CallsReplayed+r.CallsReplayed
		sum.Judgments, sum.JudgedAgain = sum.Judgments+r.Judgments, sum.JudgedAgain+r.JudgedAgain
		sum.Reflections, sum.ReflectedAgain = sum.Reflections+r.Reflections, sum.ReflectedAgain+r.ReflectedAgain
		sum.PagesRead, sum.VersionsPruned, sum.FilesChecked = sum.PagesRead+r.PagesRead, sum.VersionsPruned+r.VersionsPruned, sum.FilesChecked+r.FilesChecked
		sum.Runs = append(sum.Runs, r.Runs...)
		sum.Wrong = append(sum.Wrong, r.Wrong...)
		if r.Error != "" {
			sum.Wrong = append(sum.Wrong, fmt.Sprintf("seed %d, %s: %s", r.Seed, r.Store, r.Error))
		}
		for role, one := range r.ByRole {
			total := sum.ByRole[role]
			total.Kills, total.Hangs = total.Kills+one.Kills, total.Hangs+one.Hangs
			if one.Median != nil {
				medians[role] = append(medians[role], *one.Median)
			}
			if one.Max != nil && (total.Max == nil || *one.Max > *total.Max) {
				total.Max = one.Max
			}
			sum.ByRole[role] = total
		}
	}
	for role, list := range medians {
		slices.Sort(list)
		middle := (list[(len(list)-1)/2] + list[len(list)/2]) / 2
		one := sum.ByRole[role]
		one.Median = &middle
		sum.ByRole[role] = one
	}
	return sum
}

// count returns how many runs are so.
func (r *report) count(so func(runResult) bool) int {
	n := 0
	for _, one := range r.Runs {
		if so(one) {
			n++
		}
	}
	return n
}

// unrecorded returns how many calls of runs that learn from conversations were sampled and are
// not on record: those of clients that do not consent, and those that were lost.
func (r *report) unrecorded() int {
	n := 0
	for _, one := range r.Runs {
		if one.Traffic != nil {
			n += one.SampledUnrecorded
		}
	}
	return n
}

// wrong lists what is wrong besides the figures.
func (r *report) wrong() []string {
	lines := slices.Clone(r.Wrong)
	for _, one := range r.Runs {
		lines = append(lines, slices.Concat(one.Wrong, one.Disagreements)...)
	}
	for i, line := range lines {
		lines[i] = strings.ReplaceAll(line, "\n", " ")
	}
	return lines
}

func seconds(s *float64) string {
	if s == nil {
		return "–"
	}
	return fmt.Sprintf("%.1f", *s)
}
