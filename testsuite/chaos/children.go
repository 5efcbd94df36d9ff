package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// children are the processes that a process has started, as /proc tells.
func children(pid int) []int {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || pid == 0 {
		return nil
	}
	var out []int
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state parent …, where the name may hold anything.
		_, rest, _ := strings.Cut(string(text)[strings.LastIndexByte(string(text), ')')+1:], " ")
		fields := strings.Fields(rest)
		if len(fields) < 2 || fields[1] != strconv.Itoa(pid) {
			continue
		}
		if child, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			out = append(out, child)
		}
	}
	return out
}
