// Package dataset hands the training data of a run to trainers of others, as JSONL
// or Parquet files: a transition for each model call, or the merged sequences of
// each batch, with token ids, log-probabilities, loss masks, rewards and advantages.
//
// It reads what is on record and computes nothing anew: masks and advantages are those
// of the batch that was trained, forms and names of agents those of its calls. Rows come step by step, in the order of
// the batch, so that a run of any length fits into memory and equal runs give equal
// files. docs/formats.md describes the columns.
package dataset
