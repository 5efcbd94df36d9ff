package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/run/archive"
)

const tinyRun = `name: tiny
model: {base: base}
agent: {func: calculator}
tasks: {train: "arithmetic:train:8"}
grader: {type: exact}
training: {steps: 1, tasks_per_step: 2, samples_per_task: 2}
`

// docs/retention.md says that the Web UI of Temporal imports the files of `fulgurite histories`.
func TestBrowserImportsAHistoryIntoTheWebUIOfTemporal(t *testing.T) {
	t.Setenv("TEMPORAL_ADDRESS", "")
	if os.Getenv("FULGURITE_BROWSER") == "" {
		t.Skip("FULGURITE_BROWSER does not name a browser: `make page` does")
	}
	dir := t.TempDir()
	servePage(t, dir, "dev", "--page-port", "0", "--gateway-port", "0")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "base"), 0o755))
	require.NoError(t, unpack(filepath.Join(dir, "base")))
	spec, files := filepath.Join(dir, "tiny.yaml"), filepath.Join(dir, "histories")
	require.NoError(t, os.WriteFile(spec, []byte(tinyRun), 0o600))
	for _, command := range [][]string{{"train", spec, "--dir", dir}, {"histories", "tiny", files, "--dir", dir}} {
		require.Zero(t, run(t.Context(), command, &terminal.Terminal{Out: os.Stderr, Err: os.Stderr}))
	}
	text, err := os.ReadFile(filepath.Join(files, archive.ManifestFile))
	require.NoError(t, err)
	var m archive.Manifest
	require.NoError(t, json.Unmarshal(text, &m))
	at, err := (&state.Flags{Dir: dir}).Addresses()
	require.NoError(t, err)
	b, imported := openTab(t, at.UI), 0
	for _, h := range m.Histories {
		if h.Type != "TrainingWorkflow" {
			continue
		}
		imported++
		b.do(chromedp.EmulateViewport(1280, 900), chromedp.Navigate(at.UI+"/import/events"),
			chromedp.SetUploadFiles(chromedp.CSS("input[type=file]"), []string{filepath.Join(files, h.File)}),
			chromedp.Click(`//button[normalize-space()="Import"]`), chromedp.WaitVisible(`//*[contains(text(), "Workflow Execution Started")]`))
		shown := b.text("main")
		require.Contains(t, shown, "PrepareRun", "an activity of the run")
		require.Contains(t, shown, "Workflow Execution Completed")
		if folder := os.Getenv("FULGURITE_SCREENSHOTS"); folder != "" {
			picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(folder, "imported-history.png"), picture, 0o644))
		}
	}
	require.Equal(t, 1, imported)
}
