package dataset_test

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/dataset"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/store/blob"
)

// compactCodecs knows the codec of the built-in model.
type compactCodecs struct{}

func (compactCodecs) Named(name string) (dialog.Codec, error) { return dialog.Named(name) }

// The texts of the feedback.
const (
	asks   = "2 + 2"
	better = "It is 4."
	worse  = "5"
)

// feedbackRun returns a run with a batch without rows at step 1 and one of the rows that make
// returns at step 2, and the digest of that one.
func feedbackRun(t *testing.T, rows func(prompt, better, worse []int32) []model.BatchRow) (s dataset.Source, digest string) {
	t.Helper()
	ctx, codec := t.Context(), dialog.Compact()
	db, err := store.Open(ctx, filepath.Join(t.TempDir(), "store.db"), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, db.Migrate(ctx))
	blobs, err := blob.Open(t.TempDir())
	require.NoError(t, err)
	_, _, err = db.CreateRun(ctx, record.Run{Name: "live", WorkflowID: "live", ExecutionID: "x", Spec: []byte(`{"model":{"codec":"compact"}}`), Status: record.Running})
	require.NoError(t, err)
	prompt, err := codec.Prompt([]dialog.Message{{Role: dialog.User, Content: asks}}, nil)
	require.NoError(t, err)
	reply := func(text string) []int32 { return append(codec.Encode(text), codec.Stop()[0]) }
	for step, rows := range [][]model.BatchRow{nil, rows(prompt, reply(better), reply(worse))} {
		b := model.Batch{Policy: "main", Step: step + 1, VocabSize: codec.VocabSize(), Rows: rows}
		for i := range 2 * min(1, len(rows)) {
			b.Trajectories = append(b.Trajectories, model.BatchTrajectory{Attempt: record.ConversationAddress("live", i).String()})
		}
		b.Count()
		file, err := hf.EncodeBatch(b)
		require.NoError(t, err)
		digest, err = blobs.Put(ctx, file)
		require.NoError(t, err)
		_, _, err = db.PutBatch(ctx, record.Batch{Run: "live", Policy: "main", Step: step + 1, Digest: digest, Sequences: len(rows)})
		require.NoError(t, err)
	}
	return dataset.Source{Store: db, Blobs: blobs, Codecs: compactCodecs{}, Run: "live", Policy: "main"}, digest
}

func corrected(prompt, better, _ []int32) []model.BatchRow {
	return []model.BatchRow{model.SupervisedRow(prompt, better, 1)}
}

func preferred(prompt, better, worse []int32) []model.BatchRow {
	rows := model.PreferenceRows(prompt, better, worse, 7, 0, 1)
	return []model.BatchRow{rows[1], rows[0]}
}

func TestCorrectedTextsAreWrittenWithTheirPrompts(t *testing.T) {
	t.Parallel()
	source, digest := feedbackRun(t, corrected)
	codec := dialog.Compact()
	for _, extension := range []string{".jsonl", ".parquet"} {
		path := filepath.Join(t.TempDir(), "out"+extension)
		n, err := dataset.WriteFile(t.Context(), path, source.Corrections)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		got := readBack[dataset.Correction](t, path)[0]
		require.Equal(t, codec.Text(got.PromptIDs), got.Prompt)
		require.Contains(t, got.Prompt, asks)
		require.Empty(t, cmp.Diff(dataset.Correction{
			Run: "live", Step: 2, Conversation: "live/served-0/1/0/1", Batch: digest, Objective: "supervised",
			Prompt: got.Prompt, Completion: codec.Text(append(codec.Encode(better), codec.Stop()[0])),
			PromptIDs: got.PromptIDs, CompletionIDs: append(codec.Encode(better), codec.Stop()[0]),
		}, got), extension)
	}
}

func TestPairsAreWrittenAsChosenAndRejected(t *testing.T) {
	t.Parallel()
	source, digest := feedbackRun(t, preferred)
	codec := dialog.Compact()
	for _, extension := range []string{".jsonl", ".parquet"} {
		path := filepath.Join(t.TempDir(), "out"+extension)
		n, err := dataset.WriteFile(t.Context(), path, source.Pairs)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		got := readBack[dataset.Pair](t, path)[0]
		require.Contains(t, got.Prompt, asks)
		chosen, rejected := append(codec.Encode(better), codec.Stop()[0]), append(codec.Encode(worse), codec.Stop()[0])
		require.Empty(t, cmp.Diff(dataset.Pair{
			Run: "live", Step: 2, ChosenConversation: "live/served-0/0/0/1", RejectedConversation: "live/served-0/1/0/1", Batch: digest,
			Objective: "preference", Prompt: codec.Text(got.PromptIDs), Chosen: codec.Text(chosen), Rejected: codec.Text(rejected),
			PromptIDs: got.PromptIDs, ChosenIDs: chosen, RejectedIDs: rejected,
		}, got), extension)
	}
}

// Readers of a Parquet file find columns by name.
func TestColumnsOfPairsHaveTheNamesOfPreferenceData(t *testing.T) {
	t.Parallel()
	var names []string
	for _, f := range parquet.SchemaOf(dataset.Pair{}).Fields() {
		names = append(names, f.Name())
	}
	for _, want := range []string{"prompt", "chosen", "rejected", "prompt_ids", "chosen_ids", "rejected_ids", "objective"} {
		require.Contains(t, names, want)
	}
}

func TestRowsOfAnotherKindAreRefusedWithThoseThatThereAre(t *testing.T) {
	t.Parallel()
	transitions := func(s dataset.Source) error {
		return s.Transitions(t.Context(), func(dataset.Transition) error { return nil })
	}
	sequences := func(s dataset.Source) error {
		return s.Sequences(t.Context(), func(dataset.Sequence) error { return nil })
	}
	corrections := func(s dataset.Source) error {
		return s.Corrections(t.Context(), func(dataset.Correction) error { return nil })
	}
	pairs := func(s dataset.Source) error { return s.Pairs(t.Context(), func(dataset.Pair) error { return nil }) }
	texts, digest := feedbackRun(t, corrected)
	preferences, _ := feedbackRun(t, preferred)
	for _, one := range []struct {
		source dataset.Source
		write  func(dataset.Source) error
		want   string
	}{
		{texts, transitions, "batch of step 2 (" + digest + ") has no such rows: they are corrected texts; give --rows corrections"},
		{texts, sequences, "give --rows corrections"},
		{texts, pairs, "give --rows corrections"},
		{preferences, transitions, "they are preferences; give --rows pairs"},
		{preferences, corrections, "give --rows pairs"},
		{demo(t), corrections, "they are replies that were sampled; give --rows transitions or sequences"},
		{demo(t), pairs, "give --rows transitions or sequences"},
	} {
		err := one.write(one.source)
		require.ErrorIs(t, err, dataset.ErrRows)
		require.ErrorContains(t, err, one.want)
	}
}

func TestTheObjectiveOfARunSaysWhatItsRowsAre(t *testing.T) {
	t.Parallel()
	require.Equal(t, dataset.RowsTransitions, dataset.Rows(spec.Spec{}))
	for objective, want := range map[string]string{
		spec.ObjectiveReward: dataset.RowsTransitions, spec.ObjectiveSupervised: dataset.RowsCorrections, spec.ObjectivePreference: dataset.RowsPairs,
	} {
		require.Equal(t, want, dataset.Rows(spec.Spec{Traffic: &spec.Traffic{Train: &spec.TrafficTraining{Objective: objective}}}))
	}
}
