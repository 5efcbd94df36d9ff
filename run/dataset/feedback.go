package dataset

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/spec"
)

// ErrRows is wrapped when the rows of a batch are not of the kind that was asked for.
var ErrRows = errors.New("has no such rows")

// The kinds of rows that a run may have been trained on, as the command names them.
const (
	RowsTransitions = "transitions"
	RowsSequences   = "sequences"
	RowsCorrections = "corrections"
	RowsPairs       = "pairs"
)

// Rows returns the kind of rows that has all of what a run of the spec was trained on.
func Rows(s spec.Spec) string {
	if s.FromTraffic() {
		switch s.Traffic.Train.Objective {
		case spec.ObjectiveSupervised:
			return RowsCorrections
		case spec.ObjectivePreference:
			return RowsPairs
		}
	}
	return RowsTransitions
}

// checkRows returns an error if the rows of a batch are of another objective. A batch without
// rows has none.
func checkRows(b model.Batch, want model.RowObjective) error {
	if of := b.Objective(); len(b.Rows) > 0 && of != want {
		switch of {
		case model.Supervised:
			return fmt.Errorf("%w: they are corrected texts; give --rows %s", ErrRows, RowsCorrections)
		case model.Preference:
			return fmt.Errorf("%w: they are preferences; give --rows %s", ErrRows, RowsPairs)
		default:
			return fmt.Errorf("%w: they are replies that were sampled; give --rows %s or %s", ErrRows, RowsTransitions, RowsSequences)
		}
	}
	return nil
}

// Correction is a prompt and the text with which somebody corrected the reply to it. The
// text was not sampled: it has no log-probabilities and no advantage.
type Correction struct {
	Run          string `json:"run" parquet:"run,dict"`
	Step         int    `json:"step" parquet:"step"`
	Conversation string `json:"conversation" parquet:"conversation"` // address of the conversation
	Batch        string `json:"batch" parquet:"batch,dict"`          // digest of the batch's blob
	Objective    string `json:"objective" parquet:"objective,dict"`  // "supervised"

	// Prompt and Completion are the texts of the tokens, special tokens by their names.
	Prompt        string  `json:"prompt" parquet:"prompt"`
	Completion    string  `json:"completion" parquet:"completion"`
	PromptIDs     []int32 `json:"prompt_ids" parquet:"prompt_ids"`
	CompletionIDs []int32 `json:"completion_ids" parquet:"completion_ids"`
}

// Pair is a prompt with two replies, of which somebody preferred one to the other.
type Pair struct {
	Run                  string `json:"run" parquet:"run,dict"`
	Step                 int    `json:"step" parquet:"step"`
	ChosenConversation   string `json:"chosen_conversation" parquet:"chosen_conversation"` // address
	RejectedConversation string `json:"rejected_conversation" parquet:"rejected_conversation"`
	Batch                string `json:"batch" parquet:"batch,dict"`
	Objective            string `json:"objective" parquet:"objective,dict"` // "preference"

	// The texts are those of the tokens, special tokens by their names.
	Prompt      string  `json:"prompt" parquet:"prompt"`
	Chosen      string  `json:"chosen" parquet:"chosen"`
	Rejected    string  `json:"rejected" parquet:"rejected"`
	PromptIDs   []int32 `json:"prompt_ids" parquet:"prompt_ids"`
	ChosenIDs   []int32 `json:"chosen_ids" parquet:"chosen_ids"`
	RejectedIDs []int32 `json:"rejected_ids" parquet:"rejected_ids"`
}

// Corrections calls yield with each row of each batch. The batches have corrected texts.
func (s Source) Corrections(ctx context.Context, yield func(Correction) error) error {
	return s.feedback(ctx, model.Supervised, func(digest string, b model.Batch, codec dialog.Codec) error {
		for i, r := range b.Rows {
			prompt, completion, err := parts(r)
			if err != nil {
				return fmt.Errorf("row %d: %w", i, err)
			}
			err = yield(Correction{
				Run: s.Run, Step: b.Step, Conversation: b.Trajectories[r.Trajectory].Attempt, Batch: digest, Objective: string(model.Supervised),
				Prompt: codec.Text(prompt), Completion: codec.Text(completion), PromptIDs: prompt, CompletionIDs: completion,
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Pairs calls yield with each pair of rows of each batch, in the order of their first halves.
// The batches have preferences.
func (s Source) Pairs(ctx context.Context, yield func(Pair) error) error {
	return s.feedback(ctx, model.Preference, func(digest string, b model.Batch, codec dialog.Codec) error {
		all := make([]int, len(b.Rows))
		for i := range all {
			all[i] = i
		}
		pairs, err := b.Pairs(all)
		if err != nil {
			return err
		}
		for _, p := range pairs {
			better, worse := b.Rows[p.Chosen], b.Rows[p.Rejected]
			prompt, chosen, err := parts(better)
			if err != nil {
				return fmt.Errorf("row %d: %w", p.Chosen, err)
			}
			_, rejected, err := parts(worse)
			if err != nil {
				return fmt.Errorf("row %d: %w", p.Rejected, err)
			}
			err = yield(Pair{
				Run: s.Run, Step: b.Step, ChosenConversation: b.Trajectories[better.Trajectory].Attempt,
				RejectedConversation: b.Trajectories[worse.Trajectory].Attempt, Batch: digest, Objective: string(model.Preference),
				Prompt: codec.Text(prompt), Chosen: codec.Text(chosen), Rejected: codec.Text(rejected),
				PromptIDs: prompt, ChosenIDs: chosen, RejectedIDs: rejected,
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// feedback calls use with each batch that has rows, after it checked that they are of the
// objective.
func (s Source) feedback(ctx context.Context, objective model.RowObjective, use func(digest string, b model.Batch, codec dialog.Codec) error) error {
	return s.batches(ctx, objective, func(digest string, b model.Batch, of spec.Spec) error {
		if len(b.Rows) == 0 {
			return nil
		}
		codec, err := s.Codecs.Named(of.Model.Codec)
		if err != nil {
			return fmt.Errorf("read the codec of run %s: %w", s.Run, err)
		}
		return use(digest, b, codec)
	})
}

// parts divides the tokens of a row of feedback at the first one that is trained. All after
// it must be trained, as in every batch that a segment makes.
func parts(r model.BatchRow) (prompt, completion []int32, err error) {
	begin := slices.Index(r.Sampled, true)
	if begin < 0 || slices.Contains(r.Sampled[begin:], false) {
		return nil, nil, errors.New("its trained tokens are not the end of the row, so they are no completion")
	}
	return r.Tokens[:begin], r.Tokens[begin:], nil
}
