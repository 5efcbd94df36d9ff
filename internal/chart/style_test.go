//go:build linux

package chart_test

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/chart"
	"github.com/fulgurite/fulgurite/internal/ptytest"
)

func TestStyleFollowsTerminalAndEnvironment(t *testing.T) {
	t.Parallel()
	_, wide := ptytest.Open(t, 200, 50)
	_, small := ptytest.Open(t, 64, 16)
	file, err := os.Create(t.TempDir() + "/log")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	for name, c := range map[string]struct {
		file        *os.File
		environment map[string]string
		want        chart.Style
	}{
		"terminal":           {wide, map[string]string{"LANG": "C.UTF-8"}, chart.Style{Width: 100, Height: 20, Unicode: true, Colour: true}},
		"small terminal":     {small, map[string]string{"LANG": "de_DE.utf8"}, chart.Style{Width: 64, Height: 12, Unicode: true, Colour: true}},
		"no colour":          {wide, map[string]string{"LANG": "C.UTF-8", "NO_COLOR": "1"}, chart.Style{Width: 100, Height: 20, Unicode: true}},
		"dumb":               {wide, map[string]string{"LANG": "C.UTF-8", "TERM": "dumb"}, chart.Style{Width: 100, Height: 20}},
		"locale overridden":  {wide, map[string]string{"LANG": "C.UTF-8", "LC_ALL": "C"}, chart.Style{Width: 100, Height: 20, Colour: true}},
		"file":               {file, map[string]string{"LC_CTYPE": "C.UTF-8"}, chart.Style{Unicode: true}},
		"file, bare machine": {file, nil, chart.Style{}},
	} {
		got := chart.StyleOf(c.file, func(name string) string { return c.environment[name] })
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: want -, got +\n%s", name, diff)
		}
	}
}
