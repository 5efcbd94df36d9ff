// Command tokenizers measures how fast texts become tokens, on one thread. bench/tokenizers/run
// measures the reference implementation beside it, in one run on the same texts.
package main
