package tensorboard_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/track"
	"github.com/fulgurite/fulgurite/run/track/tensorboard"
	"github.com/fulgurite/fulgurite/store"
)

var begun = time.Unix(1_700_000_000, 0).UTC()

func demo() record.Run { return record.Run{Name: "demo", Created: begun} }

// open opens the file of the run in dir and closes it at the test's end.
func open(t testing.TB, dir string) *tensorboard.Writer {
	t.Helper()
	w, err := tensorboard.Open(dir, demo())
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.Close() }) // some tests have closed it
	return w
}

// shown is a value or text as a reader of an event file sees it.
type shown struct {
	Time   float64
	Step   int
	Tag    string
	Number float32
	Text   string
	Plugin string
}

// message is a decoded message of protocol buffers: the values of each field.
type message map[int][]any

func decode(t testing.TB, data []byte) message {
	t.Helper()
	m := message{}
	for len(data) > 0 {
		key, n := binary.Uvarint(data)
		require.Positive(t, n)
		data = data[n:]
		field := int(key >> 3)
		switch key & 7 {
		case 0:
			v, n := binary.Uvarint(data)
			require.Positive(t, n)
			m[field], data = append(m[field], v), data[n:]
		case 1:
			m[field], data = append(m[field], binary.LittleEndian.Uint64(data)), data[8:]
		case 2:
			size, n := binary.Uvarint(data)
			require.Positive(t, n)
			m[field], data = append(m[field], data[n:n+int(size)]), data[n+int(size):]
		case 5:
			m[field], data = append(m[field], binary.LittleEndian.Uint32(data)), data[4:]
		default:
			require.FailNow(t, "unknown wire type")
		}
	}
	return m
}

func (m message) text(field int) string {
	if len(m[field]) == 0 {
		return ""
	}
	return string(m[field][0].([]byte))
}

// checksum is the masked CRC-32C, bit by bit.
func checksum(data []byte) uint32 {
	crc := ^uint32(0)
	for _, b := range data {
		crc ^= uint32(b)
		for range 8 {
			low := crc & 1
			crc >>= 1
			if low == 1 {
				crc ^= 0x82f63b78
			}
		}
	}
	crc = ^crc
	return (crc>>15 | crc<<17) + 0xa282ead8
}

// records splits an event file, and fails the test if it is not whole.
func records(t testing.TB, data []byte) (out [][]byte) {
	t.Helper()
	for len(data) > 0 {
		size := binary.LittleEndian.Uint64(data)
		require.Equal(t, checksum(data[:8]), binary.LittleEndian.Uint32(data[8:]))
		require.Equal(t, checksum(data[12:12+size]), binary.LittleEndian.Uint32(data[12+size:]))
		out, data = append(out, data[12:12+size]), data[16+size:]
	}
	return out
}

// show reads an event file.
func show(t testing.TB, data []byte) (out []shown) {
	t.Helper()
	all := records(t, data)
	require.Equal(t, "brain.Event:2", decode(t, all[0]).text(3))
	for _, r := range all[1:] {
		e := decode(t, r)
		step := 0
		if len(e[2]) > 0 {
			step = int(e[2][0].(uint64))
		}
		for _, v := range decode(t, e[5][0].([]byte))[1] {
			value := decode(t, v.([]byte))
			s := shown{Time: math.Float64frombits(e[1][0].(uint64)), Step: step, Tag: value.text(1)}
			if len(value[2]) > 0 {
				s.Number = math.Float32frombits(value[2][0].(uint32))
			} else {
				tensor := decode(t, value[8][0].([]byte))
				require.EqualValues(t, 7, tensor[1][0], "DT_STRING")
				s.Text = tensor.text(8)
				s.Plugin = decode(t, decode(t, value[9][0].([]byte))[1][0].([]byte)).text(1)
			}
			out = append(out, s)
		}
	}
	return out
}

// entries are those of testdata/write.py.
func entries() []track.Entry {
	return []track.Entry{
		{Step: 7, Time: begun.Add(1500 * time.Millisecond), Values: []track.Value{{Name: "reward", Number: 0.5}, {Name: "batch/rollouts", Number: 64}, {Name: "train/loss", Number: -0.0625}}},
		{Step: 7, Time: begun.Add(2 * time.Second), Values: []track.Value{{Name: "promoted/version", Number: 7}}, Texts: []track.Text{{Name: "promoted/reason", Text: "version 7 (gate): **better**"}}},
	}
}

func TestEventsAreThoseOfTensorBoardsOwnWriter(t *testing.T) {
	t.Parallel()
	theirs, err := os.ReadFile("testdata/events.tfevents")
	require.NoError(t, err)
	dir := t.TempDir()
	w := open(t, dir)
	require.NoError(t, w.Write(t.Context(), entries()))
	require.Equal(t, filepath.Join(dir, "demo", "events.out.tfevents.1700000000.fulgurite"), w.Path())
	ours, err := os.ReadFile(w.Path())
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(show(t, theirs), show(t, ours)))
	require.Equal(t, records(t, theirs)[1:], records(t, ours)[1:]) // the first has the time of writing and the writer
	require.Empty(t, cmp.Diff([]shown{
		{Time: 1_700_000_001.5, Step: 7, Tag: "reward", Number: 0.5},
		{Time: 1_700_000_001.5, Step: 7, Tag: "batch/rollouts", Number: 64},
		{Time: 1_700_000_001.5, Step: 7, Tag: "train/loss", Number: -0.0625},
		{Time: 1_700_000_002, Step: 7, Tag: "promoted/version", Number: 7},
		{Time: 1_700_000_002, Step: 7, Tag: "promoted/reason", Text: "version 7 (gate): **better**", Plugin: "text"},
	}, show(t, ours)))
}

func TestAFileSaysWhichEntriesItHas(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	all := append([]track.Entry{
		{Time: begun, Spec: json.RawMessage(`{"training": {}}`)},
		{Time: begun, Values: []track.Value{{Name: "warm_start/loss", Number: 1}}},
		{Step: 7, Time: begun, Values: []track.Value{{Name: "evaluation/gate/mean", Number: 1}}},
	}, entries()...)
	w := open(t, dir)
	require.NoError(t, w.Write(t.Context(), all))
	written := w.Position()
	require.Equal(t, track.Position{
		Spec: true, Start: true, Step: 7, Moves: map[string]int{"main": 1}, Evaluations: []track.Evaluated{{Policy: "main", Kind: record.Gate, Version: 7}},
	}, written)
	require.NoError(t, w.Close())
	require.Equal(t, written, open(t, dir).Position())
}

// trained returns a store with the run "demo" of some steps.
func trained(t testing.TB, steps, metrics int) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "runs.db"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	_, _, err = s.CreateRun(t.Context(), record.Run{Name: "demo", Status: record.Running, Created: begun, Spec: json.RawMessage(`{}`)})
	require.NoError(t, err)
	at, previous := begun, -1
	for n := 1; n <= steps; n++ {
		at = at.Add(time.Second)
		values := map[string]float64{}
		for i := range metrics {
			values[fmt.Sprintf("train/metric_%d", i)] = float64(n) / float64(i+1)
		}
		require.NoError(t, s.PutStep(t.Context(), record.Step{Run: "demo", Policy: model.DefaultPolicy, Step: n, Metrics: values, At: at}))
		if n%5 == 0 {
			require.NoError(t, s.PutEvaluation(t.Context(), record.Evaluation{Run: "demo", Policy: model.DefaultPolicy, At: at, EvaluationResult: record.EvaluationResult{Kind: record.Gate, Version: n, Mean: 0.5}}))
			require.NoError(t, s.Promote(t.Context(), record.Promotion{Run: "demo", Policy: model.DefaultPolicy, DecisionID: fmt.Sprint(n), Version: n, Previous: previous, At: at}))
			previous = n
		}
	}
	return s
}

// write brings the file in dir up to date and returns its content.
func write(t testing.TB, s track.Store, dir string) []byte {
	t.Helper()
	w, err := tensorboard.Open(dir, demo())
	require.NoError(t, err)
	require.NoError(t, track.Follow(t.Context(), track.NewReader(s, "demo"), w, track.Options{}))
	require.NoError(t, w.Close())
	data, err := os.ReadFile(w.Path())
	require.NoError(t, err)
	return data
}

func TestAFileThatWasCutOrDamagedAnywhereBecomesTheSameAgain(t *testing.T) {
	t.Parallel()
	s := trained(t, 5, 2)
	want := write(t, s, t.TempDir())
	require.Len(t, show(t, want), 5*2+1+2+2)
	dir := t.TempDir()
	write(t, s, dir)
	path := filepath.Join(dir, "demo", "events.out.tfevents.1700000000.fulgurite")
	for at := 0; at < len(want); at += 1 + at/97 { // all bytes of the first records
		require.NoError(t, os.WriteFile(path, want[:at], 0o644))
		require.True(t, bytes.Equal(want, write(t, s, dir)), "cut after %d bytes", at)
		damaged := bytes.Clone(want)
		damaged[at] ^= 0x10
		require.NoError(t, os.WriteFile(path, damaged, 0o644))
		require.True(t, bytes.Equal(want, write(t, s, dir)), "byte %d damaged", at)
	}
	// After a loss of power a file may have its length, and nothing at its end.
	require.NoError(t, os.WriteFile(path, append(bytes.Clone(want[:len(want)/2]), make([]byte, 4096)...), 0o644))
	require.Equal(t, want, write(t, s, dir))
}

func TestALateStartAndAnyNumberOfStartsGiveEqualFiles(t *testing.T) {
	t.Parallel()
	s := trained(t, 12, 3)
	want := write(t, s, t.TempDir())
	dir := t.TempDir()
	all, err := track.NewReader(s, "demo").Read(t.Context(), track.Position{})
	require.NoError(t, err)
	for i, e := range all.Entries {
		w, err := tensorboard.Open(dir, demo())
		require.NoError(t, err)
		require.NoError(t, w.Write(t.Context(), []track.Entry{e}), "entry %d", i)
		require.NoError(t, w.Close())
	}
	require.Equal(t, want, write(t, s, dir))
}

func TestOneProcessWritesAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := open(t, dir)
	_, err := tensorboard.Open(dir, demo())
	require.ErrorIs(t, err, tensorboard.ErrBusy)
	require.ErrorContains(t, err, w.Path())
	require.NoError(t, w.Close())
	open(t, dir)
}

func TestTheFileOfAnotherRunWithTheNameIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := open(t, dir)
	_, err := tensorboard.Open(dir, record.Run{Name: "demo", Created: begun.Add(time.Hour)})
	require.ErrorContains(t, err, first.Path()+" is of another run with the same name: ")
	_, err = tensorboard.Open(dir, record.Run{Name: "demo-2", Created: begun.Add(time.Hour)})
	require.NoError(t, err)
}

func TestWhatCanNotBeWrittenIsAnError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := open(t, dir)
	require.NoError(t, os.Rename(w.Path(), filepath.Join(dir, "moved")))
	require.ErrorContains(t, w.Write(t.Context(), entries()), "write events: ")
	require.NoError(t, os.WriteFile(w.Path(), nil, 0o644))
	require.ErrorContains(t, w.Write(t.Context(), entries()), "was replaced: start again")
	require.Equal(t, track.Position{}, w.Position())

	other := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(other, "demo"), nil, 0o644))
	_, err := tensorboard.Open(other, demo())
	require.ErrorContains(t, err, "make a folder for event files: ")
}

// A run of 2,000 steps with 60 metrics, from the store to the end of the file.
func BenchmarkALateStart(b *testing.B) {
	s := trained(b, 2000, 60)
	for b.Loop() {
		b.StopTimer()
		dir := b.TempDir()
		b.StartTimer()
		data := write(b, s, dir)
		b.ReportMetric(float64(len(data)), "bytes")
	}
}

// What a follower does each time that there is a new step, after 2,000 of them.
func BenchmarkANewStep(b *testing.B) {
	s := trained(b, 2000, 60)
	w := open(b, b.TempDir())
	r := track.NewReader(s, "demo")
	require.NoError(b, track.Follow(b.Context(), r, w, track.Options{}))
	for n := 2001; b.Loop(); n++ {
		b.StopTimer()
		require.NoError(b, s.PutStep(b.Context(), record.Step{Run: "demo", Policy: model.DefaultPolicy, Step: n, Metrics: map[string]float64{"train/loss": 1}, At: begun.Add(time.Duration(n) * time.Second)}))
		b.StartTimer()
		require.NoError(b, track.Follow(b.Context(), r, w, track.Options{}))
	}
}

// Whatever a file has, opening and writing it makes a whole one, or is an error.
func FuzzAnyFileBecomesWhole(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 40))
	theirs, err := os.ReadFile("testdata/events.tfevents")
	require.NoError(f, err)
	f.Add(theirs)
	f.Add(theirs[:len(theirs)-3])
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		path := filepath.Join(dir, "demo", "events.out.tfevents.1700000000.fulgurite")
		require.NoError(t, os.Mkdir(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, data, 0o644))
		w, err := tensorboard.Open(dir, demo())
		if err != nil {
			return
		}
		defer func() { require.NoError(t, w.Close()) }()
		require.NoError(t, w.Write(t.Context(), entries()))
		written, err := os.ReadFile(path)
		require.NoError(t, err)
		all := records(t, written)
		require.GreaterOrEqual(t, len(all), 3)
	})
}
