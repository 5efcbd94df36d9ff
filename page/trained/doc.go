// Package trained reads out of the batch of a step what attempts, their calls and their
// tokens were trained on: advantages, the mask, and what the trainer's model thought of each
// token before it learned.
//
// It reads no store; a batch and scores are given to it, and it changes neither.
package trained
