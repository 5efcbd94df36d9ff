// Package trained reads from the batch of a step what attempts, their calls and their
// tokens were trained on: advantages, the mask, and the log-probability and entropy that
// the trainer's model gave each token before it learned.
//
// It reads no store. It gets a batch and scores, and changes neither.
package trained
