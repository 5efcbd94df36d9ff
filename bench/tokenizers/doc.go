// Command tokenizers measures how fast texts are tokenized on one thread.
// bench/tokenizers/run measures it and the reference implementation in turns, on the same
// texts.
package main
