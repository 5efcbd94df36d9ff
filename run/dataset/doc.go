// Package dataset exports the training data of a run for other trainers, as JSONL or
// Parquet files: a transition for each model call, or the merged sequences of each batch,
// with token ids, log-probabilities, loss masks, rewards and advantages.
//
// The package reads what is on record. Masks and advantages are those of the batch that
// was trained; forms and names of agents are those of its calls. It computes one number
// again, the shaped reward, which no record has.
// Rows are written step by step, in the order of the batch, so that a run of any length
// fits into memory and equal runs give equal files. docs/formats.md describes the
// columns.
package dataset
